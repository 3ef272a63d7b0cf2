"""The loop over steps, on the device."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from simulator.config.blocks import EVENT_TOLERANCE
from simulator.physics.models import Equation, Fields, SplitEquation, State, StateMemory
from simulator.physics.models.tendency import fastest, with_arrays
from simulator.physics.particles.population import Sets
from simulator.physics.stepping.integrator import Integrator
from simulator.physics.stepping.splitting import KickDriftKick
from simulator.simulation.error_control import NEXT, StepsByError
from simulator.simulation.steps import StepEnd, at_failure, joined_steps, one_step
from simulator.simulation.system import System
from simulator.spectral.arrays import Number, Truth


class TimeStep(NamedTuple):
    """The choice of dt: fixed, from the CFL number and never above `largest`, to the next of given
    times, or by the error of steps, within the CFL number at which they are stable."""

    fixed: float | None
    cfl: float | None
    largest: float | None
    ends: Float[Array, "end"] | Float[np.ndarray, "end"] | None = None
    """The rising times at which steps end, the first one included."""
    error: float | None = None
    """The relative error per unit of time that steps may have."""

    @property
    def bounded(self) -> bool:
        """Whether there is a dt even if nothing limits it."""
        return any(limit is not None for limit in (self.fixed, self.largest, self.ends, self.error))

    def choose(self, state: State, rate: Number) -> Number:
        """dt (time) from the model's largest rate (1/time); NaN, which ends the run, if the rate is
        not finite."""
        if self.ends is not None:
            dt = self._next_end(state.time) - state.time
        elif self.fixed is not None:
            dt = jnp.float64(self.fixed)
        else:
            dt = cast(float, self.cfl) / rate.astype(jnp.float64)
            dt = dt if self.largest is None else jnp.minimum(dt, self.largest)
            if self.error is not None:
                dt = jnp.minimum(dt, state.memory.control[NEXT])
        return jnp.where(jnp.isfinite(rate), dt, jnp.nan)

    def _next_end(self, time: Number) -> Number:
        ends = jnp.asarray(self.ends)
        near = EVENT_TOLERANCE * jnp.diff(ends, append=jnp.inf)
        number = jnp.searchsorted(ends - near, time, side="right")
        return ends[jnp.clip(number, 1, len(ends) - 1)]


class Until(NamedTuple):
    """The limits of the loop: a step ends exactly at the time `aligned`; the loop pauses after the
    first step that ends at or beyond the time `soft`, and after `steps` steps."""

    aligned: jax.Array | float
    soft: jax.Array | float
    steps: jax.Array | np.int64 | int


NO_STEPS = Until(np.float64(0), np.float64(0), np.int64(0))
Advance = Callable[[State, Until], State]


def advance_of(
    system: System, integrator: Integrator, time_step: TimeStep, name: str | None = None
) -> Advance:
    """`advance(state, until)`, one compiled loop with donated buffers. `name` is the name of the
    compiled program, by which the compile cache finds the program.

    The loop ends at the aligned time, after the first step at or beyond the soft time, after
    `until.steps` steps, when particle buffers have to grow (`ParticleSet.crowded`), or when the
    fields are no longer finite: then dt is NaN, and step and time are those of the first such
    state."""
    model = system.model

    def advance(state: State, until: Until) -> State:
        last = state.step + until.steps

        def unfinished(s: State) -> Truth:
            crowded = [particles.crowded for particles in s.particles.values()]
            room = ~jnp.stack(crowded).any() if crowded else True
            due = (s.time < until.aligned) & (s.time < until.soft)
            return (s.step < last) & due & ~jnp.isnan(s.dt) & room

        def choose(s: State, rate: Number) -> StepEnd:
            dt = time_step.choose(s, rate)
            return aligned(s, dt, until, time_step.fixed is not None, time_step.ends is None)

        def step(s: State) -> State:
            return at_failure(s, one_step(system, integrator, s, choose))

        if isinstance(integrator, KickDriftKick) and cast(SplitEquation, model).joins_kicks:
            return joined_steps(cast(SplitEquation, model), integrator, state, unfinished, choose)
        if (error := time_step.error) is not None:
            return StepsByError(system, integrator, choose, error).march(state, unfinished)
        return lax.while_loop(unfinished, step, state)

    parts = (type(model).__name__, type(integrator).__name__, model.transform.name)
    advance.__name__ = name or "_".join(("advance", *parts))
    return jax.jit(advance, donate_argnums=0)


def aligned(state: State, dt: Number, until: Until, fixed: bool, halves: bool = True) -> StepEnd:
    """The end of a step of dt, at a requested time where one is due.

    With `halves` a remainder between one and two steps is halved. If an event coincides with the
    end of the step, dt does not change and the clock is set to the event's time."""
    target = jnp.float64(until.aligned)
    soft = jnp.float64(until.soft)
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
    return StepEnd(chosen, origin, jnp.where(changed, 0, since), time)


def beginning(
    fields: Fields,
    memory: StateMemory | None = None,
    history: Mapping[str, Fields] | None = None,
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
        memory=memory or StateMemory(),
        history={name: dict(tree) for name, tree in (history or {}).items()},
        particles=particles or {},
    )


def rate_of(model: Equation, state: State) -> Number:
    """The largest rate (1/time) that the state's next step has to resolve."""
    if state.memory.rate is not None:
        return state.memory.rate
    return fastest(with_arrays(model, state.memory.terms), state.fields, state.time)
