"""Opens a run, finished or still running: `open_run("outputs/taylor_green")`.

A `Run` caches nothing: each access reads the present files. Reading a run does not need JAX."""

import base64
import html
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from simulator.archive import provenance
from simulator.archive.manifest import FieldEntry, committed
from simulator.archive.run_state import CONFIG, RunState, read_state
from simulator.archive.series_file import SeriesReader, read_columns
from simulator.archive.snapshot_index import dimensions
from simulator.archive.snapshot_reader import Snapshot, StoredField, open_snapshot
from simulator.config import read_yaml
from simulator.errors import RunFailure, UserError
from simulator.files import refusal
from simulator.words import MAIN_BLOCKS, Shown, flat

if TYPE_CHECKING:
    import dask.array
    import xarray


def open_run(path: str | Path) -> "Run":
    """The run in the folder `path`, which may have been moved. Raises UserError if `path` is not a
    run folder."""
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        problem = "no such folder" if not folder.exists() else f"not a run: it has no {CONFIG}"
        raise UserError(f"{folder}: {problem}; name the folder that output.directory gave")
    return Run(folder)


class Run(Shown):
    """The output of a run as numpy arrays:

        run = open_run("outputs/taylor_green")
        run.diagnostics["energy"], run.spectra["kinetic_energy"][-1]
        run.snapshots[-1]["velocity"][0, :, :, 0]  # reads one plane
        run.to_xarray()["velocity"].isel(component=0).mean("z")  # all snapshots, lazily

    An access reads only the files that it needs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration as nested mappings: `run.config["grid"]["shape"]`."""
        return read_yaml(self.path / CONFIG).value

    @property
    def diagnostics(self) -> dict[str, np.ndarray]:
        """The columns of `diagnostics.csv` by name: `step`, `time`, ..., each of shape (row,).
        Raises UserError if the table is missing, RunFailure if it is damaged."""
        path = self.path / "diagnostics.csv"
        if not path.exists():
            raise UserError(f"{path}: not written yet")
        try:
            return read_columns(path)
        except OSError as error:
            raise refusal(error) from None

    @property
    def spectra(self) -> SeriesReader:
        """Shell spectra: `.time`, `.step`, an array (row, k) for each quantity, and in
        `.coordinates` `k`, the number of `modes` and the mean wavenumber `k_mean` of every
        shell."""
        return self.series("spectra")

    @property
    def slices(self) -> SeriesReader:
        """Mid-planes: `slices["speed/xy"]` is (row, x, y), `slices.at(-1)` reads one row of all
        variables."""
        return self.series("slices")

    def series(self, name: str) -> SeriesReader:
        """The present series `RUN/NAME.h5`. Raises UserError if the file is missing, RunFailure if it
        is damaged or is not a series."""
        path = self.path / f"{name}.h5"
        if not path.exists():
            raise UserError(f"{path}: not written (yet)")
        try:
            return SeriesReader(path)
        except OSError as error:
            raise refusal(error) from None

    @property
    def snapshots(self) -> "Snapshots":
        """The committed snapshots, oldest first; indexing opens a snapshot."""
        return Snapshots(self.path / "snapshots")

    def to_xarray(self) -> "xarray.Dataset":
        """All snapshots as one lazy data set (dask): fields (time, component, x, y, z) with
        coordinates, `units` if the model states them, and the run's configuration among the
        attributes. dask reads values when `.load()`, `.mean()`, a picture, ... needs them. Raises
        UserError if there is no snapshot yet, or if xarray or dask is not installed."""
        return data_set(self.path, self.snapshots[:])

    @property
    def provenance(self) -> dict[str, Any]:
        """The origin of the run: versions, commit, host, devices; earlier starts are under
        `earlier`."""
        return provenance.read(self.path)

    @property
    def state(self) -> RunState | None:
        """The progress of the run; None before its first step."""
        return read_state(self.path)

    def shown(self) -> tuple[str, dict[str, Any]]:
        rows = flat({name: block for name, block in self.config.items() if name in MAIN_BLOCKS})
        rows["series"] = sorted(path.stem for path in self.path.glob("*.h5")) or "none"
        rows["snapshots"] = (
            f"{len(self.snapshots)}, steps {', '.join(map(str, self.snapshots.steps[-5:]))}"
        )
        return repr(self)[1:-1], rows

    def picture(self) -> str:
        try:
            slices = self.slices
        except (RunFailure, UserError):
            return ""
        # Particles near a plane are a list of places, and no picture.
        cuts = {n: a for n, a in slices.variables.items() if len(a) == 2 or a == ("x",)}
        name = next(iter(cuts), None)
        if name is None or not len(slices):
            return ""
        if len(cuts[name]) == 1:
            return picture(slices[name].T, f"{name} over time, to t = {slices.time[-1]:g}")
        return picture(slices.one(name, -1), f"{name} at t = {slices.time[-1]:g}")

    def __repr__(self) -> str:
        state = self.state
        progress = (
            f"{state.state}, step {state.step}, t = {state.time:g}" if state else "no step yet"
        )
        return f"<Run {self.path}: {progress}>"


