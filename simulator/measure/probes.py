"""Fields at points and on lines, often: probes.h5."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.errors import did_you_mean
from simulator.measure.cadence import SeriesCadence, distinct
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Real, Settings, wrong

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured

Position = Annotated[tuple[Real, ...], Field(min_length=2, max_length=3)]
MOST_POINTS = 1000
TAKEN = ("point", "x", "y", "z", "step", "time")


class LineSettings(Settings):
    axis: Literal["x", "y", "z"]
    """The line's points are those of the grid along this axis."""
    through: Position
    """A point on the line, [x, y, z]."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z]\w*$", max_length=64)] = "line"
    """It begins the names of the line's variables."""


class ProbeSettings(SeriesCadence):
    points: Annotated[tuple[Position, ...], Field(max_length=MOST_POINTS)] = ()
    """Positions [x, y, z], anywhere in the box; in two dimensions [x, y]."""
    lines: tuple[LineSettings, ...] = ()
    """Lines of grid points along an axis."""
    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Evolved fields; by default all that are real."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not (self.points or self.lines):
            raise wrong("", "has no place to probe; give points or lines")
        names = [line.name for line in self.lines]
        for index, name in enumerate(names):
            if name in names[:index] or name in TAKEN:
                raise wrong(f"lines.{index}.name", f"{name} is taken; names of lines have to differ")
        return self


class Probes(Kind):
    name = "probes"
    description = "Fields at points and on lines, exact between grid points too, in probes.h5."
    Settings = ProbeSettings
    frequent = True

    def measured(self, subject: Subject, settings: ProbeSettings) -> "Measured":
        from simulator.diagnostics.probes import Line, probes

        model, grid = subject.model, subject.transform.grid
        known = [name for name, spec in model.fields.items() if not spec.complex]
        names = settings.fields or tuple(known)
        if not names:
            raise Unsupported("needs an evolved field of real values")
        for name in names:
            if name not in known:
                meant = did_you_mean(name, known)
                raise Unsupported(
                    f"{name} is not an evolved real field{meant} known: {', '.join(known)}", key="fields"
                )

        def placed(position: tuple[float, ...], key: str) -> tuple[float, float, float]:
            if len(position) != len(grid.axes):
                raise Unsupported(f"{len(grid.axes)} coordinates are needed, not {len(position)}", key=key)
            given = dict(zip(grid.axes, position, strict=True))
            return given.get("x", 0.0), given["y"], given["z"]

        points = [placed(p, f"points.{i}") for i, p in enumerate(settings.points)]
        axes = {seen: axis for axis, seen in grid.names.items()}
        lines = {}
        for i, line in enumerate(settings.lines):
            if line.axis not in axes:
                raise Unsupported(f"the grid has no axis {line.axis}", key=f"lines.{i}.axis")
            lines[line.name] = Line(axes[line.axis], placed(line.through, f"lines.{i}.through"))
        return probes(model, names, points, lines)
