"""Wave dark matter and quantum gases: a Schrodinger equation with gravity, self-interaction and
traps:

i psi_t = -(hbar/2m) lap psi + (m/hbar) (Phi + g |psi|^2 + V_ext) psi,
lap Phi = 4 pi G (|psi|^2 - mean).

|psi|^2 is the mass density. The wave function keeps all its modes: both parts of a split step are
unitary on the grid, and mass is conserved to round-off. With a `cosmology`, Phi is multiplied by
a(tau) and the self-interaction by 1/a (supercomoving variables, see `cosmology.py`).

In two dimensions nothing depends on z: densities are still masses per volume, the mass of the box
is that of a layer of unit depth, and gravity is that of rods along z."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import model_validator

from simulator.physics.models.damping import absent
from simulator.physics.models.equation import Field, MakeTransform, Numerics
from simulator.physics.models.fields import Fields
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.user_function import UserFiles
from simulator.plugins.gravity import wave_functions
from simulator.plugins.gravity.cosmology import Background, CosmologySettings, check_units
from simulator.plugins.gravity.density import SelfGravity, check_arrangement
from simulator.plugins.gravity.matter_observables import ExpandingMatter
from simulator.plugins.gravity.units import UNITS, HubbleParameter, UnitsName, in_units
from simulator.plugins.gravity.wave_observables import (
    WaveColumns,
    WaveFields,
    WaveSpectra,
)
from simulator.settings import (
    NonNegative,
    Positive,
    Real,
    Settings,
    refuse_key,
    wrong,
)
from simulator.spectral import Transform, arrays
from simulator.spectral.operators import Green, solve_poisson, squared

# hbar / m in kpc km/s for m c^2 = 1e-22 eV.
HBAR_OVER_M22 = 6.582119569e-16 * 299792.458**2 / 1e-22 / 3.0856775814913673e16


class WaveSettings(Settings):
    """Settings of matter waves, apart from gravity."""

    kind: Any
    hbar_over_m: Positive | None = None
    """hbar / m, length^2 / time; 1 by default."""
    boson_mass: Positive | None = None
    """m c^2 in 1e-22 eV, which gives hbar / m; needs units."""
    h: HubbleParameter | None = None
    """With boson_mass in units of Mpc / h: H0 in 100 km/s/Mpc."""
    self_interaction: Real = 0.0
    """g in the potential g |psi|^2; negative values attract."""
    external_potential: wave_functions.ExternalSettings | None = None
    """A trap: {kind: harmonic, frequency: [x, y, z]} or {kind: python, path, function}."""
    absorber: wave_functions.AbsorberSettings | None = None
    """An absorbing layer at the faces of the box."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, data: object) -> object:
        refuse_key(data, "particle_mass", "is now boson_mass, as in initial")
        return data


def mass_problem(settings: WaveSettings, units: str) -> tuple[str, str] | None:
    """The key of the boson's mass that does not fit the units, and why; None if all fit."""
    mass = settings.boson_mass
    if units not in UNITS and mass is not None:
        return "boson_mass", f"needs units: {' or '.join(UNITS)}; give hbar_over_m here"
    if units in UNITS and (mass is None) == (settings.hbar_over_m is None):
        length = UNITS[units].length
        return "boson_mass", f"give either boson_mass (1e-22 eV) or hbar_over_m ({length} km/s)"
    per_h = units in UNITS and UNITS[units].per_h and mass is not None
    if per_h and settings.h is None:
        return "h", "boson_mass in units of Mpc / h needs H0 in 100 km/s/Mpc, e.g. h: 0.68"
    if settings.h is not None and not per_h:
        return "h", "applies to boson_mass in units of Mpc / h; leave it out"
    return None


