"""The error of a step of a four-stage method of order 4, from its own stages and one evaluation more.

A step evaluates N at y_2 and y_3, half a step ahead, and at y_4, a whole step ahead. With N at the
new u, two estimates follow:

stages:      y_4 and the new u differ by O(dt^3), so that w (N(y_4) - N(u)) / 10, with w = dt, is the
             error of a companion of order 3 (Balac & Mahe, Comput. Phys. Commun. 184, 1211 (2013)).
quadrature:  the new u - y_4, of O(dt^3), shows how N varies within the step, also if it varies with
             time alone, where N(y_4) = N(u).

Each is the error of a lower order. One order of dt is worth 3 |N(y_4) - N(u)| / |N(y_3) - N(y_2)| or 6
|u - y_4| / |y_3 - y_2|, which are exact for a linear equation and for a force in time, and multiplied
by that the estimates are those of the step of order 4: per time they fall as dt^4, as the error of a
run does, so that a run's error is proportional to the tolerance. The larger one counts."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from simulator.physics.stepping.evolved import Evolved, growth
from simulator.physics.stepping.integrator import Integrator, Nonlinear
from simulator.spectral.arrays import Number, quotient

Norm = Callable[[Evolved], Evolved]
"""The norm of each field of a vector, a number each."""

ROUNDED = 8.0
"""Differences below so many units of round-off of what is subtracted count as zero."""
TINY = 1e-300
MOST = 3.0
"""The most that an order of dt may be worth."""


class Attempt(NamedTuple):
    """A step, and what its error needs besides N at its end."""

    u: Evolved
    last: Evolved
    """w N(y_4)."""
    norms: tuple[Evolved, ...]
    """Norms of u, w N(y_4), w (N(y_3) - N(y_2)), u - y_4 and y_3 - y_2."""

    def errors(self, end: Evolved, norm: Norm) -> Evolved:
        """The error of the step relative to each field; `end` is w N(u)."""
        size, noise, rough, bent, turned = self.norms
        steep = norm(self.last - end)
        largest = jnp.stack([*size.values()]).max()
        errors = {}
        for name in size:
            eps = ROUNDED * float(jnp.finfo(self.u[name].real.dtype).eps)
            F = jnp.maximum(steep[name] - eps * noise[name], 0)
            A = jnp.maximum(bent[name] - eps * size[name], 0)
            # An earlier difference that vanishes, or is round-off, says nothing.
            order = jnp.minimum(3 * F / jnp.maximum(rough[name], TINY), MOST)
            order_in_time = jnp.minimum(6 * A / jnp.maximum(turned[name], TINY), MOST)
            stage = F / 10 * order
            quadrature = A / 120 * order_in_time**2
            # A field that is nothing but the round-off of others is no smaller than that.
            scale = jnp.maximum(size[name], eps * largest)
            errors[name] = quotient(jnp.maximum(stage, quadrature), scale)
        return Evolved(errors)


def attempted(
    integrator: Integrator, u: Evolved, t: Number, dt: Number, a: Evolved, N: Nonlinear, L: Evolved
) -> Callable[[Norm], Attempt]:
    """`integrator.step`, with the norms of its stages."""
    stages: list[tuple[Evolved, Evolved]] = []

    def noted(y: Evolved, time: Number) -> Evolved:
        rate = N(y, time)
        stages.append((y, rate))
        return rate

    new = integrator.step(u, t, dt, a, noted, L)
    (y2, k2), (y3, k3), (y4, k4) = stages
    weight = integrator.last_weight(L, dt, u)
    E = growth(L, dt / 2)
    last = weight * k4
    differences = new, last, weight * (E * (k3 - k2)), new - y4, E * (y3 - y2)
    return lambda norm: Attempt(new, last, tuple(map(norm, differences)))
