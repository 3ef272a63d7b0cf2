"""Writes the finished runs of a sweep as a data set for learning, in the HDF5 format of The Well
(Ohana et al., NeurIPS 2024; https://github.com/PolymathicAI/the_well), which
`the_well.data.WellDataset(path=FOLDER)` reads.

    OUTPUT/NAME/dataset/data/train/NAME_0000.hdf5 ...   trajectories; likewise in valid/ and test/
    OUTPUT/NAME/dataset/stats.yaml      mean, std and rms of the training fields and increments
    OUTPUT/NAME/dataset/certificate.json  how well each run is resolved
    OUTPUT/NAME/dataset/dataset.json    the runs of every file

All files depend on the runs only, and each appears whole or not at all: a data set that is
continued after the process was killed has the same bytes. A file is streamed to the disk, frame by
frame."""

import contextlib
import io
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

from simulator.archive.hdf5_image import hdf5_into
from simulator.archive.manifest import FieldEntry, component_names
from simulator.archive.open_run import open_run
from simulator.archive.shard import file_pieces, reserve
from simulator.archive.snapshot_reader import Snapshot
from simulator.cluster.hardware import has_gpu_plugin
from simulator.config.yaml12 import dump_yaml
from simulator.errors import RunFailure
from simulator.files import (
    checksum,
    pieces_of,
    read_json,
    remove_temporaries,
    replace_file,
    replace_json,
    sync_folder,
    write_durably,
)
from simulator.plugins.datasets.certificate import certified, resolution_of
from simulator.plugins.datasets.frames import TOLERANCE, check_alike, frame_times
from simulator.plugins.datasets.settings import CERTIFICATE, FOLDER, SPLITS, dataset_of
from simulator.run.lock import RunLock
from simulator.study.batch import varied_numbers
from simulator.study.runs import CACHE, SweepRun, is_compared
from simulator.study.study_status import MemberState, status_of
from simulator.study.sweep import Sweep

PLAN = "dataset.json"
STATS = "stats.yaml"
_DERIVED = (STATS, CERTIFICATE)  # The files that follow from the runs and the others.
_LOOK = 1.0  # Seconds between two looks for runs that are done.
_FLOAT = np.dtype("<f4")
Runs = Sequence[SweepRun]
Axes = Mapping[str, np.ndarray]  # The coordinates of the grid points by axis.


@dataclass(frozen=True)
class _WellField:
    """A field of the data set: a part of the field `source` of the snapshots, of tensor order 0, 1
    or 2."""

    name: str
    order: int
    source: str
    index: tuple[int, ...] = ()
    part: Callable[[np.ndarray], np.ndarray] = np.asarray

    def frame(self, snapshot: Snapshot) -> np.ndarray:
        """The values at the points of the grid, shape (components..., x, y, z), in single
        precision."""
        return np.asarray(self.part(snapshot[self.source][(*self.index, ...)]), _FLOAT)


def check_dataset(sweep: Sweep) -> None:
    """Raises UserError, naming the key, if the runs cannot form one data set, or are too few for
    the split."""
    check_alike(sweep)
    divided(sweep)


def divided(sweep: Sweep) -> dict[str, Runs]:
    """The runs of every file. Raises UserError if there are too few runs."""
    files = {}
    settings = dataset_of(sweep)
    most = settings.trajectories_per_file
    for split in SPLITS:
        runs = sweep.parts[split]
        for number, first in enumerate(range(0, len(runs), most)):
            files[f"data/{split}/{sweep.name}_{number:04d}.hdf5"] = runs[first : first + most]
    return files


