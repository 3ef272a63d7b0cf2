"""Solitons: ground states of the Schrodinger-Poisson equations, singly, as a list, or as a random
group."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from simulator.errors import UserError
from simulator.physics.initial.initial import Fields, Initial, StartFiles, check_dimensions
from simulator.physics.models import Equation
from simulator.physics.models.damping import absent
from simulator.plugins.gravity.schrodinger_poisson import SchrodingerPoisson
from simulator.plugins.gravity.wave_functions import from_center
from simulator.settings import Few, Flag, NonNegative, Positive, Real, Seed, Settings, wrong
from simulator.spectral.arrays import SpectralScalar, holds, root

SIZES = ("core_radius", "mass", "central_density")


class OneSoliton(Settings):
    """A soliton whose size is given by one of core_radius, mass and central_density."""

    core_radius: Positive | None = None
    """Radius at which the density is half of its central value."""
    mass: Positive | None = None
    """Total mass."""
    central_density: Positive | None = None
    """Density at the centre."""
    position: tuple[Real, Real, Real] | None = None
    """Centre; by default the grid point nearest to the centre of the box."""
    velocity: tuple[Real, Real, Real] = (0.0, 0.0, 0.0)
    """Velocity of the soliton as a whole."""
    phase: Real = 0.0
    """Phase of the wave function at the centre, in radians."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        sizes = [name for name in SIZES if getattr(self, name) is not None]
        if self._needs_size() and len(sizes) != 1:
            raise wrong(sizes[-1] if sizes else "core_radius", f"give one of {', '.join(SIZES)}")
        return self

    def _needs_size(self) -> bool:
        return True


class SolitonSettings(OneSoliton):
    kind: Literal["soliton"] = "soliton"
    solitons: Annotated[tuple[OneSoliton, ...], Field(max_length=1000)] = ()
    """A list of solitons, in place of the keys of a single one."""
    relax: Flag = False
    """Relax each soliton on the run's own grid and in its periodic box until it is stationary."""
    background: NonNegative = 0.0
    """Density of a homogeneous wave at rest that is added to the solitons."""

    def _needs_size(self) -> bool:
        return not self.solitons

    @model_validator(mode="after")
    def _one_or_several(self) -> Self:
        keys = self.model_fields_set.intersection(OneSoliton.model_fields)
        if self.solitons and keys:
            raise wrong(
                sorted(keys)[0], "belongs into the entries of solitons; keep one of the two"
            )
        return self


class MergerSettings(Settings):
    kind: Literal["soliton_merger"] = "soliton_merger"
    count: Few = 8
    """Number of solitons."""
    core_radius: tuple[Positive, Positive] = (0.5, 1.0)
    """The core radii are drawn from this interval, uniformly in mass."""
    radius: Positive | None = None
    """The centres lie in a ball of this radius in the middle of the box; by default a quarter of
    its shortest side."""
    seed: Seed = 0
    """Seed of positions, radii and phases."""
    relax: Flag = False
    """First relax each soliton in the run's own periodic box."""


class Solitons(Initial):
    """Solitons, whose velocities at the start are known."""

    def outlook(self, model: Equation, stop: float, files: StartFiles) -> dict[str, bool]:
        """3 sigma of a component of the velocity in a soliton, hbar^2 <|grad psi|^2> / (3 m^2 <|psi|^2>),
        beside its own velocity; the fastest counts."""
        wave = wave_model(model, self.settings.kind)
        state = radial_ground_state()
        shells = state.radius**2
        slopes = np.gradient(state.amplitude, _STEP) ** 2
        width = math.sqrt((slopes * shells).sum() / (state.amplitude**2 * shells).sum() / 3)
        speeds = [
            3 * width * wave.hbar / length_scale(wave, soliton) + max(map(abs, soliton.velocity))
            for soliton in self.solitons()
        ]
        return wave.outlook(max(speeds), "3 sigma of the velocity in the solitons at the start")

    def solitons(self) -> Sequence[OneSoliton]:
        """The solitons, or the one that moves fastest."""
        raise TypeError(f"{type(self).__name__} does not define solitons")


