"""`RUN/diagnostics.csv`: one row per time, every row complete, readable while the run goes on.

Rows are appended as whole lines. A kill in the middle of a write leaves at most an incomplete last line, which
readers ignore and the next start removes. Numbers are written with all their digits.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from simulator.files import UNRECORDED, Journal, replace_file


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
        """Append one row. Raises ValueError if it lacks a column or has an unknown one; OSError leaves no partial
        row."""
        if row.keys() != self._required:
            raise ValueError(f"columns that do not match: {sorted(row.keys() ^ self._required)}")
        line = ",".join(_text(row.get(name, np.nan)) for name in self.columns) + "\n"
        self._file.append(line.encode())

    def truncate(self, step: int) -> int:
        """Remove the rows later than `step`; returns their number.

        The file is replaced even if no row is removed: an earlier writer that still has it open (on a lost node) then
        appends to a file without a name.
        """
        lines = _whole_lines(self.path)
        kept = [line for line in lines[1:] if int(line.split(",", 1)[0]) <= step]
        removed = len(lines) - 1 - len(kept)
        _write_lines(self.path, [lines[0], *kept], self._journal)
        self._file.close()
        self._file = self._journal.appending(self.path)
        return removed

    def sync(self) -> None:
        """Make the rows durable, before a checkpoint that relies on them is committed."""
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
