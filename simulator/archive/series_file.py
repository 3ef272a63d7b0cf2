"""HDF5 series: arrays against time, such as `spectra.h5` and `slices.h5`.

A series is one ordinary file that is replaced whole with every row, so that a reader always sees a
complete file. Only the last rows are rewritten: a part with `FULL` rows and bytes is full and never
written again. As long as one part is enough (512 spectra of 8 kB), `NAME.h5` holds the rows itself.
Longer series lie in parts `NAME.parts/STEP.h5`, named by their first step, and `NAME.h5` is an
index that lists the parts and shows each variable as one virtual data set. Its replacement commits
a row; readers ignore a part that it does not list, and read the parts themselves, because a virtual
data set shows a missing part as nan.

A file holds `step`, `time` (row), the coordinates, properties of their points (such as the number
of modes in a shell), and each variable as (row, *its dimensions), with dimension scales."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from simulator.errors import UserError
from simulator.files import UNRECORDED, Journal, reading, replace_file
from simulator.measure import OUTPUTS
from simulator.words import Shown, counted

TABLE = "diagnostics.csv"
FULL = (8, 4 * 2**20)
"""The rows and bytes from which on a part is full."""
_FORMAT = "simulator series 1"


class _Part(NamedTuple):
    file: str
    rows: int


_Row = dict[str, np.ndarray]  # `step`, `time` and the variables at one time.
_Columns = dict[str, np.ndarray]  # The same of several rows, with the row as first axis.


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
        full: tuple[int, int] = FULL,
    ) -> None:
        """Continue the series in `path`, or begin it with the first row.

        `variables` gives the dimensions of one row of each variable by the names of `coordinates`,
        whose values are one-dimensional. `attributes` go to the file's root. `beside` maps names to
        (coordinate, values): further properties of the points of a coordinate; an existing file
        keeps its own values. A variable is nan in the rows that lack it. Raises UserError if the
        coordinates differ from those in the file."""
        self.path = path
        self._journal = journal
        self._coordinates = {name: np.asarray(values) for name, values in coordinates.items()}
        self._variables = dict(variables)
        self._required = frozenset(variables)
        self._attributes = dict(attributes or {})
        self._beside = dict(beside or {})
        self._full = full
        self._parts: list[_Part] = []
        self._active: _Columns = {}  # The rows of the last part.
        self._uncommitted = False
        if path.exists():
            self._load(SeriesReader(path))
        self._remove_unlisted()

    def extend(self, rows: Iterable[tuple[int, float, Mapping[str, np.ndarray]]]) -> None:
        """Add rows (step, time, values) and commit them together. The values of a row must have
        every variable, with the shape of its dimensions."""
        rest: list[_Row] = []
        for step, time, values in rows:
            if values.keys() != self._required:
                raise ValueError(
                    f"missing or unknown variables: {sorted(values.keys() ^ self._required)}"
                )
            row = {"step": np.int64(step), "time": np.float64(time)}
            row |= {name: np.asarray(value) for name, value in values.items()}
            if wrong := [name for name in values if row[name].shape != self._shape(name)]:
                raise ValueError(f"variables with values of another shape: {wrong}")
            most, size = self._full
            count = self._active_rows + len(rest)
            if count >= most and count * sum(value.nbytes for value in row.values()) >= size:
                self._take_in(rest)
                rest = []
                if self._uncommitted or not self._parts:
                    self._write(self._folder / self._part().file, self._fill_rows)
                self._parts.append(self._part())
                self._active = {}
            rest.append(row)
            self._uncommitted = True
        self._take_in(rest)
        self._commit()

    @property
    def _active_rows(self) -> int:
        return len(self._active.get("step", ()))

    def _take_in(self, rows: Sequence[_Row]) -> None:
        """Adds rows to the active ones. One array for each column takes a fraction of the memory of
        one for each row, in which thousands of small rows may wait for their part to be full."""
        if not rows:
            return
        before = self._active_rows
        for name in ("step", "time", *self._variables):
            # float32 keeps the dtype of the other rows.
            missing = np.full(self._shape(name), np.nan, np.float32)
            new = np.stack([row.get(name, missing) for row in rows])
            old = self._active.get(name, np.broadcast_to(missing, (before, *missing.shape)))
            self._active[name] = np.concatenate([old, new]) if before else new

    def truncate(self, step: int) -> int:
        """Remove the rows later than `step`; returns their number."""
        reader = SeriesReader(self.path) if self.path.exists() else None
        if reader is None or (keep := int(np.searchsorted(reader.step, step, side="right"))) == len(
            reader
        ):
            return 0
        full = 0
        while full < len(self._parts) and sum(part.rows for part in self._parts[: full + 1]) < keep:
            full += 1
        self._parts = self._parts[:full]
        rest = keep - sum(part.rows for part in self._parts)
        self._active = {name: column[:rest] for name, column in reader.columns(full).items()}
        self._commit()
        self._remove_unlisted()
        return len(reader) - keep

    def _load(self, reader: "SeriesReader") -> None:
        changed = [
            name
            for name, values in self._coordinates.items()
            if not np.array_equal(reader.coordinates.get(name, np.empty(0)), values)
        ]
        # Such as the places of probes; sums over modes may differ by rounding.
        changed += [
            name
            for name, (_, values) in self._beside.items()
            if name in reader.beside and not np.allclose(reader.coordinates[name], values, 1e-4)
        ]
        changed += [
            name
            for name, value in self._attributes.items()
            if isinstance(value, list)
            and not np.array_equal(reader.attributes.get(name, []), value)
        ]
        if changed:
            raise UserError(
                f"{self.path}: {changed[0]} has changed since this file was begun; "
                "configure its output as before, or move the file away to begin another"
            )
        # The stored values are kept, because sums over modes on another number of devices may
        # differ in the last digit.
        stored = {name: (along, reader.coordinates[name]) for name, along in reader.beside.items()}
        self._beside = self._beside | stored
        plain = {name: v for name, v in reader.coordinates.items() if name not in reader.beside}
        self._coordinates = plain | self._coordinates
        self._variables = reader.variables | self._variables
        self._parts = list(reader.parts[:-1])
        self._active = reader.columns(len(self._parts))

    def _commit(self) -> None:
        self._uncommitted = False
        self._write(self._folder / self._part().file if self._parts else self.path, self._fill_rows)
        if self._parts:
            self._write(self.path, self._fill_index)

    def _write(self, path: Path, fill: Callable[[h5py.File], None]) -> None:
        # On a full disk HDF5 may report success and crash at exit, so HDF5 writes to memory and
        # `replace_file` to the disk.
        path.parent.mkdir(exist_ok=True)
        with h5py.File(os.fspath(path), "w", driver="core", backing_store=False) as file:
            fill(file)
            file.flush()
            image = file.id.get_file_image()
        replace_file(path, image, self._journal)

    def _fill_rows(self, file: h5py.File) -> None:
        def column(name: str) -> h5py.Dataset:
            shape, kind = self._kind(name)
            column = self._active.get(name, np.empty((0, *shape), kind))
            return file.create_dataset(name, data=column)

        self._describe(file, column, [])

    def _fill_index(self, file: h5py.File) -> None:
        parts = [*self._parts, self._part()]

        def virtual(name: str) -> h5py.Dataset:
            shape, kind = self._kind(name)
            layout = h5py.VirtualLayout((sum(part.rows for part in parts), *shape), kind)
            first = 0
            for part in parts:
                source = h5py.VirtualSource(
                    f"{self._folder.name}/{part.file}", name, (part.rows, *shape)
                )
                layout[first : (first := first + part.rows)] = source
            return file.create_virtual_dataset(
                name, layout, fillvalue=np.nan if kind.kind == "f" else 0
            )

        self._describe(file, virtual, parts)

    def _kind(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """The shape of a column's rows, and the type of those that are not yet full."""
        column = self._active.get(name)
        plain = np.dtype(np.int64 if name == "step" else np.float64)
        return self._shape(name), plain if column is None else column.dtype

    def _describe(
        self, file: h5py.File, create: Callable[[str], h5py.Dataset], parts: Sequence[_Part]
    ) -> None:
        """Writes the content that parts and index have in common: coordinates, variables, scales,
        attributes."""
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
        step = create("step")
        time = create("time")
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
        return tuple(
            len(self._coordinates[dimension]) for dimension in self._variables.get(name, ())
        )

    @property
    def _folder(self) -> Path:
        return self.path.with_suffix(".parts")

    def _part(self) -> _Part:
        return _Part(f"{self._active['step'][0]:08d}.h5", self._active_rows)

    def _remove_unlisted(self) -> None:
        """Remove the parts that a killed process wrote but did not commit, and those that
        `truncate` has dropped."""
        if not self._folder.is_dir():
            return
        listed = {part.file for part in [*self._parts, self._part()]} if self._parts else ()
        for path in self._folder.iterdir():
            if path.name not in listed:
                self._journal.removing(path, "rows that were never committed, or were removed")
                path.unlink()
        if not listed:
            self._folder.rmdir()


