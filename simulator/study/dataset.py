"""Writes the finished runs of a sweep as a data set for learning, in the HDF5 format of The Well (Ohana et al.,
NeurIPS 2024; https://github.com/PolymathicAI/the_well), which `the_well.data.WellDataset(path=FOLDER)` reads.

OUTPUT/NAME/dataset/data/train/NAME_0000.hdf5 ...   trajectories; likewise in valid/ and test/
OUTPUT/NAME/dataset/stats.yaml                      mean, std and rms of the training fields and of their increments
OUTPUT/NAME/dataset/dataset.json                    the runs of every file

All files depend on the runs only, and each appears whole or not at all: a data set that is continued after the
process was killed has the same bytes. A file is streamed to the disk; only one frame is in memory at a time.
"""

import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simulator.archive.manifest import FieldEntry, component_names
from simulator.archive.open_run import open_run
from simulator.archive.reader import Snapshot
from simulator.archive.shard import reserve, stream
from simulator.config import RunConfig, as_mapping
from simulator.config.yaml12 import dump_yaml, path_of, value_at
from simulator.errors import RunFailure, UserError
from simulator.files import read_json, remove_temporaries, replace_file, replace_json, sync_folder, write_durably
from simulator.run.lock import RunLock
from simulator.study.batch import numbers
from simulator.study.runs import SweepRun, is_compared
from simulator.study.sweep import Sweep
from simulator.words import brief, short

FOLDER, PLAN, STATS = "dataset", "dataset.json", "stats.yaml"
SPLITS = ("train", "valid", "test")
_ALIKE = ("model.kind", "grid.shape", "grid.box", "time.stop", "output.snapshots")
_TOLERANCE = 1e-6
"""The largest deviation of a frame's time, in intervals."""
_FLOAT = np.dtype("<f4")


@dataclass(frozen=True)
class _WellField:
    """A field of the data set: a part of the field `source` of the snapshots, of tensor order 0, 1 or 2."""

    name: str
    order: int
    source: str
    index: tuple[int, ...] = ()
    part: Callable[[np.ndarray], np.ndarray] = np.asarray
    """The real or the imaginary part of a complex field."""

    def frame(self, snapshot: Snapshot) -> np.ndarray:
        """The values at the points of the grid, shape (x, y, z, components...), in single precision."""
        values = self.part(snapshot[self.source][(*self.index, ...)])
        return np.moveaxis(values, range(self.order), range(-self.order, 0)).astype(_FLOAT)