class DatasetWriter:
    """Writes the missing files of the data set of a sweep, each when its runs are done. Files of an
    earlier data set with other runs, fields or times are replaced.

        with DatasetWriter(sweep) as writer:
            with writer.beside():
                run_sweep(sweep)
            folder = writer.finish()

    The methods raise UserError if another process writes into the folder, RunFailure if the frames
    of a run are not as the sweep's file describes them."""

    def __init__(self, sweep: Sweep):
        self._sweep = sweep
        self._folder = sweep.folder / FOLDER
        self._files = divided(sweep)
        self._times = frame_times(sweep)
        self._statistics: dict[str, _Statistics] = {}  # By file, for every file that is there.
        self._damaged: list[str] = []  # Lines about the files that are made again.
        self._over = threading.Event()
        self._lock: RunLock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Writes files in another thread while the body of the `with` block executes the runs."""

        def work() -> None:
            # `finish` meets every error again, in the thread of the caller.
            with contextlib.suppress(Exception):
                while not self._over.wait(_LOOK):
                    self._write_done()

        thread = threading.Thread(target=work, name="dataset", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def finish(self, say: Callable[[str], None] = lambda line: None) -> Path:
        """Writes the files that are still missing, the certificate and the statistics; returns the
        folder. All runs are done. `say` prints what is computed for the certificate, and the damaged
        files that are made again."""
        self._over.clear()
        self._write_done()
        for line in self._damaged:
            say(line)
        if not (self._folder / STATS).exists():
            total = _Statistics()
            # in the same order, however the runs ended
            for name in filter(_is_training, self._files):
                total.include(self._statistics[name])
            resolution = {"certificate": certified(self._sweep, self._times, say)}
            replace_file(self._folder / STATS, dump_yaml(total.table() | resolution))
            sums = {name: self._sum(name) for name in _DERIVED}
            replace_json(self._folder / PLAN, read_json(self._folder / PLAN) | {"sums": sums})
        return self._folder

    def _sum(self, name: str) -> list[Any] | None:
        """The number of bytes and the xxh3 of a file; None if it is missing."""
        path = self._folder / name
        return list(checksum(pieces_of(path))) if path.is_file() else None

    def _remove_damaged(self, sums: Mapping[str, Any]) -> None:
        """Remove the files that are not as they were when the data set was complete, and what
        follows from them, so that they are made again."""
        damaged = [name for name in _DERIVED if self._sum(name) != sums[name]]
        for name in damaged:
            self._damaged.append(f"{self._folder / name}: damaged or missing; made again")
            (self._folder / name).unlink(missing_ok=True)
        if damaged:
            (self._folder / STATS).unlink(missing_ok=True)

    def _write_done(self) -> None:
        for name, runs in self._files.items():
            if self._over.is_set() or name in self._statistics or not all(map(_is_done, runs)):
                continue
            path = self._folder / name
            statistics = _Statistics()
            fields, axes = self._begun
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_temporaries(path.parent)
            if not path.exists():
                _write_file(path, self._sweep, runs, fields, axes, statistics)
            elif _is_training(name) and not (self._folder / STATS).exists():
                deque(
                    _frames([(0, field) for field in fields], runs, self._times, statistics),
                    maxlen=0,
                )
            self._statistics[name] = statistics

    @cached_property
    def _begun(self) -> tuple[list["_WellField"], Axes]:
        """The fields and the axes. Takes the lock, and removes the files of another data set."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._lock or RunLock.acquire(self._folder, os.environ)
        first = next(run for run in self._sweep.runs if _is_done(run))
        entries = open_run(first.folder).snapshots[0].manifest.fields
        meshes = {name: entry for name, entry in entries.items() if entry.is_mesh}
        fields = [field for name, entry in meshes.items() for field in _fields(name, entry)]
        hashes = {name: [run.hash for run in runs] for name, runs in self._files.items()}
        plan = {
            "fields": [field.name for field in fields],
            "times": self._times.tolist(),
            "refined_runs": dataset_of(self._sweep).refined_runs,
            "files": hashes,
        }
        earlier = read_json(self._folder / PLAN)
        sums = earlier.pop("sums", {})
        if earlier != plan:
            for name in {*earlier.get("files", ()), *self._files, *_DERIVED}:
                (self._folder / name).unlink(missing_ok=True)
            replace_json(self._folder / PLAN, plan)
        elif sums.keys() == set(_DERIVED):
            self._remove_damaged(sums)
        return fields, {axis.name: axis.coordinates for axis in next(iter(meshes.values())).axes}


def _is_training(name: str) -> bool:
    return name.startswith("data/train/")


def _is_done(run: SweepRun) -> bool:
    return status_of(run.folder).stage is MemberState.DONE


def _fields(name: str, entry: FieldEntry) -> Iterator[_WellField]:
    """The fields of the data set that a field of the snapshots becomes. Vectors and tensors of
    other dimensions than the space have no place in the format; their components, and the parts of
    complex fields, are fields."""
    order = len(entry.components)
    parts = [(name, ())]
    if order > 2 or any(len(names) != len(entry.axes) for names in entry.components):
        order = 0
        parts = [(f"{name}_{label}", index) for index, label in component_names(entry.components)]
    complex_parts = {"_real": np.real, "_imaginary": np.imag}
    for end, part in (
        complex_parts if np.dtype(entry.dtype).kind == "c" else {"": np.asarray}
    ).items():
        yield from (_WellField(f"{label}{end}", order, name, index, part) for label, index in parts)