def hbar_over_mass(mass: float, units: str, h: float | None) -> float:
    """hbar / m (length km/s) of a boson of `mass` (1e-22 eV)."""
    per_length = 1.0 if h is None else h
    return HBAR_OVER_M22 / mass / (1000 * UNITS[units].megaparsecs) * per_length


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
        check_units(self)
        if problem := mass_problem(self, self.units):
            raise wrong(*problem)
        if self.cosmology is not None and (self.external_potential or self.absorber):
            raise wrong("cosmology", "excludes external_potential and absorber; keep one of them")
        return self

    @property
    def hbar(self) -> float:
        """hbar / m in the run's units."""
        if self.hbar_over_m is not None:
            return self.hbar_over_m
        if self.boson_mass is None:
            return 1.0
        return hbar_over_mass(self.boson_mass, self.units, self.h)

    @property
    def gravity(self) -> float:
        """G in the run's units."""
        if self.gravitational_constant is not None:
            return self.gravitational_constant
        return UNITS[self.units].gravity if self.units in UNITS else 1.0


class SchrodingerPoisson(SelfGravity, SplitEquation):
    Settings = SchrodingerPoissonSettings
    settings: SchrodingerPoissonSettings
    evolved = (Field("psi", complex=True, units="(mass/length^3)^(1/2)"),)
    numerics = Numerics(dealias=("none",), decays=True, split=True)
    dimensions = (2, 3)
    has = (WaveColumns(), WaveSpectra(), WaveFields(), ExpandingMatter())

    self_interaction: float
    green: Green

    def __init__(
        self,
        settings: SchrodingerPoissonSettings,
        transform: Transform,
        real: Transform,
        files: UserFiles | None = None,
    ):
        """`transform` is that of the complex wave function, `real` that of density and potential,
        both with all modes."""
        super().__init__(settings, transform)
        check_arrangement(transform, real, "wave function and potential")
        self.real = real
        self.unit_system = settings.units
        self.hbar = settings.hbar
        self.gravity = settings.gravity
        self.background: Background | None = (  # pyright: ignore[reportIncompatibleVariableOverride]
            Background(settings.cosmology, self.gravity) if settings.cosmology else None
        )
        self.trap = self.absorption = None
        if settings.external_potential is not None:
            trap = settings.external_potential
            self.trap = wave_functions.external_potential(trap, transform.grid, files)
        if settings.absorber is not None:
            self.absorption = wave_functions.absorption(settings.absorber, transform.grid)
        largest = (np.abs(transform.layout.mode_numbers[axis]).max() for axis in "xyz")
        k = [n * unit for n, unit in zip(largest, transform.grid.fundamental, strict=True)]
        self.fastest_drift = 0.5 * self.hbar * float(np.square(k).sum())
        """(hbar/2m) k^2 of the largest wavenumber."""

    @property
    def density_transform(self) -> Transform:
        return self.real

    @classmethod
    def create(
        cls, settings: SchrodingerPoissonSettings, make: MakeTransform, files: UserFiles
    ) -> Self:
        return cls(settings, make(real=False, every=True), make(real=True, every=True), files)

    def in_units(self, text: str) -> str:
        return in_units(text, self.unit_system)

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

    def potential(self, density: arrays.SpectralScalar) -> arrays.SpectralScalar:
        """Phi (length^2/time^2) from the density; the coefficients of both are those of the
        transform `real`."""
        source = 4 * math.pi * self.gravity * density
        return solve_poisson(self.real.layout, source, self.green)

    def turn(self, density: arrays.PhysicalScalar, time: arrays.Number) -> arrays.PhysicalScalar:
        """V (1/time), the rate at which phases turn, from the values of the density."""
        g = self.self_interaction
        v = jnp.zeros_like(density)
        a = None
        if self.background is not None:
            a = self.background.scale_factor(time).astype(density.dtype)
        if not absent(self.gravity):
            phi = self.real.inverse(self.potential(self.real.forward(density)))
            v = v + (phi if a is None else a * phi)
        if not absent(g):
            v = v + (g * density if a is None else g / a * density)
        if self.trap is not None:
            v = v + self.trap(*self.real.physical.coordinates(density.dtype))
        return v / self.hbar

    def kick(
        self, fields: Fields, time: arrays.Number, duration: arrays.Number
    ) -> tuple[Fields, arrays.Number]:
        """psi(x) exp(-i V duration), V = (m/hbar) (Phi + g |psi|^2 + V_ext); V is constant during
        the kick."""
        psi = self.transform.inverse(fields["psi"])
        return self.turned(psi, self.turn(squared(psi), time), duration)

    def turned(
        self, psi: arrays.PhysicalScalar, v: arrays.PhysicalScalar, duration: arrays.Number
    ) -> tuple[Fields, arrays.Number]:
        """The field psi after a kick of its values at the rate v (1/time), and the rate (1/time)
        that limits dt."""
        psi = psi * wave_functions.phase_factor(v * duration.astype(v.dtype))
        if self.absorption is not None:
            points = self.real.physical.coordinates(v.dtype)
            psi = psi * jnp.exp(-self.absorption(*points) * duration.astype(v.dtype))
        modes = self.transform.layout.constrain(self.transform.forward(psi))
        return {"psi": modes}, self.spread(v)

    def spread(self, v: arrays.PhysicalScalar) -> arrays.Number:
        """The rate (1/time) for which dt = cfl / rate changes no phase by more than pi cfl. A
        constant in V changes all phases alike and does not count."""
        physical = self.real.physical
        extent = (physical.max(v) - physical.min(v)).astype(jnp.float64)
        return jax.lax.stop_gradient(jnp.maximum(extent, self.fastest_drift) / math.pi)

    def outlook(self, speed: float, words: str) -> dict[str, bool]:
        """The largest velocity (length/time) that the grid carries, at which a phase turns by pi
        from a point to the next, beside the `speed` of the waves by the formula in `words`: a line,
        and whether the grid suffices."""
        grid = self.transform.grid
        most = math.pi * self.hbar / max(grid.seen(grid.spacing))
        line = f"the grid carries velocities up to pi hbar / (m dx) = {most:.3g}; {words} is {speed:.3g}"
        if speed <= most:
            return {line: True}
        finer = speed / most
        shape = [16 * math.ceil(finer * n / 16) for n in grid.seen(grid.shape)]
        box = [float(f"{length / finer:.2g}") for length in grid.seen(grid.box)]
        cure = f"grid.shape: {shape} or grid.box: {box} resolves them"
        return {f"{line}, so the waves become noise of the grid; {cure}": False}

    def jeans_frequency_squared(self, k2: float, density: float) -> float:
        """omega^2 of a small density wave in matter at rest at the start: (hbar k^2 / 2m)^2 + k^2 g
        rho - 4 pi G rho."""
        a = self.settings.cosmology.start if self.settings.cosmology else 1.0
        attraction = 4 * math.pi * a * self.gravity - k2 * self.self_interaction / a
        return (0.5 * self.hbar * k2) ** 2 - attraction * density

    @classmethod
    def jeans_wavenumber(
        cls, keys: Mapping[str, Any], background: CosmologySettings, scale_factor: float
    ) -> float:
        """(6 Omega_m a)^(1/4) (H0 m / hbar)^(1/2): Hu, Barkana & Gruzinov, Phys. Rev. Lett. 85, 1158
        (2000)."""
        mass = keys.get("boson_mass")
        hbar = keys.get("hbar_over_m") or 1.0
        if mass:
            hbar = hbar_over_mass(mass, keys["units"], keys.get("h"))
        return (6 * background.matter * scale_factor) ** 0.25 * (background.hubble / hbar) ** 0.5

    def moving(
        self,
        density: arrays.PhysicalScalar,
        velocity: arrays.PhysicalVector,
        potential: Callable[[arrays.Number | float], arrays.PhysicalScalar],
    ) -> Mapping[str, jax.Array]:
        """The velocity is (hbar/m) times the gradient of the phase."""
        return {"psi": jnp.sqrt(density) * jnp.exp(1j * potential(self.hbar))}
