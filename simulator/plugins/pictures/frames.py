"""Reads planes of a field at many times from a run's slices, projections or snapshots."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from simulator.archive.open_run import Run
from simulator.archive.series_file import SeriesReader
from simulator.archive.snapshot_reader import Snapshot, StoredField
from simulator.errors import UserError, did_you_mean
from simulator.measure.kind import SHOWN_FIRST
from simulator.plugins.pictures.choice import MEASURES
from simulator.plugins.pictures.slices import LINE, near, solids_at, where
from simulator.plugins.pictures.style import Labels, evenly, is_density

PLANE = {"x": "yz", "y": "xz", "z": "xy"}
"""The axes of the plane, by the axis across which it cuts the box or along which it sums."""
_PART = 2**24  # Largest part of a snapshot held at once, in bytes.


@dataclass(frozen=True)
class View:
    """A plane of a field: through the middle of the box across `axis`, or `projected` along it."""

    field: str
    axis: Literal["x", "y", "z"] = "z"
    projected: bool = False

    @property
    def kind(self) -> str:
        return "projection" if self.projected else "slice"

    def cut_of(self, run: Run) -> str:
        """The name of the plane in a series: `xy`. In one dimension there is a line instead, which
        no axis cuts."""
        axes = len((run.config.get("grid") or {}).get("shape", ()))
        line = axes == 1 and self.axis == "z" and not self.projected
        return LINE if line else PLANE[self.axis]


Bounds = tuple[slice, ...]
Read = Callable[[Bounds], np.ndarray]
"""A function that reads values of a part of the box, (x, y, z), or of the plane, (x, y)."""


@dataclass(frozen=True)
class Frames:
    """Planes, or lines, of one variable of a series, one for each of its `rows`."""

    series: SeriesReader
    variable: str
    rows: Sequence[int]
    where: str = ""
    """The position of the plane along the axis that it cuts, or the axis of a projection, in
    mathematical text."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def source(self) -> str:
        """The file or folder from which the frames are read."""
        return self.series.path.name

    def time(self, i: int) -> float:
        return float(self.series.time[self.rows[i]])

    def read(self, i: int) -> np.ndarray:
        """The plane of frame i, (a, b), or (a, b, colour)."""
        return self.series.one(self.variable, self.rows[i])

    @property
    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The coordinates of the points along the plane's two axes, or along the line."""
        return tuple(self.series.coordinates[a] for a in self.series.variables[self.variable][:2])

    def solids(self, i: int) -> list[np.ndarray]:
        """The part of each point on the plane of frame i that is solid, by kind of solids."""
        return solids_at(self.series, self.variable.rpartition("/")[2], self.rows[i])

    def particles(self, i: int) -> list[np.ndarray]:
        """The positions (2, particles) of each species next to the plane of frame i."""
        plane = self.variable.rpartition("/")[2]
        return [places for _, places in near(self.series, plane, self.rows[i])]


def _stored(run: Run, view: View) -> SeriesReader | None:
    """The series of mid-planes or projections of a run; None if there is none."""
    there = (run.path / f"{view.kind}s.h5").exists()
    return run.series(f"{view.kind}s") if there else None


def _fields(run: Run, view: View) -> list[str]:
    """The fields of which a run has planes that are seen as the one of `view`."""
    series = _stored(run, view)
    variables = series.variables if series is not None else ()
    drawn = [n.partition("/")[0] for n in variables if n.endswith(f"/{view.cut_of(run)}")]
    known = dict.fromkeys([*drawn, *fields_in_snapshots(run)])
    return [name for name in known if not (view.projected and name == "phase")]


def usual_view(run: Run, view: View) -> View:
    """`view` of the field of a movie that names none: as in a volume picture, else the first that
    is there. The field is empty if there is none yet."""
    known = _fields(run, view)
    field = next((name for name in (*SHOWN_FIRST, *known) if name in known), "")
    return replace(view, field=field)