class SeriesReader(Shown):
    """A series at the moment of opening: `step`, `time`, `coordinates`, and variables by name.
    `beside` maps further properties of the points of a coordinate, such as the number of modes in a
    shell, to the coordinate.

    `reader["energy"]` is the whole variable as (row, ...). `reader.at(index)` reads one row of all
    variables; negative indices count from the end. Raises OSError if the series, or a part of it,
    is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path), h5py.File(path, "r", locking=False) as file:
            if file.attrs.get("format") != _FORMAT:
                raise OSError("not a series of this program")
            self.attributes = {
                key: value for key, value in file.attrs.items() if key not in ("format", "parts")
            }
            listed = json.loads(str(file.attrs["parts"]))
            self.variables = {name: _dimensions(_dataset(file, name)) for name in _names(file)}
            self.beside = {n: str(d.attrs["along"]) for n, d in file.items() if "along" in d.attrs}
            dimensions = {dimension for needed in self.variables.values() for dimension in needed}
            self.coordinates = {
                name: _dataset(file, name)[:] for name in sorted(dimensions | self.beside.keys())
            }
            plain = _Part("", len(_dataset(file, "step")))
        self.parts = tuple(_Part(name, rows) for name, rows in listed) or (plain,)
        self.step = self._read("step").astype(np.int64)
        self.time = self._read("time").astype(np.float64)

    def shown(self) -> tuple[str, Mapping[str, Any]]:
        span = f", t = {self.time[0]:g} to {self.time[-1]:g}" if len(self) else ""
        shapes = {name: (len(self), *self._shape(name)) for name in self.variables}
        return (
            f"{self.path.stem}: {counted(len(self), 'row')}{span}; each variable by name, with its shape",
            {
                name: f"({', '.join(('row', *dimensions))}) = {shapes[name]}"
                for name, dimensions in self.variables.items()
            }
            | {
                name: f"({len(values)},) in .coordinates"
                for name, values in self.coordinates.items()
            },
        )

    __repr__ = Shown.__str__

    def __len__(self) -> int:
        return len(self.step)

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.variables:
            raise KeyError(f"{name}: {self.path.name} holds {', '.join(self.variables)}")
        return self._read(name)

    def at(self, index: int) -> dict[str, np.ndarray]:
        """All variables of one row. Raises IndexError if the row does not exist."""
        return {name: self.one(name, index) for name in self.variables}

    def one(self, name: str, index: int) -> np.ndarray:
        """One variable of one row; nan if the row lacks it. Raises IndexError if the row does not
        exist."""
        position = range(len(self))[index]
        ends = np.cumsum([part.rows for part in self.parts])
        number = int(np.searchsorted(ends, position, side="right"))
        place = position - int(ends[number]) + self.parts[number].rows
        return self._columns(number, (name,), slice(place, place + 1))[name][0]

    def columns(self, number: int) -> _Columns:
        """The rows of part `number`."""
        return self._columns(number, ("step", "time", *self.variables))

    def _columns(
        self, number: int, names: Iterable[str], places: slice = slice(None)
    ) -> dict[str, np.ndarray]:
        part = self.parts[number]
        wanted = range(part.rows)[places]
        path = self._file(part)
        columns = {}
        with reading(path), h5py.File(path, "r", locking=False) as file:
            for name in names:
                if name in file:
                    columns[name] = _dataset(file, name)[wanted.start : wanted.stop]
                else:
                    missing = (len(wanted), *self._shape(name))
                    columns[name] = np.full(missing, np.nan, np.float32)
        return columns

    def _read(self, name: str) -> np.ndarray:
        return np.concatenate(
            [self._columns(number, (name,))[name] for number in range(len(self.parts))]
        )

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(len(self.coordinates[dimension]) for dimension in self.variables[name])

    def _file(self, part: _Part) -> Path:
        return self.path.with_suffix(".parts") / part.file if part.file else self.path


def series_names(folder: Path) -> list[str]:
    """Names of the series that a run folder may have (NAME.h5 with NAME.parts/): every registered
    kind, then the other series in `folder`, such as those of the user's functions."""
    others = (path for path in sorted(folder.glob("*.h5")) if path.stem not in OUTPUTS.names)
    return [*OUTPUTS.names, *(path.stem for path in others if _is_series(path))]