class Soliton(Solitons):
    """The sum of moving ground states: psi = sum_j psi_0(x - x_j) exp(i (m/hbar) v_j . (x - x_j) +
    i phase_j).

    x - x_j is the distance to the nearest periodic image. The mass of overlapping solitons is not
    the sum of theirs. In a composite, mass, radius and relaxation refer to its own matter only."""

    Settings = SolitonSettings

    def solitons(self) -> Sequence[OneSoliton]:
        return self.settings.solitons or (self.settings,)

    def build(self, model: Equation, files: StartFiles) -> Fields:
        s = self.settings
        wave = wave_model(model, "soliton")
        psi = superposed(wave, self.solitons(), relaxed=s.relax, background=s.background)
        return {"psi": psi}


class SolitonMerger(Solitons):
    """Solitons at rest at random positions with random phases, which fall together and merge into
    one.

    Schwabe, Niemeyer & Engels, Phys. Rev. D 94, 043513 (2016); Mocz et al., MNRAS 471, 4559
    (2017)."""

    Settings = MergerSettings

    def solitons(self) -> Sequence[OneSoliton]:
        return [OneSoliton(core_radius=min(self.settings.core_radius))]

    def build(self, model: Equation, files: StartFiles) -> Fields:
        s = self.settings
        wave = wave_model(model, "soliton_merger")
        box = np.array(wave.transform.grid.box)
        rng = np.random.default_rng(s.seed)
        radius = box.min() / 4 if s.radius is None else s.radius
        direction = rng.standard_normal((s.count, 3))
        direction *= (radius * rng.random(s.count) ** (1 / 3) / np.linalg.norm(direction, axis=1))[
            :, None
        ]
        # The mass is proportional to 1 / core radius.
        core = 1 / rng.uniform(1 / max(s.core_radius), 1 / min(s.core_radius), s.count)
        phases = rng.uniform(0, 2 * math.pi, s.count)
        each = zip(core.tolist(), (box / 2 + direction).tolist(), phases.tolist(), strict=True)
        solitons = [OneSoliton(core_radius=c, position=tuple(p), phase=a) for c, p, a in each]
        return {"psi": superposed(wave, solitons, relaxed=s.relax)}


def wave_model(model: Equation, kind: str) -> SchrodingerPoisson:
    """`model`, if it is a wave function with gravity in three dimensions; else raises UserError."""
    if not isinstance(model, SchrodingerPoisson):
        raise UserError(
            f"kind: {kind} gives a wave function; it needs model.kind: schrodinger_poisson"
        )
    check_dimensions(model.transform, kind)
    if absent(model.gravity):
        raise UserError(
            f"kind: {kind} is held by gravity; model.gravitational_constant must not be 0"
        )
    return model


def length_scale(model: SchrodingerPoisson, soliton: OneSoliton) -> float:
    """L of a soliton: psi = sqrt(rho_c) f(r / L), rho_c = hbar^2 / (m^2 G L^4)."""
    state = radial_ground_state()
    hbar2 = model.hbar**2
    gravity = attraction(model)
    if soliton.core_radius is not None:
        return soliton.core_radius / state.core
    if soliton.mass is not None:
        return hbar2 * state.mass / (gravity * soliton.mass)
    assert soliton.central_density is not None
    return (hbar2 / (gravity * soliton.central_density)) ** 0.25


def attraction(model: SchrodingerPoisson) -> float:
    """G, multiplied by the scale factor at the start."""
    start = model.settings.cosmology.start if model.settings.cosmology else 1.0
    return model.gravity * start


def superposed(
    model: SchrodingerPoisson,
    solitons: Sequence[OneSoliton],
    *,
    relaxed: bool,
    background: float = 0.0,
) -> SpectralScalar:
    """The wave function of a sum of solitons, and of a homogeneous wave with the density
    `background`."""
    transform = model.transform
    kind = transform.complex_dtype
    total = jax.jit(lambda: transform.layout.constrain(jnp.zeros(transform.layout.shape, kind)))()
    for soliton in solitons:
        total = total + _one(model, soliton, relaxed)
    if not absent(background):
        total = total + jnp.where(transform.layout.zero, jnp.asarray(background**0.5, kind), 0)
    return total


