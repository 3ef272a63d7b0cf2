"""HDF5 series: arrays against time, such as `spectra.h5` and `slices.h5`.

A series is one ordinary file that is replaced whole with every row, so that a reader always sees a complete file.
Rewriting all rows for every new row would cost the square of the length, so only the last rows are rewritten: a part
with PART_ROWS rows and PART_BYTES bytes is full and never written again. As long as one part is enough (512 spectra
of 8 kB), `NAME.h5` holds the rows itself. Longer series lie in parts `NAME.parts/STEP.h5`, named by their first step,
and `NAME.h5` is an index that lists the parts and shows each variable as one virtual data set under the same name.
Each row is thus written a bounded number of times; 1000 rows of slices are 125 files.

`NAME.h5` is authoritative: its replacement commits a row, and readers ignore a part that it does not list.
`SeriesReader` reads the parts themselves, because a virtual data set shows a missing part as nan.

A file holds `step`, `time` (row), the coordinates, properties of their points (such as the number of modes in a
shell), and each variable as (row, *its dimensions), with dimension scales.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

from simulator.errors import UserError
from simulator.files import UNRECORDED, Journal, replace_file
from simulator.measure import KINDS

PART_ROWS = 8
PART_BYTES = 4 * 2**20
_FORMAT = "simulator series 1"


@dataclass(frozen=True)
class _Part:
    file: str
    rows: int


@dataclass(frozen=True)
class _Row:
    step: int
    time: float
    values: Mapping[str, np.ndarray]

    @property
    def size(self) -> int:
        return 16 + sum(value.nbytes for value in self.values.values())


class Series:
    """The open series of a live run, written by one process."""

    def __init__(
        self,
        path: Path,
        coordinates: Mapping[str, np.ndarray],
        variables: Mapping[str, tuple[str, ...]],
        attributes: Mapping[str, Any] | None = None,
        beside: Mapping[str, tuple[str, np.ndarray]] | None = None,
        *,
        journal: Journal = UNRECORDED,
        part_rows: int = PART_ROWS,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Continue the series in `path`, or begin it with the first row.

        `variables` gives the dimensions of one row of each variable by the names of `coordinates`, whose values are
        one-dimensional. `attributes` go to the file's root. `beside` maps names to (coordinate, values): further
        properties of the points of a coordinate; an existing file keeps its own values. A variable is nan in the rows
        that lack it. Raises UserError if the coordinates differ from those in the file.
        """
        self.path, self._journal = path, journal
        self._coordinates = {name: np.asarray(values) for name, values in coordinates.items()}
        self._variables = dict(variables)
        self._required = frozenset(variables)
        self._attributes = dict(attributes or {})
        self._beside = dict(beside or {})
        self._limits = part_rows, part_bytes
        self._parts: list[_Part] = []
        self._active: list[_Row] = []
        self._uncommitted = False
        if path.exists():
            self._load(SeriesReader(path))
        self._remove_unlisted()

    def append(self, step: int, time: float, values: Mapping[str, np.ndarray]) -> None:
        """Add one row and commit it. `values` must have every variable, with the shape of its dimensions."""
        self.extend([(step, time, values)])

    def extend(self, rows: Iterable[tuple[int, float, Mapping[str, np.ndarray]]]) -> None:
        """Add rows (step, time, values) and commit them together."""
        for step, time, values in rows:
            if values.keys() != self._required:
                raise ValueError(f"missing or unknown variables: {sorted(values.keys() ^ self._required)}")
            row = _Row(step, time, {name: np.asarray(value) for name, value in values.items()})
            if wrong := [name for name, value in row.values.items() if value.shape != self._shape(name)]:
                raise ValueError(f"variables with values of another shape: {wrong}")
            self._add(row)
        self._commit()

    def _add(self, row: _Row) -> None:
        rows, size = self._limits
        if len(self._active) >= rows and len(self._active) * row.size >= size:
            if self._uncommitted or not self._parts:
                self._write_rows(self._part_path(self._active))
            self._parts.append(_Part(self._part_name(self._active), len(self._active)))
            self._active = []
        self._active.append(row)
        self._uncommitted = True

    def truncate(self, step: int) -> int:
        """Remove the rows later than `step`; returns their number."""
        reader = SeriesReader(self.path) if self.path.exists() else None
        if reader is None or (keep := int(np.searchsorted(reader.step, step, side="right"))) == len(reader):
            return 0
        whole = 0
        while whole < len(self._parts) and sum(part.rows for part in self._parts[: whole + 1]) <= keep:
            whole += 1
        self._parts = self._parts[:whole]
        if (rest := keep - sum(part.rows for part in self._parts)) or not self._parts:
            self._active = reader.rows(whole)[:rest]
        else:
            self._parts.pop()
            self._active = reader.rows(whole - 1)
        self._commit()
        self._remove_unlisted()
        return len(reader) - keep

    def _load(self, reader: "SeriesReader") -> None:
        for name, values in self._coordinates.items():
            if not np.array_equal(reader.coordinates.get(name, np.empty(0)), values):
                raise UserError(
                    f"{self.path}: {name} has changed since this file was begun; "
                    "configure its output as before, or move the file away to begin another"
                )
        # The stored values are kept, because sums over modes on another number of devices may differ in the last
        # digit.
        kept = {name: (along, reader.coordinates[name]) for name, along in reader.beside.items()}
        self._beside = self._beside | kept
        plain = {name: v for name, v in reader.coordinates.items() if name not in reader.beside}
        self._coordinates = plain | self._coordinates
        self._variables = reader.variables | self._variables
        self._parts = list(reader.parts[:-1])
        self._active = reader.rows(len(self._parts))

    def _commit(self) -> None:
        self._uncommitted = False
        if not self._parts:
            self._write_rows(self.path)
            return
        self._write_rows(self._part_path(self._active))
        _write(self.path, self._fill_index, self._journal)

    def _write_rows(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        _write(path, self._fill_rows, self._journal)

    def _fill_rows(self, file: h5py.File) -> None:
        rows = self._active
        columns: dict[str, Any] = {
            "step": np.array([row.step for row in rows], dtype=np.int64),
            "time": np.array([row.time for row in rows], dtype=np.float64),
        }
        for name in self._variables:
            missing = np.full(self._shape(name), np.nan, np.float32)  # float32 keeps the dtype of the other rows
            values = [row.values.get(name, missing) for row in rows]
            columns[name] = np.stack(values) if values else np.empty((0, *self._shape(name)))
        self._describe(file, lambda name: file.create_dataset(name, data=columns[name]), [])

    def _fill_index(self, file: h5py.File) -> None:
        parts = [*self._parts, _Part(self._part_name(self._active), len(self._active))]
        total = sum(part.rows for part in parts)

        def virtual(name: str) -> h5py.Dataset:
            shape = self._shape(name) if name in self._variables else ()
            values = [row.values[name] for row in self._active if name in row.values]
            dtype = np.result_type(*values) if values else np.dtype(np.int64 if name == "step" else np.float64)
            layout = h5py.VirtualLayout((total, *shape), dtype)
            first = 0
            for part in parts:
                file_name = f"{self._folder.name}/{part.file}"
                layout[first : first + part.rows] = h5py.VirtualSource(file_name, name, (part.rows, *shape))
                first += part.rows
            return file.create_virtual_dataset(name, layout, fillvalue=np.nan if dtype.kind == "f" else 0)

        self._describe(file, virtual, parts)

    def _describe(self, file: h5py.File, create: Callable[[str], h5py.Dataset], parts: Sequence[_Part]) -> None:
        """Writes the content that parts and index have in common: coordinates, variables, scales, attributes."""
        file.attrs["format"] = _FORMAT
        file.attrs["parts"] = json.dumps([[part.file, part.rows] for part in parts])
        for name, value in self._attributes.items():
            file.attrs[name] = value
        for name, values in self._coordinates.items():
            file.create_dataset(name, data=values).make_scale(name)
        for name, (along, values) in self._beside.items():
            dataset = file.create_dataset(name, data=values)
            dataset.attrs["along"] = along
            dataset.dims[0].attach_scale(file[along])
        step, time = create("step"), create("time")
        time.make_scale("time")
        step.dims[0].attach_scale(time)
        for name, dimensions in self._variables.items():
            variable = create(name)
            variable.attrs["dimensions"] = ",".join(dimensions)
            # netCDF readers look for further coordinates along these dimensions in this attribute.
            further = [n for n, (along, _) in self._beside.items() if along in dimensions]
            variable.attrs["coordinates"] = " ".join(["step", *further])
            for axis, scale in enumerate([time, *(file[dimension] for dimension in dimensions)]):
                variable.dims[axis].attach_scale(scale)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(len(self._coordinates[dimension]) for dimension in self._variables[name])

    @property
    def _folder(self) -> Path:
        return self.path.with_suffix(".parts")

    def _part_name(self, rows: Sequence[_Row]) -> str:
        return f"{rows[0].step:08d}.h5"

    def _part_path(self, rows: Sequence[_Row]) -> Path:
        return self._folder / self._part_name(rows)

    def _remove_unlisted(self) -> None:
        """Remove the parts that a killed process wrote but did not commit, and those that `truncate` has dropped."""
        if not self._folder.is_dir():
            return
        listed = {part.file for part in self._parts}
        if self._parts:
            listed.add(self._part_name(self._active))
        for path in self._folder.iterdir():
            if path.name not in listed:
                self._journal.removing(path, "rows that were never committed, or were removed")
                path.unlink()
        if not listed:
            self._folder.rmdir()


class SeriesReader:
    """A series at the moment of opening: `step`, `time`, `coordinates`, and variables by name. `beside` maps further
    properties of the points of a coordinate, such as the number of modes in a shell, to the coordinate.

    `reader["energy"]` is the whole variable as (row, ...). `reader.at(index)` reads one row of all variables;
    negative indices count from the end. Raises OSError if the series, or a part of it, is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("format") != _FORMAT:
                raise OSError(f"{path}: not a series of this program")
            self.attributes = {key: value for key, value in file.attrs.items() if key not in ("format", "parts")}
            listed = json.loads(str(file.attrs["parts"]))
            self.variables = {name: _dimensions(_dataset(file, name)) for name in _names(file)}
            self.beside = {n: str(d.attrs["along"]) for n, d in file.items() if "along" in d.attrs}
            dimensions = {dimension for needed in self.variables.values() for dimension in needed}
            self.coordinates = {name: _dataset(file, name)[:] for name in sorted(dimensions | self.beside.keys())}
            plain = _Part("", len(_dataset(file, "step")))
        self.parts = tuple(_Part(name, rows) for name, rows in listed) or (plain,)
        self.step = np.concatenate(list(self._read("step"))).astype(np.int64)
        self.time = np.concatenate(list(self._read("time"))).astype(np.float64)

    def __len__(self) -> int:
        return len(self.step)

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.variables:
            raise KeyError(f"{name}: {self.path.name} holds {', '.join(self.variables)}")
        return np.concatenate(list(self._read(name)))

    def at(self, index: int) -> dict[str, np.ndarray]:
        """All variables of one row. Raises IndexError if the row does not exist."""
        number, place = self._place(index)
        (row,) = self.rows(number, slice(place, place + 1))
        return dict(row.values)

    def one(self, name: str, index: int) -> np.ndarray:
        """One variable of one row; nan if the row lacks it."""
        number, place = self._place(index)
        (row,) = self.rows(number, slice(place, place + 1), (name,))
        return row.values[name]

    def _place(self, index: int) -> tuple[int, int]:
        """The number of the part that holds a row, and the row's number within it."""
        position = range(len(self))[index]
        ends = np.cumsum([part.rows for part in self.parts])
        number = int(np.searchsorted(ends, position, side="right"))
        return number, position - int(ends[number]) + self.parts[number].rows

    def rows(self, number: int, places: slice = slice(None), names: Collection[str] | None = None) -> list[_Row]:
        """The rows in the `places` of part `number`, with the variables `names` (default: all)."""
        names = self.variables if names is None else names
        part = self.parts[number]
        first = sum(p.rows for p in self.parts[:number])
        wanted = range(part.rows)[places]
        with h5py.File(self._file(part), "r", locking=False) as file:
            known = {n: _dataset(file, n)[wanted.start : wanted.stop] for n in names if n in file}
        absent = {name: np.full(self._shape(name), np.nan, np.float32) for name in names}
        return [
            _Row(
                int(self.step[first + place]),
                float(self.time[first + place]),
                absent | {name: np.asarray(values[i]) for name, values in known.items()},
            )
            for i, place in enumerate(wanted)
        ]

    def _read(self, name: str) -> Iterator[np.ndarray]:
        for part in self.parts:
            with h5py.File(self._file(part), "r", locking=False) as file:
                if name in file:
                    yield _dataset(file, name)[: part.rows]
                else:
                    yield np.full((part.rows, *self._shape(name)), np.nan, np.float32)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(len(self.coordinates[dimension]) for dimension in self.variables[name])

    def _file(self, part: _Part) -> Path:
        return self.path.with_suffix(".parts") / part.file if part.file else self.path


def series_names(folder: Path) -> list[str]:
    """Names of the series that a run folder may have (NAME.h5 with NAME.parts/): every registered kind, then the
    other series in `folder`, such as those of the user's functions."""
    others = (path for path in sorted(folder.glob("*.h5")) if path.stem not in KINDS)
    return [*KINDS, *(path.stem for path in others if _is_series(path))]


def _is_series(path: Path) -> bool:
    try:
        with h5py.File(path, "r", locking=False) as file:
            return file.attrs.get("format") == _FORMAT
    except OSError:
        return False


def _names(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if "dimensions" in item.attrs else None)
    return names


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    item = file[name]
    if not isinstance(item, h5py.Dataset):
        raise OSError(f"{file.filename}: {name} is not a data set")
    return item


def _dimensions(variable: h5py.Dataset) -> tuple[str, ...]:
    stored = str(variable.attrs["dimensions"])
    return tuple(stored.split(",")) if stored else ()


def _write(path: Path, fill: Callable[[h5py.File], None], journal: Journal) -> None:
    # On a full disk HDF5 may report success and crash at exit, so HDF5 writes to memory and `replace_file` to the
    # disk.
    with h5py.File(os.fspath(path), "w", driver="core", backing_store=False) as file:
        fill(file)
        file.flush()
        image = file.id.get_file_image()
    replace_file(path, image, journal)


class Table:
    """The open table of a live run. The first column is `step`, in rising order."""

    def __init__(self, path: Path, columns: Sequence[str], journal: Journal = UNRECORDED) -> None:
        """Open `path` for appending; a missing file is created with its header.

        A table with other columns (an earlier version, another set of diagnostics) is rewritten with both sets: a
        column that a row lacks is nan.
        """
        if not columns or columns[0] != "step" or len(set(columns)) != len(columns):
            raise ValueError("the first column is step, and names are unique")
        self.path, self._journal = path, journal
        self.columns = tuple(columns)
        header = ",".join(columns)
        if not path.exists():
            _write_lines(path, [header], journal)
        old = _whole_lines(path)
        if old[0] != header:
            names = old[0].split(",")
            self.columns += tuple(name for name in names if name not in columns)
            rows = (dict(zip(names, line.split(","), strict=True)) for line in old[1:])
            lines = [",".join(row.get(name, "nan") for name in self.columns) for row in rows]
            _write_lines(path, [",".join(self.columns), *lines], journal)
        elif path.stat().st_size != sum(len(line) + 1 for line in old):
            _write_lines(path, old, journal)
        self._file = journal.appending(path)
        self._required = frozenset(columns)

    def append(self, row: Mapping[str, float]) -> None:
        """Append one row. Raises ValueError if `row` lacks a column or has an unknown one. After an OSError the file
        holds no partial row."""
        if row.keys() != self._required:
            raise ValueError(f"missing or unknown columns: {sorted(row.keys() ^ self._required)}")
        line = ",".join(_text(row.get(name, np.nan)) for name in self.columns) + "\n"
        self._file.append(line.encode())

    def truncate(self, step: int) -> int:
        """Remove the rows later than `step`; returns their number.

        The file is replaced even if no row is removed: an earlier writer on a lost node, which may still have the old
        file open, then appends to a file without a name.
        """
        lines = _whole_lines(self.path)
        kept = [line for line in lines[1:] if int(line.split(",", 1)[0]) <= step]
        removed = len(lines) - 1 - len(kept)
        _write_lines(self.path, [lines[0], *kept], self._journal)
        self._file.close()
        self._file = self._journal.appending(self.path)
        return removed

    def sync(self) -> None:
        """Make the rows durable, before the commit of a checkpoint that relies on them."""
        self._file.sync()

    def close(self) -> None:
        """Sync and close."""
        try:
            self.sync()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a table by name, `step` as int64 and the others as float64, without an incomplete last row."""
    lines = _whole_lines(path)
    names = lines[0].split(",")
    rows = [line.split(",") for line in lines[1:]]
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return {
        name: np.array(column, dtype=np.int64 if name == "step" else np.float64)
        for name, column in zip(names, columns, strict=True)
    }


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


def _write_lines(path: Path, lines: Sequence[str], journal: Journal) -> None:
    replace_file(path, "".join(line + "\n" for line in lines), journal)


def _text(value: float) -> str:
    return str(int(value)) if isinstance(value, int | np.integer) else repr(float(value))
