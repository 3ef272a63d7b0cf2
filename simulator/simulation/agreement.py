"""The settings, sources and versions that all processes of a run must have in common.

The processes compare these records when they meet (`cluster.meeting`), before any device program
starts: processes that differ would compute a third problem together, or wait for one another."""

import os
from pathlib import Path
from platform import python_version

from simulator.config import RunConfig
from simulator.config.load import as_mapping
from simulator.errors import printable
from simulator.files import checksum, pieces_of
from simulator.words import flat, version_of

_PACKAGES = ("jax", "jaxlib", "numpy")
_SOURCES = (".py", ".cc", ".h")
_LONGEST = 100  # Characters of a value; a longer one is followed by its checksum.


def settings_record(config: RunConfig) -> dict[str, str]:
    """The value of each key of a run, but for those of `slurm`."""
    keys = flat(as_mapping(config))
    keys["output.directory"] = os.path.realpath(config.output.directory)
    return {key: _text(value) for key, value in keys.items() if not key.startswith("slurm")}


def installed_record() -> dict[str, str]:
    """The versions of Python and of the packages that compute, and a checksum of each source of
    this package."""
    versions = {name: version_of(name) for name in _PACKAGES} | {"Python": python_version()}
    package = Path(__file__).parents[1]
    sources = (p for p in package.rglob("*") if p.suffix in _SOURCES)
    sums = {str(p.relative_to(package.parent)): checksum(pieces_of(p))[1][:8] for p in sources}
    return versions | {name: f"checksum {digest}" for name, digest in sums.items()}


def _text(value: object) -> str:
    text = printable(str(value))
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... (checksum {checksum([text.encode()])[1][:8]})"
