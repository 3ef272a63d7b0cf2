"""The choice of dt by the error of steps, whose memory is part of the state.

The error is that of `Attempt.errors` per unit of time, the largest of all fields. A PI controller
(Gustafsson, ACM Trans. Math. Softw. 17, 533 (1991)) aims at the error that is asked; a step of thrice
that is rejected, and the loop takes a shorter one from the same state, with the same random numbers.
dt is a power of 2^(1/16), so that the round-off of sums over devices does not change it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from simulator.physics.models import State
from simulator.physics.stepping.embedded import Attempt, attempted
from simulator.physics.stepping.evolved import Evolved
from simulator.physics.stepping.integrator import Integrator
from simulator.simulation.steps import Choose, with_unknowns
from simulator.simulation.system import System
from simulator.spectral.arrays import Number, Truth

Tree = TypeVar("Tree")

REJECTED = "rejected"
"""The name in the diagnostics and in checkpoints of the number of rejected steps so far."""
NEXT = "next_dt"
BEFORE = "error_before"
"""The error of the step before over what was asked."""
TROUBLE = (
    "no step, however short, keeps its error within time.error",
    "A larger time.error or max_dt",
)

FIRST = 5e-3
"""The first dt over the time of the run's end; its error soon changes it."""
ORDER = 4
REJECTS = 3.0
"""A step is rejected whose error is larger than so many times what is asked."""
INTEGRAL = 0.3 / ORDER
PROPORTIONAL = 0.4 / ORDER
RUNGS = 16
LEAST = 1e-5
"""The smallest error over what is asked that counts: less is near round-off, on which dt must not
depend."""
GROWTH = 5.0
"""The largest factor between successive dt, up and down, after the first step."""


def with_controller(
    state: State, stop: float, asked: float | None, dt: Number | None = None
) -> State:
    """The state before the first step by error, of `dt`, by default a small part of the run to
    `stop`; as it is without an error that is `asked`."""
    if asked is None:
        return state
    first = rung(jnp.float64(FIRST * stop) if dt is None else dt)
    control = {NEXT: first, BEFORE: jnp.float64(1), REJECTED: jnp.int64(0)}
    return replace(state, memory=replace(state.memory, control=control))


def rung(dt: Number) -> Number:
    """The nearest power of 2^(1/16)."""
    return jnp.exp2(jnp.round(RUNGS * jnp.log2(dt)) / RUNGS)


class _Round(NamedTuple):
    state: State
    tendency: Evolved  # N(u, t) of the state, if it is known.
    rate: Number  # That limits dt.
    known: Truth


@dataclass(frozen=True)
class StepsByError:
    """Steps whose error is about `asked`.

    A round of the loop tries a step and evaluates N at its end, which gives the error of the step and
    is the first evaluation of the next one. The first round, that after a rejected step, and every
    other one where something but u changes at the end of a step, only evaluate N. All do so in one
    place of the program, so that the bits do not depend on where a loop begins."""

    system: System
    integrator: Integrator
    choose: Choose
    asked: float

    def march(self, state: State, unfinished: Callable[[State], Truth]) -> State:
        """The state after the steps of a loop."""
        u = self.system.unknowns(state).computed()
        blank = _zeros(lambda: self.system.tendency(state, True, None, u, state.time)[0])
        begun = _Round(state, blank, jnp.float64(0), jnp.asarray(False))
        return lax.while_loop(lambda begun: unfinished(begun.state), self._round, begun).state

    def _round(self, begun: _Round) -> _Round:
        system = self.system
        begin = begun.state
        memory = begin.memory
        u = system.unknowns(begin).computed()
        end = self.choose(begin, begun.rate)
        L = system.linear(begin, end.dt)
        attempt = self._attempt(begun, u, end.dt, L)
        time = begin.time + jnp.where(begun.known, end.dt, 0)
        tendency, maxima = system.tendency(begin, True, None, attempt.u, time)
        rate = system.swarm.rate(maxima["rate"], begin.particles, memory.particles)
        at_end = self.integrator.last_weight(L, end.dt, u) * tendency
        errors = attempt.errors(at_end, system.norms)
        error = jnp.stack([*errors.values()]).max() / end.dt
        balance = system.first_balance(begin)
        new = with_unknowns(system, begin, end.of(begin), attempt.u, balance)
        new = taken_or_rejected(begin, new, error, self.asked)
        about_mean = system.model.integrated and system.model.numerics.waves_about is not None
        alone = not (memory.forcing or begin.particles or system.sheared or about_mean)
        known = ~begun.known | ((new.step > begin.step) & alone)
        return _Round(either(begun.known, new, begin), tendency, rate.astype(jnp.float64), known)

    def _attempt(self, begun: _Round, u: Evolved, dt: Number, L: Evolved) -> Attempt:
        """A step of dt; without the tendency, none."""
        system = self.system
        begin = begun.state

        def explicit(u: Evolved, t: Number) -> Evolved:
            return system.tendency(begin, False, None, u, t)[0]

        def tried() -> Attempt:
            N = system.on_path(begin, L, explicit)
            given = u, begin.time, dt, begun.tendency, N, L
            return attempted(self.integrator, *given)(system.norms)

        blank = _zeros(tried)
        return lax.cond(begun.known, tried, lambda: blank._replace(u=u))


def _zeros(function: Callable[[], Tree]) -> Tree:
    """Zeros like the arrays of the function."""
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(function))


def either(condition: Truth, one: Tree, other: Tree) -> Tree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)


def taken_or_rejected(begin: State, new: State, error: Number, asked: float) -> State:
    """The new state, or the old one if the `error` of the step is beyond what is `asked`, with the
    controller's memory after that step. dt is NaN if no dt is short enough."""
    before = begin.memory.control
    tried = new.dt
    accepted = error <= REJECTS * asked
    ratio = jnp.maximum(error / asked, LEAST)
    alone = ratio ** (-1 / ORDER)  # the change of dt that follows from this step alone
    both = ratio ** -(INTEGRAL + PROPORTIONAL) * before[BEFORE] ** PROPORTIONAL
    # An event or the CFL limit made the step shorter than its error asked for.
    shortened = tried < (1 - 1e-6) * before[NEXT]
    wanted = tried * jnp.clip(both, 1 / GROWTH, GROWTH)
    wanted = jnp.where(shortened, jnp.minimum(before[NEXT], tried * alone), wanted)
    wanted = jnp.where(begin.step == 0, tried * alone, wanted)
    shorter = jnp.where(jnp.isfinite(error), jnp.clip(alone, 1 / GROWTH, 0.9), 1 / GROWTH)
    control = {
        NEXT: rung(jnp.where(accepted, wanted, tried * shorter)),
        BEFORE: jnp.where(accepted & ~shortened, ratio, before[BEFORE]),
        REJECTED: before[REJECTED] + ~accepted,
    }
    impossible = jnp.isnan(tried) | (begin.time + control[NEXT] <= begin.time)
    chosen = either(accepted, new, begin)
    return replace(
        chosen,
        dt=jnp.where(impossible, jnp.nan, chosen.dt),
        memory=replace(chosen.memory, control=control),
    )