def _one(model: SchrodingerPoisson, soliton: OneSoliton, relaxed: bool) -> SpectralScalar:
    transform = model.transform
    grid = model.transform.grid
    scale = length_scale(model, soliton)
    peak = model.hbar / attraction(model) ** 0.5 / scale**2
    middle = [n // 2 * h for n, h in zip(grid.shape, grid.spacing, strict=True)]
    place = middle if soliton.position is None else soliton.position
    extent = 2 * scale * radial_ground_state().core
    if not holds(extent <= min(grid.box)):
        fits = f"a soliton of core diameter {extent:g} does not fit into the box {grid.box}"
        raise UserError(f"{fits}; use a larger box or a smaller core_radius")

    def distances() -> list[jax.Array]:
        return from_center(grid, transform.physical.coordinates(transform.dtype), place)

    @jax.jit
    def resting() -> jax.Array:
        radius = root(sum((d**2 for d in distances()), jnp.zeros((), transform.dtype)))
        values = peak * soliton_profile(radius, scale)
        values = transform.physical.constrain(jnp.where(transform.physical.inside(), values, 0))
        return transform.layout.constrain(transform.forward(values))

    @jax.jit
    def moving(psi: jax.Array) -> jax.Array:
        shifts = zip(soliton.velocity, distances(), strict=True)
        angle = soliton.phase + sum(v / model.hbar * d for v, d in shifts)
        boosted = transform.inverse(psi) * jnp.exp(1j * angle)
        return transform.layout.constrain(transform.forward(boosted))

    psi = resting()
    if relaxed:
        psi = relax(model, psi)
    return psi if absent(soliton.phase, *soliton.velocity) else moving(psi)


_STEP, _EDGE, _REACH = (
    1 / 256,
    6.0,
    16.0,
)  # In L: the spacing of the table, where the tail begins, the end.


@dataclass(frozen=True)
class RadialState:
    """f(s) with f(0) = 1 of -f''/2 - f'/s + phi f = e f, lap phi = 4 pi f^2: psi = sqrt(rho_c) f(r
    / L) with L = (hbar^2 / (m^2 G rho_c))^(1/4)."""

    radius: np.ndarray
    amplitude: np.ndarray
    core: float  # Radius at which the density f^2 is half of its central value.
    mass: float  # 4 pi integral of f^2 s^2 ds.
    decay: float  # q in the asymptotic form f ~ exp(-q s).


@cache
def radial_ground_state() -> RadialState:
    """The state without nodes, by collocation.

    With u = phi - e: f'' = -2 f'/s + 2 u f, u'' = -2 u'/s + 4 pi f^2. Beyond the mass M, f = A
    exp(-q s) s^(M/q - 1) with q^2 = 2 (u + M / s). Compare Guzman & Urena-Lopez, Phys. Rev. D 69,
    124033 (2004), with lap phi = f^2."""
    from scipy.integrate import solve_bvp

    def slopes(s: np.ndarray, y: np.ndarray) -> np.ndarray:
        f, df, u, du = y
        return np.stack([df, 2 * u * f, du, 4 * math.pi * f**2])

    def outside(u: float, du: float) -> tuple[float, float]:
        """M = s^2 u' and q from the values at the edge."""
        return _EDGE**2 * du, math.sqrt(abs(2 * (u + _EDGE * du)))

    def ends(middle: np.ndarray, edge: np.ndarray) -> np.ndarray:
        mass, decay = outside(*edge[2:])
        fall = decay - (mass / decay - 1) / _EDGE
        return np.array([middle[0] - 1, middle[1], middle[3], edge[1] + fall * edge[0]])

    s = np.arange(0, _REACH + _STEP / 2, _STEP)
    inside = s[s <= _EDGE]
    deep = 1 / np.cosh(1.3 * inside) ** 2
    root = np.sqrt(1 + inside**2)
    guess = np.stack(
        [deep, -2.6 * np.tanh(1.3 * inside) * deep, 2.4 - 4.7 / root, 4.7 * inside / root**3]
    )
    central = np.diag([0.0, -2.0, 0.0, -2.0])  # the terms -2 f'/s and -2 u'/s
    solution = solve_bvp(slopes, ends, inside, guess, S=central, tol=1e-9, max_nodes=20_000).sol(
        inside
    )
    mass, decay = outside(*solution[2:, -1])
    tail = s[len(inside) :] / _EDGE
    outer = solution[0, -1] * np.exp(-decay * _EDGE * (tail - 1)) * tail ** (mass / decay - 1)
    f = np.concatenate([solution[0], outer])
    core = float(np.interp(-0.5, -(f**2), s))
    return RadialState(s, f, core, float(np.trapezoid(4 * math.pi * f**2 * s**2, dx=_STEP)), decay)


def soliton_profile(radius: Float[Array, "*shape"], scale: float) -> Float[Array, "*shape"]:
    """f(r / L) at radii (length), by Lagrange interpolation of order 4 in the table."""
    state = radial_ground_state()
    x = jnp.minimum(radius / scale, 1e3) / _STEP
    table = jnp.asarray(state.amplitude, radius.dtype)
    last = len(state.amplitude) - 1
    i = jnp.clip(jnp.floor(x).astype(int) - 1, 0, last - 3)
    d = x - i
    near = [table[i + j] for j in range(4)]
    inner = (
        -(d - 1) * (d - 2) * (d - 3) / 6 * near[0]
        + d * (d - 2) * (d - 3) / 2 * near[1]
        - d * (d - 1) * (d - 3) / 2 * near[2]
        + d * (d - 1) * (d - 2) / 6 * near[3]
    )
    outer = table[last] * jnp.exp(-state.decay * (x - last) * _STEP)
    return jnp.where(x > last, outer, inner)


def relax(
    model: SchrodingerPoisson, psi: SpectralScalar, *, tolerance: float = 1e-9, most: int = 4000
) -> SpectralScalar:
    """The stationary state near the real wave function `psi` with the same mass, on the model's
    grid and in its box.

    Gradient descent of the energy at fixed mass, preconditioned by (k^2 hbar/2m + c)^-1 (a Sobolev
    gradient; Garcia- Ripoll & Perez-Garcia, SIAM J. Sci. Comput. 23, 1316 (2001)), until |H psi -
    mu psi| < tolerance |mu psi|. Raises UserError if it does not converge."""
    layout = model.transform.layout
    hbar = model.hbar
    kinetic = 0.5 * hbar * layout.k_squared(psi.real.dtype)
    tolerance = max(tolerance, 1e3 * float(jnp.finfo(psi.real.dtype).eps))

    def residual(psi: SpectralScalar):
        values = model.transform.inverse(psi)
        v = model.turn(values.real**2 + values.imag**2, jnp.float64(0))
        acting = kinetic * psi + model.transform.forward(v * values)
        norm = layout.inner(psi, psi)
        mu = layout.inner(psi, acting) / norm
        r = acting - mu * psi
        return r, mu, jnp.sqrt(layout.inner(r, r) / norm) / abs(mu)

    def descend(carry: tuple[jax.Array, ...]):
        psi, r, mu, _, count = carry
        step = r / (kinetic + abs(mu))
        # Only the part of the step that conserves the mass.
        smooth = psi / (kinetic + abs(mu))
        step = step - layout.inner(psi, step) / layout.inner(psi, smooth) * smooth
        moved = psi - 0.8 * step
        moved = moved * jnp.sqrt(layout.inner(psi, psi) / layout.inner(moved, moved))
        r, mu, error = residual(moved)
        return layout.constrain(moved), r, mu, error, count + 1

    @jax.jit
    def solve(psi: SpectralScalar):
        r, mu, error = residual(psi)
        going = lambda c: (c[3] > tolerance) & (c[4] < most)  # noqa: E731
        result = lax.while_loop(going, descend, (psi, r, mu, error, jnp.int32(0)))
        return result[0], result[3]

    psi, error = solve(psi)
    if not float(error) <= tolerance:
        settles = f"the soliton does not settle in this box (residual {float(error):.1e})"
        raise UserError(f"relax: {settles}; use a finer grid, a larger box, or relax: false")
    return psi
