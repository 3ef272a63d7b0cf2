"""Applies `key.path=value` from the command line to the values of a file."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.config.blocks import REMOVES
from simulator.config.yaml12 import Path, beginning_of, dotted, has, parse_yaml, path_of, value_at
from simulator.errors import UserError, shortened, shown
from simulator.settings import RootedText
from simulator.words import each_leaf

COMMAND_LINE = "command line"
_EXCLUSIVE: Mapping[Path, tuple[Path, ...]] = {
    ("time", key): tuple(("time", other) for other in others) for key, others in REMOVES.items()
}


@dataclass(frozen=True)
class Override:
    """A value for the key at `path`, None to remove the key; `place` is the origin of the value in
    messages."""

    path: Path
    value: Any
    place: str = COMMAND_LINE


def parse_override(text: str) -> Override:
    """Parses `grid.shape=64,64,64`. The value is read by the rules of YAML 1.2; a comma outside of
    brackets and quotes makes it a list. Raises UserError: `command line: key: ...`."""
    key, separator, value = text.partition("=")
    key = key.strip()
    named = shortened(key, 200)
    if not separator:
        raise UserError(
            f"{COMMAND_LINE}: {shortened(text)}: an override is written key=value, e.g. time.stop=2"
        )
    if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)*", key):
        raise UserError(
            f"{COMMAND_LINE}: {shortened(text)}: a key is written with dots, e.g. time.stop=2"
        )
    if not value.strip():
        raise UserError(f"{COMMAND_LINE}: {named}: has no value; {named}=null removes the key")
    if "," in value and value.lstrip()[0] not in "[{'\"!&":
        value = f"[{value}]"
    try:
        document = parse_yaml(value, COMMAND_LINE)
    except UserError as error:
        reason = str(error).splitlines()[0].partition(": ")[2]
        raise UserError(
            f"{COMMAND_LINE}: {named}: {reason}; quotes around the value may help"
        ) from None
    on_line = each_leaf(document.value, lambda v: RootedText(v) if isinstance(v, str) else v)
    return Override(path_of(key), on_line)


def text_override(key: str, text: str) -> Override:
    """The override for an option whose argument is text and not YAML (`--output 7` names a
    folder)."""
    return Override(tuple(key.split(".")), RootedText(text))


def apply_overrides(
    data: dict[str, Any], places: dict[Path, str], overrides: Iterable[Override]
) -> None:
    """Apply `overrides` to `data` in place, and update `places` (the origin of each key).

    The last of several overrides of one key wins; otherwise their order does not matter. An
    override of `kind` with another value than in the file discards the rest of the block; an
    override of `time.cfl`, `time.dt` or `time.steps` removes the keys that it excludes."""
    last = {override.path: override for override in overrides}
    # A whole block comes before its keys, its kind before its other keys.
    for override in sorted(last.values(), key=lambda o: (len(o.path), o.path[-1] != "kind")):
        if override.value is None:
            _remove(data, places, override.path)
            continue
        for other in _EXCLUSIVE.get(override.path, ()):
            if places.get(other) != override.place:
                _remove(data, places, other)
        if override.path[-1] == "kind" and value_at(data, override.path) not in (
            None,
            override.value,
        ):
            _set(data, places, Override(override.path[:-1], {}, override.place))
        _set(data, places, override)


def _forget(places: dict[Path, str], path: Path) -> None:
    for known in [known for known in places if known[: len(path)] == path]:
        del places[known]


def _remove(data: dict[str, Any], places: dict[Path, str], path: Path) -> None:
    block = value_at(data, path[:-1])
    if has(block, path[-1]):
        del block[path[-1]]
    _forget(places, path)


def _set(data: dict[str, Any], places: dict[Path, str], override: Override) -> None:
    block: Any = data
    path = override.path
    for depth, part in enumerate(path, start=1):
        last = depth == len(path)
        if not isinstance(block, dict):
            _check_entry(block, path, depth - 1, override)
        elif not last and block.get(part) is None:
            block[part] = {}
            places[path[:depth]] = override.place
        if last:
            block[part] = override.value
        else:
            block = block[part]
    _forget(places, path)
    places |= {key: override.place for key, _ in values_by_path(override.value, path)}


def _check_entry(block: object, path: Path, depth: int, override: Override) -> None:
    if has(block, path[depth]):
        return
    named = shortened(dotted(path[:depth]), 200)
    entries = f"has {len(block)} entries, counted from 0" if isinstance(block, list) else None
    problem = f"{named} {entries or f'is {shown(block)}, not a block of keys'}"
    raise UserError(f"{override.place}: {beginning_of(path)}{problem}")


def values_by_path(value: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """A value and all values in its mappings and lists, each with its path."""
    yield path, value
    items = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from values_by_path(item, (*path, key))
