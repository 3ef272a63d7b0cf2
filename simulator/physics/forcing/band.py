"""Forces on the modes of a band: random forces with a correlation time, and forces along the flow.

Forces along the flow use only the Hermitian part of the velocity: the other, invisible on the grid,
would grow."""

from collections.abc import Sequence
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int
from pydantic import AfterValidator, Field

from simulator.errors import UserError
from simulator.physics.forcing.forcing import FieldForcing, FieldForcingSettings
from simulator.physics.initial.initial import StartFiles
from simulator.physics.initial.random import Helicity, helical
from simulator.physics.models import Equation, Fields
from simulator.physics.models.damping import absent
from simulator.settings import NonNegative, Positive, Real, Seed, entries
from simulator.spectral import Grid, Layout
from simulator.spectral.arrays import (
    Number,
    Numbers,
    SpectralField,
    SpectralScalar,
    SpectralVector,
    Whole,
)
from simulator.spectral.operators import hermitian
from simulator.spectral.random import mode_normals


def center_velocity(
    layout: Layout, density: SpectralScalar, momentum: SpectralVector
) -> Float[Array, "d"]:
    """Velocity of the centre of mass: <rho v> / <rho>."""
    return layout.at_zero(momentum).real / layout.at_zero(density).real


class BandForcing(FieldForcing):
    """A force on modes of one field. Its net force on a gas is zero."""

    def driven(self, fields: Fields) -> SpectralField:
        """The field; for the velocity of a gas the momentum density, which times an acceleration is
        the power per volume."""
        momentum = self.field == "velocity" and "momentum" in fields
        return fields["momentum" if momentum else self.field]

    def drift(self, fields: Fields) -> Float[Array, "d"] | None:
        """The velocity <rho v> / <rho> of a gas, if it is driven."""
        if self.field != "velocity" or "density" not in fields:
            return None
        return center_velocity(self.transform.layout, fields["density"], self.driven(fields))

    def accelerated(self, fields: Fields, force: SpectralField) -> Fields:
        """f; in gas f - <rho f> / <rho>, which leaves the momentum as it is."""
        if self.drift(fields) is None:
            return {self.field: force}
        layout = self.transform.layout
        density = fields["density"]
        mean = layout.inner(density, force) / layout.at_zero(density).real
        net = jnp.where(layout.zero, mean[:, None, None, None], 0)
        return {self.field: force - net.astype(force.dtype)}

    def check_helicity(self) -> None:
        """Refuses helicity of a field with fewer than three components."""
        if not absent(self.settings.helicity) and self.components < 3:
            raise UserError(f"helicity: {self.field} needs three components; leave the key out")


def _rising(band: tuple[float, float]) -> tuple[float, float]:
    if band[0] > band[1]:
        raise ValueError(f"lowest and highest wavenumber, not {band[0]:g} before {band[1]:g}")
    return band


_TWO = entries("two wavenumbers are needed, lowest and highest", 2)
Band = Annotated[tuple[NonNegative, NonNegative], _TWO, AfterValidator(_rising)]
"""Lowest and highest wavenumber |k| (1/length) of the modes that are forced, both included; k = 0
never is."""

_MARGIN = 1e-9


def in_band(layout: Layout, band: tuple[float, float]) -> Bool[Array, "ka kb kc"]:
    """True at the modes of a band."""
    k2 = layout.k_squared()
    low = band[0] ** 2 * (1 - _MARGIN)
    high = band[1] ** 2 * (1 + _MARGIN)
    return (k2 >= low) & (k2 <= high) & (k2 > 0) & layout.mask


MOST_MODES = 2**22  # Modes around a band that every device can hold: wavenumbers up to about 100.


def _reach(grid: Grid, band: tuple[float, float]) -> list[int]:
    return [
        int(min(kept, band[1] * (1 + _MARGIN) / unit))
        for kept, unit in zip(grid.kept, grid.fundamental, strict=True)
    ]


def _volume(reach: Sequence[int]) -> int:
    return (2 * reach[0] + 1) * (2 * reach[1] + 1) * (reach[2] + 1)


def check_band(grid: Grid, band: tuple[float, float]) -> None:
    """Raises UserError if a band contains no mode of the grid. Wide bands are checked without
    listing their modes."""
    reach = _reach(grid, band)
    lowest = band[0] * (1 - _MARGIN)
    on_an_axis = any(
        n and n * unit >= lowest for n, unit in zip(reach, grid.fundamental, strict=True)
    )
    if not on_an_axis and _volume(reach) <= MOST_MODES:
        band_modes(grid, band)


def band_modes(grid: Grid, band: tuple[float, float]) -> Int[np.ndarray, "mode 3"]:
    """Signed integer wavenumbers of a band's modes, one of each pair k, -k, in a fixed order.

    Raises UserError if the band holds no mode of the grid."""
    reach = _reach(grid, band)
    if _volume(reach) > MOST_MODES:
        wide = f"reaches over {_volume(reach):.2g} modes, which every device would hold; at most {MOST_MODES} can be"
        raise UserError(f"band: [{band[0]:g}, {band[1]:g}] {wide}; lower its highest wavenumber")
    nx, ny, nz = reach
    ranges = (np.arange(-nx, nx + 1), np.arange(-ny, ny + 1), np.arange(nz + 1))
    mode_numbers = np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, 3)
    k2 = ((mode_numbers * np.array(grid.fundamental)) ** 2).sum(1)
    kx, ky, kz = mode_numbers.T
    first = (kz > 0) | ((kz == 0) & ((ky > 0) | ((ky == 0) & (kx > 0))))
    inside = (k2 >= band[0] ** 2 * (1 - _MARGIN)) & (k2 <= band[1] ** 2 * (1 + _MARGIN))
    if grid.spherical:
        inside &= ((2 * mode_numbers / np.array(grid.shape)) ** 2).sum(1) < 8 / 9 - 1e-12
    modes = mode_numbers[first & inside]
    if not len(modes):
        lowest = min(u for u, kept in zip(grid.fundamental, grid.kept, strict=True) if kept)
        begins = f"wavenumbers begin at {lowest:g}, and {grid.largest_wavenumber:g} is kept in all directions"
        raise UserError(f"band: [{band[0]:g}, {band[1]:g}] holds no mode of this grid; {begins}")
    return modes


def embedded(
    layout: Layout, modes: np.ndarray, coefficients: Complex[Array, "mode d"]
) -> SpectralVector:
    """The vector field with these coefficients, which every device has, of one mode of each pair k,
    -k."""
    reach = np.abs(modes).max(0)
    at = (modes + reach).T
    conjugate = (-modes + reach).T
    cube = jnp.zeros((coefficients.shape[1], *(2 * reach + 1)), coefficients.dtype)
    cube = cube.at[:, *at].set(coefficients.T).at[:, *conjugate].set(coefficients.conj().T)
    field = jnp.transpose(cube, (0, *(1 + "xyz".index(a) for a in layout.order)))
    # Axis by axis, each device selects its own wavenumbers, without communication.
    for position, axis in enumerate(layout.order, 1):
        n = int(reach["xyz".index(axis)])
        mode_numbers = layout.integers(axis).ravel()
        taken = jnp.take(field, jnp.clip(mode_numbers + n, 0, 2 * n), axis=position)
        shape = [-1 if i == position else 1 for i in range(4)]
        field = jnp.where((abs(mode_numbers) <= n).reshape(shape), taken, 0)
    return layout.constrain(field)


class HelicalSettings(FieldForcingSettings):
    """Keys of a force that may have helicity."""

    helicity: Helicity = 0.0
    """Helicity of the force relative to its largest possible value: with 1 only right-handed modes
    are driven, those with curl f = k f."""


