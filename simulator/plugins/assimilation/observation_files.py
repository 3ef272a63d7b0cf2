"""Files of observations: one schema, which every array fulfils before anything uses it.

    time            (T,), each time once, within the run
    x, y, z         points: coordinates that broadcast to a common shape S, within the box
    k               spectra: (K,), each wavenumber once
    error           broadcasts to (T, *S), (T, K), or the shape of `values`; above zero
    the rest        values: (T, *S), of vectors (T, component, *S); (T, K); `values` (T, ...)

All are finite real numbers, but for NaN, which marks a missing value."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import h5py
import numpy as np

from simulator.files import lies_elsewhere

Arrays = Mapping[str, np.ndarray]
RESERVED = ("time", "x", "y", "z", "k", "error")
_CLOSE = 1e-6  # Relative to a range.


@dataclass(frozen=True)
class Rule:
    """The condition on the numbers of an array: they lie in the interval from `low` to `high`."""

    low: float = -inf
    high: float = inf
    missing: bool = False  # Whether NaN is allowed.
    is_list: bool = False  # One axis, and every number once.
    where: str = ""  # The interval in words.


@dataclass(frozen=True)
class Expected:
    """The arrays of a kind of observations: rules by name, and values with their numbers of
    components (0: no axis of components)."""

    rules: Mapping[str, Rule]
    values: Mapping[str, int] = field(default_factory=dict)


def read_arrays(path: Path) -> Arrays:
    """The arrays of a file. Raises ValueError if it cannot be read."""
    try:
        match path.suffix:
            case ".npz":
                with np.load(path) as file:
                    return dict(file)
            case ".h5" | ".hdf5":
                return _hdf5(path)
            case ".csv":
                return _lists(_rows(path))
    except (ValueError, MemoryError) as error:
        raise ValueError(_line(error)) from None
    except Exception as error:  # numpy and HDF5 raise many kinds for damaged bytes
        raise ValueError(f"cannot be read: {_line(error)}") from error
    raise ValueError("is not a table; its name ends in .csv, .npz, .h5 or .hdf5")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _hdf5(path: Path) -> Arrays:
    arrays = {}
    with h5py.File(path, "r", locking=False) as file:
        for name in file:
            if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} is a link; the file itself has to hold its numbers")
            item = file[name]
            if not isinstance(item, h5py.Dataset):
                continue
            if item.shape is None or lies_elsewhere(item, file):
                raise ValueError(f"{name} is not stored in the file itself")
            if item.size and not item.id.get_storage_size():
                raise ValueError(f"{name} was never written")
            arrays[name] = np.asarray(item)
    return arrays


def _rows(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV. Lines that begin with # are comments, but for the first one."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = [row for row in csv.reader(file) if row]
        except csv.Error as error:
            raise ValueError(str(error)) from None
    if len(rows) < 2:
        raise ValueError("has no rows below a line with the names of the columns")
    names = [name.strip().lstrip("#").strip() for name in rows[0]]
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have the same name: {', '.join(names)}")
    numbers = []
    for number, row in enumerate(rows[1:], 2):
        if row[0].startswith("#"):
            continue
        if len(row) != len(names):
            raise ValueError(f"row {number} has {len(row)} cells; there are {len(names)} columns")
        numbers.append([_number(cell.strip(), number) for cell in row])
    return dict(zip(names, np.array(numbers).reshape(-1, len(names)).T, strict=True))


def _number(cell: str, row: int) -> float:
    if not cell:
        return np.nan
    try:
        if "_" in cell:
            raise ValueError
        return float(cell)
    except ValueError:
        raise ValueError(f"row {row}: {cell!r} is no number") from None


def _lists(columns: dict[str, np.ndarray]) -> Arrays:
    """The columns of a CSV as arrays over all times and all places; combinations without a row are
    NaN."""
    where = [name for name in columns if name in ("x", "y", "z", "k")]
    if "time" not in columns or not where:
        raise ValueError(
            f"the first line names the columns, time, x, y, z or time, k among them, not {', '.join(columns)}"
        )
    times, when = np.unique(columns["time"], return_inverse=True)
    points = np.stack([columns[name] for name in where], -1)
    places, which = np.unique(points, axis=0, return_inverse=True)
    cells = when.ravel() * len(places) + which.ravel()
    if len(np.unique(cells)) < len(cells):
        raise ValueError("two rows are of the same time and place")
    result: dict[str, np.ndarray] = {"time": times, **dict(zip(where, places.T, strict=True))}
    for name in columns:
        if name not in result:
            result[name] = np.full((len(times), len(places)), np.nan)
            result[name].flat[cells] = columns[name]
    return result


def checked(arrays: Arrays, expected: Expected) -> Arrays:
    """The arrays in double precision, with `error` broadcast to the shape of values without their
    components. Raises ValueError for the first array that does not fulfil the schema."""
    rules = {"time": Rule(is_list=True), **expected.rules}
    if "error" in arrays:
        rules["error"] = Rule(low=0, missing=True, where="above zero")
    if absent := [name for name in rules if name not in arrays]:
        raise ValueError(f"has no `{absent[0]}`; it has {', '.join(arrays)}")
    if stray := [name for name in arrays if name in RESERVED and name not in rules]:
        raise ValueError(f"has `{stray[0]}`, which does not go with {', '.join(rules)}")
    values = Rule(missing=True)
    result = {name: _checked(name, a, rules.get(name, values)) for name, a in arrays.items()}
    result["time"] = np.atleast_1d(result["time"])
    first = _shape_of_a_time(result, expected)
    for name, components in expected.values.items():
        if name not in result:
            continue
        wanted = (len(result["time"]), *((components,) if components else ()), *first)
        if result[name].shape != wanted:
            raise ValueError(f"{name} has the shape {result[name].shape}; {wanted} is needed")
    if "error" in result:
        _check_errors(result, expected, (len(result["time"]), *first))
    observed = [result[name] for name in expected.values if name in result]
    if observed and not any(np.isfinite(array).any() for array in observed):
        raise ValueError("every value is missing")
    return result


def _shape_of_a_time(arrays: Arrays, expected: Expected) -> tuple[int, ...]:
    if "k" in expected.rules:
        return np.atleast_1d(arrays["k"]).shape
    places = [name for name in expected.rules if name in "xyz"]
    if not places:
        return arrays["values"].shape[1:]
    try:
        return np.broadcast_shapes(*(arrays[name].shape for name in places))
    except ValueError:
        shapes = ", ".join(f"{name} {arrays[name].shape}" for name in places)
        raise ValueError(f"the shapes of the places have no common one: {shapes}") from None


def _check_errors(
    result: dict[str, np.ndarray], expected: Expected, shape: tuple[int, ...]
) -> None:
    """Broadcasts `error`, which has to be known wherever there is a value."""
    try:
        error = np.broadcast_to(result["error"], shape)
    except ValueError:
        text = f"error has the shape {result['error'].shape}, which does not broadcast to {shape}"
        raise ValueError(text) from None
    if (result["error"] == 0).any():
        raise ValueError("error = 0; errors are above zero")
    for name, components in expected.values.items():
        if name in result:
            each = np.moveaxis(result[name], 1, 0) if components else result[name][None]
            if (np.isfinite(each) & np.isnan(error)).any():
                raise ValueError(f"{name} has a value whose error is missing")
    result["error"] = error


def _checked(name: str, array: np.ndarray, rule: Rule) -> np.ndarray:
    if not isinstance(array, np.ndarray | np.generic) or array.dtype.kind not in "iuf":
        kind = getattr(array, "dtype", type(array).__name__)
        raise ValueError(f"{name} holds {kind}; real numbers are needed")
    with np.errstate(over="ignore"):
        numbers = np.asarray(array, np.float64)
    if not numbers.size:
        raise ValueError(f"{name} is empty")
    if np.isinf(numbers).any() or (not rule.missing and np.isnan(numbers).any()):
        bad = numbers[~np.isfinite(numbers)][0]
        marks = "; NaN marks a missing value" if rule.missing else ""
        raise ValueError(f"{name} = {bad:g}; finite numbers are needed{marks}")
    room = _CLOSE * (rule.high - rule.low) if np.isfinite(rule.high - rule.low) else 0.0
    if len(outside := numbers[(numbers < rule.low) | (numbers > rule.high + room)]):
        raise ValueError(f"{name} = {outside[0]:g} is {rule.where or 'out of range'}")
    if rule.is_list and (numbers.ndim > 1 or len(np.unique(numbers)) < numbers.size):
        raise ValueError(f"{name} is a list in which every number appears once")
    return numbers
