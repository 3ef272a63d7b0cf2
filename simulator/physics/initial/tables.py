"""Functions of the wavenumber in text files: E(k), P(k), transfer functions."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from simulator.errors import UserError, shown
from simulator.physics.initial.initial import StartFiles
from simulator.settings import LARGEST, SMALLEST

TWO: Mapping[int, int] = {2: 1}


def read_table(
    files: StartFiles,
    key: str,
    path: Path,
    name: str,
    columns: Mapping[int, int] = TWO,
    zeros: bool = False,
) -> tuple[Float[np.ndarray, "row"], Float[np.ndarray, "row"]]:
    """k and the function `name`, from rows of numbers; text after # is a comment.

    `columns`: for each possible number of columns the one that holds the function; k is the first.
    k rises and is above zero, and so is the function; with `zeros` it may be zero after the first
    row. Raises UserError, for `key`, with the line of the first row that is otherwise."""
    text = files.read(str(path)).decode(errors="replace")
    rows: list[tuple[float, float]] = []
    for line, row in enumerate(text.splitlines(), 1):
        try:
            if words := row.partition("#")[0].split():
                rows.append(_row(words, rows, name, columns, zeros))
                columns = {len(words): columns[len(words)]}
        except ValueError as error:
            raise UserError(f"{key}: {path}:{line}: {error}") from None
    if len(rows) < 2:
        needed = f"two rows or more of k and {name} are needed, not {len(rows)}"
        raise UserError(f"{key}: {path}:{max(len(text.splitlines()), 1)}: {needed}")
    table = np.array(rows)
    return table[:, 0], table[:, 1]


def _row(
    words: Sequence[str],
    rows: Sequence[tuple[float, float]],
    name: str,
    columns: Mapping[int, int],
    zeros: bool,
) -> tuple[float, float]:
    """k and the function in a line with these words, which follows `rows`."""
    if len(words) not in columns:
        numbers = " or ".join(map(str, columns))
        raise ValueError(f"{numbers} columns are needed, k and {name}, not {len(words)}")
    numbers = [_number(word) for word in words]
    k = numbers[0]
    value = numbers[columns[len(words)]]
    before = rows[-1][0] if rows else 0.0
    if k <= before:
        raise ValueError(f"k = {k:g} has to be above {before:g}: k rises from row to row")
    if not SMALLEST <= k <= LARGEST:
        raise ValueError(f"k = {k:g} has to lie between {SMALLEST:g} and {LARGEST:g}")
    least = "zero or above" if zeros and rows else "above zero"
    if value < 0 or (value == 0 and least == "above zero") or value > LARGEST:
        raise ValueError(f"{name} = {value:g} has to be {least}, and at most {LARGEST:g}")
    return k, value


def _number(word: str) -> float:
    try:
        number = math.nan if "_" in word else float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{shown(word)} is not a finite number")
    return number
