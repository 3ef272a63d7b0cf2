"""The loop over steps, on the device."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from simulator.config.blocks import EVENT_TOLERANCE
from simulator.measure.budget import RESIDUAL, budget, residual
from simulator.physics.forcing import Forcing
from simulator.physics.models import Fields, Model, SplitModel, State
from simulator.physics.particles.swarm import Sets, Swarm
from simulator.physics.stepping.evolved import Evolved
from simulator.physics.stepping.integrator import History, Integrator, Past
from simulator.physics.stepping.splitting import KickDriftKick, Splitting
from simulator.spectral.arrays import Number


class TimeStep(NamedTuple):
    """The choice of dt: fixed, from the CFL number and never above `largest`, or to the next of
    given times."""

    fixed: float | None
    cfl: float | None
    largest: float | None
    ends: Any = None  # The rising times at which steps end, (steps + 1,), the first one included.

    def choose(self, rate: Number, time: Number) -> Number:
        """dt (time) from the model's largest rate (1/time); NaN, which ends the run, if the rate is
        not finite."""
        if self.ends is not None:
            ends = jnp.asarray(self.ends)
            near = EVENT_TOLERANCE * jnp.diff(ends, append=jnp.inf)
            dt = (
                ends[jnp.clip(jnp.searchsorted(ends - near, time, side="right"), 1, len(ends) - 1)]
                - time
            )
        elif self.fixed is not None:
            dt = jnp.float64(self.fixed)
        else:
            dt = cast(float, self.cfl) / rate.astype(jnp.float64)
            dt = dt if self.largest is None else jnp.minimum(dt, self.largest)
        return jnp.where(jnp.isfinite(rate), dt, jnp.nan)


class Until(NamedTuple):
    """The limits of the loop: a step ends exactly at the time `aligned`; the loop pauses after the
    first step that ends at or beyond the time `soft`, and after `steps` steps."""

    aligned: jax.Array | float
    soft: jax.Array | float
    steps: jax.Array | np.int64 | int


Advance = Callable[[State, Until], State]
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def beginning(
    fields: Fields,
    memory: dict[str, jax.Array] | None = None,
    history: History | None = None,
    particles: Sets | None = None,
    time: float = 0.0,
) -> State:
    """The state at the beginning of a run."""
    return State(
        fields,
        time=jnp.float64(time),
        step=jnp.int64(0),
        dt=jnp.float64(0),
        origin=jnp.float64(time),
        since=jnp.int64(0),
        memory=memory or {},
        history=history or {},
        particles=particles or {},
    )


def one_step(
    model: Model,
    integrator: Integrator,
    state: State,
    choose: Callable,
    forcing: Forcing | None = None,
    swarm: Swarm | None = None,
    wrap: Wrap | None = None,
) -> State:
    """The state after one step; `choose(rate)` gives dt, origin, since and the time at the end of
    the step. dt is NaN if a particle was lost, that is, moved farther than its device reaches.
    `wrap`: see `step_of`."""
    if isinstance(
        integrator, Splitting
    ):  # dt comes from the previous step's last kick, which the memory carries
        dt, origin, since, time = choose(state.memory["rate"])
        split = cast(SplitModel, model)
        evolved, rate = integrator.alternate(split, model.contents(state), state.time, dt)
        fields = _constrained(model, state, {name: evolved[name] for name in state.fields}, dt)
        new = _replaced(state, evolved, rate)
        new = replace(
            new, fields=fields, time=time, step=state.step + 1, dt=dt, origin=origin, since=since
        )
        return _with_room(split, state, new)
    force = None if forcing is None else lambda f, t: forcing.acceleration(f, t, state.memory)

    swarm = swarm or Swarm((), model)
    counts = {name: particles.count for name, particles in state.particles.items()}

    def tendency(moving: Fields, time: Number):
        fields = {name: moving[name] for name in state.fields}
        accelerations = None if force is None else force(fields, time)
        rates, evaluated = model.tendency(fields, time, accelerations, swarm.takes)
        values = evaluated.values.get("velocity")
        return Evolved(
            rates | swarm.rates(fields, rates, moving, state.memory, counts, values)
        ), evaluated.maxima

    tendency = tendency if wrap is None else wrap(tendency)
    memory = dict(state.memory)
    moving = Evolved(state.fields | swarm.moving(state.particles))
    before = None
    if RESIDUAL in memory:
        before = budget(model, state.fields, state.time, force)
    first, maxima = tendency(moving, state.time)
    dt, origin, since, time = choose(swarm.rate(model.rate(maxima), state.particles, memory))

    if before is not None:
        # The budget is evaluated before the step: otherwise XLA would keep the initial fields until
        # its end.
        dt = dt + 0 * before.energy.astype(dt.dtype)

    def later(fields: Fields, time: Number) -> Fields:
        return tendency(fields, time)[0]

    linear = Evolved(model.linear_terms() | swarm.linear(memory))
    past = Past(state.history, state.dt)
    moving, history = integrator.multistep(moving, state.time, dt, first, later, linear, past)
    fields = _constrained(model, state, {name: moving[name] for name in state.fields}, dt)
    if before is not None:
        memory[RESIDUAL] = residual(before, budget(model, fields, time, force), dt)
    if forcing is not None:
        memory |= forcing.renewed(memory, state.step + 1, dt)
    done = [(f, model.transform_of(n).layout.spec_of(f.ndim)) for n, f in fields.items()]
    done += [(memory[RESIDUAL], PartitionSpec())] if before is not None else []
    particles, found = swarm.moved(state.particles, moving, state.step, done)
    dt = jnp.where(found, dt, jnp.nan) if particles else dt
    return State(fields, time, state.step + 1, dt, origin, since, memory, history, particles)


class _Round(NamedTuple):
    state: State  # Velocities lack the last kick of the last step.
    half: jax.Array  # The length of that kick (time).
    due: jax.Array  # Whether there is another round.


def _joined_steps(
    model: Any, integrator: KickDriftKick, state: State, unfinished: Callable, choose: Callable
) -> State:
    """Steps of kick, drift, kick with one evaluation of the forces in each, the same for the last
    kick of a step and the first of the next. A round does that last kick and, if a step is due, the
    next first kick and drift; else those of no duration, which change no bit. `choose(state, rate)`
    as in `one_step`."""

    def round_(begun: _Round) -> _Round:
        contents = model.contents(begun.state)
        forces = model.forces(contents, begun.state.time)
        contents, rate = model.kicked(contents, forces, begun.state.time, begun.half)
        # A loop begins with whole steps, whose rate is that of a checkpoint.
        whole = _replaced(
            begun.state, contents, jnp.where(begun.half > 0, rate, begun.state.memory["rate"])
        )
        due = unfinished(whole)
        dt, origin, since, time = choose(whole, whole.memory["rate"])
        length = jnp.where(due & jnp.isfinite(dt), dt, 0)
        stages = integrator.stages(model.background, whole.time, length)
        old, contents = model.leapt(contents, forces, whole.time, stages.kicks[0], stages.drifts[1])
        whole = replace(whole, particles={name: old[name] for name in whole.particles})
        new = _replaced(whole, contents, whole.memory["rate"])
        new = replace(new, time=time, step=whole.step + 1, dt=dt, origin=origin, since=since)
        new = _with_room(model, whole, new)
        clock = ("time", "step", "dt", "origin", "since")
        new = replace(new, **{n: jnp.where(due, getattr(new, n), getattr(whole, n)) for n in clock})
        new = _at_failure(whole, new)
        moved = new.step > whole.step
        return _Round(new, jnp.where(moved, stages.kicks[1], 0), moved)

    begun = _Round(state, jnp.zeros((), jnp.float64), unfinished(state))
    return lax.while_loop(lambda begun: begun.due, round_, begun).state


def _replaced(state: State, contents: Any, rate: Number) -> State:
    memory = {name: contents.get(name, value) for name, value in state.memory.items()} | {
        "rate": rate
    }
    return replace(
        state, memory=memory, particles={name: contents[name] for name in state.particles}
    )


def _at_failure(old: State, new: State) -> State:
    """The new state; if no step could be taken, with the step and the time of the old one."""
    failed = jnp.isnan(new.dt)
    return replace(
        new, step=jnp.where(failed, old.step, new.step), time=jnp.where(failed, old.time, new.time)
    )


def _with_room(model: Model, state: State, new: State) -> State:
    """The new state; or the old state, with the room that is `needed`, if a device had no room for
    its particles. If no step could be taken, the new state has the old particles."""
    shared = [particles for particles in new.particles.values() if particles.devices > 1]
    held, taken = new, jnp.isfinite(new.dt)
    if shared:
        full = jnp.stack([particles.crowded for particles in shared]).any()
        without = (replace(s, particles={}) for s in (state, new))
        held, taken = (
            jax.tree.map(lambda old, new: jnp.where(full, old, new), *without),
            taken & ~full,
        )
    particles = dict(new.particles)
    for name, found in particles.items():
        if state.particles[name] is not None:  # else the step was none, or there always is room
            either = model.populations[name].either(taken, found, state.particles[name])
            particles[name] = replace(either, needed=found.needed)
    return replace(held, particles=particles)


def _constrained(model: Model, state: State, fields: Fields, dt: Number) -> Fields:
    """The new fields, distributed as their layouts say; for a guarded model the old fields if no
    step could be taken."""
    if model.guarded:
        fields = {n: jnp.where(jnp.isfinite(dt), f, state.fields[n]) for n, f in fields.items()}
    return {n: model.transform_of(n).layout.constrain(f) for n, f in fields.items()}


def rate_of(model: Model, state: State) -> Number:
    """The largest rate (1/time) that the state's next step has to resolve."""
    if "rate" in state.memory:
        return state.memory["rate"]
    return model.fastest(state.fields, state.time)


