"""Lists every key of a run's file with type, default and meaning, from the settings classes: for
`simulator explain` and for the reference in the documentation."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simulator.config.load import json_schema

_NAMES = {
    "integer": "whole number",
    "string": "text",
    "boolean": "true or false",
    "array": "list",
    "object": "block",
}


@dataclass(frozen=True)
class Key:
    """A key of a run's file. In the dotted `path` N stands for a position in a list, NAME for a
    name that the user chooses."""

    path: str
    kind: str  # The kind of its block, e.g. "navier_stokes"; empty if the block has one kind.
    type: str
    default: str  # The default as YAML; empty if the key is required.
    meaning: str
    executed: bool = False  # Whether its value, or the file that it names, is executed.


def reference_keys(schema: Mapping[str, Any] | None = None) -> list[Key]:
    """All keys, in the order of the settings classes; a key of several kinds is listed once per
    kind."""
    schema = json_schema() if schema is None else schema
    listed = list(_of_block(schema, schema["$defs"], "", ""))
    choices: dict[str, list[str]] = {}
    for key in listed:
        if key.path.endswith(".kind"):
            choices.setdefault(key.path, []).append(key.type)
    merged = []
    for key in listed:
        if key.path not in choices:
            merged.append(key)
        elif key.type == choices[key.path][0]:  # one entry for the kinds of a block
            kinds = " | ".join(dict.fromkeys(choices[key.path]))
            merged.append(
                replace(
                    key, kind="", type=kinds, default="", meaning="Selects the kind of this block."
                )
            )
    return [replace(key, path=renamed(key.path)) for key in merged]


def renamed(path: str) -> str:
    """The path of a key of `model.cosmology` under the name `model.background`, by which pages and
    messages call it."""
    return re.sub(r"^model\.cosmology(?=\.|$)", "model.background", path)


def without_positions(path: str) -> str:
    """The path of a key without its places in lists: `terms.mask` of `terms.N.mask` or `terms.0.mask`."""
    return re.sub(r"\.(\d+|N)(?=\.|$)", "", path)


def _of_block(
    block: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str, kind: str
) -> Iterator[Key]:
    required = set(block.get("required", ()))
    for name, property in block.get("properties", {}).items():
        path = f"{prefix}{name}"
        value = property.get("default")
        meaning = property.get("description", "")
        default = (
            "none" if value is None else value if isinstance(value, str) else json.dumps(value)
        )
        if not meaning and "$ref" in property:  # that of the block which is the value
            meaning = definitions[property["$ref"].rpartition("/")[2]].get("description", "")
        meaning = " ".join(str(meaning).split())
        yield Key(
            path,
            kind,
            _type(property, definitions),
            "" if name in required else default,
            meaning,
            "executed" in property or any("executed" in choice for choice in _choices(property)),
        )
        for suffix, inner in _inner_blocks(property, definitions):
            inner_kind = (
                inner.get("properties", {}).get("kind", {}).get("const", kind if not suffix else "")
            )
            yield from _of_block(inner, definitions, f"{path}{suffix}.", inner_kind)


def _inner_blocks(
    property: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The blocks in the value of a key, as (suffix of the path, block): ".N" in a list, ".NAME" in
    a mapping, "" for the value itself. A list whose entry can stand alone has no blocks of its
    own."""
    choices = _choices(property)
    for choice in choices:
        if _lists(choice, choices):
            continue
        if "$ref" in choice:
            block = definitions[choice["$ref"].rpartition("/")[2]]
            if block.get("type") == "object":
                yield "", block
            else:
                yield from _inner_blocks(block, definitions)
        elif choice.get("type") == "array" and "items" in choice:
            yield from (
                (f".N{suffix}", block)
                for suffix, block in _inner_blocks(choice["items"], definitions)
            )
        elif choice.get("type") == "object" and isinstance(
            choice.get("additionalProperties"), dict
        ):
            inner = choice["additionalProperties"]
            yield from (
                (f".NAME{suffix}", block) for suffix, block in _inner_blocks(inner, definitions)
            )


def _choices(property: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    for word in ("anyOf", "oneOf", "allOf"):
        if word in property:
            return [inner for choice in property[word] for inner in _choices(choice)]
    return [property]


def _lists(choice: Mapping[str, Any], choices: list[Mapping[str, Any]]) -> bool:
    """Whether a choice is a list of what the other choices are alone."""
    return "items" in choice and all(entry in choices for entry in _choices(choice["items"]))


def _type(property: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    choices = _choices(property)
    said = (
        "list of such blocks" if _lists(c, choices) else _one_type(c, definitions) for c in choices
    )
    texts = list(dict.fromkeys(filter(None, said)))
    if "text" in texts and any(text.startswith("number") for text in texts):
        texts.remove("text")  # the text is an expression such as 2*pi
    return " or ".join(texts)


def _one_type(choice: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in choice:
        block = definitions[choice["$ref"].rpartition("/")[2]]
        kind = block.get("properties", {}).get("kind", {}).get("const")
        if block.get("type") == "object":
            return f"block {{kind: {kind}}}" if kind else "block"
        return _type(block, definitions)
    if "const" in choice:
        return str(choice["const"])
    if "enum" in choice:
        return " | ".join(map(str, choice["enum"]))
    if choice.get("type") == "null":
        return ""
    if "prefixItems" in choice:
        return f"list of {len(choice['prefixItems'])} {_plural(_type(choice['prefixItems'][0], definitions))}"
    if choice.get("type") == "array" and "items" in choice:
        return f"list of {_plural(_type(choice['items'], definitions))}"
    name = str(choice.get("type", "anything"))
    bounds = [
        f"{sign} {choice[key]:g}"
        for key, sign in (
            ("exclusiveMinimum", ">"),
            ("minimum", ">="),
            ("exclusiveMaximum", "<"),
            ("maximum", "<="),
        )
        if key in choice
    ]
    return " ".join([_NAMES.get(name, name), *bounds])


def _plural(type: str) -> str:
    noun = re.match(r"(whole number|number|block|list)\b", type)
    return f"{noun[0]}s{type[noun.end() :]}" if noun else type
