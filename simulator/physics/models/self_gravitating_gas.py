"""Compressible gas with its own gravity, isothermal or polytropic."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.models import fields as specs
from simulator.physics.models.density import by_axis, center, center_velocity, density_power, faces
from simulator.physics.models.fields import DerivedField, Fields
from simulator.physics.models.flow import tail_fraction
from simulator.physics.models.fluid import advection_rate, curl_fields, transfer
from simulator.physics.models.model import Balance, Model
from simulator.settings import AxisVector, Integer, NonNegative, Positive, Real, Settings
from simulator.spectral import Layout, Local, Points, Transform, arrays, operators
from simulator.spectral.bins import shell_spectra
from simulator.spectral.grid import AXES
from simulator.spectral.operators import Green
from simulator.spectral.transform import Evaluated


class DampingSettings(Settings):
    """Damps momentum at the rate coefficient * k^(2 order)."""

    order: Annotated[Integer, Field(ge=1, le=8)]
    """n in the damping rate coefficient * k^(2 n)."""
    coefficient: NonNegative
    """Units length^(2 n) / time."""


class GasSettings(Settings):
    """Settings of gas, apart from gravity."""

    kind: Any
    sound_speed: NonNegative
    """Speed of sound at the background density; 0 is cold gas."""
    polytropic_exponent: Real = Field(default=1.0, ge=1.0, le=3.0)
    """gamma in p ~ rho^gamma; 1 is isothermal."""
    viscosity: NonNegative = 0.0
    """Shear viscosity over background density, length^2 / time."""
    bulk_viscosity: NonNegative = 0.0
    """Bulk viscosity over background density, length^2 / time."""
    hyperviscosity: DampingSettings | None = None
    """Additional damping of momentum at small scales."""
    background_density: Literal["mean"] | Positive = "mean"
    """The density at which the speed of sound and the viscosities are specified, and the initial
    density if the initial condition sets none. Gravity always acts on the deviation from the
    mean."""
    external_acceleration: AxisVector = (0.0, 0.0, 0.0)
    """A constant acceleration of all the gas, one number for each axis of the grid."""
    max_edge_energy: Positive = 0.05
    """The run stops when modes at the edge of the spectrum hold this part of the squared momentum;
    with 1 it does not."""


class SelfGravitatingGasSettings(GasSettings):
    kind: Literal["self_gravitating_gas"] = "self_gravitating_gas"
    gravitational_constant: NonNegative = 1.0
    """G, length^3 / (mass time^2); 0 turns gravity off."""
    green: Green = "exact"
    """Poisson's equation with -k^2, or with the second-order difference formula."""


