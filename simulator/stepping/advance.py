"""The loop over steps, on the device."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.diagnostics.budget import RESIDUAL, budget, residual
from simulator.forcing import Forcing
from simulator.models import Fields, Model, SplitModel, State, own_transforms, tendency
from simulator.models.model import Budgeted, Troubled
from simulator.stepping.integrator import Integrator
from simulator.stepping.shifts import phase_shift
from simulator.stepping.splitting import Splitting

TOLERANCE = 1e-6
"""An event this fraction of dt away from the end of a step is due there."""


class TimeStep(NamedTuple):
    """How dt is chosen: fixed, or from the CFL number; never above `largest`."""

    fixed: float | None
    cfl: float | None
    largest: float | None

    def choose(self, rate: jax.Array) -> jax.Array:
        """dt from the model's largest rate (1/time); NaN where that is not finite, which ends the run."""
        if self.fixed is not None:
            dt = jnp.float64(self.fixed)
        else:
            dt = cast(float, self.cfl) / rate.astype(jnp.float64)
            dt = dt if self.largest is None else jnp.minimum(dt, self.largest)
        return jnp.where(jnp.isfinite(rate), dt, jnp.nan)


class Until(NamedTuple):
    """Where the loop pauses: it hits `aligned` exactly, and stops after the first step at or beyond `soft`."""

    aligned: jax.Array | float
    soft: jax.Array | float
    steps: jax.Array | np.int64 | int


Advance = Callable[[State, Until], State]


def beginning(fields, memory=None, time: float = 0.0) -> State:
    """The state at the beginning of a run."""
    return State(
        fields,
        time=jnp.float64(time),
        step=jnp.int64(0),
        dt=jnp.float64(0),
        origin=jnp.float64(time),
        since=jnp.int64(0),
        memory=memory or {},
    )


def one_step(
    model: Model | SplitModel,
    integrator: Integrator | Splitting,
    state: State,
    choose: Callable,
    forcing: Forcing | None = None,
) -> State:
    """One step of the size `choose(rate)` = (dt, origin, since, time at its end)."""
    if isinstance(integrator, Splitting):
        return _split_step(cast(SplitModel, model), integrator, state, choose)
    model = cast(Model, model)
    force = None if forcing is None else lambda f, t: forcing.acceleration(f, t, state.memory)

    def shift(stage: jax.Array | int):
        return phase_shift(model.transform.grid, state.step, stage)

    memory = dict(state.memory)
    before = None
    if RESIDUAL in memory and isinstance(model, Budgeted):
        before = budget(model, state.fields, state.time, force)
    first, maxima = tendency(model, state.fields, state.time, force, shift(0))
    dt, origin, since, time = choose(model.rate(maxima))

    if before is not None:
        # Measured before the step is taken: else the fields that it begins with are kept to its end for this.
        dt = dt + 0 * before.energy.astype(dt.dtype)

    def later(fields: Fields, time: jax.Array, stage: jax.Array | int) -> Fields:
        return tendency(model, fields, time, force, shift(stage))[0]

    fields = integrator.step(state.fields, state.time, dt, first, later, model.decay())
    fields = _held(model, state, fields, dt)
    if before is not None:
        memory[RESIDUAL] = residual(before, budget(cast(Budgeted, model), fields, time, force), dt)
    if forcing is not None:
        memory |= forcing.renewed(memory, state.step + 1, dt)
    return State(fields, time, state.step + 1, dt, origin, since, memory)


def _split_step(model: SplitModel, integrator: Splitting, state: State, choose: Callable) -> State:
    """dt comes from the rate that the step before found, and the next one's rate goes into the memory."""
    dt, origin, since, time = choose(state.memory["rate"])
    fields, rate = integrator.step(model, state.fields, state.time, dt)
    fields = _held(model, state, fields, dt)
    return State(fields, time, state.step + 1, dt, origin, since, {**state.memory, "rate": rate})


