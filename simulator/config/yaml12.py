"""Reads and writes YAML by the rules of YAML 1.2's core schema, with the line of every key.

PyYAML scans and parses; the core schema of https://yaml.org/spec/1.2.2/#103-core-schema replaces
its YAML 1.1 rules (`no` is false, `1e-3` is text, `12:30` is 750, the last of two equal keys wins).
ruamel.yaml reads YAML 1.2 too, but the line of every key and the list of all mistakes would need
the same code on top of ruamel.yaml."""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer, ComposerError
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from simulator.errors import UserError, shortened, shown

# The position of a value in a document: keys of mappings, indices of lists.
Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
MOST_NODES = 100_000
_NAMED = {
    "\t": "a tab (indent with spaces)",
    "\ufeff": "a byte order mark (U+FEFF)",
    "\0": "the end",
    "\n": "the end of the line",
}
"""Names for invisible characters in PyYAML's messages."""
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
)


class _Resolver(BaseResolver):
    """Assigns tags to plain scalars; the first expression that matches the whole text wins."""


for _name, _expression, _first in _CORE_SCHEMA:
    _whole = re.compile(rf"(?:{_expression})\Z")
    _Resolver.add_implicit_resolver(
        _TAG + _name, _whole, [*_first] + ([""] if _name == "null" else [])
    )


class _Loader(Reader, Scanner, Parser, Composer, _Resolver):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Resolver.__init__(self)
        self.count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.count += 1
        # Refuse during the scan, which takes a minute for a million values.
        if self.count > MOST_NODES:
            mark = self.peek_event().start_mark
            raise ComposerError(None, None, f"more than {MOST_NODES} values", mark)
        return super().compose_node(parent, index)


@dataclass(frozen=True)
class Document:
    """A YAML text as plain Python values, and the line (from 1) on which each value starts."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)


def dotted(path: Path) -> str:
    """A path as the user writes it: `grid.shape.0`."""
    return ".".join(map(str, path))


def beginning_of(path: Path) -> str:
    """The beginning of a message about the value at `path`, `grid.shape.0: `; empty for the whole
    document."""
    return f"{shortened(dotted(path), 200)}: " if path else ""


def path_of(key: str) -> Path:
    """The path of a key that the user writes as `grid.shape.0`."""
    return tuple(int(part) if part.isdecimal() else part for part in key.split(".") if part)


def has(block: object, part: str | int) -> bool:
    """Whether a value is a mapping with this key or a list with this index."""
    if isinstance(block, dict):
        return part in block
    return isinstance(block, list | tuple) and isinstance(part, int) and part < len(block)


def value_at(data: object, path: Path) -> Any:
    """The value at `path`; None if `data` has no such path."""
    value: Any = data
    for part in path:
        if not has(value, part):
            return None
        value = value[part]
    return value


def parse_yaml(text: str, name: str) -> Document:
    """The single document in `text`. Messages contain `name`, e.g. the name of the file.

    Raises UserError, one line per mistake: `name:line: key: what is wrong, what would be right`."""
    try:
        node = _Loader(text).get_single_node()
        if node is None:
            return Document(None, {(): 1})
        construction = _Construction(name)
        value = construction.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        for character, word in _NAMED.items():
            problem = problem.replace(f"character {character!r}", word).replace(
                repr(character), word
            )
        if error.context == "expected a single document in the stream":
            problem = "more than one document ('---'); keep one"
        raise UserError(f"{where}: unreadable YAML: {' '.join(problem.split())}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(
            f"{name}:{line}: unreadable YAML: a character that YAML does not allow"
        ) from None
    except RecursionError:
        raise UserError(f"{name}: unreadable YAML: nested too deeply") from None
    if construction.errors:
        raise UserError(*construction.errors)
    return Document(value, construction.lines)


class _Construction:
    """Constructs values from nodes, and collects all mistakes of a document instead of stopping at
    the first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Path, int] = {}
        self.errors: list[str] = []
        self._open: set[int] = set()

    def _error(self, node: yaml.Node, path: Path, message: str) -> None:
        self.errors.append(f"{self.name}:{node.start_mark.line + 1}: {beginning_of(path)}{message}")

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(self.lines) > MOST_NODES:
            raise UserError(f"{self.name}: more than {MOST_NODES} values; aliases multiply them")
        if id(node) in self._open:
            return self._error(node, path, "an alias that contains itself; write the values out")
        self._open.add(id(node))
        try:
            match node:
                case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                    return self._mapping(node, path)
                case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                    return [
                        self.value(item, (*path, index)) for index, item in enumerate(node.value)
                    ]
                case yaml.ScalarNode():
                    return self._scalar(node, path)
            return self._error(
                node, path, f"the tag {_short(node.tag)} is not allowed; leave it out"
            )
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                self._error(
                    key_node,
                    path,
                    "a key must be a name; put quotes around it if it is meant as one",
                )
                continue
            key = key_node.value
            here = (*path, key)
            if key == "<<" and key_node.style is None:  # in quotes it is ordinary text
                self._error(
                    key_node, here, "merge keys are not part of YAML 1.2; write the keys out"
                )
            elif key in result:
                first = self.lines[here]
                self._error(key_node, here, f"given twice, first on line {first}; keep one of them")
            else:
                self.lines[here] = key_node.start_mark.line + 1
                result[key] = self.value(value_node, here)
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = node.value
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null" if _matches("null", text):
                return None
            case "bool" if _matches("bool", text):
                return text.lower() == "true"
            case "int" if _matches("int", text):
                if len(text) > 300:  # no floating-point number is as large
                    return self._error(node, path, "a whole number of more than 300 digits")
                return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
            case "float" if _matches("float", text) or _matches("int", text):
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            case "null" | "bool" | "int" | "float" as tag:
                return self._error(node, path, f"{shown(text)} is no {tag}")
        return self._error(node, path, f"the tag {_short(node.tag)} is not allowed; leave it out")


def _matches(tag: str, text: str) -> bool:
    return any(
        name == tag and re.fullmatch(expression, text) for name, expression, _ in _CORE_SCHEMA
    )


def _short(tag: str) -> str:
    return shortened(tag.replace(_TAG, "!!"))


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, value: str) -> yaml.Node:
    # Text that a YAML 1.2 reader would not read as text is quoted (PyYAML knows only the rules of
    # 1.1). Text with control characters and line ends gets double quotes, because PyYAML's single
    # quotes do not preserve these.
    special = any(re.fullmatch(expression, value) for _, expression, _ in _CORE_SCHEMA)
    style = "'" if special else None if value.isprintable() else '"'
    return dumper.represent_scalar(_TAG + "str", str(value), style=style)


_Dumper.add_multi_representer(str, _represent_text)
_Dumper.add_representer(str, _represent_text)


def dump_yaml(value: object) -> str:
    """`value` (mappings, lists, text, numbers) as YAML that readers of YAML 1.1 and 1.2 read
    alike."""
    return yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )
