"""Solitons: ground states of the Schrodinger-Poisson equations, singly, as a list, or as a random group."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from simulator.errors import UserError
from simulator.physics.initial.ground_state import profile, radial_ground_state, relax
from simulator.physics.initial.initial import Fields, Initial, StartFiles, three_dimensional
from simulator.physics.models.schrodinger_poisson import SchrodingerPoisson
from simulator.settings import Few, Flag, NonNegative, Positive, Real, Seed, Settings, wrong

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
        given = [name for name in SIZES if getattr(self, name) is not None]
        if self._needs_size() and len(given) != 1:
            raise wrong(given[-1] if given else "core_radius", f"give one of {', '.join(SIZES)}")
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
        own = self.model_fields_set.intersection(OneSoliton.model_fields)
        if self.solitons and own:
            raise wrong(sorted(own)[0], "belongs into the entries of solitons; keep one of the two")
        return self


class MergerSettings(Settings):
    kind: Literal["soliton_merger"] = "soliton_merger"
    count: Few = 8
    """Number of solitons."""
    core_radius: tuple[Positive, Positive] = (0.5, 1.0)
    """The core radii are drawn from this interval, uniformly in mass."""
    radius: Positive | None = None
    """The centres lie in a ball of this radius about the centre of the box; by default a quarter of its shortest
    side."""
    seed: Seed = 0
    """Seed of positions, radii and phases."""
    relax: Flag = False
    """First relax each soliton in the run's own periodic box."""


class Soliton(Initial):
    """The sum of moving ground states: psi = sum_j psi_0(x - x_j) exp(i (m/hbar) v_j . (x - x_j) + i phase_j).

    x - x_j is the distance to the nearest periodic image. The mass of overlapping solitons is not the sum of theirs.
    """

    Settings = SolitonSettings

    def build_for(self, model: Any, files: StartFiles) -> Fields:
        s = self.settings
        wave = wave_model(model, "soliton")
        return {"psi": superposed(wave, s.solitons or (s,), relaxed=s.relax, background=s.background)}


class SolitonMerger(Initial):
    """Solitons at rest at random positions with random phases, which fall together and merge into one.

    Schwabe, Niemeyer & Engels, Phys. Rev. D 94, 043513 (2016); Mocz et al., MNRAS 471, 4559 (2017).
    """

    Settings = MergerSettings

    def build_for(self, model: Any, files: StartFiles) -> Fields:
        s = self.settings
        wave = wave_model(model, "soliton_merger")
        box = np.array(wave.transform.grid.box)
        rng = np.random.default_rng(s.seed)
        radius = box.min() / 4 if s.radius is None else s.radius
        direction = rng.standard_normal((s.count, 3))
        direction *= (radius * rng.random(s.count) ** (1 / 3) / np.linalg.norm(direction, axis=1))[:, None]
        # The mass is proportional to 1 / core radius.
        core = 1 / rng.uniform(1 / max(s.core_radius), 1 / min(s.core_radius), s.count)
        phases = rng.uniform(0, 2 * math.pi, s.count)
        solitons = [
            OneSoliton(core_radius=float(c), position=(float(p[0]), float(p[1]), float(p[2])), phase=float(a))
            for c, p, a in zip(core, box / 2 + direction, phases, strict=True)
        ]
        return {"psi": superposed(wave, solitons, relaxed=s.relax)}


def wave_model(model: Any, kind: str) -> SchrodingerPoisson:
    """The model, after a check that it is a wave function with gravity."""
    if not isinstance(model, SchrodingerPoisson):
        raise UserError(f"kind: {kind} gives a wave function; it needs model.kind: schrodinger_poisson")
    three_dimensional(model.transform, kind)
    if model.gravity == 0:
        raise UserError(f"kind: {kind} is held by gravity; model.gravitational_constant must not be 0")
    return model


def length_scale(model: SchrodingerPoisson, soliton: OneSoliton) -> float:
    """L of a soliton: psi = sqrt(rho_c) f(r / L), rho_c = hbar^2 / (m^2 G L^4)."""
    state = radial_ground_state()
    hbar2, gravity = model.hbar**2, attraction(model)
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
    model: SchrodingerPoisson, solitons: Sequence[OneSoliton], *, relaxed: bool, background: float = 0.0
) -> jax.Array:
    """Coefficients of the sum of solitons."""
    transform = model.transform
    kind = jnp.result_type(transform.dtype, jnp.complex64)
    total = jax.jit(lambda: transform.layout.constrain(jnp.zeros(transform.layout.shape, kind)))()
    for soliton in solitons:
        total = total + _one(model, soliton, relaxed)
    if background:
        zero = jnp.ones((1, 1, 1), bool)
        for axis in "xyz":
            zero = zero & (transform.layout.integers(axis) == 0)
        total = total + jnp.where(zero, jnp.asarray(math.sqrt(background), kind), 0)
    return total


def _one(model: SchrodingerPoisson, soliton: OneSoliton, relaxed: bool) -> jax.Array:
    transform, grid = model.transform, model.transform.grid
    scale = length_scale(model, soliton)
    peak = math.sqrt(model.hbar**2 / attraction(model)) / scale**2
    middle = [n // 2 * h for n, h in zip(grid.shape, grid.spacing, strict=True)]
    place = middle if soliton.position is None else soliton.position
    if (extent := 2 * scale * radial_ground_state().core) > min(grid.box):
        raise UserError(
            f"a soliton of core diameter {extent:g} does not fit into the box {grid.box}; "
            f"use a larger box or a smaller core_radius"
        )

    def distances() -> list[jax.Array]:
        points = transform.physical.coordinates(transform.dtype)
        return [
            jnp.mod(q - p + length / 2, length) - length / 2
            for q, p, length in zip(points, place, grid.box, strict=True)
        ]

    @jax.jit
    def resting() -> jax.Array:
        radius = jnp.sqrt(sum(d**2 for d in distances()))
        values = peak * profile(radius, scale)
        values = transform.physical.constrain(jnp.where(transform.physical.inside(), values, 0))
        return transform.layout.constrain(transform.forward(values))

    @jax.jit
    def moving(psi: jax.Array) -> jax.Array:
        angle = soliton.phase + sum(
            v / model.hbar * d for v, d in zip(soliton.velocity, distances(), strict=True)
        )
        boosted = transform.inverse(psi) * jnp.exp(1j * angle)
        return transform.layout.constrain(transform.forward(boosted))

    psi = resting()
    if relaxed:
        psi = relax(model, psi)
    return moving(psi) if soliton.phase or any(soliton.velocity) else psi