@dataclass(frozen=True)
class _Layout:
    """Everything that the files of a data set share."""

    name: str
    axes: Mapping[str, np.ndarray]
    """The coordinates of the grid points by axis."""
    times: np.ndarray
    """The times of the frames, shape (frame,)."""
    fields: tuple[_WellField, ...]
    scalars: tuple[str, ...]
    """The numbers that differ between the trajectories, by key of the run's file."""
    parameters: Mapping[str, float]
    """The numbers that all trajectories share."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.axes.values()))


# ---- checks and the division into files -----------------------------------------------------------------


def check_dataset(sweep: Sweep) -> None:
    """Raises UserError, naming the key, if the runs of the sweep cannot be trajectories of one data set: they differ
    in grid, fields or times, their frames have no constant interval, or they are too few for the split."""
    first = as_mapping(sweep.runs[0].config)
    for key in _ALIKE:
        for run in sweep.runs:
            value = value_at(as_mapping(run.config), path_of(key))
            if value != value_at(first, path_of(key)):
                raise UserError(
                    f"{sweep.file}: {key}: differs between runs {sweep.runs[0].index} and {run.index}; the "
                    "trajectories of a data set have the same grid, fields and times"
                )
    frame_times(sweep.runs[0].config)
    divided(sweep)


def frame_times(config: RunConfig) -> np.ndarray:
    """The times of the frames, shape (frame,). Raises UserError unless they have a constant interval."""
    snapshots, stop = config.output.snapshots, config.time.stop
    if snapshots.every is None or snapshots.every_steps is not None or config.time.max_steps is not None:
        raise UserError(
            "output.snapshots.every: the frames of a data set have a constant interval; give every in simulation "
            "time, and neither output.snapshots.every_steps nor time.max_steps"
        )
    number = round(stop / snapshots.every)
    if number < 1 or abs(number * snapshots.every - stop) > _TOLERANCE * snapshots.every:
        raise UserError(
            f"output.snapshots.every: {snapshots.every:g} does not divide time.stop = {stop:g}, so the last interval "
            f"would be shorter; {stop / max(math.ceil(stop / snapshots.every), 1):.6g} does"
        )
    return np.arange(number + 1) * snapshots.every


def divided(sweep: Sweep) -> dict[str, list[SweepRun]]:
    """The runs of every file. The runs are dealt to the splits in the order of their hashes, which is random but the
    same every time; shares of valid and test are rounded up. Raises UserError if there are too few runs."""
    settings, runs = sweep.settings.dataset, sorted(sweep.runs, key=lambda run: run.hash)
    valid, test = (math.ceil(share * len(runs) - _TOLERANCE) for share in settings.split[1:])
    train = len(runs) - valid - test
    if train < 1:
        raise UserError(
            f"{sweep.file}: dataset.split: {len(runs)} runs cannot be divided as {brief(list(settings.split))}; "
            "add runs, or give a share of 0 to valid or test"
        )
    files, most = {}, settings.trajectories_per_file
    for split, start, stop in zip(SPLITS, (0, train, train + valid), (train, train + valid, len(runs)), strict=True):
        for number, first in enumerate(range(start, stop, most)):
            files[f"data/{split}/{sweep.name}_{number:04d}.hdf5"] = runs[first : min(first + most, stop)]
    return files


# ---- writing --------------------------------------------------------------------------------------------


def write_dataset(sweep: Sweep) -> Path:
    """Writes the missing files of the data set of a sweep whose runs are all done, and returns its folder.

    Files of an earlier data set with other runs, fields or times are replaced. Raises UserError if another process
    writes into the sweep's folder, RunFailure if the frames of a run are not as the sweep's file describes them.
    """
    folder, files = sweep.folder / FOLDER, divided(sweep)
    with RunLock.acquire(sweep.folder, os.environ):
        layout = _layout(sweep)
        plan = {
            "program": "simulator dataset", "fields": [field.name for field in layout.fields],
            "times": layout.times.tolist(),
            "files": {name: [run.hash for run in runs] for name, runs in files.items()},
        }  # fmt: skip
        earlier = read_json(folder / PLAN)
        if earlier != plan:
            for name in {*earlier.get("files", ()), *files, STATS}:
                (folder / name).unlink(missing_ok=True)
            folder.mkdir(exist_ok=True)
            replace_json(folder / PLAN, plan)
        for split in SPLITS:
            (folder / "data" / split).mkdir(parents=True, exist_ok=True)
            remove_temporaries(folder / "data" / split)
        for name, runs in files.items():
            if not (folder / name).exists():
                _write_file(folder / name, runs, layout)
        if not (folder / STATS).exists():
            train = [folder / name for name in files if name.startswith("data/train/")]
            replace_file(folder / STATS, dump_yaml(statistics(train)))
    return folder


def _layout(sweep: Sweep) -> _Layout:
    run = sweep.runs[0]
    snapshot = open_run(run.folder).snapshots[0]
    meshes = {n: e for n, e in snapshot.manifest.fields.items() if e.is_mesh}
    (axes, *_) = (entry.axes for entry in meshes.values())
    shared = [numbers(other.config) for other in sweep.runs]
    varied = [k for k in sweep.varied if is_compared(k.partition(".")[0]) and k.rpartition(".")[2] != "seed"]
    scalars = [k for k in varied if all(_is_number(other.values.get(k)) for other in sweep.runs)]
    return _Layout(
        sweep.name,
        {axis.name: axis.coordinates for axis in axes},
        frame_times(run.config),
        tuple(field for name, entry in meshes.items() for field in _fields(name, entry)),
        tuple(scalars),
        {key: value for key, value in shared[0].items() if all(other.get(key) == value for other in shared)},
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fields(name: str, entry: FieldEntry) -> Iterator[_WellField]:
    """The fields of the data set that a field of the snapshots becomes. Vectors and tensors of other dimensions than
    the space have no place in the format; their components are fields of their own, and so are the real and the
    imaginary part of complex fields."""
    dimensions, order = len(entry.axes), len(entry.components)
    if order <= 2 and all(len(names) == dimensions for names in entry.components):
        parts = [_WellField(name, order, name)]
    else:
        parts = [_WellField(f"{name}_{c}", 0, name, index) for index, c in component_names(entry.components)]
    for one in parts:
        if np.dtype(entry.dtype).kind == "c":
            for end, part in (("real", np.real), ("imaginary", np.imag)):
                yield _WellField(f"{one.name}_{end}", one.order, name, one.index, part)
        else:
            yield one


def _write_file(path: Path, runs: Sequence[SweepRun], layout: _Layout) -> None:
    """Writes one file: HDF5 makes the structure in memory, and the frames follow while the file is written."""
    image = io.FileIO(os.memfd_create("dataset"), "w+")
    placed: list[tuple[int, _WellField]] = []
    # Files of the earliest format hold no times of creation: equal data are equal bytes.
    with h5py.File(image, "w", libver="earliest") as file:
        _describe(file, runs, layout)
        for order in range(3):
            group = file.create_group(f"t{order}_fields")
            own = [field for field in layout.fields if field.order == order]
            _attributes(group, field_names=[field.name for field in own])
            for field in own:
                extents = len(runs), len(layout.times), *layout.shape, *(len(layout.axes),) * order
                stored = reserve(group, field.name, extents, _FLOAT)
                _attributes(stored, dim_varying=[True] * len(layout.axes), sample_varying=True, time_varying=True)
                placed.append((stored.id.get_offset() or 0, field))
    write_durably(path, stream(image, _frames(sorted(placed, key=lambda pair: pair[0]), runs, layout)))
    sync_folder(path.parent)


def _frames(
    placed: Sequence[tuple[int, _WellField]], runs: Sequence[SweepRun], layout: _Layout
) -> Iterator[tuple[int, np.ndarray]]:
    """Every frame of every field with its offset in the file."""
    for offset, field in placed:
        for run in runs:
            snapshots = open_run(run.folder).snapshots[:]
            times = np.array([snapshot.time for snapshot in snapshots])
            if times.shape != layout.times.shape or abs(times - layout.times).max() > _TOLERANCE * layout.times[1]:
                raise RunFailure(
                    f"{run.folder}: its {len(times)} snapshots are not at the {len(layout.times)} times that "
                    "output.snapshots describes; remove the folder and run again"
                )
            for snapshot in snapshots:
                if field.source not in snapshot:
                    raise RunFailure(
                        f"{snapshot.path}: has no {field.source}, unlike the snapshots of other runs; remove the "
                        "folder of the run and run again"
                    )
                values = field.frame(snapshot)
                yield offset, values
                offset += values.nbytes


def _describe(file: h5py.File, runs: Sequence[SweepRun], layout: _Layout) -> None:
    """The attributes of a file, its coordinates, boundary conditions and scalars."""
    _attributes(
        file, dataset_name=layout.name, grid_type="cartesian", n_spatial_dims=len(layout.axes),
        n_trajectories=len(runs), simulation_parameters=list(layout.parameters), **layout.parameters,
        # not part of the format: the origin of each trajectory
        runs=[run.hash for run in runs], values=[json.dumps(dict(run.values)) for run in runs],
    )  # fmt: skip
    dimensions, boundaries = file.create_group("dimensions"), file.create_group("boundary_conditions")
    _attributes(dimensions, spatial_dims=list(layout.axes))
    time = dimensions.create_dataset("time", data=layout.times.astype(_FLOAT))
    _attributes(time, sample_varying=False)
    constant = {"sample_varying": False, "time_varying": False}
    for axis, coordinates in layout.axes.items():
        _attributes(dimensions.create_dataset(axis, data=coordinates.astype(_FLOAT)), **constant)
        group = boundaries.create_group(f"{axis}_periodic")
        _attributes(group, associated_dims=[axis], associated_fields=[], bc_type="PERIODIC", **constant)
        ends = np.isin(np.arange(len(coordinates)), (0, len(coordinates) - 1))
        group.create_dataset("mask", data=ends)
        group.create_dataset("values", data=np.zeros(ends.sum(), _FLOAT))
    scalars = file.create_group("scalars")
    _attributes(scalars, field_names=list(layout.scalars))
    for key in layout.scalars:
        stored = scalars.create_dataset(key, data=np.array([run.values[key] for run in runs], _FLOAT))
        _attributes(stored, sample_varying=True, time_varying=False)


def _attributes(item: h5py.File | h5py.Group | h5py.Dataset, **values: Any) -> None:
    """Sets attributes in the types that readers of The Well expect: lists are of booleans or of text."""
    for name, value in values.items():
        if isinstance(value, list):
            value = np.array(value, bool if value and isinstance(value[0], bool) else h5py.string_dtype())
        item.attrs[name] = np.bool_(value) if isinstance(value, bool) else value


# ---- statistics -----------------------------------------------------------------------------------------


def statistics(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Mean, standard deviation and root mean square over all trajectories, frames and points of the fields in
    `files`, and of their increments from frame to frame (`mean_delta`, ...): by field, for each component."""
    moments: dict[str, list[Any]] = {}
    for path in files:
        with h5py.File(path, "r", locking=False) as file:
            for order in range(3):
                for name in sorted(file[f"t{order}_fields"]):  # pyright: ignore[reportArgumentType]
                    stored: Any = file[f"t{order}_fields/{name}"]
                    sums = moments.setdefault(name, [0, 0.0, 0.0, 0, 0.0, 0.0])
                    for trajectory in range(stored.shape[0]):
                        _add_trajectory(sums, stored, trajectory, order)
    found: dict[str, dict[str, Any]] = {}
    for end, first in (("", 0), ("_delta", 3)):
        for name, sums in sorted(moments.items()):
            number, total, squares = sums[first : first + 3]
            mean, square = total / number, squares / number
            values = {"mean": mean, "rms": square**0.5, "std": np.maximum(square - mean**2, 0) ** 0.5}
            for key, value in values.items():
                found.setdefault(f"{key}{end}", {})[name] = np.asarray(value).tolist()
    return dict(sorted(found.items()))


def _add_trajectory(sums: list[Any], stored: Any, trajectory: int, order: int) -> None:
    """Adds the number of points, the sum and the sum of squares of each component, and those of the increments."""
    before = None
    for frame in range(stored.shape[1]):
        values = stored[trajectory, frame].astype(np.float64)
        space = tuple(range(values.ndim - order))
        for first, added in ((0, values), (3, None if before is None else values - before)):
            if added is not None:
                sums[first] += math.prod(added.shape[: len(space)])
                sums[first + 1] = sums[first + 1] + added.sum(space)
                sums[first + 2] = sums[first + 2] + (added**2).sum(space)
        before = values


def lines_of(folder: Path) -> list[str]:
    """Lines that say what the data set contains and how it is opened."""
    files = read_json(folder / PLAN)["files"]
    counts = {split: sum(len(runs) for name, runs in files.items() if f"/{split}/" in name) for split in SPLITS}
    trajectories = ", ".join(f"{number} in {split}" for split, number in counts.items())
    return [
        f"{short(folder)}: {trajectories}",
        f'the_well.data.WellDataset(path="{short(folder)}", well_split_name="train") reads it',
    ]
