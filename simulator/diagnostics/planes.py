"""The planes through the middle of the box; in two dimensions the plane itself."""

from collections.abc import Callable, Mapping

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from simulator.diagnostics.measured import Measured
from simulator.models import Model, State
from simulator.spectral import Transform

PLANES = {"xy": ("x", "y"), "xz": ("x", "z"), "yz": ("y", "z")}


def values_of(model: Model, name: str) -> Callable[[State], jax.Array]:
    """The values (..., x, y, z) of a field as a function of the state."""
    return lambda state: model.whole_values(name, model.contents(state))


def mid_planes(transform: Transform, scalars: Mapping[str, Callable[[State], jax.Array]]) -> Measured:
    """`NAME/xy`, `NAME/xz`, `NAME/yz`: values of scalar fields, given as functions to values (x, y, z), on the planes
    through the grid point N/2 of the third axis; in two dimensions only `NAME/xy`."""
    grid, seen = transform.grid, transform.physical.as_seen
    shape = grid.seen(grid.shape)
    whole = NamedSharding(transform.layout.mesh, PartitionSpec())

    def compute(state: State) -> dict[str, jax.Array]:
        planes = dict[str, jax.Array]()
        for name, values in scalars.items():
            cut = {f"{name}/{plane}": v for plane, v in _cut(seen(values(state)), shape).items()}
            # Planes are small, and process 0 writes them: every device has them whole.
            planes |= {n: lax.with_sharding_constraint(plane, whole) for n, plane in cut.items()}
            # One field after the other: never two whole fields in memory.
            state, planes = lax.optimization_barrier((state, planes))
        return planes

    sizes = zip(grid.names.values(), shape, grid.seen(grid.spacing), strict=True)
    coordinates = {a: np.arange(n) * h for a, n, h in sizes}
    planes = {plane: axes for plane, axes in PLANES.items() if set(axes) <= coordinates.keys()}
    return Measured(
        coordinates, {f"{n}/{cut}": axes for n in scalars for cut, axes in planes.items()}, compute
    )


def _cut(values: jax.Array, shape: tuple[int, ...]) -> dict[str, jax.Array]:
    """The planes of values (x, y, z) or (x, y), without padding."""
    if len(shape) == 2:
        nx, ny = shape
        return {"xy": values[:nx, :ny]}
    nx, ny, nz = shape
    return {
        "xy": values[:nx, :ny, nz // 2],
        "xz": values[:nx, ny // 2, :nz],
        "yz": values[nx // 2, :ny, :nz],
    }