def frames(run: Run, view: View) -> Frames:
    """The frames of a plane of a run. Projections are integrals of densities and means of all other
    fields. If two sources have the field, the source with more frames is taken.

    Raises UserError if no source has the field, with the available names, or if there are fewer
    than two frames."""
    field = view.field
    variable = f"{field}/{view.cut_of(run)}"
    if view.projected and field == "phase":
        raise UserError(
            "--projection: a mean of phases has no meaning; leave the option out, or take another field"
        )
    sources = []
    labels = Labels.of(run.config)
    place = partial(where, field=field, axis=view.axis, labels=labels, projected=view.projected)
    series = _stored(run, view)
    if series is not None and variable in series:
        # A field that was requested later has no values in earlier rows.
        rows = [i for i in range(len(series)) if np.isfinite(series.one(variable, i)).any()]
        sources.append(Frames(series, variable, rows, place(series)))
    if field in fields_in_snapshots(run):
        planes = SnapshotPlanes(run, field, projected=view.projected)
        if variable in planes:
            sources.append(Frames(planes, variable, range(len(planes)), place(planes)))
    if not sources:
        known = _fields(run, view)
        asked = f"give --field NAME or --render; {view.kind}s"
        if field:
            asked = f"no {view.kind} of a field {field!r}{did_you_mean(field, known)}"
        there = f"{run.path}: {asked} there are: {', '.join(known) or 'none yet'}"
        raise UserError(f"{there}; {MEASURES}" if field else there)
    best = max(sources, key=len)
    if len(best) < 2:
        keys = "{every: TIME}" if view.projected else f"{{every: TIME, fields: [{field}]}}"
        raise UserError(
            f"{run.path}: {len(best)} frame of {field} in {best.source}, a movie needs two; "
            f"output.{view.kind}s: {keys} in the run's file makes them"
        )
    return best


def volume_frames(run: Run) -> Frames:
    """The volume pictures of a run, (row, column, channel) of 8 bits. Raises UserError for fewer
    than two."""
    if not (run.path / "render.h5").exists():
        raise UserError(
            f"{run.path}: no volume pictures; output.render: {{every: TIME}} in the run's file makes them"
        )
    series = run.series("render")
    if len(series) < 2:
        raise UserError(
            f"{run.path}: {len(series)} volume picture, a movie needs two; give output.render more often"
        )
    return Frames(series, "image", range(len(series)))


def readable(snapshot: Snapshot) -> dict[str, Read]:
    """Functions that read the real scalar fields of a snapshot, by name: stored scalars, components
    (`velocity_x`) and magnitudes (`speed`, `NAME_magnitude`) of vectors, `density` and `phase` of a
    wave function."""
    readers: dict[str, Read] = {}
    for name, stored in snapshot.items():
        lead = stored.entry.components
        if not in_space(stored) or len(lead) > 1:
            continue
        if lead:
            for number, component in enumerate(lead[0]):
                readers[f"{name}_{component}"] = partial(stored.read, (number,))
            length = "speed" if name == "velocity" else f"{name}_magnitude"
            if not name.endswith("_variance"):  # the norm of variances is no statistic
                readers.setdefault(length, partial(_length, stored))
        elif np.issubdtype(stored.dtype, np.complexfloating):
            if name == "psi":
                readers.setdefault("density", lambda b, s=stored: np.abs(s.read((), b)) ** 2)
                readers.setdefault("phase", lambda b, s=stored: np.angle(s.read((), b)))
        else:
            readers[name] = partial(stored.read, ())
    return readers


def in_space(stored: StoredField) -> bool:
    """Whether a field holds values at grid points, not coefficients or records of particles."""
    return bool(stored.axes) and all(axis.spacing is not None for axis in stored.axes)


def _length(stored: StoredField, bounds: Bounds) -> np.ndarray:
    return np.sqrt(
        sum(stored.read((i,), bounds).astype(np.float64) ** 2 for i in range(len(stored)))
    )


