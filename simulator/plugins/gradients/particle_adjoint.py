"""Gradients through particles that are matter, in memory that does not grow with the number of
steps.

A run is a course of rounds: velocities change by the forces of all matter, then the particles
drift. Each can be undone, so that the backward pass holds no states of the forward pass: it takes
the rounds back from the last state, and the particles carry the slopes of the loss along, to the
devices where they were. Li et al., Astrophys. J. Suppl. Ser. 270, 36 (2024), the adjoint of
pmwd."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from simulator.errors import UserError
from simulator.physics.models import State, StateMemory
from simulator.physics.models.split_equation import background_of
from simulator.physics.particles import Domain, ParticleSet
from simulator.physics.particles.particle_set import grown
from simulator.physics.particles.population import Sets, particle_shardings
from simulator.physics.stepping.splitting import Splitting
from simulator.plugins.gradients.variables import PARTICLES, START
from simulator.plugins.gravity.composite import Composite
from simulator.plugins.gravity.cosmology import Background
from simulator.plugins.gravity.lattice import undisturbed
from simulator.plugins.gravity.particle_component import RECORDS, accelerated
from simulator.simulation import initial_state
from simulator.simulation.simulation import Simulation
from simulator.spectral.arrays import Number

GRAVITY = "model.gravitational_constant"
COSMOLOGY = "model.cosmology."
"""G, and the numbers of the background, as variables."""
Records = Mapping[str, Mapping[str, jax.Array]]


class Course(NamedTuple):
    """The numbers of a run in which drift and kick alternate: a drift, and rounds of v <- keep v +
    kick g(x), a drift and the next round; g is the acceleration by the potential at a = 1."""

    first: Number
    keeps: Float[Array, "round"]
    kicks: Float[Array, "round"]
    drifts: Float[Array, "round"]


def course(
    integrator: Splitting,
    background: Background | None,
    times: Float[Array, "end"],
    gravity: Number | float,
) -> Course:
    """The course of steps from each of `times` to the next. Neighbouring kicks, or drifts, of two
    steps are joined; `gravity` multiplies all forces."""
    stages = jax.vmap(lambda t, dt: integrator.stages(background, t, dt))(
        times[:-1], jnp.diff(times)
    )
    a = 1.0 if background is None else background.scale_factor(stages.times)
    pulls = stages.kicks * a * gravity
    zero = jnp.zeros(1)
    if integrator.drifts[0] == 0:
        kicks = jnp.append(pulls[:, 0], zero) + jnp.append(zero, pulls[:, 1])
        return Course(zero[0], jnp.ones(len(kicks)), kicks, jnp.append(stages.drifts[:, 1], zero))
    keeps = jnp.ones_like(pulls) if stages.keeps is None else stages.keeps
    drifts = stages.drifts[:, 1] + jnp.append(stages.drifts[1:, 0], zero)
    return Course(stages.drifts[0, 0], keeps[:, 0], pulls[:, 0], drifts)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def ran(model: Composite, course: Course, records: Records, begin: Sets) -> Sets:
    """The particles after a course, from their `records` in the buffers of `begin`. If a device's
    buffer was too small for the particles there, `needed` tells how many came, and positions are
    NaN; on the way back slopes are."""
    return _forward(model, course, records, begin)[0]


def _ran(model: Composite, course: Course, records: Records, begin: Sets) -> Sets:
    """`ran`, with the positions in `begin` as the record `start`, which leads slopes back to their
    devices."""
    sets = {
        n: s.with_records({**records[n], "start": s.records["position"]}) for n, s in begin.items()
    }
    sets = model.drift(sets, course.first)

    def round_(
        carry: tuple[Sets, dict[str, jax.Array]], row: tuple[Number, ...]
    ) -> tuple[Any, None]:
        (sets, most), (keep, kick, drift) = carry, row
        pulls = _pulls(model, sets)
        sets = {
            n: s.with_records({"velocity": keep * s.records["velocity"] + kick * pulls[n]})
            for n, s in sets.items()
        }
        sets = model.drift(sets, drift)
        return (sets, {n: jnp.maximum(most[n], s.needed) for n, s in sets.items()}), None

    begun = {n: s.needed for n, s in sets.items()}
    (sets, most), _ = lax.scan(round_, (sets, begun), (course.keeps, course.kicks, course.drifts))
    sets = {n: replace(s, needed=most[n]) for n, s in sets.items()}
    fits = _fits(sets)
    return {
        n: s.with_records({"position": jnp.where(fits, s.records["position"], jnp.nan)})
        for n, s in sets.items()
    }


def _forward(model: Composite, course: Course, records: Records, begin: Sets) -> tuple[Sets, Any]:
    end = _ran(model, course, records, begin)
    return {n: s.without("start") for n, s in end.items()}, (course, end, begin)


def _reverse(
    model: Composite, residuals: tuple[Course, Sets, Sets], slopes: Sets
) -> tuple[Course, Records, None]:
    """The slopes of the loss by the course and by the records. lambda_x and lambda_v, the slopes by
    positions and velocities, are records `by_position` and `by_velocity` of the particles."""
    course, end, begin = residuals
    sets = {n: _with_slopes(s, slopes[n]) for n, s in end.items()}
    rows = (course.keeps, course.kicks, course.drifts)
    sets, (*by_rows, fits) = lax.scan(partial(_round_back, model), sets, rows, reverse=True)
    sets, by_first = _undrifted(model, sets, course.first)
    sets = {n: s.with_records({"position": s.records["start"]}) for n, s in sets.items()}
    sets = model.drift(sets, jnp.zeros(()) * by_first.sum())
    # Sums over devices stand after the loops: inside, they could be confused with the exchange of
    # particles.
    by_records = {n: _ordered(model.populations[n].domain, s, begin[n]) for n, s in sets.items()}
    by_all = Course(by_first.sum(), *(part.sum(-1) for part in by_rows)), by_records
    fits = fits.all() & _fits(sets)
    return *jax.tree.map(lambda slope: jnp.where(fits, slope, jnp.nan), by_all), None


def _with_slopes(particles: ParticleSet, slopes: ParticleSet) -> ParticleSet:
    by = {f"by_{r}": jnp.where(particles.valid, slopes.records[r], 0) for r in RECORDS}
    return particles.with_records(by)


def _undrifted(model: Composite, sets: Sets, drift: Number) -> tuple[Sets, jax.Array]:
    """The particles and slopes before a drift, and on each device the slope by the drift."""
    by_drift = _inner(sets, {n: s.records["velocity"] for n, s in sets.items()}, "by_position")
    new = {n: _added(s, by_velocity=drift * s.records["by_position"]) for n, s in sets.items()}
    return model.drift(new, -drift), by_drift


def _round_back(model: Composite, sets: Sets, row: tuple[Number, ...]) -> tuple[Sets, Any]:
    """The particles and slopes before a round, and the slopes by its numbers:

    lambda_v += drift lambda_x,  lambda_x += kick (dg/dx)^T lambda_v,  lambda_v *= keep."""
    keep, kick, drift = row
    sets, by_drift = _undrifted(model, sets, drift)

    def forces(records: Records) -> Any:
        return _pulls(model, {n: s.with_records(records[n]) for n, s in sets.items()})

    pulls, transposed = jax.vjp(forces, _records(sets, ("position", "mass")))
    by_kick = _inner(sets, pulls, "by_velocity")
    (more,) = transposed({n: kick * s.records["by_velocity"] for n, s in sets.items()})
    before = {n: (s.records["velocity"] - kick * pulls[n]) / keep for n, s in sets.items()}
    by_keep = _inner(sets, before, "by_velocity")
    new = {}
    for n, s in sets.items():
        kicked = {"velocity": before[n], "by_velocity": keep * s.records["by_velocity"]}
        slopes = {f"by_{r}": s.records[f"by_{r}"] + slope for r, slope in more[n].items()}
        new[n] = s.with_records(kicked | slopes)
    return new, (by_keep, by_kick, by_drift, _fits(new))


ran.defvjp(_forward, _reverse)


def _pulls(model: Composite, sets: Sets) -> dict[str, jax.Array]:
    works = model.forces(sets, None).works
    return {n: accelerated(s, works[n]) for n, s in sets.items()}


def _fits(sets: Sets) -> jax.Array:
    return ~jnp.stack([s.crowded for s in sets.values()]).any()


def _records(sets: Sets, names: Iterable[str] = RECORDS) -> dict[str, dict[str, jax.Array]]:
    return {n: {r: s.records[r] for r in names} for n, s in sets.items()}


def _added(particles: ParticleSet, **more: jax.Array) -> ParticleSet:
    return particles.with_records({r: particles.records[r] + values for r, values in more.items()})


def _inner(sets: Sets, vectors: Mapping[str, jax.Array], slope: str) -> Float[Array, "device"]:
    """The sum over each device's particles of vectors times the record `slope`."""
    total: Any = 0
    for n, s in sets.items():
        products = jnp.where(s.valid, (vectors[n] * s.records[slope]).sum(0), 0)
        total = total + products.reshape(s.devices, -1).sum(1)
    return total