def _is_series(path: Path) -> bool:
    try:
        with reading(path), h5py.File(path, "r", locking=False) as file:
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
        raise OSError(f"{name} is not a data set")
    return item


def _dimensions(variable: h5py.Dataset) -> tuple[str, ...]:
    stored = str(variable.attrs["dimensions"])
    return tuple(stored.split(",")) if stored else ()


class Table:
    """The open table of a live run. The first column is `step`, in rising order."""

    def __init__(self, path: Path, columns: Sequence[str], journal: Journal = UNRECORDED) -> None:
        """Open `path` for appending; a missing file is created with its header.

        A table with other columns (an earlier version, another set of diagnostics) is rewritten
        with both sets: a column that a row lacks is nan."""
        if not columns or columns[0] != "step" or len(set(columns)) != len(columns):
            raise ValueError("the first column is step, and names are unique")
        self.path = path
        self._journal = journal
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
        """Append one row, or after an OSError nothing of it. Raises ValueError for missing or
        unknown columns."""
        if row.keys() != self._required:
            raise ValueError(f"missing or unknown columns: {sorted(row.keys() ^ self._required)}")
        line = ",".join(_text(row.get(name, np.nan)) for name in self.columns) + "\n"
        self._file.append(line.encode())

    def truncate(self, step: int) -> int:
        """Remove the rows later than `step`; returns their number.

        The file is replaced even if no row is removed: an earlier writer on a lost node, which may
        still have the old file open, then appends to a file without a name."""
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


