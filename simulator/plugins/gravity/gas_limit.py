"""The condition on dt of a gas, and whether the grid resolves it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax.numpy as jnp

from simulator.physics.forcing.band import center_velocity
from simulator.physics.models.fields import Fields
from simulator.physics.models.limits import StepLimit, advection_rate
from simulator.physics.models.observables.resolution import tail_fraction
from simulator.spectral import operators
from simulator.spectral.arrays import Number, OverPoints, PointValues

if TYPE_CHECKING:
    from simulator.plugins.gravity.self_gravitating_gas import SelfGravitatingGas


class GasLimit(StepLimit["SelfGravitatingGas"]):
    """A sum: flow and sound cross a cell, viscosity damps the smallest scale, the densest point
    collapses. The last two limit an explicit step so little that their sum with the first is safe.
    NaN if the density is negative somewhere, or if the gas is under-resolved."""

    local = "advection"

    def maxima(self, model: SelfGravitatingGas, values: PointValues) -> dict[str, OverPoints]:
        rho = values["density"]
        advection = advection_rate(model.transform.grid, values["momentum"] / rho)
        return {"advection": advection, "densest": rho, "thinnest": -rho}

    def rate(
        self, model: SelfGravitatingGas, maxima: Mapping[str, Number], fields: Fields
    ) -> Number:
        grid = model.transform.grid
        viscosity = model.viscosity
        reference = model.reference_density(fields)
        densest = maxima["densest"]
        thinnest = -maxima["thinnest"]
        exponent = (model.polytropic_exponent - 1) / 2
        sound = model.sound_speed * jnp.maximum(densest / reference, 0) ** exponent
        crossing = maxima["advection"] + sound * sum(1 / h for h in grid.seen(grid.spacing))
        largest = sum((n * unit) ** 2 for n, unit in zip(grid.kept, grid.fundamental, strict=True))
        variation = jnp.maximum(abs(reference / thinnest - 1), abs(reference / densest - 1))
        explicit = (
            viscosity * variation + (viscosity / 3 + model.bulk_viscosity) * reference / thinnest
        )
        attraction = 4 * math.pi * model.gravitational_constant
        fall = jnp.sqrt(attraction * jnp.maximum(densest, 0))
        rate = crossing + 0.5 * largest * explicit + fall
        resolved = (thinnest > 0) & (momentum_at_edge(model, fields) <= model.max_edge_energy)
        return jnp.where(resolved, rate, jnp.nan)


def momentum_at_edge(model: SelfGravitatingGas, fields: Fields) -> Number:
    """Tail fraction of the squared momentum in the frame of the centre of mass."""
    layout = model.transform.layout
    density = fields["density"]
    m = fields["momentum"]
    drift = center_velocity(layout, density, m)
    relative = m - drift[:, None, None, None] * density
    # Round-off of the fluxes: from sound, bulk motion, and gravitational acceleration across the
    # box.
    grid = model.transform.grid
    length = max(grid.seen(grid.box))
    mean = layout.at_zero(density).real
    speed = model.sound_speed + jnp.sqrt(operators.squared(drift))
    speed = speed + length * jnp.sqrt(model.gravitational_constant * abs(mean))
    noise = 1e3 * jnp.finfo(m.real.dtype).eps * speed * mean
    return tail_fraction(layout, operators.squared(relative), noise**2)