def step_of(
    model: Model,
    integrator: Integrator,
    forcing: Forcing | None = None,
    swarm: Swarm | None = None,
    wrap: Wrap | None = None,
) -> Callable[[State, jax.Array | float], State]:
    """The pure function (state, dt) -> state. `wrap` maps the tendency (fields, time) -> (rates,
    maxima) to another function with the same result, e.g. `jax.checkpoint`."""

    def step(state: State, dt) -> State:
        dt = jnp.asarray(dt, jnp.float64)
        time = state.time + dt
        return one_step(
            model,
            integrator,
            state,
            lambda rate: (dt, time, jnp.int64(0), time),
            forcing,
            swarm,
            wrap,
        )

    return step


def aligned(state: State, dt: Number, until: Until, fixed: bool, halves: bool = True):
    """dt, origin, since and the time at the end of a step that ends at a requested time where one
    is due.

    With `halves` a remainder between one and two steps is halved. If an event coincides with the
    end of the step, dt does not change and the clock is set to the event's time."""
    target, soft = jnp.float64(until.aligned), jnp.float64(until.soft)
    remaining = target - state.time
    hits = abs(remaining - dt) <= EVENT_TOLERANCE * dt
    shorter = ~hits & (remaining < dt)
    halved = halves & ~hits & ~shorter & (remaining < (2 - EVENT_TOLERANCE) * dt)
    chosen = jnp.where(shorter, remaining, jnp.where(halved, remaining / 2, dt))
    # Steps of equal size are counted; after a change of dt, as in a continued run, the count starts
    # anew.
    equal = fixed & (state.dt == dt)
    since = jnp.where(equal, state.since, 0) + 1
    start = jnp.where(equal, state.origin, state.time)
    natural = start + since * chosen if fixed else state.time + chosen
    changed = shorter | halved | (not fixed)
    time = jnp.where(changed, state.time + chosen, natural)
    time = jnp.where(abs(time - soft) <= EVENT_TOLERANCE * chosen, soft, time)
    time = jnp.where(hits | shorter, target, time)
    origin = jnp.where(changed, time, start)
    return chosen, origin, jnp.where(changed, 0, since), time


