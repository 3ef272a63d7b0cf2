"""Observables of a gas: energies and extremes, its budget, spectra, transfers and fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from simulator.physics.forcing.band import center_velocity
from simulator.physics.models import fields as specs
from simulator.physics.models.equation import products_at, with_parameters
from simulator.physics.models.fields import DerivedField, Fields, products_of
from simulator.physics.models.observables.budget import Balance, Budget, BudgetRow, energy_transfer
from simulator.physics.models.observables.observable import Columns, Observable, PointMoments, Row
from simulator.physics.models.observables.velocity_fields import curl_fields
from simulator.physics.models.tendency import linear_terms
from simulator.plugins.gravity.density import (
    by_axis,
    center,
    density_power,
)
from simulator.plugins.gravity.gas_limit import momentum_at_edge
from simulator.spectral import Grid, Local, Points, arrays, operators
from simulator.spectral.arrays import Number, OfModes, PointValues, Spectrum
from simulator.spectral.bins import shell_spectra
from simulator.spectral.grid import AXES
from simulator.spectral.transform import Tree

if TYPE_CHECKING:
    from simulator.plugins.gravity.self_gravitating_gas import SelfGravitatingGas


class GasBudget(Budget["SelfGravitatingGas"]):
    """Energies are box means: rho v^2 / 2, c^2 rho ln(rho / rho_0) or p / (gamma - 1), rho Phi / 2.
    `mass` is that of the whole box, `mean_momentum_x` ... the box mean of rho v. The Mach number
    refers to the flow in the frame of the centre of mass."""

    def momentary(self, model: SelfGravitatingGas) -> bool:
        return True

    def work(self, model: SelfGravitatingGas, fields: Fields, forces: Fields) -> Number:
        """The box mean of rho v . f."""
        return model.transform.layout.inner(fields["momentum"], forces["velocity"]).sum()

    def moments(self, model: SelfGravitatingGas, fields: Fields) -> PointMoments:
        layout = model.transform.layout
        inputs = model.inputs(fields)
        if not has_virial(model):
            inputs.pop("gravity", None)
        rho = fields["density"]
        parameters = {
            "reference": model.reference_density(fields),
            "drift": center_velocity(layout, rho, fields["momentum"]),
            "faces": faces(model.transform.grid, center(layout, rho)),
        }

        def at_point(values: PointValues, points: Points, numbers: Tree) -> Local:
            return self._at_point(model, values, points, numbers)

        return PointMoments(inputs, at_point, parameters)

    def _at_point(
        self, model: SelfGravitatingGas, values: PointValues, points: Points, numbers: Tree
    ) -> Local:
        """Energies and extremes, and the velocity as a product. With `density_rate`, the time
        derivative of the density, also the mean `heating`, the derivative of the energy without
        gravity at constant momentum. The acceleration of gravity is `attraction`, if a forcing is
        added to `gravity`."""
        gamma = model.polytropic_exponent
        rho = values["density"]
        m = values["momentum"]
        v = m / rho
        speed2 = operators.squared(v)
        ratio = rho / numbers["reference"]
        relative = [v[i] - numbers["drift"][i] for i in range(len(v))]
        sound = model.sound_speed * jnp.maximum(ratio, 0) ** ((gamma - 1) / 2)
        pressure = model.pressure(rho, numbers["reference"])
        if model.isothermal:
            # The mass is constant, so that a constant in the enthalpy has no effect.
            enthalpy = model.sound_speed**2 * jnp.log(jnp.maximum(ratio, 1e-30))
            thermal = rho * enthalpy
        else:
            enthalpy = sound**2 / (gamma - 1)
            thermal = pressure / (gamma - 1)
        mach2 = sum(u * u for u in relative) / jnp.where(sound > 0, sound, 1) ** 2
        means = {
            "kinetic": 0.5 * operators.dot(m, v),
            "thermal": thermal,
            "pressure": pressure,
            "mach": jnp.where(sound > 0, mach2, 0),
        }
        if "density_rate" in values:
            means["heating"] = (enthalpy - 0.5 * speed2) * values["density_rate"]
        if has_virial(model):
            gravity = values["attraction"] if "attraction" in values else values["gravity"]
            # T_xx, T_yy, T_zz but for <rho> Phi, with dm_i/dt = -d_j T_ij apart from viscosity and
            # forcing. The part of gravity, (2 g_i g_j - g^2 delta_ij) / (8 pi G) + <rho> Phi
            # delta_ij, has the divergence rho grad Phi.
            g = 8 * math.pi * model.gravitational_constant
            same = pressure - operators.squared(gravity) / g
            stresses = [same + rho * relative[i] ** 2 + 2 * gravity[i] ** 2 / g for i in range(3)]
            grid = model.transform.grid
            at = zip(points, numbers["faces"], grid.spacing, grid.shape, strict=True)
            weights = [jnp.where(jnp.rint(x / h) == face, n, 0) for x, face, h, n in at]
            means["surface"] = reduce(add, (w * t for w, t in zip(weights, stresses, strict=True)))
        maxima = {"speed": jnp.sqrt(speed2), **model.step_limit.maxima(model, values)}
        return Local({"velocity": v}, maxima, means)

    def conserved(self, model: SelfGravitatingGas) -> Sequence[str]:
        return ("mass",)

    def columns(self, model: SelfGravitatingGas, fields: Fields, row: Row) -> Columns:
        layout = model.transform.layout
        grid = model.transform.grid
        rho = fields["density"]
        gravity = 0.5 * layout.inner(rho, model.potential(rho))
        means = row.moments.means
        momentum = layout.at_zero(fields["momentum"]).real
        virial: Columns = {}
        if has_virial(model):
            # In the frame of the centre of mass.
            mean = layout.at_zero(rho).real
            motion = 2 * means["kinetic"] - operators.dot(momentum, momentum) / mean
            surface = means["surface"] + mean * _potential_at_faces(model, rho)
            binding = jnp.where(gravity == 0, jnp.inf, abs(gravity))
            virial["virial_ratio"] = (motion + 3 * means["pressure"] - surface) / binding
        return {
            "energy": means["kinetic"] + means["thermal"] + gravity,
            "kinetic_energy": means["kinetic"],
            "thermal_energy": means["thermal"],
            "potential_energy": gravity,
            **virial,
            "dissipation": _dissipation(model, fields, row.moments.products["velocity"]),
            "mass": layout.at_zero(rho).real * grid.volume,
            "max_density": row.moments.maxima["densest"],
            "min_density": -row.moments.maxima["thinnest"],
            "max_speed": row.moments.maxima["speed"],
            "mach_rms": jnp.sqrt(means["mach"]),
            **{f"mean_momentum_{axis}": p for axis, p in zip(AXES, momentum, strict=False)},
            **by_axis(grid, "center", center(layout, rho)),
            "edge_energy": momentum_at_edge(model, fields),
            "rate": model.step_limit.rate(model, row.moments.maxima, fields),
        }

    def balance(self, model: SelfGravitatingGas, fields: Fields) -> Balance:
        wanted = self.moments(model, fields)
        assert wanted.at_point is not None
        moments = model.transform.evaluate(wanted.inputs, wanted.at_point, wanted.parameters)
        columns = self.columns(model, fields, Row(jnp.float64(0), moments))
        return self._balance(model, fields, columns)

    def _balance(self, model: SelfGravitatingGas, fields: Fields, columns: Columns) -> Balance:
        momentum = model.transform.layout.at_zero(fields["momentum"]).real
        production = sum(a * p for a, p in zip(model.pull, momentum, strict=True))
        return Balance(columns["energy"], production, columns["dissipation"])

    def row(
        self,
        model: SelfGravitatingGas,
        fields: Fields,
        time: Number,
        accelerations: Fields | None,
    ) -> BudgetRow | None:
        """One evaluation at the points gives the diagnostics, the rates of the fields and the
        change of energy; with terms `outputs.budget_row` does."""
        if model.terms:
            return None
        layout = model.transform.layout
        wanted = self.moments(model, fields)
        inputs = model.inputs(fields)
        if accelerations and has_virial(model):
            inputs["attraction"] = inputs["gravity"]
        if accelerations:
            inputs["gravity"] = inputs.get("gravity", 0) + accelerations["velocity"]
        inputs["density_rate"] = -model.divergence(fields["momentum"])

        def local(values: PointValues, points: Points, numbers: Tree) -> Local:
            measured = self._at_point(model, values, points, numbers)
            equation = with_parameters(model, {"reference": numbers["reference"]})
            products = products_at(equation, values, points, numbers["time"])
            return measured._replace(products=measured.products | products)

        numbers = {**wanted.parameters, "time": time}
        moments = model.transform.evaluate(inputs, local, numbers)
        columns = self.columns(model, fields, Row(time, moments))
        rates = model.combine(moments.products, fields)
        rates["momentum"] += linear_terms(model)["momentum"] * fields["momentum"]
        moved = layout.inner(moments.products["velocity"], rates["momentum"]).sum()
        change = moved + moments.means["heating"]
        change = change + layout.inner(rates["density"], model.potential(fields["density"]))
        return BudgetRow(columns, change, self._balance(model, fields, columns))


def has_virial(model: SelfGravitatingGas) -> bool:
    """Whether the virial theorem is evaluated; rods have another one."""
    return bool(model.gravitational_constant) and model.transform.grid.dimensions == 3


def faces(grid: Grid, place: Sequence[Number]) -> list[Number]:
    """Along each axis, the index of the grid plane at the face of the box that is centred on c."""
    axes = zip(place, grid.box, grid.spacing, grid.shape, strict=True)
    return [jnp.mod(jnp.floor((c + length / 2) / h), n) for c, length, h, n in axes]


def _potential_at_faces(model: SelfGravitatingGas, rho: arrays.SpectralScalar) -> Number:
    """The sum of the means of Phi over the grid planes at the faces of the box that is centred on
    the gas."""
    layout = model.transform.layout
    phi = model.potential(rho)
    # Only modes along the normal of a plane contribute to a mean over it.
    along = sum((layout.integers(axis) != 0).astype(jnp.int32) for axis in AXES) == 1
    for axis, face in zip(AXES, faces(model.transform.grid, center(layout, rho)), strict=True):
        phi = phi * jnp.exp(2j * math.pi * layout.cycles(axis) * face).astype(rho.dtype)
    return layout.sum(jnp.where(along, phi.real, 0))


def _dissipation(
    model: SelfGravitatingGas, fields: Fields, velocity: arrays.SpectralVector
) -> Number:
    layout = model.transform.layout
    m = fields["momentum"]
    k2 = layout.k_squared(m.real.dtype)
    stretch = model.divergence(velocity)
    shear = model.viscosity * layout.inner(velocity, k2 * velocity).sum()
    spread = (model.viscosity / 3 + model.bulk_viscosity) * layout.inner(stretch, stretch)
    lost = model.reference_density(fields) * (shear + spread)
    for damping in model.damps:
        lost = lost + layout.inner(velocity, damping.rate(model.transform) * m).sum()
    return lost


class GasSpectra(Observable["SelfGravitatingGas"]):
    """The co-spectrum of momentum and velocity, P(k) of the density, and parts of the velocity."""

    def spectra(self, model: SelfGravitatingGas, fields: Fields) -> dict[str, Spectrum]:
        """The co-spectrum Re(m* . v) / 2, whose integral is the kinetic energy; and P(k) of the
        density. A shell may be negative if density and velocity vary at the same scale. Unlike the
        spectrum of sqrt(rho) v, the co-spectrum ends with the modes of the momentum, so that no
        part of it is truncated."""
        layout = model.transform.layout
        energy = 0.5 * energy_transfer(fields["momentum"], model.variables.velocity(model, fields))
        power = density_power(layout, fields["density"])
        return {**shell_spectra(layout, {"kinetic_energy": energy}), "density_power": power}

    def cospectra(self, model: SelfGravitatingGas, fields: Fields) -> dict[str, OfModes]:
        """|v|^2 / 2 of the velocity v = m / rho, whose modes beyond those of the state are left
        out, in its `solenoidal` and its `compressive` part, k (k . v) / k^2; the mean velocity
        belongs to the former."""
        velocity = model.variables.velocity(model, fields)
        solenoidal = model.project(velocity)
        parts = {"solenoidal": solenoidal, "compressive": velocity - solenoidal}
        return {f"{name}_energy": 0.5 * operators.squared(part) for name, part in parts.items()}


class GasTransfers(Observable["SelfGravitatingGas"]):
    """The rate of change of Re(m* . v) / 2, the kinetic energy of a mode, by advection
    (`kinetic_energy`), by the `pressure` and by `gravity`: each term is Re(v* . r + m* . s) / 2
    with its rates r of m and s of v. In this symmetric form advection only moves energy between
    modes, to round-off, for any aliasing."""

    def transfers(self, model: SelfGravitatingGas, fields: Fields) -> dict[str, OfModes]:
        layout = model.transform.layout
        rho = fields["density"]
        m = fields["momentum"]
        velocity = model.variables.velocity(model, fields)
        axes = model.transform.grid.axes
        slope = model.gradient(_pressure_modes(model, fields))
        inputs = {"density": rho, "momentum": m, "slope": slope}
        for axis, v in zip(axes, velocity, strict=True):
            inputs[f"gradient_{axis}"] = model.gradient(v)
        if model.gravitational_constant:
            inputs["grad_phi"] = model.gradient(model.potential(rho))

        def terms(values: PointValues) -> PointValues:
            density = values["density"]
            m = values["momentum"]
            v = m / density
            advection = [operators.dot(v, values[f"gradient_{axis}"]) for axis in axes]
            products = {
                "flux": jnp.stack([a * b for a in m for b in v]),
                "advection": jnp.stack(advection),
                "push": values["slope"] / density,
            }
            if "grad_phi" in values:
                products["weight"] = density * values["grad_phi"]
            return products

        products = products_of(model.transform, inputs, terms)
        flux = products["flux"]
        rows = flux.reshape(len(axes), len(axes), *flux.shape[1:])
        outflow = jnp.stack([operators.divergence(layout, row) for row in rows])
        advected = energy_transfer(velocity, outflow) + energy_transfer(m, products["advection"])
        pushed = energy_transfer(velocity, slope) + energy_transfer(m, products["push"])
        transfers = {"kinetic_energy": -0.5 * advected, "pressure": -0.5 * pushed}
        if "weight" in products:
            weight = energy_transfer(velocity, products["weight"]) + energy_transfer(
                m, inputs["grad_phi"]
            )
            transfers["gravity"] = -0.5 * weight
        return transfers


def _pressure_modes(model: SelfGravitatingGas, fields: Fields) -> arrays.SpectralScalar:
    rho = fields["density"]
    if model.isothermal:
        return model.sound_speed**2 * rho

    def of_density(values: PointValues, points: Points, reference: Number) -> Local:
        return Local(model.pressure(values["density"], reference))

    reference = model.reference_density(fields)
    return model.transform.evaluate({"density": rho}, of_density, reference).products


class GasFields(Observable["SelfGravitatingGas"]):
    """Velocity, speed, vorticity, pressure and potential."""

    pictured = ("speed", "vorticity", "vorticity_magnitude", "density")

    def derived(self, model: SelfGravitatingGas) -> Mapping[str, DerivedField]:
        transform = model.transform
        inverse = transform.inverse
        layout = transform.layout
        inside = transform.physical.inside

        def velocity(fields: Fields) -> jax.Array:
            # Padding holds no gas.
            return inverse(fields["momentum"]) / jnp.where(inside(), inverse(fields["density"]), 1)

        def vorticity(fields: Fields) -> jax.Array:
            return inverse(operators.curl(layout, transform.forward(velocity(fields))))

        def pressure(fields: Fields) -> jax.Array:
            return model.pressure(inverse(fields["density"]), model.reference_density(fields))

        return specs.by_name(
            DerivedField(specs.MATTER_VELOCITY.on(transform.grid), velocity),
            DerivedField(specs.SPEED, specs.magnitude(velocity)),
            *curl_fields(transform, vorticity, specs.VORTICITY, specs.VORTICITY_MAGNITUDE),
            DerivedField(specs.PRESSURE, pressure),
            DerivedField(specs.POTENTIAL, lambda f: inverse(model.potential(f["density"]))),
        )


class GasResolution(Observable["SelfGravitatingGas"]):
    """Whether the grid resolves the gas."""

    def trouble(self, model: SelfGravitatingGas, fields: Fields) -> tuple[str, str] | None:
        @jax.jit
        def thinnest_and_edge(fields: Fields) -> tuple[Number, Number]:
            def local(values: PointValues, points: Points, parameters: Tree) -> Local:
                return Local({}, {"thinnest": -values["density"]})

            maxima = model.transform.evaluate({"density": fields["density"]}, local).maxima
            return -maxima["thinnest"], momentum_at_edge(model, fields)

        least, edge = (float(v) for v in thinnest_and_edge(fields))
        if not least > 0:
            problem = f"the density lost its sign (least value {least:.3g}): shocks or deep voids are not resolved"
            return problem, "A finer grid, more viscosity or a higher sound_speed"
        if edge > model.max_edge_energy:
            problem = f"the flow is under-resolved: {edge:.1%} of the squared momentum lies near the grid's edge"
            limit = f"(limit: model.max_edge_energy {model.max_edge_energy:g})"
            return f"{problem} {limit}", "A finer grid or more viscosity"
        return None
