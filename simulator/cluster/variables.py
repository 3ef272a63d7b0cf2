"""The environment variables that may be shown and written to disk, and the numbers in variables."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def recorded_names() -> frozenset[str]:
    """The only variables that are ever printed or written to disk: they influence how a run is
    placed, compiled and connected. Any other variable may hold a token or a password. The names are
    full names, never prefixes."""
    return frozenset(Path(__file__).with_name("recorded_variables.txt").read_text().split())


def recorded_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `recorded_names` that are set, sorted by name."""
    return {name: environ[name] for name in sorted(recorded_names() & environ.keys())}


def whole_number(text: str | None) -> int | None:
    """`text` as a whole number of at most 18 digits; None for any other text, which a variable may
    hold as well."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else None
