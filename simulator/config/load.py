"""Reads configurations from files and writes them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from simulator.config.blocks import FURTHER, OutputSettings
from simulator.config.messages import mistakes_in
from simulator.config.overrides import Override, apply_overrides, parse_override, text_override
from simulator.config.run_config import BLOCKS, Places, RunConfig, named_blocks, run_config_class
from simulator.config.yaml12 import Document, dump_yaml, parse_yaml
from simulator.config.yaml12 import Path as KeyPath
from simulator.errors import UserError, printable
from simulator.settings import Settings
from simulator.words import each_leaf

Kind = TypeVar("Kind", bound=Settings)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_MOST_BYTES = 1 << 24  # More than any configuration has; endless files such as /dev/zero end there.


class FileKind(NamedTuple):
    """A kind of file."""

    key: str  # The key by which the kind is recognized.
    needs: str  # The text for an empty file.
    command: str  # The kind, and the command for it, for a file of another kind.


RUN = FileKind(
    "model", "a run needs at least model, initial and time.stop", "a run: simulator run FILE"
)
SWEEP = FileKind(
    "sweep", "a sweep needs at least base and sweep", "a sweep: simulator sweep plan FILE"
)


class FileSettings(Settings):
    """Settings of a kind of file. A plugin declares its own as `file.NAME` of
    `simulator.settings`."""

    file_kind: ClassVar[FileKind]


def _other_kinds(kind: FileKind) -> Iterator[FileKind]:
    plugins = FURTHER.beginning_with("file.").values()
    kinds = [settings.file_kind for settings in plugins if issubclass(settings, FileSettings)]
    yield from (other for other in (RUN, SWEEP, *kinds) if other != kind)


def read_yaml(path: str | os.PathLike[str], of: FileKind | None = RUN) -> Document:
    """The document in the file at `path`, a mapping. Raises UserError if the file is missing,
    unreadable, empty or of another kind than `of`. If `of` is None, the file may be empty."""
    name = printable(os.fspath(path))
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UserError(
                f"{name}: larger than {_MOST_BYTES >> 20} MiB, so it is not a configuration"
            )
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{name}: is a folder; name a YAML file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}:{line}: unreadable YAML: not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{name}: cannot be read: {reason}") from None
    document = parse_yaml(text, name)
    if document.value is None:
        if of is None:
            return Document({}, document.lines)
        raise UserError(f"{name}:1: empty; {of.needs}")
    if not isinstance(document.value, dict):
        raise UserError(
            f"{name}:{document.lines[()]}: keys and values are needed, e.g. 'time: {{stop: 1}}'"
        )
    if of is not None and of.key not in document.value:
        for other in _other_kinds(of):
            if other.key in document.value:
                line = document.lines[other.key,]
                raise UserError(f"{name}:{line}: this is {other.command.replace('FILE', name)}")
    return document


def load_config(
    path: str | os.PathLike[str],
    overrides: Iterable[str | Override] = (),
    *,
    output: str | None = None,
    check_files: bool = True,
    text: str | None = None,
) -> RunConfig:
    """The run that the YAML file at `path` describes, with `key.path=value` overrides applied.
    `text` takes the place of the file's content.

    `output`: the run folder, which replaces any `output.directory`. `check_files=False` accepts
    input files that no longer exist (when the record of a finished run is read). Raises UserError
    with one line per mistake, `file:line: key: what is wrong, what would be right`."""
    if output is not None:
        overrides = [*overrides, text_override("output.directory", output)]
    return ConfigFile(path, check_files=check_files, text=text).config(overrides)


class ConfigFile:
    """A run's file, which is read once for many configurations that differ by their overrides.

    A block that equals the same block of an earlier configuration is not validated again; the
    configurations share it."""

    def __init__(
        self, path: str | os.PathLike[str], *, check_files: bool = True, text: str | None = None
    ):
        """Raises UserError as `read_yaml` does."""
        name = os.fspath(path)
        self._document = read_yaml(path) if text is None else parse_yaml(text, name)
        self._places = _places(self._document, name)
        self._context = _context(name, check_files) | {BLOCKS: {}}

    def config(self, overrides: Iterable[str | Override] = ()) -> RunConfig:
        """The run with these overrides. Raises UserError as `load_config` does."""
        parsed = []
        errors = []
        for override in overrides:
            try:
                parsed.append(parse_override(override) if isinstance(override, str) else override)
            except UserError as error:
                errors.extend(error.args)
        if errors:
            raise UserError(*errors)
        data = each_leaf(self._document.value, lambda value: value)
        places = dict(self._places)
        apply_overrides(data, places, parsed)
        return _made(data, self._context, Places(places))


def output_directory(path: str | os.PathLike[str]) -> Path:
    """The folder of the run that the YAML file at `path` describes. Validates no other key, and so
    needs no JAX. Raises UserError as `read_yaml` does, or if the folder cannot be used."""
    name = os.fspath(path)
    document = read_yaml(path)
    blocks = named_blocks(document.value, usable_stem(name))
    output = blocks["output"] if isinstance(blocks["output"], Mapping) else {}
    context = _context(name)
    data = {key: item for key, item in output.items() if key == "directory"}
    return _checked(OutputSettings, data, context, Places(_places(document, name))).directory


def make_config(blocks: Mapping[str, Any]) -> RunConfig:
    """The run that `blocks` describe: mappings or settings objects by name. Paths are relative to
    the current folder. Raises UserError like `load_config`."""
    data = {name: block for name, block in blocks.items() if block is not None}
    return _made(data, {"folder": os.getcwd(), "name": "run"}, Places({(): "Simulation"}))


def parse_config(text: str, name: str) -> RunConfig:
    """The run in `text`, which `dump_config` wrote; input files need not exist. Messages contain
    `name`."""
    document = parse_yaml(text, name)
    if not isinstance(document.value, dict):
        raise UserError(f"{name}: not a configuration")
    context = _context(name, check_files=False)
    return _made(document.value, context, Places(_places(document, name)))


def _places(document: Document, name: str) -> dict[KeyPath, str]:
    name = printable(name)
    return {key: f"{name}:{line}" for key, line in document.lines.items()}


def _context(name: str, check_files: bool = True) -> dict[str, Any]:
    """The facts about the file `name` that validators use."""
    folder = os.path.dirname(os.path.abspath(name))
    return {"folder": folder, "check_files": check_files, "name": usable_stem(name)}


def usable_stem(name: str) -> str:
    """The name of a file as the name of a folder and a job."""
    return re.sub(r"[^\w.+-]", "_", Path(name).stem)


def _made(data: dict[str, Any], context: dict[str, Any], places: Places) -> RunConfig:
    try:
        config = _checked(run_config_class(_words_of(data)), data, context, places)
    except UserError:  # said again with the names of all parts, which may have been misspelt
        config = _checked(run_config_class(), data, context, places)
    config._places = places
    return config


def _words_of(data: Mapping[str, Any]) -> Iterator[str]:
    """The names of parts in the data of a run, among others: its keys, those of `output`, and every
    text."""
    output = data.get("output")
    yield from map(str, data)
    yield from map(str, dict(output) if isinstance(output, BaseModel | Mapping) else ())
    yield from _texts_in(data)


def _texts_in(item: object) -> Iterator[str]:
    match item:
        case str():
            yield item
        case BaseModel() | Mapping():
            yield from _texts_in([*dict(item).values()])
        case list() | tuple():
            for value in item:
                yield from _texts_in(value)


def _checked(
    kind: type[Kind], data: dict[str, Any], context: dict[str, Any], places: Places
) -> Kind:
    try:
        return kind.model_validate(data, context=context)
    except ValidationError as error:
        raise mistakes_in(error, kind, data, places) from None


def read_settings(
    path: str | os.PathLike[str],
    kind: type[Kind],
    defaults: Mapping[str, Any] = _NOTHING,
    replacements: Mapping[str, Any] = _NOTHING,
) -> tuple[Kind, Places]:
    """The settings in a file that describes no run, and the origins of its keys. `defaults` has
    values of keys that the file lacks, `replacements` replaces the file's. Raises UserError, a line
    for each mistake."""
    document = read_yaml(path, kind.file_kind if issubclass(kind, FileSettings) else None)
    name = printable(os.fspath(path))
    places = Places(_places(document, name))
    return _checked(
        kind, {**defaults, **document.value, **replacements}, _context(os.fspath(path)), places
    ), places


def as_mapping(config: RunConfig) -> dict[str, Any]:
    """The resolved configuration as plain mappings, lists, text and numbers, without keys that are
    None."""
    return {name: _plain(block) for name, block in _blocks(config)}


def _blocks(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """The blocks of a configuration by name, without those that are None."""
    for name in type(config).model_fields:
        if (block := getattr(config, name)) is not None:
            yield name, block


def _plain(item: object) -> Any:
    # pydantic's JSON mode would turn an infinite parameter of a user's function into null.
    match item:
        case BaseModel():
            return _plain(item.model_dump(exclude_none=True))
        case Mapping():
            return {key: _plain(value) for key, value in item.items()}
        case list() | tuple():
            return [_plain(value) for value in item]
        case str() | os.PathLike():
            return str(item)
    return item


def dump_config(config: RunConfig) -> str:
    """`config` as YAML that reads back as the same configuration, with every number exact."""
    return ConfigTexts().of(config)


_NEXT = "next"


class ConfigTexts:
    """Writes configurations as YAML; blocks that several configurations share only once."""

    def __init__(self) -> None:
        # The block itself is stored, too, so that no other object gets its id.
        self._texts: dict[tuple[str, int], tuple[Any, str]] = {}

    def of(self, config: RunConfig) -> str:
        """See `dump_config`."""
        return "".join(self._text(name, block) for name, block in _blocks(config))

    def _text(self, name: str, block: object) -> str:
        key = name, id(block)
        if key not in self._texts:
            # A second block keeps PyYAML from writing a single number in braces.
            text = dump_yaml({name: _plain(block), _NEXT: {}})
            self._texts[key] = block, text.removesuffix(f"{_NEXT}: {{}}\n")
        return self._texts[key][1]


def json_schema() -> dict[str, Any]:
    """The JSON schema of a run's file, for editors."""
    schema = run_config_class().model_json_schema()
    # `output.directory`, by default outputs/NAME, is the only key whose default depends on another
    # key.
    schema["required"].remove("output")
    schema["$defs"]["OutputSettings"].pop("required")
    for definition in schema["$defs"].values():
        if "kind" in definition.get("properties", {}):
            definition["required"] = sorted({"kind", *definition.get("required", [])})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
