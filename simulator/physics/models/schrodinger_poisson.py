"""Wave dark matter and quantum gases: a Schrodinger equation with gravity, self-interaction and
traps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import model_validator

from simulator.physics.models import fields as specs
from simulator.physics.models import wave_functions
from simulator.physics.models.cosmology import (
    UNITS,
    Background,
    CosmologySettings,
    UnitsName,
    in_units,
)
from simulator.physics.models.density import by_axis, center, density_power, from_center
from simulator.physics.models.fields import DerivedField, Fields, FieldSpec
from simulator.physics.models.flow import UNDER_RESOLVED, tail_fraction
from simulator.physics.models.model import SplitModel
from simulator.settings import NonNegative, Positive, Real, Settings, wrong
from simulator.spectral import Evaluated, Local, Points, Transform, arrays
from simulator.spectral.operators import Green, gradient, project, solve_poisson, squared

# hbar / m in kpc km/s for m c^2 = 1e-22 eV.
HBAR_OVER_M22 = 6.582119569e-16 * 299792.458**2 / 1e-22 / 3.0856775814913673e16


class WaveSettings(Settings):
    """Settings of matter waves, apart from gravity."""

    kind: Any
    hbar_over_m: Positive | None = None
    """hbar / m, length^2 / time; 1 by default."""
    particle_mass: Positive | None = None
    """m c^2 in 1e-22 eV, which gives hbar / m; with units: kpc_km_s_msun only."""
    self_interaction: Real = 0.0
    """g in the potential g |psi|^2; negative values attract."""
    external_potential: wave_functions.ExternalSettings | None = None
    """A trap: {kind: harmonic, frequency: [x, y, z]} or {kind: python, path, function}."""
    absorber: wave_functions.AbsorberSettings | None = None
    """An absorbing layer at the faces of the box."""


def mass_problem(settings: WaveSettings, units: str) -> str | None:
    """The reason why particle_mass does not fit the units; None if it does."""
    if units != "kpc_km_s_msun" and settings.particle_mass is not None:
        return "needs units: kpc_km_s_msun; give hbar_over_m here"
    if units in UNITS and (settings.particle_mass is None) == (settings.hbar_over_m is None):
        return "give either particle_mass (1e-22 eV) or hbar_over_m (kpc km/s)"
    return None


class SchrodingerPoissonSettings(WaveSettings):
    kind: Literal["schrodinger_poisson"] = "schrodinger_poisson"
    gravitational_constant: NonNegative | None = None
    """G, length^3 / (mass time^2); by default 1, or G in the units chosen; 0 turns gravity off."""
    units: UnitsName = "dimensionless"
    """kpc_km_s_msun: lengths in kpc, velocities in km/s, masses in Msun, times in kpc / (km/s).
    mpc_h_km_s_msun_h: lengths in Mpc / h, masses in Msun / h; H0 is 100 then."""
    cosmology: CosmologySettings | None = None
    """An expanding background; lengths and densities are then comoving, time supercomoving."""
    green: Green = "exact"
    """Poisson's equation with -k^2, or with the second-order difference formula."""

    @model_validator(mode="after")
    def _one_way_to_say_the_mass(self) -> Self:
        if problem := mass_problem(self, self.units):
            raise wrong("particle_mass", problem)
        if self.cosmology is not None and (self.external_potential or self.absorber):
            raise wrong("cosmology", "excludes external_potential and absorber; keep one of them")
        return self

    @property
    def hbar(self) -> float:
        """hbar / m in the run's units."""
        if self.hbar_over_m is not None:
            return self.hbar_over_m
        return HBAR_OVER_M22 / self.particle_mass if self.particle_mass is not None else 1.0

    @property
    def gravity(self) -> float:
        """G in the run's units."""
        if self.gravitational_constant is not None:
            return self.gravitational_constant
        return UNITS[self.units].gravity if self.units in UNITS else 1.0


class SchrodingerPoisson(SplitModel):
    """i psi_t = -(hbar/2m) lap psi + (m/hbar) (Phi + g |psi|^2 + V_ext) psi,  lap Phi = 4 pi G
    (|psi|^2 - mean).

    |psi|^2 is the mass density. The wave function keeps all its modes: both parts of a split step are unitary on the
    grid, and mass is conserved to round-off. With a `cosmology`, Phi is multiplied by a(tau) and the self-interaction
    by 1/a (supercomoving variables, see `models.cosmology`).

    In two dimensions nothing depends on z: densities are still masses per volume, the mass of the
    box is that of a layer of unit depth, and gravity is that of rods along z."""

    Settings = SchrodingerPoissonSettings
    dealias: ClassVar[tuple[str, ...]] = ("none",)
    planar = True

    def __init__(
        self,
        settings: SchrodingerPoissonSettings,
        transform: Transform,
        real: Transform,
        files: Any = None,
    ):
        """`transform` is that of the complex wave function, `real` that of density and potential,
        both with all modes."""
        super().__init__(settings, transform, [specs.PSI])
        self.real = real
        specs.check_arrangement(transform, real, "wave function and potential")
        self.hbar, self.gravity, self.units = settings.hbar, settings.gravity, settings.units
        self.background = Background(settings.cosmology) if settings.cosmology else None
        self._external = self._absorption = None
        if settings.external_potential is not None:
            external = settings.external_potential
            self._external = wave_functions.external_potential(external, transform.grid, files)
        if settings.absorber is not None:
            self._absorption = wave_functions.absorption(settings.absorber, transform.grid)

    @classmethod
    def create(
        cls, settings: SchrodingerPoissonSettings, make: Callable[..., Transform], files: Any
    ) -> Self:
        return cls(settings, make(real=False, every=True), make(real=True, every=True), files)

    def units_of(self, spec: FieldSpec) -> str:
        return in_units(spec.units, self.units)

    @property
    def density_transform(self) -> Transform:
        return self.real

    def drift(self, fields: Fields, duration: arrays.Number) -> Fields:
        """psi(k) exp(-i (hbar/2m) k^2 duration); the phase factor is a product of one factor for
        each axis."""
        psi = fields["psi"]
        wavenumbers = self.transform.layout.wavenumbers()

        def phases() -> tuple[jax.Array, ...]:
            # exp(-i angle) for the few angles of an axis, of any size, in their own precision.
            angles = (0.5 * self.hbar * k**2 * duration for k in wavenumbers)
            return tuple((jnp.cos(a) - 1j * jnp.sin(a)).astype(psi.dtype) for a in angles)

        def none() -> tuple[jax.Array, ...]:
            return tuple(jnp.full(k.shape, jnp.nan, psi.dtype) for k in wavenumbers)

        # XLA stores the results of a branch; otherwise it would compute the sines and cosines of an
        # axis for every mode.
        for phase in jax.lax.cond(jnp.isfinite(duration), phases, none):
            psi = psi * phase
        return {"psi": psi}

    def kick(
        self, fields: Fields, time: arrays.Number, duration: arrays.Number
    ) -> tuple[Fields, arrays.Number]:
        """psi(x) exp(-i V duration), V = (m/hbar) (Phi + g |psi|^2 + V_ext); V is constant during
        the kick."""
        psi = self.transform.inverse(fields["psi"])
        return self.rotated(psi, self.phase_rate(_squared(psi), time), duration)

    def rotated(
        self, psi: arrays.PhysicalScalar, v: arrays.PhysicalScalar, duration: arrays.Number
    ) -> tuple[Fields, arrays.Number]:
        """The field psi after a kick of its values at the phase rate v (1/time), and the rate
        (1/time) that limits dt."""
        psi = psi * wave_functions.phase_factor(v * duration.astype(v.dtype))
        if self._absorption is not None:
            points = self.real.physical.coordinates(v.dtype)
            psi = psi * jnp.exp(-self._absorption(*points) * duration.astype(v.dtype))
        return {"psi": self.transform.layout.constrain(self.transform.forward(psi))}, self.rate_of(
            v
        )

    def phase_rate(
        self, density: arrays.PhysicalScalar, time: arrays.Number
    ) -> arrays.PhysicalScalar:
        """V (1/time) from the values of the density."""
        s, v = self.settings, jnp.zeros_like(density)
        a = (
            None
            if self.background is None
            else self.background.scale_factor(time).astype(density.dtype)
        )
        if self.gravity:
            phi = self.real.inverse(self.potential(self.real.forward(density)))
            v = v + (phi if a is None else a * phi)
        if s.self_interaction:
            v = v + (
                s.self_interaction * density if a is None else s.self_interaction / a * density
            )
        if self._external is not None:
            v = v + self._external(*self.real.physical.coordinates(density.dtype))
        return v / self.hbar

    def potential(self, density: arrays.SpectralScalar) -> arrays.SpectralScalar:
        """Phi (length^2/time^2) from the density; the coefficients of both are those of the
        transform `real`."""
        return solve_poisson(
            self.real.layout, 4 * math.pi * self.gravity * density, self.settings.green
        )

    def jeans_frequency_squared(self, k2: float, density: float) -> float:
        """omega^2 of a small density wave in matter at rest at the start: (hbar k^2 / 2m)^2 + k^2 g
        rho - 4 pi G rho."""
        a = self.settings.cosmology.start if self.settings.cosmology else 1.0
        attraction = 4 * math.pi * a * self.gravity - k2 * self.settings.self_interaction / a
        return (0.5 * self.hbar * k2) ** 2 - attraction * density

    @cached_property
    def _kinetic_rate(self) -> float:
        layout = self.transform.layout
        mode_numbers = (np.abs(layout.mode_numbers[a]).max() for a in "xyz")
        k = [
            n * unit for n, unit in zip(mode_numbers, self.transform.grid.fundamental, strict=True)
        ]
        return 0.5 * self.hbar * float(np.square(k).sum())

    def rate_of(self, v: arrays.PhysicalScalar) -> arrays.Number:
        """The rate (1/time) for which dt = cfl / rate changes no phase by more than pi cfl. A
        constant in V changes all phases alike and does not count."""
        physical = self.real.physical
        spread = (physical.max(v) - physical.min(v)).astype(jnp.float64)
        return jax.lax.stop_gradient(jnp.maximum(spread, self._kinetic_rate) / math.pi)

    def memory(self, fields: Fields, time: arrays.Number) -> dict[str, Any]:
        return {
            "rate": self.rate_of(
                self.phase_rate(_squared(self.transform.inverse(fields["psi"])), time)
            )
        }

    def diagnostics(self, fields: Fields, time: arrays.Number) -> dict[str, arrays.Number]:
        """Energies are box means: of the flow rho v^2 / 2, the quantum pressure (hbar^2 / 2m^2)
        |grad sqrt(rho)|^2, gravity rho Phi / 2, interaction g rho^2 / 2 and rho V_ext. `mass` is
        that of the whole box, `mean_momentum_x` ... the box mean of rho v.

        `virial_ratio` is (2 K + 3 I - S) / (|W| + <rho (x - c) . grad V_ext>) in the frame of the
        centre of mass c, with K the kinetic and quantum energy, I the interaction energy, and S the
        flux of momentum through the faces of the box centred on c. It is computed as 1 + <(x - c) .
        dm/dt> / (...), and is 1 in every equilibrium; in two dimensions it is left out."""
        layout, psi, s = self.transform.layout, fields["psi"], self.settings
        # Rods along z have another virial theorem.
        held = bool(self.gravity or self._external) and not self.transform.grid.planar
        values = _squared(self.transform.inverse(psi))
        rho, v = self.real.forward(values), self.phase_rate(values, time)
        # Wavenumbers are 0 on the Nyquist planes, where k and -k are one mode.
        waves = zip(
            "xyz", self.transform.grid.shape, layout.wavenumbers(psi.real.dtype), strict=True
        )
        odd = (jnp.where(2 * abs(layout.integers(axis)) == n, 0, k) for axis, n, k in waves)
        momentum = [self.hbar * layout.sum(k * _squared(psi)) for k in odd]
        place = center(self.real.layout, rho)
        drift = [p / layout.sum(_squared(psi)) for p in momentum]
        evaluated = self._measured(psi, self._change(psi, v, drift) if held else None, place, drift)
        a = jnp.float64(1) if self.background is None else self.background.scale_factor(time)
        motion = 0.5 * self.hbar**2 * layout.sum(layout.k_squared(psi.real.dtype) * _squared(psi))
        quantum = 0.5 * self.hbar**2 * evaluated.means["quantum"]
        gravity = (
            0.5 * a * self.real.layout.inner(rho, self.potential(rho))
            if self.gravity
            else 0.0 * motion
        )
        interaction = 0.5 * s.self_interaction / a * evaluated.means["square"]
        trap = evaluated.means.get("external", 0.0 * motion)
        columns = {
            "energy": motion + gravity + interaction + trap,
            "kinetic_energy": motion - quantum,
            "quantum_energy": quantum,
            "potential_energy": gravity,
            "interaction_energy": interaction,
            "external_energy": trap,
        }
        if held:
            binding = abs(gravity) + evaluated.means.get("tension", 0.0)
            binding = jnp.where(binding == 0, jnp.inf, binding)
            columns["virial_ratio"] = 1 + evaluated.means["virial"] / binding
        columns |= {
            "mass": evaluated.means["density"] * self.transform.grid.volume,
            "max_density": evaluated.maxima["largest"],
            **by_axis(self.transform.grid, "mean_momentum", momentum),
            **by_axis(self.transform.grid, "center", place),
            "vortex_faces": wave_functions.pierced_faces(self.transform, psi),
            "edge_energy": self._edge(psi, evaluated.means["density"]),
        }
        if self.background is not None:
            columns["scale_factor"] = a
        return columns | {"rate": self.rate_of(v)}

    def _measured(
        self,
        psi: arrays.SpectralScalar,
        change: arrays.SpectralScalar | None,
        place: Sequence[arrays.Number],
        drift: Sequence[arrays.Number],
    ) -> Evaluated:
        """Box means and the largest density, relative to the centre of mass at `place`, which moves
        with `drift`. `change` is the result of `_change` if the virial ratio is needed, else
        None."""
        layout, external = self.transform.layout, self._external
        inputs = {"psi": psi, "gradient": gradient(layout, psi)}
        if change is not None:
            inputs |= {"change": change, "change_gradient": gradient(layout, change)}

        def local(values, points: Points, parameters) -> Local:
            wave = values["psi"]
            density = _squared(wave)
            slope = (jnp.conj(wave) * values["gradient"]).real  # grad rho / 2
            empty = density <= 0
            quantum = jnp.where(empty, 0, squared(slope) / jnp.where(empty, 1, density))
            means = {"density": density, "quantum": quantum, "square": density**2}
            place, drift = parameters
            away = from_center(self.transform.grid, points, place)
            if change is not None:
                means["virial"] = self._virial(values, away, drift)
            if external is not None:
                # (x - c) . grad V is the derivative of V(c + s (x - c)) with respect to s at s = 1.
                trap, slope_of_trap = jax.jvp(external, tuple(points), tuple(away))
                means |= {"external": density * trap, "tension": density * slope_of_trap}
            return Local({}, {"largest": density}, means)

        return self.transform.evaluate(inputs, local, (place, drift))

    def _change(
        self, psi: arrays.SpectralScalar, v: arrays.PhysicalScalar, drift: Sequence[arrays.Number]
    ) -> arrays.SpectralScalar:
        """psi_t + V . grad psi, with V = `drift` the velocity of the centre of mass: the wave's
        rate of change in the co-moving frame. `v` are the values of the phase rate."""
        layout = self.transform.layout
        k = layout.wavenumbers(psi.real.dtype)
        rotation = self.transform.forward(v * self.transform.inverse(psi))
        rotation = rotation + 0.5 * self.hbar * layout.k_squared(psi.real.dtype) * psi
        advection = sum(u.astype(q.dtype) * q for u, q in zip(drift, k, strict=True))
        return layout.constrain(1j * (advection * psi - rotation))

    def _virial(
        self, values: arrays.PointValues, away: Sequence[jax.Array], drift: Sequence[jax.Array]
    ) -> jax.Array:
        """(x - c) . dm/dt at a point in the frame of the centre of mass, m = hbar Im(psi* grad psi)
        - V rho."""
        psi, change = values["psi"], values["change"]
        density_rate = 2 * (jnp.conj(psi) * change).real
        total = jnp.zeros_like(density_rate)
        for i in range(3):
            turned = (
                jnp.conj(change) * values["gradient"][i]
                + jnp.conj(psi) * values["change_gradient"][i]
            )
            rate = self.hbar * turned.imag - drift[i].astype(total.dtype) * density_rate
            total = total + away[i] * rate
        return total

    def _edge(self, psi: arrays.SpectralScalar, density: arrays.Number) -> arrays.Number:
        """Fraction of the kinetic energy at the edge of the spectrum; 0 if the energy is
        round-off."""
        layout, dtype = self.transform.layout, psi.real.dtype
        noise = (1e3 * jnp.finfo(dtype).eps) ** 2 * 2 * self._kinetic_rate / self.hbar * density
        return tail_fraction(layout, layout.k_squared(dtype) * _squared(psi), noise)

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        if row["edge_energy"] <= UNDER_RESOLVED:
            return []
        part = f"{row['edge_energy']:.1%} of its kinetic energy lies near the grid's edge"
        return [
            f"the wave function is under-resolved: {part}; a finer grid, or a smaller box, resolves it"
        ]

    def spectral_energies(self, fields: Fields) -> dict[str, arrays.OfModes]:
        return {}  # the energies of a wave are not sums over its modes

    def spectra(self, fields: Fields) -> dict[str, arrays.Spectrum]:
        """P(k) of the density contrast, length^3."""
        rho = self.real.forward(_squared(self.transform.inverse(fields["psi"])))
        return {"density_power": density_power(self.real.layout, rho)}

    def cospectra(self, fields: Fields) -> dict[str, Float[Array, "ra rb rc"]]:
        """Parts of hbar^2 |grad psi|^2 / 2 (Nore, Abid and Brachet 1997, Phys. Fluids 9, 2644): the
        kinetic energy of the flow, |w|^2 / 2 with w = sqrt(rho) v, in its `solenoidal` part, that
        of vortices, and its `compressive` part; and `quantum_energy`, hbar^2 |grad sqrt(rho)|^2 /
        2. The mean of w belongs to the first."""
        real = self.real
        both = fields["psi"], gradient(self.transform.layout, fields["psi"])
        wave, slope = map(self.transform.inverse, both)
        modulus = jnp.sqrt(_squared(wave))
        empty = modulus <= 0
        rate = jnp.where(
            empty, 0, self.hbar * jnp.conj(wave) * slope / jnp.where(empty, 1, modulus)
        )
        flow, quantum = real.forward(rate.imag), real.forward(rate.real)
        solenoidal = project(real.layout, flow)
        parts = {"solenoidal": solenoidal, "compressive": flow - solenoidal, "quantum": quantum}
        return {f"{name}_energy": 0.5 * squared(part) for name, part in parts.items()}

    def derived(self) -> Mapping[str, DerivedField]:
        inverse = self.transform.inverse

        def density(fields: Fields) -> jax.Array:
            return _squared(inverse(fields["psi"]))

        def velocity(fields: Fields) -> jax.Array:
            """hbar/m Im(psi* grad psi) / |psi|^2, and 0 where the density is 0."""
            psi = fields["psi"]
            wave, slope = inverse(psi), inverse(gradient(self.transform.layout, psi))
            rho = _squared(wave)
            empty = rho <= 0
            return jnp.where(
                empty, 0, self.hbar * (jnp.conj(wave) * slope).imag / jnp.where(empty, 1, rho)
            )

        def potential(fields: Fields) -> jax.Array:
            return self.real.inverse(self.potential(self.real.forward(density(fields))))

        return specs.by_name(
            DerivedField(specs.DENSITY, density),
            DerivedField(
                replace(specs.VELOCITY.on(self.transform.grid), solenoidal=False), velocity
            ),
            DerivedField(specs.SPEED, lambda f: jnp.sqrt(squared(velocity(f)))),
            DerivedField(specs.PHASE, lambda f: jnp.angle(inverse(f["psi"]))),
            DerivedField(specs.POTENTIAL, potential),
        )


def _squared(psi: jax.Array) -> jax.Array:
    return psi.real**2 + psi.imag**2
