"""Split-step integrators: exact solutions of two parts of an equation, one after the other.

The equation is du/dt = (T + V) u. A `SplitModel` solves each part exactly: `drift` is exp(t T), `kick` is exp(t V) at
a frozen time (time advances with the drifts, so that the order is kept if V depends on it). An integrator is a list
of coefficients: exp(a_0 h T) exp(b_0 h V) exp(a_1 h T) ... exp(a_n h T), read from the left.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from simulator.physics.stepping.integrator import Integrator
from simulator.spectral.arrays import Number


class Splittable(Protocol):
    """The exact solutions `drift` and `kick` of the two parts of a `SplitModel`."""

    def drift(self, fields: Any, duration: Number) -> Any: ...

    def kick(self, fields: Any, time: Number, duration: Number) -> tuple[Any, Number]: ...


class Splitting(Integrator):
    """Takes a step by the table of its class. `drifts` has one entry more than `kicks`, and both sum to 1."""

    split: ClassVar[bool] = True
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 1.0, "none": 1.0}
    """With cfl = 1 the fastest phase changes by pi in a step; larger steps alias it. Each part is solved exactly, so
    that no step is unstable."""
    drifts: ClassVar[tuple[float, ...]]
    kicks: ClassVar[tuple[float, ...]]

    def alternate(
        self, model: Splittable, fields: dict[str, Any], time: Number, dt: Number
    ) -> tuple[dict[str, Any], Number]:
        """The fields, and particles that are matter, at time + dt; and the rate (1/time) of the last kick."""
        first, rest = self.drifts[0], self.drifts[1:]
        if first:
            fields = model.drift(fields, first * dt)

        @jax.checkpoint  # the backward pass computes a stage again: no array of its kick is kept
        def stage(carry, coefficients):
            fields, passed = carry
            kick, drift = coefficients
            fields, rate = model.kick(fields, time + passed * dt, kick * dt)
            return (model.drift(fields, drift * dt), passed + drift), rate

        if rest[-1] == 0:  # ends with a kick
            pairs, last = list(zip(self.kicks[:-1], rest[:-1], strict=True)), self.kicks[-1]
        else:
            pairs, last = list(zip(self.kicks, rest, strict=True)), None
        carry = (fields, jnp.float64(first))
        rate = jnp.float64(0)
        if len(pairs) > 1:
            table = jnp.asarray(pairs, jnp.float64)
            carry, rates = lax.scan(stage, carry, (table[:, 0], table[:, 1]))
            rate = rates[-1]
        else:
            carry, rate = stage(carry, pairs[0])
        fields, _ = carry
        if last is not None:
            fields, rate = model.kick(fields, time + dt, last * dt)
        return fields, rate


class DriftKickDrift(Splitting):
    """Order 2 with the drift outside: T/2 V T/2 (Strang 1968). The state is stored where drifts are diagonal, so that
    a step needs one transform and its inverse."""

    order = 2
    drifts, kicks = (0.5, 0.5), (1.0,)


class KickDriftKick(Splitting):
    """Order 2 with the kick outside: V/2 T V/2 (Strang 1968). Two kicks per step, each with its own potential; loops
    over steps of particles use that of the last kick for the next one, too (`SplitModel.joins_kicks`)."""

    order = 2
    drifts, kicks = (0.0, 1.0, 0.0), (0.5, 0.5)


def composed(weights: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Drifts and kicks of successive drift-kick-drift steps of `weights` times dt, with neighbouring drifts
    joined."""
    ends = [0.0, *weights, 0.0]
    drifts = tuple((a + b) / 2 for a, b in pairwise(ends))
    return drifts, tuple(weights)


def _symmetric(*half: float) -> tuple[float, ...]:
    """Weights w_1, ..., w_m, ..., w_1 with sum 1, from `half` = w_1, ..., w_(m-1)."""
    return (*half, 1 - 2 * sum(half), *reversed(half))


class Composition4(Splitting):
    """Order 4: five drift-kick-drift steps with w = 1 / (4 - 4^(1/3)) around 1 - 4 w.

    Suzuki, Phys. Lett. A 146, 319 (1990), eq. 12.
    """

    order = 4
    drifts, kicks = composed(_symmetric(1 / (4 - 4 ** (1 / 3)), 1 / (4 - 4 ** (1 / 3))))


class Composition6(Splitting):
    """Order 6: nine drift-kick-drift steps, the method s9odr6a of Kahan & Li, Math. Comp. 66, 1089 (1997)."""

    order = 6
    drifts, kicks = composed(
        _symmetric(0.39216144400731413928, 0.33259913678935943860, -0.70624617255763935981, 0.082213596293550800230)
    )