class SelfGravitatingGas(Model):
    """rho_t + div m = 0, m_t + div(m m / rho) + grad p = -rho grad Phi + rho (a + f) + mu lap v +
    (mu / 3 + zeta) grad div v, lap Phi = 4 pi G (rho - mean), m = rho v, p = rho_0 c^2 / gamma (rho
    / rho_0)^gamma, mu = nu rho_0; f: forcing.

    In this form mass and momentum are conserved to round-off. The constant part nu lap m of the
    shear stress is integrated exactly. There is no shock capturing: the run stops with a message if
    the gas is no longer resolved or its density becomes negative.

    In two dimensions nothing depends on z, and the velocity lies in the plane: densities are still
    masses per volume, the mass of the box is that of a layer of unit depth, and gravity is that of
    rods along z."""

    Settings = SelfGravitatingGasSettings
    planar = True
    budget = "row"
    guarded = True

    def __init__(self, settings: SelfGravitatingGasSettings, transform: Transform):
        grid = transform.grid
        super().__init__(settings, transform, [specs.DENSITY, specs.MOMENTUM.on(grid)])
        self.pull = specs.along_axes(grid, "external_acceleration", settings.external_acceleration)
        self.viscous = bool(settings.viscosity or settings.bulk_viscosity)
        self.isothermal = settings.polytropic_exponent == 1

    @property
    def initial_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"density": (), "velocity": self.fields["momentum"].shape}

    @property
    def accelerated(self) -> Mapping[str, tuple[int, ...]]:
        return {"velocity": self.fields["momentum"].shape}

    def begin(self, fields: Fields, names: Collection[str]) -> Fields:
        """Density and momentum from the density and velocity, or momentum, of an initial condition;
        fields that are not in `names` were not set, and are zero. Without a density, it is the
        background density everywhere; raises UserError if that is not set."""
        layout, background = self.transform.layout, self.settings.background_density
        if "density" not in names or not arrays.holds(jnp.any(fields["density"] != 0)):
            if background == "mean":
                raise UserError(
                    "gives no density; give one, or a uniform one as model.background_density: NUMBER"
                )
            density = jnp.where(layout.zero, background, fields["density"])
            fields = {**fields, "density": layout.constrain(density)}

        def product(values, points, parameters) -> Local:
            return Local(values["density"] * values["velocity"])

        @jax.jit
        def begun(fields: Fields) -> Fields:
            evolved = {"density": fields["density"]}
            given = "momentum" in fields
            evolved["momentum"] = (
                fields["momentum"] if given else self.transform.evaluate(fields, product).products
            )
            return {
                n: layout.constrain(operators.hermitian(layout, field))
                for n, field in evolved.items()
            }

        return begun(fields)

    def _background(self, fields: Fields) -> arrays.Number:
        background = self.settings.background_density
        mean = self.transform.layout.at_zero(fields["density"]).real
        return mean if background == "mean" else jnp.asarray(background, mean.dtype)

    def jeans_frequency_squared(self, k2: float, density: float) -> float:
        """omega^2 = k^2 c^2 - 4 pi G rho of a small wave in gas of this density at rest."""
        s = self.settings
        ratio = 1.0 if s.background_density == "mean" else density / s.background_density
        sound2 = s.sound_speed**2 * ratio ** (s.polytropic_exponent - 1)
        return k2 * sound2 - 4 * math.pi * s.gravitational_constant * density

    def tendency(self, fields, time, accelerations=None, keep=()) -> tuple[Fields, Evaluated]:
        """The explicit part of the right-hand side, and the rate that limits dt, NaN if the run has
        to stop.

        An acceleration acts on the density at every point, as gravity does, so it is added to grad
        Phi in the products."""
        inputs, parameters = (
            self._pulled(fields, accelerations),
            {"background": self._background(fields)},
        )
        evaluated = self.transform.evaluate(inputs, self.pointwise, parameters)
        limit = {"rate": self.limit(evaluated.maxima, fields)}
        return self.combine(evaluated.products, fields), evaluated._replace(maxima=limit)

    def inputs(self, fields: Fields) -> Fields:
        inputs = {"density": fields["density"], "momentum": fields["momentum"]}
        if self.settings.gravitational_constant:
            inputs["grad_phi"] = operators.gradient(
                self.transform.layout, self.potential(fields["density"])
            )
        return inputs

    def _pulled(self, fields: Fields, accelerations: Fields | None) -> Fields:
        """`inputs`, with an acceleration subtracted from grad Phi."""
        inputs = self.inputs(fields)
        if accelerations:
            inputs["grad_phi"] = inputs.get("grad_phi", 0) - accelerations["velocity"]
        return inputs

    def potential(self, density: arrays.SpectralScalar) -> arrays.SpectralScalar:
        """Phi (length^2/time^2)."""
        source = 4 * math.pi * self.settings.gravitational_constant * density
        return operators.solve_poisson(self.transform.layout, source, self.settings.green)

    def pointwise(
        self, values: arrays.PointValues, points: Points, parameters: Mapping[str, jax.Array]
    ) -> Local:
        rho, m = values["density"], values["momentum"]
        v = m / rho
        products = {"flux": jnp.stack([m[i] * v[j] for i, j in operators.symmetric_pairs(len(m))])}
        if not self.isothermal:
            products["pressure"] = self._pressure(rho, parameters["background"])
        if "grad_phi" in values:
            products["weight"] = rho * values["grad_phi"]
        if self.viscous:
            products["velocity"] = v
        advection = advection_rate(self.transform.grid, v)
        return Local(products, {"advection": advection, "densest": rho, "thinnest": -rho})

    def _pressure(
        self, rho: arrays.PhysicalScalar, background: arrays.Number
    ) -> arrays.PhysicalScalar:
        gamma, sound = self.settings.polytropic_exponent, self.settings.sound_speed
        if self.isothermal:
            return sound**2 * rho
        # If the density is negative somewhere, the run is about to stop; the power must not turn it
        # into NaN.
        return background * sound**2 / gamma * jnp.maximum(rho / background, 0) ** gamma

    def combine(self, products: Fields, fields: Fields) -> Fields:
        layout, s = self.transform.layout, self.settings
        rho, m, flux = fields["density"], fields["momentum"], products["flux"]
        k = operators.wavenumbers(layout, rho.real.dtype)
        pressure = s.sound_speed**2 * rho if self.isothermal else products["pressure"]
        stress = dict(zip(operators.symmetric_pairs(len(k)), flux, strict=True))
        stress = {(i, j): part + pressure if i == j else part for (i, j), part in stress.items()}
        rows = ((stress[min(i, j), max(i, j)] for j in range(len(k))) for i in range(len(k)))
        force = -1j * jnp.stack(
            [sum(q * part for q, part in zip(k, row, strict=True)) for row in rows]
        )
        if "weight" in products:
            force = force - products["weight"]
        if any(self.pull):
            force = force + jnp.stack([a * rho for a in self.pull])
        if self.viscous:
            velocity = self._background(fields) * products["velocity"]
            spread = sum(q * c for q, c in zip(k, velocity, strict=True))
            stretch = (s.viscosity / 3 + s.bulk_viscosity) * spread
            force = force - s.viscosity * layout.k_squared(rho.real.dtype) * (velocity - m)
            force = force - jnp.stack([q * stretch for q in k])
        # Gravity makes waves grow, so the part of the plane kz = 0 that is invisible in physical
        # space must be zero.
        return {
            "density": -operators.divergence(layout, m),
            "momentum": operators.hermitian(layout, force),
        }

    def linear(self) -> dict[str, arrays.OverModes]:
        s, k2 = self.settings, self.transform.layout.k_squared(self.transform.dtype)
        damping = s.viscosity * k2
        if s.hyperviscosity is not None:
            damping = damping + s.hyperviscosity.coefficient * k2**s.hyperviscosity.order
        return {"momentum": -damping}

    def limit(self, maxima: Mapping[str, arrays.Number], fields: Fields) -> arrays.Number:
        """The rate (1/time) that limits dt, a sum: flow and sound cross a cell, viscosity damps the
        smallest scale, the densest point collapses. The last two limit an explicit step so little
        that their sum with the first is safe."""
        s, grid, layout = self.settings, self.transform.grid, self.transform.layout
        background = self._background(fields)
        densest, thinnest = maxima["densest"], -maxima["thinnest"]
        sound = s.sound_speed * jnp.maximum(densest / background, 0) ** (
            (s.polytropic_exponent - 1) / 2
        )
        crossing = maxima["advection"] + sound * sum(1 / h for h in grid.seen(grid.spacing))
        largest = sum((n * unit) ** 2 for n, unit in zip(grid.kept, grid.fundamental, strict=True))
        variation = jnp.maximum(abs(background / thinnest - 1), abs(background / densest - 1))
        explicit = (
            s.viscosity * variation + (s.viscosity / 3 + s.bulk_viscosity) * background / thinnest
        )
        fall = jnp.sqrt(4 * math.pi * s.gravitational_constant * jnp.maximum(densest, 0))
        rate = crossing + 0.5 * largest * explicit + fall
        resolved = (thinnest > 0) & (self._edge(layout, fields) <= s.max_edge_energy)
        return jnp.where(resolved, rate, jnp.nan)

    def _edge(self, layout: Layout, fields: Fields) -> arrays.Number:
        """Tail fraction of the squared momentum in the frame of the centre of mass."""
        m, drift = (
            fields["momentum"],
            center_velocity(layout, fields["density"], fields["momentum"]),
        )
        relative = m - drift[:, None, None, None] * fields["density"]
        # Round-off of the fluxes: from sound, bulk motion, and gravitational acceleration across
        # the box.
        s, length = self.settings, max(self.transform.grid.seen(self.transform.grid.box))
        mean = layout.at_zero(fields["density"]).real
        speed = s.sound_speed + jnp.sqrt(operators.squared(drift))
        speed = speed + length * jnp.sqrt(s.gravitational_constant * abs(mean))
        noise = 1e3 * jnp.finfo(m.real.dtype).eps * speed * mean
        return tail_fraction(layout, operators.squared(relative), noise**2)

    def trouble(self, fields: Fields) -> tuple[str, str] | None:
        """The reason why a run cannot continue from these fields, and a remedy; None if it can."""
        layout = self.transform.layout

        @jax.jit
        def look(fields: Fields):
            def least(values, points, parameters) -> Local:
                return Local({}, {"thinnest": -values["density"]})

            maxima = self.transform.evaluate({"density": fields["density"]}, least).maxima
            return -maxima["thinnest"], self._edge(layout, fields)

        least, edge = (float(v) for v in look(fields))
        if not least > 0:
            problem = f"the density lost its sign (least value {least:.3g}): shocks or deep voids are not resolved"
            return problem, "A finer grid, more viscosity or a higher sound_speed"
        if edge > (limit := self.settings.max_edge_energy):
            problem = f"the flow is under-resolved: {edge:.1%} of the squared momentum lies near the grid's edge"
            return (
                f"{problem} (limit: model.max_edge_energy {limit:g})",
                "A finer grid or more viscosity",
            )
        return None

    def velocity(self, fields: Fields) -> arrays.SpectralVector:
        """The momentum over the density (length/time)."""

        def quotient(values, points: Points, parameters) -> Local:
            return Local({"velocity": values["momentum"] / values["density"]})

        return self.transform.evaluate(dict(fields), quotient).products["velocity"]

    @property
    def _virial(self) -> bool:
        """Whether the virial theorem is evaluated; rods have another one."""
        return bool(self.settings.gravitational_constant) and not self.transform.grid.planar

    def _measured(self, fields: Fields, inputs: Fields) -> Evaluated:
        """Energies and extremes of the gas, and its velocity. The Mach number refers to the flow in
        the frame of the centre of mass. The `inputs` are density and momentum; grad Phi, as
        `attraction` or else as `grad_phi`, if the virial theorem is evaluated; with `density_rate`,
        the time derivative of the density, also the products of `pointwise` and the mean `heating`,
        the derivative of the energy without gravity at constant momentum."""
        s, gamma = self.settings, self.settings.polytropic_exponent
        grid, layout = self.transform.grid, self.transform.layout

        def local(values, points: Points, parameters) -> Local:
            rho, m = values["density"], values["momentum"]
            v = m / rho
            speed2, ratio, products = (
                operators.squared(v),
                rho / parameters["background"],
                {"velocity": v},
            )
            relative = [v[i] - parameters["drift"][i] for i in range(len(v))]
            sound = s.sound_speed * jnp.maximum(ratio, 0) ** ((gamma - 1) / 2)
            pressure = self._pressure(rho, parameters["background"])
            if self.isothermal:
                # The mass is constant, so that a constant in the enthalpy has no effect.
                enthalpy = s.sound_speed**2 * jnp.log(jnp.maximum(ratio, 1e-30))
                thermal = rho * enthalpy
            else:
                enthalpy, thermal = sound**2 / (gamma - 1), pressure / (gamma - 1)
            means = {
                "kinetic": 0.5 * operators.dot(m, v),
                "thermal": thermal,
                "pressure": pressure,
                "mach": jnp.where(
                    sound > 0, sum(u * u for u in relative) / jnp.where(sound > 0, sound, 1) ** 2, 0
                ),
            }
            if "density_rate" in values:
                products |= self.pointwise(values, points, parameters).products
                means["heating"] = (enthalpy - 0.5 * speed2) * values["density_rate"]
            if self._virial:
                # T_xx, T_yy, T_zz but for <rho> Phi, with dm_i/dt = -d_j T_ij apart from viscosity
                # and forcing. The part of gravity, (2 g_i g_j - g^2 delta_ij) / (8 pi G) + <rho>
                # Phi delta_ij, has the divergence rho grad Phi.
                grad_phi, g = (
                    values.get("attraction", values["grad_phi"]),
                    8 * math.pi * s.gravitational_constant,
                )
                same = pressure - operators.squared(grad_phi) / g
                stresses = [
                    same + rho * relative[i] ** 2 + 2 * grad_phi[i] ** 2 / g for i in range(3)
                ]
                at = zip(points, parameters["faces"], grid.spacing, grid.shape, strict=True)
                weights = [jnp.where(jnp.rint(x / h) == face, n, 0) for x, face, h, n in at]
                means["surface"] = sum(w * t for w, t in zip(weights, stresses, strict=True))
            maxima = {"speed": jnp.sqrt(speed2), "densest": rho, "thinnest": -rho}
            return Local(products, {**maxima, "advection": advection_rate(grid, v)}, means)

        parameters = {
            "background": self._background(fields),
            "drift": center_velocity(layout, fields["density"], fields["momentum"]),
            "faces": faces(grid, center(layout, fields["density"])),
        }
        return self.transform.evaluate(inputs, local, parameters)

    def _potential_at_faces(self, rho: arrays.SpectralScalar) -> arrays.Number:
        """The sum of the means of Phi over the grid planes at the faces of the box that is centred
        on the gas."""
        layout, phi = self.transform.layout, self.potential(rho)
        # Only modes along the normal of a plane contribute to a mean over it.
        along = sum((layout.integers(axis) != 0).astype(jnp.int32) for axis in AXES) == 1
        for axis, face in zip(AXES, faces(self.transform.grid, center(layout, rho)), strict=True):
            phi = phi * jnp.exp(2j * math.pi * layout.cycles(axis) * face).astype(rho.dtype)
        return layout.sum(jnp.where(along, phi.real, 0))

    def _dissipation(self, fields: Fields, velocity: arrays.SpectralVector) -> arrays.Number:
        layout, s, m = self.transform.layout, self.settings, fields["momentum"]
        k2, stretch = layout.k_squared(m.real.dtype), operators.divergence(layout, velocity)
        shear = s.viscosity * layout.inner(velocity, k2 * velocity).sum()
        spread = (s.viscosity / 3 + s.bulk_viscosity) * layout.inner(stretch, stretch)
        lost = self._background(fields) * (shear + spread)
        if s.hyperviscosity is not None:
            damping = -self.linear()["momentum"] - s.viscosity * k2
            lost = lost + layout.inner(velocity, damping * m).sum()
        return lost

    def work(self, fields: Fields, forces: Fields) -> arrays.Number:
        """The box mean of rho v . f."""
        return self.transform.layout.inner(fields["momentum"], forces["velocity"]).sum()

    def diagnostics(self, fields: Fields, time: arrays.Number) -> dict[str, arrays.Number]:
        """Energies are box means: rho v^2 / 2, c^2 rho ln(rho / rho_0) or p / (gamma - 1), rho Phi
        / 2. `mass` is that of the whole box, `mean_momentum_x` ... the box mean of rho v."""
        inputs = self.inputs(fields)
        if not self._virial:
            inputs.pop("grad_phi", None)
        return self._columns(fields, self._measured(fields, inputs))

    def with_balance(
        self, fields: Fields, time: arrays.Number, accelerations: Fields | None
    ) -> tuple[dict[str, arrays.Number], arrays.Number, Balance]:
        """One evaluation at the points gives the diagnostics, the rates of the fields and the
        change of energy."""
        layout, inputs = self.transform.layout, self._pulled(fields, accelerations)
        if accelerations and self._virial:
            inputs["attraction"] = self.inputs(fields)["grad_phi"]
        inputs["density_rate"] = -operators.divergence(layout, fields["momentum"])
        measured = self._measured(fields, inputs)
        products, columns = measured.products, self._columns(fields, measured)
        rates = self.combine(products, fields)
        rates["momentum"] += self.linear()["momentum"] * fields["momentum"]
        change = (
            layout.inner(products["velocity"], rates["momentum"]).sum() + measured.means["heating"]
        )
        change = change + layout.inner(rates["density"], self.potential(fields["density"]))
        momentum = layout.at_zero(fields["momentum"]).real
        production = sum(a * p for a, p in zip(self.pull, momentum, strict=True))
        return columns, change, Balance(columns["energy"], production, columns["dissipation"])

    def _columns(self, fields: Fields, measured: Evaluated) -> dict[str, arrays.Number]:
        layout, grid, rho = self.transform.layout, self.transform.grid, fields["density"]
        gravity, virial = 0.5 * layout.inner(rho, self.potential(rho)), {}
        means, momentum = measured.means, layout.at_zero(fields["momentum"]).real
        if self._virial:
            # In the frame of the centre of mass.
            mean = layout.at_zero(rho).real
            motion = 2 * means["kinetic"] - operators.dot(momentum, momentum) / mean
            surface = means["surface"] + mean * self._potential_at_faces(rho)
            binding = jnp.where(gravity == 0, jnp.inf, abs(gravity))
            virial["virial_ratio"] = (motion + 3 * means["pressure"] - surface) / binding
        return {
            "energy": means["kinetic"] + means["thermal"] + gravity,
            "kinetic_energy": means["kinetic"],
            "thermal_energy": means["thermal"],
            "potential_energy": gravity,
            **virial,
            "dissipation": self._dissipation(fields, measured.products["velocity"]),
            "mass": layout.at_zero(rho).real * grid.volume,
            "max_density": measured.maxima["densest"],
            "min_density": -measured.maxima["thinnest"],
            "max_speed": measured.maxima["speed"],
            "mach_rms": jnp.sqrt(means["mach"]),
            **{f"mean_momentum_{axis}": p for axis, p in zip(AXES, momentum, strict=False)},
            **by_axis(grid, "center", center(layout, rho)),
            "edge_energy": self._edge(layout, fields),
            "rate": self.limit(measured.maxima, fields),
        }

    def spectral_energies(self, fields: Fields) -> dict[str, arrays.OfModes]:
        return {}  # the kinetic energy is not a sum of squares of the evolved fields

    def spectra(self, fields: Fields) -> dict[str, arrays.Spectrum]:
        """The co-spectrum of momentum and velocity, Re(m* . v) / 2, whose integral is the kinetic
        energy; and P(k) of the density. A shell may be negative if density and velocity vary at the
        same scale. Unlike the spectrum of sqrt(rho) v, the co-spectrum ends with the modes of the
        momentum, so that no part of it is truncated."""
        layout = self.transform.layout
        energy = 0.5 * transfer(fields["momentum"], self.velocity(fields))
        power = density_power(layout, fields["density"])
        return {**shell_spectra(layout, {"kinetic_energy": energy}), "density_power": power}

    def cospectra(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """|v|^2 / 2 of the velocity v = m / rho, whose modes beyond those of the state are left
        out, in its `solenoidal` and its `compressive` part, k (k . v) / k^2; the mean velocity
        belongs to the former."""
        velocity = self.velocity(fields)
        solenoidal = operators.project(self.transform.layout, velocity)
        parts = {"solenoidal": solenoidal, "compressive": velocity - solenoidal}
        return {f"{name}_energy": 0.5 * operators.squared(part) for name, part in parts.items()}

    def transfers(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """The rate of change of Re(m* . v) / 2, the kinetic energy of a mode, by advection
        (`kinetic_energy`), by the `pressure` and by `gravity`: each term is Re(v* . r + m* . s) / 2
        with its rates r of m and s of v. In this symmetric form advection only moves energy between
        modes, to round-off, for any aliasing."""
        layout, rho = self.transform.layout, fields["density"]
        background, velocity = self._background(fields), self.velocity(fields)
        pressure = self.settings.sound_speed**2 * rho
        if not self.isothermal:

            def of_density(values, points, parameters) -> Local:
                return Local(self._pressure(values["density"], parameters))

            pressure = self.transform.evaluate({"density": rho}, of_density, background).products
        slope = operators.gradient(layout, pressure)
        inputs = {"density": rho, "momentum": fields["momentum"], "slope": slope}
        axes = self.transform.grid.axes
        inputs |= {
            f"gradient_{axis}": operators.gradient(layout, v)
            for axis, v in zip(axes, velocity, strict=True)
        }
        if self.settings.gravitational_constant:
            inputs["grad_phi"] = operators.gradient(layout, self.potential(rho))

        def terms(values, points, parameters) -> Local:
            density, m = values["density"], values["momentum"]
            v = m / density
            products = {
                "flux": jnp.stack([a * b for a in m for b in v]),
                "advection": jnp.stack(
                    [operators.dot(v, values[f"gradient_{axis}"]) for axis in axes]
                ),
                "push": values["slope"] / density,
            }
            if "grad_phi" in values:
                products["weight"] = density * values["grad_phi"]
            return Local(products)

        products, m = self.transform.evaluate(inputs, terms).products, fields["momentum"]
        flux = products["flux"]
        rows = flux.reshape(len(axes), len(axes), *flux.shape[1:])
        outflow = jnp.stack([operators.divergence(layout, row) for row in rows])
        found = {
            "kinetic_energy": -0.5
            * (transfer(velocity, outflow) + transfer(m, products["advection"])),
            "pressure": -0.5 * (transfer(velocity, slope) + transfer(m, products["push"])),
        }
        if "weight" in products:
            weight = transfer(velocity, products["weight"]) + transfer(m, inputs["grad_phi"])
            found["gravity"] = -0.5 * weight
        return found

    def derived(self) -> Mapping[str, DerivedField]:
        inverse, layout, inside = (
            self.transform.inverse,
            self.transform.layout,
            self.transform.physical.inside,
        )

        def velocity(f: Fields) -> jax.Array:
            # Padding holds no gas.
            return inverse(f["momentum"]) / jnp.where(inside(), inverse(f["density"]), 1)

        def vorticity(f: Fields) -> jax.Array:
            return inverse(operators.curl(layout, self.transform.forward(velocity(f))))

        def pressure(f: Fields) -> jax.Array:
            return self._pressure(inverse(f["density"]), self._background(f))

        return specs.by_name(
            DerivedField(
                replace(specs.VELOCITY.on(self.transform.grid), solenoidal=False), velocity
            ),
            DerivedField(specs.SPEED, lambda f: jnp.sqrt(operators.squared(velocity(f)))),
            *curl_fields(self.transform, vorticity, specs.VORTICITY, specs.VORTICITY_MAGNITUDE),
            DerivedField(specs.PRESSURE, pressure),
            DerivedField(specs.POTENTIAL, lambda f: inverse(self.potential(f["density"]))),
        )