def _ordered(domain: Domain, particles: ParticleSet, begin: ParticleSet) -> dict[str, jax.Array]:
    """The slopes by the records of particles, in the order of the same particles in `begin`."""
    # Entries whose particle has left keep its records.
    slopes = {r: jnp.where(particles.valid, particles.records[f"by_{r}"], 0) for r in RECORDS}
    if not domain.cuts:
        return slopes

    def local(ids: jax.Array, wanted: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        place = jnp.zeros_like(ids).at[jnp.argsort(wanted)].set(jnp.argsort(ids))
        return tuple(array[..., place] for array in arrays)

    specs = tuple(domain.spec(a.ndim) for a in slopes.values())
    mapped = domain.mapped(local, (domain.spec(1), domain.spec(1), *specs), specs)
    return dict(zip(slopes, mapped(particles.id, begin.id, *slopes.values()), strict=True))


def check_model(simulation: Simulation, dt: float | None) -> None:
    """Raises UserError if gradients cannot go through the simulation's particles."""
    model = simulation.model
    if not (isinstance(model, Composite) and model.joins_kicks):
        raise UserError(
            "particles: gradients go through particles alone, not through particles beside gas or waves"
        )
    if dt is None and simulation.time_step.ends is None:
        raise UserError(
            "dt: is needed; without it the steps are those of time.steps, which this run has not"
        )


def composite_of(simulation: Simulation) -> Composite:
    """The model of a simulation of particles."""
    assert isinstance(simulation.model, Composite)
    return simulation.model


def check_variable(simulation: Simulation, key: str, value: Any) -> None:
    """Raises UserError if `key` is no variable of a simulation of particles."""
    known = composite_of(simulation).populations
    if key == PARTICLES:
        for name, records in value.items():
            if name not in known or not records.keys() <= set(RECORDS):
                raise UserError(
                    f"variables: particles: {', '.join(known)} have {', '.join(RECORDS)} and no others"
                )
    elif key != GRAVITY and (not key.startswith((COSMOLOGY, START)) or key == f"{COSMOLOGY}start"):
        takes = f"{PARTICLES}, numbers of initial, {GRAVITY} and the numbers of {COSMOLOGY[:-1]} except start"
        raise UserError(f"variables: {key!r} cannot vary in a run of particles; {takes} can")
    elif key == GRAVITY and not simulation.config.model.gravitational_constant:
        raise UserError(
            f"variables: {GRAVITY}: this run has no gravity, which the gradient would multiply"
        )


def places(simulation: Simulation) -> State:
    """The state at the start with the particles at rest on their lattice or glass, from which the
    start displaces them: a gradient by the start begins with it."""
    parts = composite_of(simulation).parts.items()
    return replace(
        simulation.state, particles={n: undisturbed(cast(Any, part), 1.0) for n, part in parts}
    )


def _displaced(simulation: Simulation, variables: Mapping[str, Any], places: Sets) -> Sets:
    """The particles at the start, on the devices of their `places`. Raises UserError if the start
    cannot vary."""
    for name, part in composite_of(simulation).parts.items():
        cast(Any, part).places = places[name]
    keys = ", ".join(key for key in variables if key.startswith(START))
    takes = "numbers of spectra and modes of particles that start from a lattice or glass"
    refused = UserError(f"variables: {keys}: cannot all vary; {takes} can")
    try:
        begun, *_ = initial_state.traced_start(
            simulation.config, simulation.model, simulation.inputs
        )
    except jax.errors.JAXTypeError as error:
        raise refused from error
    if any(begun[name].id is not particles.id for name, particles in places.items()):
        raise refused  # the start has not displaced them
    return begun


def _wider(model: Composite, sets: Sets, room: int) -> Sets:
    """The particles in buffers of `room` entries at least."""
    wider = {}
    for name, particles in sets.items():
        wide = grown(particles, max(room, particles.capacity))
        shardings = particle_shardings(wide, model.populations[name].domain)
        wider[name] = lax.with_sharding_constraint(wide, shardings)
    return wider


def states(
    simulation: Simulation,
    variables: Mapping[str, Any],
    begin: State,
    ends: Sequence[int],
    dt: Number | float | None,
    room: int = 0,
) -> tuple[State, ...]:
    """The states after the numbers `ends` of steps from `begin`, with other values of variables, in
    buffers of `room` entries at least. Without `dt` the steps end at the scale factors at which
    those of `time.steps` end, whatever the cosmology. If numbers of the start vary, the particles
    of `begin` are those of `places`."""
    model = simulation.model
    integrator = simulation.integrator
    assert isinstance(model, Composite) and isinstance(integrator, Splitting)
    starts = any(key.startswith(START) for key in variables)
    numbers = {
        k: v for k, v in variables.items() if k.startswith(COSMOLOGY) or (starts and k != PARTICLES)
    }
    varied = simulation.varied(numbers) if numbers else simulation
    background = composite_of(varied).background
    if dt is not None:
        times = begin.time + dt * jnp.arange(ends[-1] + 1)
    else:
        times = _ends_of_steps(simulation, background, ends[-1])
    gravity = (
        variables[GRAVITY] / model.settings.gravitational_constant if GRAVITY in variables else 1.0
    )
    start = variables.get(PARTICLES, {})
    begun = _displaced(varied, variables, begin.particles) if starts else begin.particles
    begun = {n: s.with_records(start.get(n, {})) for n, s in begun.items()}
    records = _records(_wider(model, begun, room))
    sets = _wider(model, begin.particles, room)
    reached: list[State] = []
    for before, end in pairwise((0, *ends)):
        part = course(integrator, background, times[before : end + 1], gravity)
        sets: Sets = ran(model, part, records, sets)  # type: ignore[assignment]
        records = _records(sets)
        clock = {"time": times[end], "step": begin.step + end, "dt": times[end] - times[end - 1]}
        # The energy that the expansion works on influences no step.
        reached.append(
            replace(begin, particles=sets, memory=StateMemory(rate=begin.memory.rate), **clock)
        )
    return tuple(reached)


def _ends_of_steps(simulation: Simulation, background: Background | None, last: int) -> jax.Array:
    """The times at which the steps of `time.steps` end, at the same scale factors also in another
    `background`. Raises UserError if there are fewer than `last`."""
    ends = simulation.time_step.ends
    assert ends is not None
    if last >= len(ends):
        raise UserError(f"steps: {last} are more than the {len(ends) - 1} of time.steps")
    usual = background_of(simulation.model)
    if background is None or not background.traced or usual is None:
        return jnp.asarray(ends)
    return jnp.stack(
        [jnp.asarray(background.time_of(usual.scale_factor_at(float(t)))) for t in ends]
    )
