"""The snapshots of many runs as lazy arrays. Reading them needs no JAX."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulator.archive.manifest import committed
from simulator.archive.snapshot_reader import LazyArray, open_snapshot, selected
from simulator.errors import UserError, did_you_mean
from simulator.study.runs import SweepRun
from simulator.words import brief


class SweepArray(LazyArray):
    """A field in all snapshots of finished runs, of shape (run, time, component, x, y, z): without
    the component for scalars, without z in two dimensions.

        velocity = open_sweep("study.yaml").array("velocity")
        velocity.shape, velocity.dtype  # no value is read
        velocity[:, -1, 0, ::2]         # reads these points only
    """

    def __init__(self, name: str, runs: Sequence[SweepRun]) -> None:
        """Raises UserError unless all runs have snapshots of `name`, of the same number, shape and
        type."""
        self.name = name
        self.runs = tuple(runs)
        self._frames = [committed(run.folder / "snapshots") for run in self.runs]
        forms: dict[tuple[Any, ...], SweepRun] = {}
        for run, frames in zip(self.runs, self._frames, strict=True):
            snapshot = open_snapshot(frames[0]) if frames else {}
            known = [field for field in snapshot if snapshot[field].axes]
            if name not in known:
                meant = did_you_mean(name, known)
                fields = (
                    f"{meant} its fields are {', '.join(known)}"
                    if known
                    else "; it has no snapshot yet"
                )
                raise UserError(
                    f"{run.folder}: no field {name!r}{fields}; output.snapshots.fields chooses them"
                )
            forms.setdefault((len(frames), snapshot[name].shape, snapshot[name].dtype), run)
        if len(forms) != 1:
            said = "; ".join(
                f"run {r.index} has {n} of {brief(s)} in {t}" for (n, s, t), r in forms.items()
            )
            raise UserError(
                f"the snapshots of {name} do not form one array: {said or 'no run'}; choose others"
            )
        ((number, shape, self.dtype),) = forms
        self.shape = (len(self.runs), number, *shape)

    @property
    def time(self) -> np.ndarray:
        """The simulation times of the frames, shape (run, time)."""
        return np.array([[open_snapshot(path).time for path in frames] for frames in self._frames])

    def __repr__(self) -> str:
        return (
            f"<{self.name} {self.shape} {self.dtype} of {len(self.runs)} runs, read when indexed>"
        )

    def __getitem__(self, index: Any) -> np.ndarray:
        ranges, dropped = selected(index, self.shape)
        out = np.empty([len(r) for r in ranges], self.dtype)
        inner = tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in ranges[2:])
        for place in np.ndindex(out.shape[:2] if out.size else (0,)):
            out[place] = self._frame(ranges[0][place[0]], ranges[1][place[1]])[inner]
        return out.reshape([len(r) for r, drop in zip(ranges, dropped, strict=True) if not drop])

    def _frame(self, run: int, frame: int) -> Any:
        """The stored field of one frame. Raises UserError if the snapshot lacks it."""
        path: Path = self._frames[run][frame]
        snapshot = open_snapshot(path)
        if self.name not in snapshot or snapshot[self.name].shape != self.shape[2:]:
            raise UserError(
                f"{path}: no field {self.name!r} of shape {self.shape[2:]} as in the first snapshot"
            )
        return snapshot[self.name]
