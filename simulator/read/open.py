"""Opens a run, finished or still running: `open_run("outputs/taylor_green")`.

Nothing is cached: each access shows the present files. JAX is not needed except for snapshots.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from simulator.errors import UserError
from simulator.output.ledger import Ledger
from simulator.output.series import SeriesReader
from simulator.output.table import read_table
from simulator.run.folder import CONFIG
from simulator.run.lock import RunLock
from simulator.run.state import RunState, read_state
from simulator.simulation import provenance

if TYPE_CHECKING:
    import xarray

    from simulator.storage import Snapshot


def open_run(path: str | Path) -> "Run":
    """The run in the folder `path`, which may have been moved. Raises UserError if there is none."""
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        problem = "no such folder" if not folder.exists() else f"not a run: it has no {CONFIG}"
        raise UserError(f"{folder}: {problem}; name the folder that output.directory gave")
    return Run(folder)


class Run:
    """The output of a run as numpy arrays:

        run = open_run("outputs/taylor_green")
        run.diagnostics["energy"], run.spectra["kinetic_energy"][-1]
        run.snapshots[-1]["velocity"][0, :, :, 0]  # reads one plane
        run.to_xarray()["velocity"].isel(component=0).mean("z")  # all snapshots, lazily

    Files are read only when they are needed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration as nested mappings: `run.config["grid"]["shape"]`."""
        from simulator.config import read_yaml

        return read_yaml(self.path / CONFIG).value

    @property
    def diagnostics(self) -> dict[str, np.ndarray]:
        """The columns of `diagnostics.csv` by name: `step`, `time`, ..., each of shape (row,)."""
        path = self.path / "diagnostics.csv"
        if not path.exists():
            raise UserError(f"{path}: not written yet")
        return read_table(path)

    @property
    def spectra(self) -> SeriesReader:
        """Shell spectra: `.time`, `.step`, one array (row, k) for each quantity, and `.coordinates`: `k`, and the
        number of `modes` and the mean wavenumber `k_mean` of every shell."""
        return self.series("spectra")

    @property
    def slices(self) -> SeriesReader:
        """Mid-planes: `slices["speed/xy"]` is (row, x, y), `slices.at(-1)` reads one row of everything."""
        return self.series("slices")

    def series(self, name: str) -> SeriesReader:
        """The present `RUN/NAME.h5`. Raises UserError if it is missing or is not a series."""
        path = self.path / f"{name}.h5"
        if not path.exists():
            raise UserError(f"{path}: not written (yet)")
        try:
            return SeriesReader(path)
        except OSError as error:
            raise UserError(f"{path}: {error}") from None

    @property
    def snapshots(self) -> "Snapshots":
        """The committed snapshots, oldest first; each is opened when it is indexed."""
        return Snapshots(self.path / "snapshots")

    def to_xarray(self) -> "xarray.Dataset":
        """All snapshots as one lazy data set (dask): fields (time, component, x, y, z) with coordinates, `units`
        if the model states them, and the run's configuration among the attributes. A chunk is a block of one shard;
        nothing is read before `.load()`, `.mean()`, a picture, ... needs it. Raises UserError if there is no snapshot
        yet, or if xarray or dask is not installed."""
        from simulator.read.data_set import data_set

        return data_set(self.path, self.snapshots[:])

    def to_yt(self, index: int = -1) -> Any:
        """A snapshot as a yt data set whose fields have units (`code_length/code_time`, ...), so that yt derives
        others (`("gas", "vorticity_z")`); values are read when yt needs them. Raises UserError without yt."""
        from simulator.read.yt_data import yt_data

        return yt_data(self.snapshots[index])

    def write_index(self) -> list[Path]:
        """Write `snapshots.vtkhdf` (ParaView, xarray; a run updates it itself) and, if no snapshot is compressed,
        `snapshots.json` (references for zarr), which show all snapshots without a copy."""
        from simulator.read.data_set import write_references
        from simulator.run.audit import Audit
        from simulator.storage.time_index import write_time_index

        time_index = write_time_index(self.path / "snapshots")
        audit = Audit(self.path)
        if time_index and audit.knows(time_index.name) and audit.problem(time_index.name):
            # a live run does it itself, with its next snapshot
            with suppress(UserError), RunLock.acquire(self.path, os.environ) as lock:
                ledger = Ledger(self.path, check=lock.check)
                ledger.kept([time_index])
                ledger.close()
        plain = all(s.manifest.compression == "none" for s in self.snapshots[:])
        return [
            *([time_index] if time_index else []),
            *([write_references(self.path, self.snapshots[:])] if plain else []),
        ]

    @property
    def provenance(self) -> dict[str, Any]:
        """The origin of the run: versions, commit, host, devices; earlier starts are under `earlier`."""
        return provenance.read(self.path)

    @property
    def state(self) -> RunState | None:
        """The progress of the run; None before its first step."""
        return read_state(self.path)

    def _repr_html_(self) -> str:
        from simulator.run.display import flat, picture, table

        rows = flat(
            {
                name: block
                for name, block in self.config.items()
                if name in ("model", "grid", "initial", "time")
            }
        )
        state, image = self.state, ""
        if state is not None:
            rows["state"] = f"{state.state}, step {state.step}, t = {state.time:g}"
        if (self.path / "slices.h5").exists() and len(slices := self.slices) and slices.variables:
            name = next(iter(slices.variables))
            image = picture(slices.one(name, -1), f"{name} at t = {slices.time[-1]:g}")
        return table(rows, str(self.path), image)

    def __repr__(self) -> str:
        state = self.state
        progress = f"{state.state}, step {state.step}, t = {state.time:g}" if state else "not started"
        return f"<Run {self.path}: {progress}>"


class Snapshots(Sequence["Snapshot"]):
    """The snapshots that were committed when this object was made; `steps` lists their steps."""

    def __init__(self, folder: Path) -> None:
        from simulator.storage import committed

        self._paths = tuple(committed(folder))
        self.steps = tuple(int(path.name) for path in self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> "Snapshot": ...
    @overload
    def __getitem__(self, index: slice) -> list["Snapshot"]: ...
    def __getitem__(self, index: int | slice) -> "Snapshot | list[Snapshot]":
        from simulator.storage import open_snapshot

        if isinstance(index, slice):
            return [open_snapshot(path) for path in self._paths[index]]
        return open_snapshot(self._paths[index])

    def __repr__(self) -> str:
        return f"<{len(self)} snapshots, steps {list(self.steps)}>"
