"""Split-step integrators: exact solutions of two parts of an equation, one after the other.

The equation is du/dt = (T + V) u. A `SplitEquation` solves each part exactly: `drift` is exp(t T),
`kick` is exp(t V) at a frozen time (time advances with the drifts, so that the order is kept if V
depends on it). An integrator is a list of coefficients: exp(a_0 h T) exp(b_0 h V) exp(a_1 h T) ...
exp(a_n h T), read from the left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from simulator.physics.stepping.integrator import Integrator
from simulator.spectral.arrays import Number, Whole

if TYPE_CHECKING:
    from simulator.physics.models.expansion import Expansion
    from simulator.physics.models.split_equation import SplitEquation


class Stages(NamedTuple):
    """The stages of one step: `drifts` are one more than `kicks`, and alternate with them."""

    drifts: Float[Array, " drift"]  # Durations.
    kicks: Float[Array, " kick"]  # Durations.
    times: Float[Array, " kick"]  # The times of the kicks.
    # The factors of velocities before the kicks; None: 1.
    keeps: Float[Array, " kick"] | None = None


Contents = dict[str, Any]
"""Fields by name, and particles that are matter."""


class Splitting(Integrator):
    """Takes a step by the table of its class. `drifts` has one entry more than `kicks`, and both
    sum to 1."""

    split: ClassVar[bool] = True
    max_cfl: ClassVar[Mapping[str, float]] = {"two_thirds": 1.0, "none": 1.0}
    """With cfl = 1 the fastest phase changes by pi in a step; larger steps alias it. Each part is
    solved exactly, so that no step is unstable."""
    drifts: ClassVar[tuple[float, ...]]
    kicks: ClassVar[tuple[float, ...]]

    def stages(self, background: Expansion | None, time: Number, dt: Number) -> Stages:
        """The stages of a step from `time` to time + dt, by default the table's; `background` is
        the model's."""
        drifts = jnp.asarray(self.drifts)
        kicks = jnp.asarray(self.kicks)
        return Stages(dt * drifts, dt * kicks, time + dt * np.cumsum(self.drifts[:-1]))

    def alternate(
        self, model: SplitEquation, fields: Contents, time: Number, dt: Number
    ) -> tuple[Contents, Number]:
        """The fields of a `SplitEquation`, and particles that are matter, at time + dt; and the rate
        (1/time) of the last kick."""
        drifts, kicks, times, keeps = self.stages(model.background, time, dt)
        if self.drifts[0]:
            fields = model.drift(fields, drifts[0])

        def kicked(fields: Contents, number: Whole | int) -> tuple[Contents, Number]:
            if keeps is not None:
                fields = model.slowed(fields, keeps[number])
            return model.kick(fields, times[number], kicks[number])

        @jax.checkpoint  # the backward pass computes a stage again: no array of its kick is kept
        def stage(fields: Contents, number: Whole | int) -> tuple[Contents, Number]:
            fields, rate = kicked(fields, number)
            return model.drift(fields, drifts[number + 1]), rate

        last = len(self.kicks) - 1
        pairs = last if self.drifts[-1] == 0 else last + 1  # the others end with a kick
        if pairs > 1:
            fields, rates = lax.scan(stage, fields, jnp.arange(pairs))
            rate = rates[-1]
        else:
            fields, rate = stage(fields, 0)
        return (fields, rate) if pairs > last else kicked(fields, last)


class DriftKickDrift(Splitting):
    """Order 2 with the drift outside: T/2 V T/2 (Strang 1968). The state is stored where drifts are
    diagonal, so that a step needs one transform and its inverse."""

    order = 2
    drifts = (0.5, 0.5)
    kicks = (1.0,)


class KickDriftKick(Splitting):
    """Order 2 with the kick outside: V/2 T V/2 (Strang 1968). Two kicks per step, each with its own
    potential; loops over steps of particles use that of the last kick for the next one, too
    (`SplitEquation.joins_kicks`)."""

    order = 2
    drifts = (0.0, 1.0, 0.0)
    kicks = (0.5, 0.5)


def composed(weights: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Drifts and kicks of successive drift-kick-drift steps of `weights` times dt, with
    neighbouring drifts joined."""
    ends = [0.0, *weights, 0.0]
    drifts = tuple((a + b) / 2 for a, b in pairwise(ends))
    return drifts, tuple(weights)


def _symmetric(*half: float) -> tuple[float, ...]:
    """Weights w_1, ..., w_m, ..., w_1 with sum 1, from `half` = w_1, ..., w_(m-1)."""
    return (*half, 1 - 2 * sum(half), *reversed(half))


class Composition4(Splitting):
    """Order 4: five drift-kick-drift steps with w = 1 / (4 - 4^(1/3)) around 1 - 4 w.

    Suzuki, Phys. Lett. A 146, 319 (1990), eq. 12."""

    order = 4
    drifts, kicks = composed(_symmetric(1 / (4 - 4 ** (1 / 3)), 1 / (4 - 4 ** (1 / 3))))


class Composition6(Splitting):
    """Order 6: nine drift-kick-drift steps, the method s9odr6a of Kahan & Li, Math. Comp. 66, 1089
    (1997)."""

    order = 6
    drifts, kicks = composed(
        _symmetric(
            0.39216144400731413928,
            0.33259913678935943860,
            -0.70624617255763935981,
            0.082213596293550800230,
        )
    )
