"""Mid-planes of fields that a run has only in its snapshots, in the form of slices."""

from collections.abc import Mapping

import numpy as np

from simulator.errors import UserError
from simulator.output.series import SeriesReader
from simulator.read.open import Run
from simulator.show.frames import PLANE, readable


class SnapshotPlanes(SeriesReader):
    """The three mid-planes of a field in each snapshot of a run, read when they are drawn."""

    def __init__(self, run: Run, field: str) -> None:
        self._field = field
        self._snapshots = [s for s in run.snapshots[:] if field in readable(s)]
        values = self._snapshots[-1].values()
        axes = next(f.axes for f in values if len(f.axes) in (2, 3) and f.axes[0].labels is None)
        self.path, self.attributes, self.beside = run.path / "snapshots", {}, {}
        self.coordinates = {axis.name: axis.coordinates for axis in axes}
        planes = (plane for plane in PLANE.values() if set(plane) <= self.coordinates.keys())
        self.variables = {f"{field}/{plane}": tuple(plane) for plane in planes}
        self.step = np.array([s.step for s in self._snapshots])
        self.time = np.array([s.time for s in self._snapshots])

    def __getitem__(self, name: str) -> np.ndarray:
        return np.stack([self.one(name, i) for i in range(len(self))])

    def at(self, index: int) -> dict[str, np.ndarray]:
        return {name: self.one(name, index) for name in self.variables}

    def one(self, name: str, index: int) -> np.ndarray:
        read = readable(self._snapshots[index])[self._field]
        plane = name.rpartition("/")[2]
        bounds: list[slice] = []
        cut: tuple[int, ...] = ()
        for number, (axis, points) in enumerate(self.coordinates.items()):
            if axis in plane:
                bounds.append(slice(0, len(points)))
            else:
                cut = (number,)
                bounds.append(slice(len(points) // 2, len(points) // 2 + 1))
        return read(tuple(bounds)).squeeze(cut)


def fields_in_snapshots(run: Run) -> dict[str, str]:
    """The scalar fields that the last snapshot can show, each with the stored field that it comes from."""
    try:
        snapshot = run.snapshots[-1]
    except (IndexError, UserError):
        return {}
    return {name: _source(name, snapshot) for name in readable(snapshot)}


def _source(name: str, stored: Mapping[str, object]) -> str:
    if name in stored:
        return name
    if name == "speed":
        return "velocity"
    return max((s for s in stored if name.startswith(f"{s}_")), key=len, default=name)


def usual(run: Run, drawn: list[str]) -> list[str]:
    """The fields of the default set that the slices lack: every stored scalar, and the magnitudes of vectors."""
    found = fields_in_snapshots(run)
    lengths = {f"{source}_magnitude" for source in found.values()}
    return [
        name
        for name, source in found.items()
        if (name == source or name in lengths) and name not in drawn and not name.startswith("velocity")
    ]
