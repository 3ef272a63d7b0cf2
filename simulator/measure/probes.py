"""Values of fields at points and on lines, at short intervals: probes.h5."""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pydantic import AfterValidator, Field, model_validator

from simulator import spectral
from simulator.measure.kind import (
    AXES,
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
    check_field_names,
    distinct,
)
from simulator.physics import models
from simulator.settings import Real, Settings, check_names_differ, wrong

Position = Annotated[tuple[Real, ...], Field(min_length=1, max_length=3)]
MOST_POINTS = 1000
TAKEN = ("point", "x", "y", "z", "step", "time")


class LineSettings(Settings):
    axis: Literal["x", "y", "z"]
    """The line runs along this axis, with the coordinates of the grid points."""
    through: Position
    """A point on the line, [x, y, z]."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)] = "line"
    """Prefix of the names of the line's variables."""


class ProbeSettings(SeriesCadence):
    points: Annotated[tuple[Position, ...], Field(max_length=MOST_POINTS)] = ()
    """Positions [x, y, z], anywhere in the box; in two dimensions [x, y], in one [x]."""
    lines: tuple[LineSettings, ...] = ()
    """Lines of grid points along an axis."""
    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Evolved fields; by default all real ones."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not (self.points or self.lines):
            raise wrong("", "no points to probe are given; set points or lines")
        check_names_differ("lines", [line.name for line in self.lines], TAKEN)
        return self


class Probes(Kind):
    name = "probes"
    description = "Fields at points and on lines, exact between grid points too, in probes.h5."
    Settings = ProbeSettings
    frequent = True

    def measured(self, subject: Subject, settings: ProbeSettings) -> Measured:
        """`NAME` (point,) and `LINE/NAME` (LINE_x, with the name of the line's axis): values of
        evolved real fields; a vector has one variable for each component, `NAME_x` and so on. Each
        point or line reads all modes of a field once and needs no transform."""
        model = subject.model
        grid = subject.transform.grid
        known = [name for name, spec in model.fields.items() if not spec.complex]
        names = settings.fields or tuple(known)
        if not names:
            raise Unsupported("needs an evolved field of real values")
        check_field_names(names, known, "an evolved real field")
        components = {n: [f"{n}_{c}" for c in model.fields[n].components] or [n] for n in names}
        placed = [_placed(grid, p, f"points.{i}") for i, p in enumerate(settings.points)]
        points = np.asarray(placed, np.float64).reshape(-1, 3)
        lines = {
            line.name: _span(grid, line, f"lines.{i}") for i, line in enumerate(settings.lines)
        }

        def named(name: str, values: jax.Array, before: str = "") -> dict[str, jax.Array]:
            parts = jnp.unstack(values) if model.fields[name].components else [values]
            row = zip(components[name], parts, strict=True)
            return {before + n: model.transform.layout.replicated(v) for n, v in row}

        def compute(state: models.State) -> dict[str, jax.Array]:
            row: dict[str, jax.Array] = {}
            for name in names:
                layout = model.transforms[name].layout
                field = state.fields[name]
                if len(points):
                    row |= named(name, values_at_points(layout, field, points))
                for key, positions in lines.items():
                    values = values_at(layout, field, positions)
                    row |= named(name, values.reshape(*values.shape[:-3], -1), f"{key}/")
            return row

        dimensions = {line.name: f"{line.name}_{line.axis}" for line in settings.lines}
        variables: dict[str, tuple[str, ...]] = {}
        for n in chain.from_iterable(components.values()):
            if len(points):
                variables[n] = ("point",)
            variables |= {f"{key}/{n}": (along,) for key, along in dimensions.items()}
        axes = {seen: AXES.index(axis) for axis, seen in grid.names.items()}
        where = {seen: ("point", points[:, i]) for seen, i in axes.items() if len(points)}
        coordinates = {"point": np.arange(len(points))} if len(points) else {}
        coordinates |= {
            dimensions[line.name]: lines[line.name][axes[line.axis]] for line in settings.lines
        }
        attributes = {f"{line.name}_through": list(line.through) for line in settings.lines}
        return Measured(coordinates, variables, compute, attributes, lambda: where)


def _placed(
    grid: spectral.Grid, position: tuple[float, ...], key: str
) -> tuple[float, float, float]:
    """A user's position as (x, y, z) of arrays. Refuses another number of coordinates."""
    if len(position) != grid.dimensions:
        needed = f"[{', '.join(grid.names.values())}] is needed"
        raise Unsupported(f"{needed}, not {list(position)}", key=key)
    x, y, z = (*(0.0,) * (3 - len(position)), *position)
    return x, y, z


def _span(grid: spectral.Grid, line: LineSettings, key: str) -> list[np.ndarray]:
    """The positions along x, y and z whose product is a line: one, but along its axis all of the
    grid."""
    axes = {seen: AXES.index(axis) for axis, seen in grid.names.items()}
    if line.axis not in axes:
        raise Unsupported(f"the grid has no axis {line.axis}", key=f"{key}.axis")
    positions = [np.array([x]) for x in _placed(grid, line.through, f"{key}.through")]
    axis = axes[line.axis]
    positions[axis] = np.arange(grid.shape[axis]) * grid.spacing[axis]
    return positions


AT_ONCE = 16  # Number of points whose sums are computed together; a point's partial sums fill a plane of modes.


def values_at(
    layout: spectral.Layout, field: jax.Array, positions: Sequence[np.ndarray | jax.Array]
) -> jax.Array:
    """Values of a real field, from its coefficients (..., *order), on the points that the x, y and
    z positions span: (..., x, y, z).

    The sums over modes are taken axis by axis, first along the axes that every device holds
    whole."""
    order = sorted(layout.order, key=lambda axis: axis in layout.sharded)
    lead = field.ndim - 3
    operand = [3 + i for i in range(lead)] + [AXES.index(axis) for axis in layout.order]
    values = field
    for axis in order:
        number = AXES.index(axis)
        point_label = 20 + AXES.index(axis)
        phases = layout.phases(axis, positions[number], field.dtype)
        result = [point_label if label == number else label for label in operand]
        values = jnp.einsum(
            values, operand, phases, [point_label, number], result, precision=lax.Precision.HIGHEST
        )
        operand = result
    return jnp.einsum(values, operand, [*operand[:lead], 20, 21, 22]).real


def values_at_points(layout: spectral.Layout, field: jax.Array, points: np.ndarray) -> jax.Array:
    """Values (..., point) of a real field, from its coefficients, at points (point, 3)."""

    def at(point: jax.Array) -> jax.Array:
        return values_at(layout, field, list(point[:, None]))[..., 0, 0, 0]

    return jnp.moveaxis(lax.map(at, points, batch_size=AT_ONCE), 0, -1)