def samples(source: Frames, most: int = 24, points: int = 256) -> list[np.ndarray]:
    """Values that represent the range of all frames: of up to `most` frames, up to `points` values
    along each axis, the smallest and the largest value."""
    result = []
    for i in evenly(len(source), most):
        plane = source.read(i)
        steps = tuple(slice(None, None, max(1, math.ceil(n / points))) for n in plane.shape)
        finite = plane[np.isfinite(plane)]
        ends = np.array([finite.min(), finite.max()]) if finite.size else np.empty(0)
        result.append(np.concatenate([plane[steps].ravel(), ends]))
    return result


class SnapshotPlanes(SeriesReader):
    """The mid-planes (in one dimension the line) or the projections of a field in each snapshot of a
    run, as a series that is read when it is drawn."""

    def __init__(self, run: Run, field: str, *, projected: bool = False) -> None:
        self._field = field
        self._projected = projected
        self._snapshots = [s for s in run.snapshots[:] if field in readable(s)]
        values = self._snapshots[-1].values()
        axes = next(f.axes for f in values if in_space(f))
        self.path = run.path / "snapshots"
        self.attributes = {}
        self.beside = {}
        self.coordinates = {axis.name: axis.coordinates for axis in axes}
        names = PLANE.values() if len(axes) > 1 else [LINE]
        planes = [plane for plane in names if set(plane) <= self.coordinates.keys()]
        planes = [] if projected and "z" not in self.coordinates else planes
        self.variables = {f"{field}/{plane}": tuple(plane) for plane in planes}
        self.step = np.array([s.step for s in self._snapshots])
        self.time = np.array([s.time for s in self._snapshots])

    def __getitem__(self, name: str) -> np.ndarray:
        return np.stack([self.one(name, i) for i in range(len(self))])

    def one(self, name: str, index: int) -> np.ndarray:
        plane = name.rpartition("/")[2]
        read = readable(self._snapshots[index])[self._field]
        cuts = [number for number, axis in enumerate(self.coordinates) if axis not in plane]
        if self._projected:
            return self._projection(read, cuts[0])
        bounds = [slice(0, len(points)) for points in self.coordinates.values()]
        for cut in cuts:
            bounds[cut] = slice(bounds[cut].stop // 2, bounds[cut].stop // 2 + 1)
        return read(tuple(bounds)).squeeze(tuple(cuts))

    def _projection(self, read: Read, cut: int) -> np.ndarray:
        """The integral of a density, or the mean of another field, along an axis, from a few planes
        at a time."""
        nx, ny, nz = (len(points) for points in self.coordinates.values())
        planes = max(1, _PART // (8 * ny * nz))
        parts = []
        for start in range(0, nx, planes):
            part = read((slice(start, min(start + planes, nx)), slice(0, ny), slice(0, nz)))
            parts.append(part.sum(cut, dtype=np.float64))
            if cut == 0:
                parts = [sum(parts[1:], parts[0])]
        total = np.concatenate(parts) if cut else parts[0]
        points = list(self.coordinates.values())[cut]
        spacing = float(points[1] - points[0]) if len(points) > 1 else 1.0
        return total * (spacing if is_density(self._field) else 1 / len(points))


def fields_in_snapshots(run: Run) -> list[str]:
    with suppress(IndexError, UserError):
        return list(readable(run.snapshots[-1]))
    return []


def usual(run: Run, drawn: list[str]) -> list[str]:
    """The fields drawn by default, that is, stored scalars, density and phase of a wave function
    and magnitudes of stored vectors, except `drawn` and those of the velocity."""
    fields = fields_in_snapshots(run)
    stored = run.snapshots[-1] if fields else {}
    parts = {
        f"{name}_{c}"
        for name, each in stored.items()
        for names in each.entry.components
        for c in names
    }
    left_out = {*(parts | {"speed"}) - stored.keys(), *drawn}
    return [name for name in fields if name not in left_out and not name.startswith("velocity")]
