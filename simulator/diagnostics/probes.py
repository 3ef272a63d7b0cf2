"""Values of fields at points and on lines of the box, from their Fourier series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from simulator.diagnostics.measured import Measured
from simulator.models import Model, State
from simulator.spectral import Layout
from simulator.spectral.grid import AXES

AT_ONCE = 16
"""Points whose sums are taken together: the partial sums of one point are a plane of modes."""


@dataclass(frozen=True)
class Line:
    """The grid's points along `axis`, through a point (x, y, z)."""

    axis: str
    through: tuple[float, float, float]


def values_at(layout: Layout, field: jax.Array, positions: Sequence[np.ndarray | jax.Array]) -> jax.Array:
    """Values of a real field, from its coefficients (..., *order), on the points that the x, y and z positions
    span: (..., x, y, z).

    The sums over modes are taken axis by axis, first along the axes that every device holds whole.
    """
    order = sorted(layout.order, key=lambda axis: axis in layout.sharded)
    letters = {axis: AXES.index(axis) for axis in AXES}
    lead = field.ndim - 3
    operand = [3 + i for i in range(lead)] + [letters[axis] for axis in layout.order]
    values = field
    for axis in order:
        phases = layout.phases(axis, positions[letters[axis]], field.dtype)
        own, made = letters[axis], 20 + letters[axis]
        result = [made if label == own else label for label in operand]
        values = jnp.einsum(values, operand, phases, [made, own], result, precision=lax.Precision.HIGHEST)
        operand = result
    return jnp.einsum(values, operand, [*operand[:lead], 20, 21, 22]).real


def probes(
    model: Model, names: Sequence[str], points: Sequence[Sequence[float]], lines: Mapping[str, Line]
) -> Measured:
    """`NAME` (point,) and `LINE/NAME` (LINE_x or as its axis is called): values of evolved real fields at points
    (x, y, z) and on lines, those of vectors by component, `NAME_x` and so on. Each point or line costs one reading of
    a field's modes, and no transform."""
    grid = model.transform.grid
    whole = NamedSharding(model.transform.layout.mesh, PartitionSpec())
    placed = np.asarray(points, np.float64).reshape(-1, 3)
    along = {
        name: np.arange(grid.shape[AXES.index(line.axis)]) * grid.spacing[AXES.index(line.axis)]
        for name, line in lines.items()
    }
    called = {name: f"{name}_{grid.names[line.axis]}" for name, line in lines.items()}

    def named(name: str, values: jax.Array, before: str = "") -> dict[str, jax.Array]:
        components = model.fields[name].components
        row = {f"{name}_{c}": values[i] for i, c in enumerate(components)} or {name: values}
        return {before + n: lax.with_sharding_constraint(v, whole) for n, v in row.items()}

    def compute(state: State) -> dict[str, jax.Array]:
        row: dict[str, jax.Array] = {}
        for name in names:
            layout, field = model.transform_of(name).layout, state.fields[name]
            if len(points):

                def at(position, layout=layout, field=field):
                    return values_at(layout, field, position[:, None])[..., 0, 0, 0]

                row |= named(name, jnp.moveaxis(lax.map(at, placed, batch_size=AT_ONCE), 0, -1))
            for key, line in lines.items():
                position = [np.array([x]) for x in line.through]
                position[AXES.index(line.axis)] = along[key]
                values = values_at(layout, field, position)
                row |= named(name, values.reshape(*values.shape[:-3], prod(values.shape[-3:])), f"{key}/")
        return row

    variables: dict[str, tuple[str, ...]] = {}
    for name in names:
        components = model.fields[name].components
        own = [f"{name}_{c}" for c in components] or [name]
        variables |= {n: ("point",) for n in own if len(points)}
        variables |= {f"{key}/{n}": (called[key],) for key in lines for n in own}
    attributes = {f"{key}_through": list(grid.seen(line.through)) for key, line in lines.items()}
    where = {
        seen: ("point", np.asarray(placed[:, AXES.index(axis)]))
        for axis, seen in grid.names.items()
        if len(points)
    }
    coordinates = {"point": np.arange(len(points))} if len(points) else {}
    coordinates |= {called[key]: positions for key, positions in along.items()}
    return Measured(coordinates, variables, compute, attributes, lambda: where)