def read_columns(path: Path, wanted: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The columns of a table by name, all or those in `wanted`, `step` as int64 and the others as
    float64, without an incomplete last row. Raises OSError if the file cannot be read or is no such table."""
    with reading(path):
        lines = _whole_lines(path)
        if not lines:
            raise ValueError("it is empty")
        names = lines[0].split(",")
        rows = [line.split(",") for line in lines[1:]]
        columns = zip(*rows, strict=True) if rows else ((),) * len(names)
        return {
            name: np.array(column, dtype=np.int64 if name == "step" else np.float64)
            for name, column in zip(names, columns, strict=True)
            if wanted is None or name in wanted
        }


def whole_rows(path: Path) -> list[str]:
    """The header and the rows of a table before its first damaged line; empty without a header."""
    header, *rows = [*path.read_bytes().split(b"\n")[:-1], b""]
    if not header.startswith(b"step,"):
        return []
    good = [header]
    for row in rows:
        try:
            [float(value) for value in row.split(b",")]
        except ValueError:
            break
        if row.count(b",") != header.count(b","):
            break
        good.append(row)
    return [line.decode(errors="replace") for line in good]


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


def _write_lines(path: Path, lines: Sequence[str], journal: Journal) -> None:
    replace_file(path, "".join(line + "\n" for line in lines), journal)


def _text(value: float) -> str:
    return str(int(value)) if isinstance(value, int | np.integer) else repr(float(value))