class OrnsteinUhlenbeckSettings(HelicalSettings):
    kind: Literal["ornstein_uhlenbeck"] = "ornstein_uhlenbeck"
    rate: Positive
    """Mean power per mass injected into a flow that does not respond within the correlation time; of
    another field q the mean of q . f."""
    correlation_time: Positive
    """T, the correlation time of the force."""
    band: Band = (0.0, 2.5)
    """Wavenumbers |k| that are driven, both ends included (1/length)."""
    solenoidal_weight: Annotated[Real, Field(ge=0, le=1)] = 1.0
    """1: a solenoidal force, as incompressible flows need; 0: a compressive one; a mixture between
    them (gas)."""
    seed: Seed = 0
    """Seed of the random force."""


class OrnsteinUhlenbeck(BandForcing):
    """Every mode of the band has a complex vector b that follows an Ornstein-Uhlenbeck process,

    b(t + dt) = b(t) exp(-dt / T) + sqrt(1 - exp(-2 dt / T)) xi,  <xi_i* xi_j> = delta_ij,

    and during a step f(k) = A [w H b + (1 - w) (1 - P) b] with the solenoidal projection P and H =
    sqrt(1 + h) P+ + sqrt(1 - h) P-, P+- = (P +- i k x / k) / 2 of the helicity h (Waleffe, Phys.
    Fluids A 4, 350, 1992), without h equal to P; on a scalar f(k) = A b. A sets the variance of f to
    rate / T, so that a flow with du/dt = f gains energy at `rate`; a flow that turns over within T
    gains less. In gas <rho f> / <rho> is subtracted, so that the net force is zero. Eswaran & Pope,
    Comput. Fluids 16, 257 (1988); the weight w as in Federrath et al., Astron. Astrophys. 512, A81
    (2010).

    xi is keyed by seed, mode, step number and the place in a list of forces, so that its history
    depends on neither devices nor restarts, and no two forces share it."""

    Settings = OrnsteinUhlenbeckSettings

    def __init__(self, settings: OrnsteinUhlenbeckSettings, model: Equation, files: StartFiles):
        super().__init__(settings, model, files)
        weight = settings.solenoidal_weight
        if self.field in model.solenoidal and weight != 1:
            raise UserError(
                f"solenoidal_weight: {self.field} is free of divergence: 1 is needed, not {weight:g}"
            )
        if self.components == 1 and weight != 1:
            kind = "is a scalar" if self.is_scalar else "has one component"
            raise UserError(f"solenoidal_weight: {self.field} {kind}; leave the key out")
        self.check_helicity()
        self._modes = band_modes(model.transform.grid, settings.band)
        k = self._modes * np.array(model.transform.grid.fundamental)
        k = np.stack(model.transform.grid.seen([*k.T]), 1)
        direction = k / np.linalg.norm(k, axis=1, keepdims=True)
        d = self.components
        self._direction = np.pad(direction, ((0, 0), (0, max(d - k.shape[1], 0))))
        # <|f|^2> is (d - 1) w^2 + (1 - w)^2 for each mode, 1 for a scalar; every listed mode stands
        # for two, k and -k.
        each = (d - 1) * weight**2 + (1 - weight) ** 2 if d > 1 else 1.0
        variance = 2 * len(k) * each
        self._amplitude = (settings.rate / settings.correlation_time / variance) ** 0.5

    def _noise(self, step: Whole | int) -> Complex[Array, "mode d"]:
        seed = self.settings.seed
        normal = mode_normals(self._modes, seed, step, self.components, self.number)
        return (normal[..., 0] + 1j * normal[..., 1]) * 0.5**0.5

    def memory(self) -> Numbers:
        return {"forcing": self._noise(0)}

    def renewed(self, memory: Numbers, step: Whole, dt: Number) -> Numbers:
        passed = dt / self.settings.correlation_time
        fresh = jnp.sqrt(-jnp.expm1(-2 * passed))
        return {"forcing": memory["forcing"] * jnp.exp(-passed) + fresh * self._noise(step)}

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        b = memory["forcing"]
        f = self._amplitude * (b if self.components == 1 else self._directed(b))
        force = embedded(self.transform.layout, self._modes, f).astype(self.transform.complex_dtype)
        return self.accelerated(fields, force[0] if self.is_scalar else force)

    def _directed(self, b: Complex[Array, "mode d"]) -> Complex[Array, "mode d"]:
        """w H b + (1 - w) (1 - P) b."""
        weight = self.settings.solenoidal_weight
        helicity = self.settings.helicity
        compressive = (b * self._direction).sum(1, keepdims=True) * self._direction
        solenoidal = b - compressive
        if not absent(helicity):
            curl = 1j * jnp.cross(self._direction, b)
            solenoidal = helical(solenoidal, curl, helicity)
        return weight * solenoidal + (1 - weight) * compressive


