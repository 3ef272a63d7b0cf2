"""By what a run of a sweep is known: a hash of everything that its results depend on.

The hash covers the resolved configuration without `output` and without the keys that an existing run is not
compared by, the checksums of input files, and every key that the sweep sets, those of `output` and `devices` too.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from simulator.config import Change, RunConfig, as_mapping, classify
from simulator.settings import Settings

DIGITS = 12
_MISSING = object()


def identity(config: RunConfig, varied: Iterable[str]) -> str:
    """The hash of a run: the first hexadecimal digits of the SHA-256 of canonical JSON.

    `varied`: the keys that the sweep sets.
    """
    whole = as_mapping(config)
    covered = {name: value for name, value in whole.items() if is_compared(name)}
    beside = {key: value(whole, key) for key in varied if not is_compared(key.partition(".")[0])}
    text = canonical({"config": covered, "inputs": input_checksums(config), "swept": beside})
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def is_compared(block: str) -> bool:
    """Whether the hash covers a block of the configuration as a whole."""
    return block != "output" and classify(block) is not Change.FREE


def canonical(content: Any) -> str:
    """JSON with sorted keys, no spaces, and every number in its shortest exact form."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def value(mapping: Any, key: str) -> Any:
    """The value of `key` (`grid.shape`, `model.scalars.0.name`) in a resolved configuration; None where absent."""
    found = mapping
    for part in key.split("."):
        if isinstance(found, Mapping):
            found = found.get(part, _MISSING)
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            found = _MISSING
        if found is _MISSING:
            return None
    return found


def input_checksums(config: RunConfig) -> dict[str, str]:
    """The SHA-256 of every file that the configuration names, by the key that names it."""
    return {key: _checksum(path) for key, path in input_paths(config)}


def input_paths(config: RunConfig) -> list[tuple[str, Path]]:
    """The files that the configuration names, with their keys."""
    return [(key, path) for key, path in _paths(config, "") if is_compared(key.partition(".")[0])]


def _paths(settings: Any, key: str) -> Iterator[tuple[str, Path]]:
    if isinstance(settings, Path):
        yield key, settings
        return
    if isinstance(settings, Settings):
        items: Iterable[tuple[Any, Any]] = (
            (name, getattr(settings, name)) for name in type(settings).model_fields
        )
    elif isinstance(settings, Mapping):
        items = settings.items()
    elif isinstance(settings, list | tuple):
        items = enumerate(settings)
    else:
        return
    for name, item in items:
        yield from _paths(item, f"{key}.{name}" if key else str(name))


def _checksum(path: Path) -> str:
    """Of a file's content; of a folder's manifest, which holds the checksums of the rest, or of all its files."""
    if (path / "manifest.json").is_file():
        path = path / "manifest.json"
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
        digest.update(f"{file.relative_to(path)}\0{_checksum(file)}\n".encode())
    return digest.hexdigest()
