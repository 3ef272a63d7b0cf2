"""Values of fields at points and on lines, at short intervals: probes.h5."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
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

Position = Annotated[tuple[Real, ...], Field(min_length=2, max_length=3)]
MOST_POINTS = 1000
TAKEN = ("point", "x", "y", "z", "step", "time")


class LineSettings(Settings):
    axis: Literal["x", "y", "z"]
    """The line runs along this axis, with the coordinates of the grid points."""
    through: Position
    """A point on the line, [x, y, z]."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z]\w*$", max_length=64)] = "line"
    """Prefix of the names of the line's variables."""


class ProbeSettings(SeriesCadence):
    points: Annotated[tuple[Position, ...], Field(max_length=MOST_POINTS)] = ()
    """Positions [x, y, z], anywhere in the box; in two dimensions [x, y]."""
    lines: tuple[LineSettings, ...] = ()
    """Lines of grid points along an axis."""
    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Evolved fields; by default all real ones."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not (self.points or self.lines):
            raise wrong("", "has no place to probe; give points or lines")
        check_names_differ("lines", [line.name for line in self.lines], TAKEN)
        return self


class Probes(Kind):
    name = "probes"
    description = "Fields at points and on lines, exact between grid points too, in probes.h5."
    Settings = ProbeSettings
    frequent = True

    def measured(self, subject: Subject, settings: ProbeSettings) -> Measured:
        model = subject.model
        grid = subject.transform.grid
        known = [name for name, spec in model.fields.items() if not spec.complex]
        names = settings.fields or tuple(known)
        if not names:
            raise Unsupported("needs an evolved field of real values")
        check_field_names(names, known, "an evolved real field")

        def placed(position: tuple[float, ...], key: str) -> tuple[float, float, float]:
            if len(position) != len(grid.axes):
                raise Unsupported(
                    f"{len(grid.axes)} coordinates are needed, not {len(position)}", key=key
                )
            coordinates = dict(zip(grid.axes, position, strict=True))
            return coordinates.get("x", 0.0), coordinates["y"], coordinates["z"]

        points = [placed(p, f"points.{i}") for i, p in enumerate(settings.points)]
        axes = {seen: axis for axis, seen in grid.names.items()}
        lines = {}
        for i, line in enumerate(settings.lines):
            if line.axis not in axes:
                raise Unsupported(f"the grid has no axis {line.axis}", key=f"lines.{i}.axis")
            lines[line.name] = Line(axes[line.axis], placed(line.through, f"lines.{i}.through"))
        return probes(model, names, points, lines)


AT_ONCE = 16  # Number of points whose sums are computed together; a point's partial sums fill a plane of modes.


@dataclass(frozen=True)
class Line:
    """The grid's points along `axis`, through a point (x, y, z)."""

    axis: str
    through: tuple[float, float, float]


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


def _variables_of(model: models.Equation, name: str) -> list[str]:
    """The names of the components of a vector, or of a scalar."""
    return [f"{name}_{c}" for c in model.fields[name].components] or [name]


def probes(
    model: models.Equation,
    names: Sequence[str],
    points: Sequence[Sequence[float]],
    lines: Mapping[str, Line],
) -> Measured:
    """`NAME` (point,) and `LINE/NAME` (LINE_x, with the name of the line's axis): values of evolved
    real fields at points (x, y, z) and on lines; a vector has one variable for each component,
    `NAME_x` and so on. Each point or line reads all modes of a field once and needs no
    transform."""
    grid = model.transform.grid
    placed = np.asarray(points, np.float64).reshape(-1, 3)
    points_of = dict(
        zip(
            AXES,
            (np.arange(n) * h for n, h in zip(grid.shape, grid.spacing, strict=True)),
            strict=True,
        )
    )
    along = {name: points_of[line.axis] for name, line in lines.items()}
    called = {name: f"{name}_{grid.names[line.axis]}" for name, line in lines.items()}

    def named(name: str, values: jax.Array, before: str = "") -> dict[str, jax.Array]:
        vector = model.fields[name].components
        parts = jnp.unstack(values) if vector else [values]
        row = dict(zip(_variables_of(model, name), parts, strict=True))
        return {before + n: model.transform.layout.replicated(v) for n, v in row.items()}

    def compute(state: models.State) -> dict[str, jax.Array]:
        row: dict[str, jax.Array] = {}
        for name in names:
            layout = model.transforms[name].layout
            field = state.fields[name]
            if len(points):

                def at(
                    position: jax.Array, layout: spectral.Layout = layout, field: jax.Array = field
                ) -> jax.Array:
                    return values_at(layout, field, list(position[:, None]))[..., 0, 0, 0]

                row |= named(name, jnp.moveaxis(lax.map(at, placed, batch_size=AT_ONCE), 0, -1))
            for key, line in lines.items():
                position = [np.array([x]) for x in line.through]
                position[AXES.index(line.axis)] = along[key]
                values = values_at(layout, field, position)
                row |= named(
                    name, values.reshape(*values.shape[:-3], prod(values.shape[-3:])), f"{key}/"
                )
        return row

    variables: dict[str, tuple[str, ...]] = {}
    for n in chain.from_iterable(_variables_of(model, name) for name in names):
        if len(points):
            variables[n] = ("point",)
        variables |= {f"{key}/{n}": (axis,) for key, axis in called.items()}
    attributes = {f"{key}_through": list(grid.seen(line.through)) for key, line in lines.items()}
    where = {
        seen: ("point", np.asarray(placed[:, AXES.index(axis)]))
        for axis, seen in grid.names.items()
        if len(points)
    }
    coordinates = {"point": np.arange(len(points))} if len(points) else {}
    coordinates |= {called[key]: positions for key, positions in along.items()}
    return Measured(coordinates, variables, compute, attributes, lambda: where)
