"""The contract of a time integrator."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from simulator.physics.stepping.evolved import Evolved
from simulator.spectral.arrays import Number, Whole
from simulator.spectral.transform import Shift

Nonlinear = Callable[[Evolved, jax.Array], Evolved]
"""(u, t) to N, the explicit part of the right-hand side."""

History = Mapping[str, Evolved]
"""The vectors that a multistep integrator carries from step to step, by name."""


class Past(NamedTuple):
    """The steps before, for a multistep integrator."""

    history: History
    dt: Number  # The size of the last step; 0 before the first.


class Integrator:
    """A step of du/dt = L u + N(u, t) with a diagonal L, which may be complex and of either
    sign."""

    split: ClassVar[bool] = False
    """Whether the integrator takes split steps, as a `Splitting`."""
    growing: ClassVar[bool] = False
    """Whether steps follow linear growth; only models that name the integrator take it."""
    embedded: ClassVar[bool] = False
    """Whether its four stages give the error of a step, as `embedded.Attempt` reads it."""
    couples: ClassVar[bool] = False
    """Whether L may couple unknowns, as a `Coupled` does: steps then use `growth` only."""
    order: ClassVar[int]
    max_cfl: ClassVar[Mapping[str, float]]
    """The largest value of dt max_x sum_i |v_i| / dx_i for each kind of dealiasing; missing kinds
    are refused.

    Two conditions hold. Advection by a uniform velocity is stable: the limit is at most the extent
    of the method's stability region on the imaginary axis over the largest kept k dx, which is 2 pi
    / 3, 2 sqrt(2) pi / 3 or pi. And an inviscid flow on 16^3 points conserves its energy within 1 %
    for 400 steps. This was measured with a Taylor-Green vortex, which by then fills all kept modes,
    and with random modes of equal energy. With `phase_shift` the second condition is that of its
    use: a viscous flow with k_max eta >= 1 follows the exact Galerkin truncation."""

    moves: ClassVar[Sequence[float]] = ()
    """The spacings by which each stage moves its grid along every axis with `phase_shift`
    dealiasing, in the order of evaluation. An aliasing error turns by the angle 2 pi times the move,
    so that sum_i b_i exp(2 pi i m_i) = 0 removes the errors of a step to order dt, and sum_ij b_i
    a_ij cos(2 pi (m_i - m_j)) = 0 those that one stage aliases back from another, to order dt^2."""

    @classmethod
    def misfit(cls, settings: Any) -> str | None:
        """The reason why the integrator cannot solve the model of these settings; None if it
        can."""
        return None

    def shifts(self, step: Whole) -> list[Shift]:
        """The shift of the grid in each stage of the step with this number, for `phase_shift`
        dealiasing.

        All grids of a step are moved by one more shift, which follows from the step's number alone,
        so that a restart finds the same: multiples of powers of an irrational number, modulo the
        spacing, which fill the cell evenly, so that the errors of many steps average out.
        Niederreiter, Random Number Generation and Quasi-Monte Carlo Methods (1992), section 3.1. The
        number is the real root of x^4 = x + 1."""
        if not self.moves:
            raise TypeError(f"{type(self).__name__} lists phase_shift, but states no moves")
        powers = 1.2207440846057596 ** -np.arange(1.0, 4.0)
        x, y, z = jnp.unstack(jnp.float64(step) * jnp.asarray(powers) % 1)
        return [(x + move, y + move, z + move) for move in self.moves]

    def step(
        self, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, L: Evolved
    ) -> Evolved:
        """u at t + dt. `a` is N(u, t), which determined dt; the arrays of L (1/time) broadcast
        against those of u."""
        raise TypeError(f"{type(self).__name__} does not define step")

    def last_weight(self, L: Evolved, dt: Number, u: Evolved) -> Evolved:
        """Six times the factor of the last stage's N in a step; dt where L = 0."""
        return u.number(dt)


class Multistep(Integrator):
    """An integrator that carries a history from step to step; it defines `multistep` instead of
    `step`."""

    def begin(self, u: Evolved) -> History:
        """The history before the first step."""
        raise TypeError(f"{type(self).__name__} does not define begin")

    def multistep(
        self, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, L: Evolved, past: Past
    ) -> tuple[Evolved, History]:
        """u at t + dt, and the history for the next step."""
        raise TypeError(f"{type(self).__name__} does not define multistep")
