"""The text of byte counts, durations, values, paths and versions in messages."""

import html
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def say(text: str) -> None:
    """Write lines to stderr in one piece. `print` writes the last line break separately, so that
    lines of several processes would mix."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def counted(count: int, noun: str, several: str | None = None) -> str:
    """`1 device`, `2 devices`, `3 processes`; `several` is an irregular plural."""
    if several is None:
        several = f"{noun}{'es' if noun.endswith('ss') else 's'}"
    return f"{count} {noun if count == 1 else several}"


def size(count: float) -> str:
    """A number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def duration(seconds: float) -> str:
    """A duration in words: `42 s`, `3 min 20 s`, `5 h 03 min`, `2 d 4 h`."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s" if seconds >= 10 or rounded == seconds else f"{seconds:.1f} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    if rounded < 86400:
        return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
    return f"{rounded // 86400} d {rounded % 86400 // 3600} h"


def version_of(package: str = "simulator") -> str:
    """The version of an installed package; "unknown" if it is not installed, as in a checkout on
    PYTHONPATH."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def short(path: Path) -> Path:
    """`path`, relative to the current folder if it lies below that folder."""
    with suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path


def aligned_lines(rows: Sequence[Sequence[str]], right: Container[int]) -> list[str]:
    """The lines of a table; each column is padded to one width, the columns `right` are aligned to
    the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.rjust if i in right else str.ljust for i in range(len(widths))]
    padded = ([pad(c, w) for pad, c, w in zip(pads, row, widths, strict=True)] for row in rows)
    return ["  ".join(cells).rstrip() for cells in padded]


def brief(item: object) -> str:
    """A value as short text."""
    match item:
        case None:
            return "none"
        case bool():
            return str(item).lower()
        case float():
            return f"{item:.6g}"
        case list() | tuple():
            return ",".join(brief(part) for part in item)
        case dict():
            return "{" + ", ".join(f"{key}: {brief(part)}" for key, part in item.items()) + "}"
    return str(item)


def each_leaf(value: object, change: Callable[[Any], Any]) -> Any:
    """Nested mappings and lists with `change` applied to every other value."""
    if isinstance(value, Mapping):
        return {key: each_leaf(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_leaf(item, change) for item in value]
    return change(value)


def flat(block: object, key: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys."""
    if not isinstance(block, Mapping):
        return {key: block}
    items: dict[str, Any] = {}
    for name, item in block.items():
        items |= flat(item, f"{key}.{name}" if key else str(name))
    return items


MAIN_BLOCKS = ("model", "grid", "initial", "forcing", "terms", "particles", "time", "precision")
"""The blocks of a configuration that describe a run."""


class Shown:
    """An object that prints as one screen of names and values, and in a notebook as a table with a
    picture."""

    def shown(self) -> tuple[str, Mapping[str, Any]]:
        """The title and the rows."""
        return repr(self), {}

    def picture(self) -> str:
        """HTML beside the table."""
        return ""

    def __str__(self) -> str:
        title, rows = self._texts()
        return "\n".join(
            [title, *aligned_lines([(f"  {name}", text) for name, text in rows.items()], ())]
        )

    def _repr_html_(self) -> str:
        title, rows = self._texts()
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in rows.items()
        )
        return (
            f"<div style='display:flex;gap:1.5em;align-items:flex-start'><div><b>{html.escape(title)}</b>"
            f"<table>{cells}</table></div>{self.picture()}</div>"
        )

    def _texts(self) -> tuple[str, dict[str, str]]:
        title, rows = self.shown()
        return title, {name: text for name, value in rows.items() if (text := brief(value))}