def _write_file(
    path: Path,
    sweep: Sweep,
    runs: Runs,
    fields: Sequence[_WellField],
    axes: Axes,
    statistics: "_Statistics",
) -> None:
    """Writes one file: HDF5 makes the structure in memory, and the frames follow while the file is
    written."""
    times = frame_times(sweep).astype(_FLOAT)
    shape = (len(times), *map(len, axes.values()))
    image = io.FileIO(os.memfd_create("dataset"), "w+")
    placed = []
    # Files of the earliest format hold no times of creation: equal data are equal bytes.
    with hdf5_into(image, "earliest", path) as file:
        _describe(file, sweep, runs, axes, times)
        for order in range(3):
            members = [field for field in fields if field.order == order]
            group = file.create_group(f"t{order}_fields")
            _attributes(group, field_names=[field.name for field in members])
            for field in members:
                extents = (len(runs), *shape, *(len(axes),) * order)
                stored = reserve(group, field.name, extents, _FLOAT)
                _attributes(
                    stored, dim_varying=[True] * (len(axes)), sample_varying=True, time_varying=True
                )
                placed.append((stored.id.get_offset(), field))
    write_durably(
        path,
        file_pieces(
            image, _frames(sorted(placed, key=lambda pair: pair[0]), runs, times, statistics)
        ),
    )
    sync_folder(path.parent)


@dataclass(frozen=True)
class _Frame:
    """A frame of a field: its values (components..., x, y, z), the same in the order of the file
    (x, y, z, components...), and the sums for the statistics, over its points and over its
    increment since the frame before."""

    values: np.ndarray
    stored: np.ndarray
    sums: tuple[np.ndarray, ...]


def _frames(
    placed: Sequence[tuple[int, _WellField]],
    runs: Runs,
    times: np.ndarray,
    statistics: "_Statistics",
) -> Iterator[tuple[int, np.ndarray]]:
    """Every frame of every field: its offset in the file and its values (x, y, z, components...).
    All cores work."""

    def taken(offset: int, field: _WellField, future: Future[_Frame]) -> tuple[int, np.ndarray]:
        frame = future.result()
        statistics.add(field, frame)
        return offset, frame.stored

    cores = len(os.sched_getaffinity(0))
    before = None
    waiting: deque[tuple[int, _WellField, Future[_Frame]]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for offset, field, snapshot, first in _wanted(placed, runs, times):
            before = pool.submit(_frame, field, snapshot, None if first else before)
            waiting.append((offset, field, before))
            if len(waiting) > cores:
                yield taken(*waiting.popleft())
        while waiting:
            yield taken(*waiting.popleft())


def _wanted(
    placed: Sequence[tuple[int, _WellField]], runs: Runs, times: np.ndarray
) -> Iterator[tuple[int, _WellField, Snapshot, bool]]:
    """The offset of every frame in the file, its field and snapshot, and whether it is the first of
    its run, in the order of the file. Raises RunFailure if the frames of a run are not at
    `times`."""
    for offset, field in placed:
        for run in runs:
            snapshots = [s for s in open_run(run.folder).snapshots[:] if field.source in s]
            recorded = np.array([snapshot.time for snapshot in snapshots], _FLOAT)
            if recorded.shape != times.shape or abs(recorded - times).max() > TOLERANCE * times[-1]:
                stored = f"its {len(recorded)} snapshots with {field.source} are not at the {len(times)} times"
                now = "that output.snapshots describes now; remove the folder and run again"
                raise RunFailure(f"{run.folder}: {stored} {now}")
            for number, snapshot in enumerate(snapshots):
                yield offset, field, snapshot, number == 0
                offset += (
                    math.prod(snapshot[field.source].shape[len(field.index) :]) * _FLOAT.itemsize
                )


def _frame(field: _WellField, snapshot: Snapshot, before: Future[_Frame] | None) -> _Frame:
    values = field.frame(snapshot)
    rows = values.reshape(math.prod(values.shape[: field.order]), -1)
    earlier = [None] if before is None else [None, before.result().values.reshape(rows.shape)]
    stored = np.ascontiguousarray(np.moveaxis(values, range(field.order), range(-field.order, 0)))
    return _Frame(values, stored, tuple(_sums(rows, frame) for frame in earlier))


def _describe(file: h5py.File, sweep: Sweep, runs: Runs, axes: Axes, times: np.ndarray) -> None:
    """Writes the attributes of a file, its coordinates, boundary conditions and scalars: first the
    numbers that differ between the runs of the sweep, then the others, which are attributes, too."""
    first, *others = (varied_numbers(run.config) for run in sweep.runs)
    shared = {
        key: item for key, item in first.items() if all(other.get(key) == item for other in others)
    }
    _attributes(
        file,
        dataset_name=sweep.name,
        grid_type="cartesian",
        n_spatial_dims=len(axes),
        n_trajectories=len(runs),
        simulation_parameters=list(shared),
        **shared,
        runs=[run.hash for run in runs],  # not part of the format: the origin of each trajectory
    )
    dimensions = file.create_group("dimensions")
    boundaries = file.create_group("boundary_conditions")
    _attributes(dimensions, spatial_dims=list(axes))
    time = dimensions.create_dataset("time", data=times)
    _attributes(time, sample_varying=False, time_varying=True)
    constant = {"sample_varying": False, "time_varying": False}
    for axis, coordinates in axes.items():
        _attributes(dimensions.create_dataset(axis, data=coordinates.astype(_FLOAT)), **constant)
        group = boundaries.create_group(f"{axis}_periodic")
        _attributes(
            group, associated_dims=[axis], associated_fields=[], bc_type="PERIODIC", **constant
        )
        ends = np.isin(np.arange(len(coordinates)), (0, len(coordinates) - 1))
        group.create_dataset("mask", data=ends)
        group.create_dataset("values", data=np.zeros(ends.sum(), _FLOAT))
    _write_scalars(file.create_group("scalars"), sweep, runs, shared)
    # not part of the format: how well each trajectory is resolved
    certificates = [resolution_of(run) for run in runs]
    group = file.create_group("certificate")
    for name in dict.fromkeys(name for numbers in certificates for name in numbers):
        values = [numbers.get(name, math.nan) for numbers in certificates]
        group.create_dataset(name, data=np.array(values, _FLOAT))


def _write_scalars(
    group: h5py.Group, sweep: Sweep, runs: Runs, shared: Mapping[str, float]
) -> None:
    numbers = {
        key: [run.values.get(key) for run in sweep.runs]
        for key in sweep.varied
        if is_compared(key.partition(".")[0]) and key.rpartition(".")[2] != "seed"
    }
    varied = [key for key, row in numbers.items() if {*map(type, row)} <= {int, float}]
    constants = {key: number for key, number in shared.items() if key not in varied}
    _attributes(group, field_names=[*varied, *constants])
    for key in varied:
        stored = group.create_dataset(key, data=np.array([run.values[key] for run in runs], _FLOAT))
        _attributes(stored, sample_varying=True, time_varying=False)
    for key, number in constants.items():
        stored = group.create_dataset(key, data=np.array(number, _FLOAT))
        _attributes(stored, sample_varying=False, time_varying=False)


def _attributes(item: h5py.File | h5py.Group | h5py.Dataset, **values: Any) -> None:
    """Sets attributes in the types that readers of The Well expect: lists are of booleans or of
    text."""
    for name, value in values.items():
        if isinstance(value, list):
            value = np.array(value, bool if True in value else h5py.string_dtype())
        item.attrs[name] = np.bool_(value) if isinstance(value, bool) else value


class _Statistics:
    """The sums behind `stats.yaml`: mean, standard deviation and root mean square over all
    trajectories, frames and points, and those of the increments from frame to frame (`mean_delta`,
    ...), by field, for each component."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], Any] = {}

    def add(self, field: _WellField, frame: _Frame) -> None:
        """Adds a frame, and the increment since the frame before it."""
        shape = frame.values.shape[: field.order]
        points = frame.values.size // math.prod(shape)
        for end, sums in zip(("", "_delta"), frame.sums, strict=False):
            self._add((end, field.name), points, sums.reshape(2, *shape))

    def include(self, other: "_Statistics") -> None:
        """Adds the sums of other frames."""
        for key, (points, sums) in other._sums.items():
            self._add(key, points, sums)

    def _add(self, key: tuple[str, str], points: int, sums: np.ndarray) -> None:
        number, total = self._sums.get(key, (0, 0))
        self._sums[key] = number + points, total + sums

    def table(self) -> dict[str, dict[str, Any]]:
        """The contents of stats.yaml."""
        table: dict[str, dict[str, Any]] = {}
        for (end, name), (number, total) in sorted(self._sums.items()):
            mean, square = total / number
            deviation = np.maximum(square - mean**2, 0) ** 0.5
            for key, value in (("mean", mean), ("rms", square**0.5), ("std", deviation)):
                table.setdefault(f"{key}{end}", {})[name] = value.tolist()
        return table


def _sums(rows: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """The sums of the rows, less those of `before`, and of their squares, (2, row), in double
    precision."""
    total = np.zeros((2, len(rows)))
    piece = 1 << 14  # points that stay in cache
    for first in range(0, rows.shape[1], piece):
        part = rows[:, first : first + piece].astype(np.float64)
        if before is not None:
            part -= before[:, first : first + piece]
        total += part.sum(1), np.einsum("ij,ij->i", part, part)
    return total


def usual_jobs(runs: Sequence[SweepRun]) -> int:
    """A process for each core if each gets two runs or more, or eight of runs that are small enough
    to be stepped together; one process for GPUs and for runs on several devices."""
    devices = [run.config.devices for run in runs]
    if any(
        settings.count not in ("auto", 1) or (settings.platform != "cpu" and has_gpu_plugin())
        for settings in devices
    ):
        return 1
    least = 2 if max(run.estimate.state for run in runs) > CACHE else 8
    return max(1, min(len(os.sched_getaffinity(0)), len(runs) // least))