def _held(model: Any, state: State, fields: Fields, dt: jax.Array) -> Fields:
    """The new fields where they belong; the old ones where no step could be taken and the model tells why from
    them."""
    own, usual = own_transforms(model), model.transform
    if isinstance(model, Troubled):
        fields = {n: jnp.where(jnp.isfinite(dt), f, state.fields[n]) for n, f in fields.items()}
    return {n: own.get(n, usual).layout.hold(f) for n, f in fields.items()}


def rate_of(model: Model | SplitModel, state: State) -> jax.Array:
    """The largest rate (1/time) that the state's next step has to resolve."""
    if "rate" in state.memory:
        return state.memory["rate"]
    model = cast(Model, model)
    return model.rate(tendency(model, state.fields, state.time)[1])


def step_of(
    model: Model | SplitModel, integrator: Integrator | Splitting, forcing: Forcing | None = None
) -> Callable[[State, jax.Array | float], State]:
    """The pure function (state, dt) -> state."""

    def step(state: State, dt) -> State:
        dt = jnp.asarray(dt, jnp.float64)
        time = state.time + dt
        return one_step(model, integrator, state, lambda rate: (dt, time, jnp.int64(0), time), forcing)

    return step


def aligned(state: State, dt: jax.Array, until: Until, fixed: bool):
    """dt, origin, since and time of a step that respects the times to be hit.

    A remainder between one and two steps is halved. Where an event falls on the step's end, dt stays and the clock
    is set to the event's time.
    """
    target, soft = jnp.float64(until.aligned), jnp.float64(until.soft)
    remaining = target - state.time
    on_it = abs(remaining - dt) <= TOLERANCE * dt
    shorter = ~on_it & (remaining < dt)
    halved = ~on_it & ~shorter & (remaining < (2 - TOLERANCE) * dt)
    chosen = jnp.where(shorter, remaining, jnp.where(halved, remaining / 2, dt))
    # Steps are counted while they are alike; another dt, of a run that continues, counts from here.
    alike = fixed & (state.dt == dt)
    since = jnp.where(alike, state.since, 0) + 1
    start = jnp.where(alike, state.origin, state.time)
    natural = start + since * chosen if fixed else state.time + chosen
    changed = shorter | halved | (not fixed)
    time = jnp.where(changed, state.time + chosen, natural)
    time = jnp.where(abs(time - soft) <= TOLERANCE * chosen, soft, time)
    time = jnp.where(on_it | shorter, target, time)
    origin = jnp.where(changed, time, start)
    return chosen, origin, jnp.where(changed, 0, since), time


def advance_of(
    model: Model | SplitModel,
    integrator: Integrator | Splitting,
    time_step: TimeStep,
    forcing: Forcing | None = None,
    name: str | None = None,
) -> Advance:
    """`advance(state, until)`, one compiled loop with donated buffers. `name`: of the compiled program, which the
    compile cache goes by.

    It ends at the aligned time, after the first step at or beyond the soft time, after `until.steps` steps, or
    when the fields are no longer finite: then dt is NaN, and step and time are those of the first such state.
    """

    def advance(state: State, until: Until) -> State:
        last = state.step + until.steps

        def unfinished(s: State) -> jax.Array:
            return (s.step < last) & (s.time < until.aligned) & (s.time < until.soft) & ~jnp.isnan(s.dt)

        def body(s: State) -> State:
            def choose(rate):
                dt = time_step.choose(rate)
                return aligned(s, dt, until, time_step.fixed is not None)

            new = one_step(model, integrator, s, choose, forcing)
            failed = jnp.isnan(new.dt)
            return replace(
                new,
                step=jnp.where(failed, s.step, new.step),
                time=jnp.where(failed, s.time, new.time),
            )

        return lax.while_loop(unfinished, body, state)

    parts = (type(model).__name__, type(integrator).__name__, model.transform.name)
    advance.__name__ = name or "_".join(("advance", *parts))
    return jax.jit(advance, donate_argnums=0)
