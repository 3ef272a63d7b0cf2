"""Functions of the wavenumber in text files: E(k), P(k), transfer functions."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from simulator.errors import UserError, shown
from simulator.physics.initial.initial import StartFiles
from simulator.settings import LARGEST, SMALLEST

TWO: Mapping[int, int] = {2: 1}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][+-]?\d+)?", re.ASCII)
_COMMENT = re.compile(r"[#!%].*")


class SpectrumTable(NamedTuple):
    """A function of k that is above zero at the first and at the last row; zeros between have a
    value of 1e-30 of the largest."""

    k: Float[np.ndarray, "row"]
    values: Float[np.ndarray, "row"]
    column: str  # The name of the function in the file's header, in lower case; "" without one.
    header: str  # The comments and the header line, in lower case.
    first: float  # The function is known from here, and zero below; 0 after a row of zero.
    last: float  # It is known up to here, and zero beyond; infinite with a row of zero at the end.


def read_table(
    files: StartFiles,
    key: str,
    path: Path,
    name: str,
    columns: Mapping[int, int] = TWO,
    known: Sequence[str] = (),
    signed: bool = False,
) -> SpectrumTable:
    """k and the function `name`, from rows of numbers between blanks or commas, with exponents e or
    d; text after #, ! or % is a comment, and a line of words may precede the rows.

    The function is the first of the columns `known` by their names in the header; else the one that
    `columns` has for this number of columns; k is the first. k rises and is above zero; the
    function is zero or above, or, if it is `signed`, its absolute value counts. Raises UserError,
    for `key`, with the line of the first row that is otherwise."""
    text = files.read(str(path)).decode("utf-8-sig", errors="replace")
    lines = re.split(r"\r\n|\r|\n", text)
    header: list[str] = []
    rows: list[tuple[float, ...]] = []
    place = 0
    for number, line in enumerate(lines, 1):
        try:
            if not (words := _words(line)):
                header += [line.lower()] * (not rows)
            elif not rows and _is_header(words, line, header):
                header += [line.lower()]
            else:
                if not rows:
                    place = _place(len(words), header, known, columns, name)
                elif len(words) != len(rows[0]):
                    raise ValueError(f"{len(rows[0])} columns are needed, not {len(words)}")
                rows.append(_row(words, rows, place, name, signed))
        except ValueError as error:
            raise UserError(f"{key}: {path}:{number}: {error}") from None
    above = sum(row[place] != 0 for row in rows)
    if above < 2:
        needed = f"two rows or more of k and {name} above zero are needed, not {above}"
        raise UserError(f"{key}: {path}:{max(len(text.splitlines()), 1)}: {needed}")
    column = _names(header, len(rows[0]))[place]
    return _table(np.array(rows), place, column, "\n".join(header))


def _table(rows: np.ndarray, place: int, column: str, header: str) -> SpectrumTable:
    k = rows[:, 0]
    values = abs(rows[:, place])
    above = np.flatnonzero(values)
    inner = slice(above[0], above[-1] + 1)
    first = k[0] if values[0] else 0.0
    last = k[-1] if values[-1] else np.inf
    values = np.maximum(values, 1e-30 * values.max())
    return SpectrumTable(k[inner], values[inner], column, header, first, last)


def _words(line: str) -> list[str]:
    row = _COMMENT.sub("", line).strip()
    return [word.strip() for word in row.split(",")] if "," in row else row.split()


def _is_header(words: Sequence[str], line: str, header: Sequence[str]) -> bool:
    """Whether a line before the first row is one of names: of readable words without a number."""
    seen = any(_words(earlier) for earlier in header)
    readable = line.replace("\t", " ").isprintable() and "\ufffd" not in line
    return readable and not seen and not any(_is_number(word) for word in words)


def _is_number(word: str) -> bool:
    """Whether a word is a number to Python, nan and inf too, or to Fortran."""
    try:
        float(word)
    except ValueError:
        return _NUMBER.fullmatch(word) is not None
    return True


def _names(header: Sequence[str], count: int) -> list[str]:
    """The names of the columns, in the last line of a header that has one for each: between blanks,
    or numbered as CLASS does (1:k (h/Mpc) 2:d_g ...); else empty ones."""
    for line in reversed(header):
        numbered = re.findall(r"(?<!\S)\d+:(\S+)", line)
        for names in (numbered, line.strip("#!% \t").replace(",", " ").split()):
            if len(names) == count:
                return names
    return [""] * count


def _place(
    count: int, header: Sequence[str], known: Sequence[str], columns: Mapping[int, int], name: str
) -> int:
    """The column of the function among `count`."""
    names = _names(header, count)
    for wanted in known:
        if wanted in names:
            return names.index(wanted)
    if count in columns:
        return columns[count]
    needed = f"{' or '.join(map(str, columns))} columns are needed, k and {name}, not {count}"
    named = f", or name it {' or '.join(known)} in a header of {count} names" if known else ""
    raise ValueError(f"{needed}; keep these two{named}")


def _row(
    words: Sequence[str], rows: Sequence[Sequence[float]], place: int, name: str, signed: bool
) -> tuple[float, ...]:
    """The numbers in a line with these words, which follows `rows`."""
    numbers = tuple(_number(word) for word in words)
    k = numbers[0]
    value = numbers[place]
    before = rows[-1][0] if rows else 0.0
    logarithm = f"; if these are logarithms, write k and {name} themselves"
    if k <= before:
        cure = logarithm if k < 0 else ""
        raise ValueError(f"k = {k:g} has to be above {before:g}: k rises from row to row{cure}")
    if not SMALLEST <= k <= LARGEST:
        raise ValueError(f"k = {k:g} has to lie between {SMALLEST:g} and {LARGEST:g}")
    if abs(value) > LARGEST:
        raise ValueError(f"{name} = {value:g} has to be at most {LARGEST:g}")
    if value < 0 and not signed:
        raise ValueError(f"{name} = {value:g} has to be zero or above{logarithm}")
    return numbers


def _number(word: str) -> float:
    number = float(re.sub("[dD]", "e", word)) if _NUMBER.fullmatch(word) else np.nan
    if not np.isfinite(number):
        raise ValueError(f"{shown(word)} is not a finite number")
    return number