def advance_of(
    model: Model,
    integrator: Integrator,
    time_step: TimeStep,
    forcing: Forcing | None = None,
    swarm: Swarm | None = None,
    name: str | None = None,
) -> Advance:
    """`advance(state, until)`, one compiled loop with donated buffers. `name` is the name of the
    compiled program, by which the compile cache finds the program.

    The loop ends at the aligned time, after the first step at or beyond the soft time, after
    `until.steps` steps, when particle buffers have to grow (`ParticleSet.crowded`), or when the
    fields are no longer finite: then dt is NaN, and step and time are those of the first such
    state."""

    def advance(state: State, until: Until) -> State:
        last = state.step + until.steps

        def unfinished(s: State) -> jax.Array:
            crowded = [particles.crowded for particles in s.particles.values()]
            room = ~jnp.stack(crowded).any() if crowded else True
            due = (s.time < until.aligned) & (s.time < until.soft)
            return (s.step < last) & due & ~jnp.isnan(s.dt) & room

        def choose(s: State, rate: Number):
            dt = time_step.choose(rate, s.time)
            return aligned(s, dt, until, time_step.fixed is not None, time_step.ends is None)

        if (
            isinstance(integrator, KickDriftKick)
            and isinstance(model, SplitModel)
            and model.joins_kicks
        ):
            return _joined_steps(model, integrator, state, unfinished, choose)

        def body(s: State) -> State:
            new = one_step(model, integrator, s, partial(choose, s), forcing, swarm)
            return _at_failure(s, new)

        return lax.while_loop(unfinished, body, state)

    parts = (type(model).__name__, type(integrator).__name__, model.transform.name)
    advance.__name__ = name or "_".join(("advance", *parts))
    return jax.jit(advance, donate_argnums=0)
