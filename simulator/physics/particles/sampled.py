"""The fluid at the positions of particles: its velocity, acceleration, gradient and scalars."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from simulator.physics.particles.interpolation import Sampler
from simulator.spectral import Fields
from simulator.spectral.operators import gradient

VELOCITY, ACCELERATION, GRADIENT = "velocity", "acceleration", "gradient"
COMPONENTS: Mapping[str, int] = {VELOCITY: 3, ACCELERATION: 3, GRADIENT: 9}
"""The quantities that can be sampled besides scalar fields. `gradient` is du_i/dx_j, with j running faster."""


class Fluid(Protocol):
    """A function that gives the fluid's quantities at positions."""

    def __call__(self, names: Collection[str], position: jax.Array) -> dict[str, jax.Array]:
        """The quantities `names` (components, entries) at positions (3, entries); scalars are (1, entries)."""
        ...


class SpectralFluid(NamedTuple):
    """The fluid of a state. `velocity` and `rate`, its partial time derivative, are coefficients (3, *order)."""

    sampler: Sampler
    velocity: jax.Array
    rate: jax.Array
    fields: Fields
    """Scalar fields by name."""
    values: jax.Array | None = None
    """Values (3, *kept_order) of the velocity on the grid, if they are known."""

    def __call__(self, names: Collection[str], position: jax.Array) -> dict[str, jax.Array]:
        if self.values is not None and self.sampler.takes_values and tuple(names) == (VELOCITY,):
            return {VELOCITY: self.sampler.from_values(self.values, position).astype(jnp.float64)}
        layout = self.sampler.transform.layout
        modes: dict[str, jax.Array] = {}
        if VELOCITY in names or ACCELERATION in names:
            modes[VELOCITY] = self.velocity
        if GRADIENT in names or ACCELERATION in names:
            modes[GRADIENT] = jnp.concatenate([gradient(layout, self.velocity[i]) for i in range(3)])
        if ACCELERATION in names:
            modes["rate"] = self.rate
        modes |= {name: self.fields[name][None] for name in names if name not in COMPONENTS}
        joined = jnp.concatenate(list(modes.values()))
        values = self.sampler(joined, position).astype(jnp.float64)
        sampled, at = {}, 0
        for name, part in modes.items():
            sampled[name], at = values[at : at + len(part)], at + len(part)
        if ACCELERATION in names:
            # Du/Dt = du/dt + (u . grad) u, all three interpolated.
            slope = sampled[GRADIENT].reshape(3, 3, -1)
            u = sampled[VELOCITY]
            advection = slope[:, 0] * u[0] + slope[:, 1] * u[1] + slope[:, 2] * u[2]
            sampled[ACCELERATION] = sampled.pop("rate") + advection
        return {name: sampled[name] for name in names}