class LinearSettings(FieldForcingSettings):
    kind: Literal["linear"] = "linear"
    coefficient: Positive
    """A in f = A u (1/time); a steady flow dissipates 2 A times its kinetic energy."""


class Linear(BandForcing):
    """f = A (u - U), where U is the mean velocity, <u> or for gas <rho u> / <rho>, so that the net
    force is zero; likewise for other fields.

    Lundgren, CTR Annual Research Briefs, 461 (2003); for gas: Petersen & Livescu, Phys. Fluids 22,
    116101 (2010)."""

    Settings = LinearSettings

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        layout = self.transform.layout
        of_flow = self.field == "velocity"
        u = hermitian(
            layout,
            self.model.variables.velocity(self.model, fields) if of_flow else fields[self.field],
        )
        k2 = layout.k_squared(self.transform.dtype)
        drift = self.drift(fields)
        mean = layout.at_zero(self.driven(fields)).real if drift is None else drift
        mean = mean.reshape(*u.shape[:-3], 1, 1, 1).astype(u.dtype)
        return {self.field: self.settings.coefficient * jnp.where(k2 == 0, u - mean, u)}


class ConstantPowerSettings(HelicalSettings):
    kind: Literal["constant_power"] = "constant_power"
    rate: Positive
    """Power, which is kept exactly: per mass, the box mean of f . u; for gas per volume, that of
    rho u . f; of another field q that of q . f."""
    band: Band = (0.0, 2.5)
    """Wavenumbers |k| that are driven, both ends included (1/length)."""


class ConstantPower(BandForcing):
    """f = rate u_band / <u_band^2>, where u_band has the modes of the band: the box mean of f . u
    is the rate. With a helicity h, f is proportional to (1 + h) P+ u_band + (1 - h) P- u_band, P+- =
    (1 +- i k x / k) / 2.

    Machiels, Phys. Rev. Lett. 79, 3411 (1997), at a given rate. The velocity must have energy in
    the band. In gas the modes of the momentum in the frame of the centre of mass, g = m - rho <m> /
    <rho>, replace those of the velocity, and <rho f> / <rho> is subtracted: the box mean of rho u .
    f is the rate for any density, and the net force is zero."""

    Settings = ConstantPowerSettings

    def __init__(self, settings: ConstantPowerSettings, model: Equation, files: StartFiles):
        super().__init__(settings, model, files)
        self.check_helicity()
        check_band(model.transform.grid, settings.band)

    def acceleration(self, fields: Fields, time: Number, memory: Numbers) -> Fields:
        layout = self.transform.layout
        s = self.settings
        flow = self.driven(fields)
        if (drift := self.drift(fields)) is not None:
            flow = flow - drift[:, None, None, None].astype(flow.dtype) * fields["density"]
        inside = jnp.where(in_band(layout, s.band), hermitian(layout, flow), 0)
        force = inside
        if not absent(s.helicity):
            inverse_k = jnp.sqrt(self.model.inverse_k_squared)
            force = inside + s.helicity * inverse_k * self.model.curl(inside)
        return self.accelerated(fields, force * (s.rate / layout.inner(inside, force).sum()))
