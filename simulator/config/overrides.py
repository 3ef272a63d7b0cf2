"""`key.path=value` from the command line, laid over the values of a file."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.config.yaml12 import Path, dotted, parse_yaml
from simulator.errors import UserError
from simulator.settings import CommandLineText

COMMAND_LINE = "command line"
_EXCLUSIVE: Mapping[Path, Path] = {("time", "cfl"): ("time", "dt"), ("time", "dt"): ("time", "cfl")}


@dataclass(frozen=True)
class Override:
    """`value` for the key at `path`, None to remove it, and where the user gave it."""

    path: Path
    value: Any
    place: str = COMMAND_LINE


def parse_override(text: str) -> Override:
    """`grid.shape=64,64,64` as an Override. The value is read by the rules of YAML 1.2; a comma outside of
    brackets and quotes makes a list. Raises UserError: `command line: key: ...`."""
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator:
        raise UserError(f"{COMMAND_LINE}: {text}: an override is written key=value, e.g. time.stop=2")
    if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)*", key):
        raise UserError(f"{COMMAND_LINE}: {text}: a key is written with dots, e.g. time.stop=2")
    if not value.strip():
        raise UserError(f"{COMMAND_LINE}: {key}: has no value; {key}=null removes the key")
    if "," in value and value.lstrip()[0] not in "[{'\"!&":
        value = f"[{value}]"
    try:
        document = parse_yaml(value, COMMAND_LINE)
    except UserError as error:
        reason = str(error).splitlines()[0].partition(": ")[2]
        raise UserError(f"{COMMAND_LINE}: {key}: {reason}; quotes around the value may help") from None
    path = tuple(int(part) if part.isdecimal() else part for part in key.split("."))
    return Override(path, _from_command_line(document.value))


def text_override(key: str, text: str) -> Override:
    """What an option of the command line says, as an override: text, and no YAML (`--output 7` is a folder)."""
    return Override(tuple(key.split(".")), CommandLineText(text))


def _from_command_line(value: Any) -> Any:
    match value:
        case str():
            return CommandLineText(value)
        case list():
            return [_from_command_line(item) for item in value]
        case dict():
            return {key: _from_command_line(item) for key, item in value.items()}
    return value


def apply_overrides(data: dict[str, Any], places: dict[Path, str], overrides: Iterable[Override]) -> None:
    """Lay `overrides` over `data`, in place; `places` (where each key was given) follows.

    Their order matters only between two of the same key, where the last wins. Another `kind` than the file's
    starts its block anew, and `time.cfl` and `time.dt` remove the file's other one.
    """
    last = {override.path: override for override in overrides}
    # A whole block comes before its keys, its kind before its other keys.
    for override in sorted(last.values(), key=lambda o: (len(o.path), o.path[-1] != "kind")):
        if override.value is None:
            _remove(data, places, override.path)
            continue
        other = _EXCLUSIVE.get(override.path)
        if other and places.get(other) != override.place:
            _remove(data, places, other)
        if override.path[-1] == "kind" and _value(data, override.path) not in (None, override.value):
            _set(data, places, Override(override.path[:-1], {}, override.place))
        _set(data, places, override)


def _value(data: Any, path: Path) -> Any:
    for part in path:
        if not _has(data, part):
            return None
        data = data[part]
    return data


def _has(block: Any, part: str | int) -> bool:
    if isinstance(block, list):
        return isinstance(part, int) and part < len(block)
    return isinstance(block, dict) and part in block


def _forget(places: dict[Path, str], path: Path) -> None:
    for known in [known for known in places if known[: len(path)] == path]:
        del places[known]


def _remove(data: dict[str, Any], places: dict[Path, str], path: Path) -> None:
    block = _value(data, path[:-1])
    if _has(block, path[-1]):
        del block[path[-1]]
    _forget(places, path)


def _set(data: dict[str, Any], places: dict[Path, str], override: Override) -> None:
    block: Any = data
    path = override.path
    for depth, part in enumerate(path[:-1], start=1):
        if isinstance(block, dict):
            if block.get(part) is None:
                block[part] = {}
                places[path[:depth]] = override.place
            block = block[part]
        else:
            block = _entry(block, path, depth - 1, override)
    if isinstance(block, dict):
        block[path[-1]] = override.value
    else:
        _entry(block, path, len(path) - 1, override)
        block[path[-1]] = override.value
    _forget(places, path)
    _record(places, path, override.value, override.place)


def _entry(block: Any, path: Path, depth: int, override: Override) -> Any:
    part = path[depth]
    if _has(block, part):
        return block[part]
    problem = (
        f"{dotted(path[:depth])} has {len(block)} entries, counted from 0"
        if isinstance(block, list)
        else f"{dotted(path[:depth])} is {block!r}, no block of keys"
    )
    raise UserError(f"{override.place}: {dotted(path)}: {problem}")


def _record(places: dict[Path, str], path: Path, value: Any, place: str) -> None:
    places[path] = place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        _record(places, (*path, key), item, place)