class Snapshots(Sequence[Snapshot]):
    """The snapshots that were committed when this object was made; `steps` lists their steps."""

    def __init__(self, folder: Path) -> None:
        self._paths = tuple(committed(folder))
        self.steps = tuple(int(path.name) for path in self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Snapshot: ...
    @overload
    def __getitem__(self, index: slice) -> list[Snapshot]: ...
    def __getitem__(self, index: int | slice) -> Snapshot | list[Snapshot]:
        if isinstance(index, slice):
            return [open_snapshot(path) for path in self._paths[index]]
        return open_snapshot(self._paths[index])

    def __repr__(self) -> str:
        return f"<{len(self)} snapshots, steps {list(self.steps)}>"


_WIDTH = 220  # Width of a picture in pixels.


def picture(values: np.ndarray, caption: str) -> str:
    """HTML of an image of the values (x, y) of a plane, with x to the right and y upwards."""
    from matplotlib.image import imsave

    low = float(np.nanmin(values))
    high = float(np.nanmax(values))
    if low < 0 < high:  # zero is white
        high = max(high, -low)
        low = -high
        colours = "RdBu_r"
    else:
        colours = "magma"
    file = io.BytesIO()
    text = html.escape(caption)
    imsave(file, values.T, vmin=low, vmax=high, cmap=colours, origin="lower", format="png")
    data = base64.b64encode(file.getvalue()).decode()
    source = f"<img src='data:image/png;base64,{data}' width={_WIDTH} alt='{text}'>"
    return f"<figure style='margin:0'>{source}<br>{text}</figure>"


_TEXT_LENGTH = 65536  # The attributes of a data set, which users print, leave out longer texts.
CHUNK_BYTES = 1 << 27  # The largest chunk of a data set in bytes.


def data_set(path: Path, snapshots: Sequence[Snapshot]) -> "xarray.Dataset":
    """Every stored field of `snapshots` as (time, component, x, y, z), read lazily in the blocks of
    the shards. A field is nan in the snapshots that lack it. Raises UserError if xarray or dask is
    not installed, or if `snapshots` is empty."""
    try:
        import dask.array  # noqa: F401
        import xarray
    except ImportError as error:
        raise UserError(
            f"to_xarray needs the package {error.name}: pip install 'simulator[readers]'"
        ) from None
    if not snapshots:
        raise UserError(f"{path}: no snapshot yet")
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {"time": ("time", np.array([s.time for s in snapshots]))}
    coordinates["step"] = ("time", np.array([s.step for s in snapshots]))
    # The newest snapshot with a field describes the field.
    meshes = {
        n: entry for s in snapshots for n, entry in s.manifest.fields.items() if entry.is_mesh
    }
    for name, entry in meshes.items():
        axes = dimensions(entry)
        variables[name] = (
            ("time", *(axis for axis, _ in axes)),
            _stacked(name, entry, snapshots),
            dict(entry.attributes),
        )
        for axis, values in axes:
            coordinates[axis] = (axis, values.astype(str) if values.dtype.kind == "S" else values)
    attributes = {
        key: value if isinstance(value, str | float | int) else json.dumps(value)
        for key, value in snapshots[-1].attributes.items()
        if key not in ("time", "dt", "step") and len(str(value)) < _TEXT_LENGTH
    }
    return xarray.Dataset(variables, coordinates, attributes)


def _stacked(name: str, entry: FieldEntry, snapshots: Sequence[Snapshot]) -> "dask.array.Array":
    """A field of all snapshots, read lazily; nan in those that do not have it in this shape."""
    import dask.array

    kind = np.result_type(*(s[name].dtype for s in snapshots if name in s))
    parts = []
    for snapshot in snapshots:
        if name not in snapshot or snapshot[name].shape != entry.shape:
            parts.append(dask.array.full(entry.shape, np.nan, dtype=kind))
            continue
        stored = snapshot[name]
        chunks: Any = _chunks(stored)
        array = dask.array.from_array(
            stored,
            name=f"{snapshot.path.absolute()}-{name}-{snapshot.manifest.shards[0].xxh3}",
            meta=np.empty(0, stored.dtype),
            chunks=chunks,
            lock=False,
            asarray=False,
            fancy=False,
        )
        parts.append(array.astype(kind))
    return dask.array.stack(parts)


def _chunks(field: StoredField) -> list[tuple[int, ...]]:
    """The extents of the chunks along each dimension of a stored field: one component of the block
    of one shard. A block of more than `CHUNK_BYTES` is divided along its first axis."""
    starts = [
        sorted({piece.block.start[i] for piece in field.pieces}) for i in range(len(field.axes))
    ]
    extents = [
        np.diff([*at, axis.size]).tolist() for at, axis in zip(starts, field.axes, strict=True)
    ]
    block = math.prod(map(max, extents)) * field.dtype.itemsize
    planes = max(1, max(extents[0]) * CHUNK_BYTES // block)
    extents[0] = [
        min(planes, extent - i) for extent in extents[0] for i in range(0, extent, planes)
    ]
    return [*((1,) * len(names) for names in field.entry.components), *map(tuple, extents)]
