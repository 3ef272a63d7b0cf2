"""The text of byte counts, durations, values, paths and versions in messages."""

from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def size(count: float) -> str:
    """A number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def duration(seconds: float) -> str:
    """A duration in words: `42 s`, `3 min 20 s`, `5 h 03 min`, `2 d 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if seconds >= 10 or whole == seconds else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def version_of(package: str = "simulator") -> str:
    """The version of an installed package; "unknown" if it is not installed, as in a checkout on PYTHONPATH."""
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


def aligned(rows: Sequence[Sequence[str]], right: Container[int]) -> list[str]:
    """The lines of a table; each column is padded to one width, the columns `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return [line.rstrip() for line in lines]


def brief(item: Any) -> str:
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
