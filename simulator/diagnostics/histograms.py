"""Probability densities of velocity, its gradients, vorticity, and all other evolved fields."""

from collections.abc import Callable, Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from simulator.diagnostics.measured import Measured
from simulator.models import Fields, State
from simulator.spectral import Transform
from simulator.spectral.operators import curl, fluctuation, gradient, wavenumbers
from simulator.spectral.program import Program


class _Counter:
    """Counts values (component, x, y, z) in bins, on each device."""

    def __init__(self, transform: Transform, bins: int, reach: float):
        self._transform, self._bins, self._reach = transform, bins, reach

    @cached_property
    def _program(self) -> Program:
        physical, bins = self._transform.physical, self._bins
        axes = tuple(dict.fromkeys(physical.sharded.values()))

        def local(scaled):
            place = jnp.floor(scaled * bins).ravel()
            index = jnp.where((place >= 0) & (place < bins), place, bins).astype(jnp.int32)
            counts = jnp.zeros(bins + 1, jnp.float64).at[index].add(1.0)[:bins]
            return (lax.psum(counts, axes) if physical.devices > 1 else counts,)

        return Program(local, physical.mesh, [physical.spec_of(4)], [PartitionSpec()], name="histogram")

    def density(self, modes: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The probability density of all components of `modes` (component, *order) together, each about its own mean,
        in units of their common standard deviation; and this deviation."""
        layout, physical = self._transform.layout, self._transform.physical
        fluctuations = fluctuation(layout, modes)
        deviation = jnp.sqrt(layout.inner(fluctuations, fluctuations).mean())
        values = self._transform.inverse(fluctuations) / jnp.where(deviation > 0, deviation, 1)
        scaled = (values / self._reach + 1) / 2
        (counts,) = self._program(physical.constrain(jnp.where(physical.inside(), scaled, jnp.inf)))
        width = 2 * self._reach / self._bins
        return counts / (modes.shape[0] * self._transform.grid.points * width), deviation


def histograms(
    transform: Transform, components: Mapping[str, tuple[int, ...]], bins: int, reach: float
) -> Measured:
    """`NAME` (sigma,): probability density of a quantity as a function of its deviation from the mean, in standard
    deviations. The components of a vector are taken together, each about its own mean; `NAME_deviation` is the root
    of their mean variance. Values beyond +-reach deviations are not counted.

    Quantities: every field of the model; for scalars also the gradient (`NAME_gradient`); for vectors also the curl
    (`vorticity`, `current`); for the velocity also `longitudinal_gradient` and `transverse_gradient`.
    """
    layout, counter = transform.layout, _Counter(transform, bins, reach)
    quantities: dict[str, Callable[[Fields], jax.Array]] = {}

    def derivatives(field: str, pairs: list[tuple[int, int]]) -> Callable[[Fields], jax.Array]:
        def modes(fields: Fields) -> jax.Array:
            k = wavenumbers(layout, fields[field].real.dtype)
            return jnp.stack([1j * k[j] * fields[field][i] for i, j in pairs])

        return modes

    for field, lead in components.items():
        quantities[field] = (lambda f, n=field: f[n]) if lead else (lambda f, n=field: f[n][None])
        if not lead:
            quantities[f"{field}_gradient"] = lambda f, n=field: gradient(layout, f[n])
        if field in _CURLS:
            quantities[_CURLS[field]] = lambda f, n=field: _components(curl(layout, f[n]))
    if "velocity" in components:
        axes = range(len(transform.grid.axes))
        quantities["longitudinal_gradient"] = derivatives("velocity", [(i, i) for i in axes])
        others = [(i, j) for i in axes for j in axes if i != j]
        quantities["transverse_gradient"] = derivatives("velocity", others)

    def compute(state: State) -> dict[str, jax.Array]:
        row = {}
        for name, modes in quantities.items():
            row[name], row[f"{name}_deviation"] = counter.density(layout.constrain(modes(state.fields)))
        return row

    centres = (np.arange(bins) + 0.5) / bins * 2 * reach - reach
    variables = {n: ("sigma",) for n in quantities} | {f"{n}_deviation": () for n in quantities}
    return Measured({"sigma": centres}, variables, compute)


_CURLS = {"velocity": "vorticity", "magnetic": "current"}


def _components(field: jax.Array) -> jax.Array:
    """A scalar (*order) as (1, *order)."""
    return field.reshape(-1, *field.shape[-3:])
