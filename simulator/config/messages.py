"""Translates pydantic's errors into lines that a user can act on.

`run.yaml:3: grid.bocks: unknown key, did you mean grid.box?`
"""

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from simulator.config.run_config import BLOCK, LIST, Places
from simulator.config.yaml12 import Path, beginning_of, dotted, has, path_of, value_at
from simulator.errors import UserError, did_you_mean, nearest, shown
from simulator.settings import Settings


def mistakes_in(
    error: ValidationError, settings: type[Settings], data: object, places: Places
) -> UserError:
    """The UserError with one line per mistake in `data`, in the order of the user's input."""
    mistakes: dict[tuple[Path, str], None] = {}
    for details in error.errors(include_url=False):
        path, message = _reworded(details, settings, data)
        if path[:2] == ("model", "cosmology") and ("model", "background") in places.by_path:
            path = ("model", "background", *path[2:])  # its other name
        if details["type"] == "missing":
            mistakes |= dict.fromkeys(_missing(path, settings, data))
        else:
            mistakes[path, message] = None
    order = {path: number for number, path in enumerate(places.by_path)}

    def rank(mistake: tuple[Path, str]) -> int:
        path = mistake[0]
        return next((order[path[:n]] for n in range(len(path), -1, -1) if path[:n] in order), -1)

    lines = (
        f"{places.of(path)}: {beginning_of(path)}{line}"
        for path, line in sorted(mistakes, key=rank)
    )
    return UserError(*lines)


def _reworded(details: ErrorDetails, settings: type[Settings], data: object) -> tuple[Path, str]:
    path, classes = _locate(details["loc"], settings, data)
    value = details["input"]
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            return path, "missing"
        case "extra_forbidden":
            return path, _unknown_key(path, settings, data)
        case "union_tag_not_found" if isinstance(value, Mapping):
            return (*path, "kind"), f"missing; one of {', '.join(_kinds(classes))}"
        case "union_tag_invalid":
            return (*path, "kind"), _unknown_name(value["kind"], _kinds(classes), "kind")
        case "literal_error" | "enum":
            word = "kind" if path[-1] == "kind" else "choice"
            return path, _unknown_name(value, _choices(path, settings, data, context), word)
        case "wrong_key":
            return (*path, *path_of(context["key"])), context["message"]
        case "value_error" | "assertion_error":
            return path, str(context["error"])
        case "none_required":
            return path, "this version has none; leave the key out"
    if value is None:
        return path, "has no value; give one, or leave the key out"
    return path, _wrong_type(details, classes)


_BLOCK = "a block of keys is needed"
_NEEDED = {
    "float_type": "a number is needed",
    "float_parsing": "a number is needed",
    "int_type": "a whole number is needed",
    "int_parsing": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "int_parsing_size": "a smaller whole number is needed",
    "finite_number": "a finite number is needed",
    "bool_type": "true or false is needed",
    "bool_parsing": "true or false is needed",
    "string_type": "text is needed (in quotes, where it looks like something else)",
    "string_unicode": "text is needed",
    "tuple_type": "a list is needed, e.g. [a, b]",
    "list_type": "a list is needed, e.g. [a, b]",
    "dict_type": _BLOCK,
    "model_type": _BLOCK,
    "model_attributes_type": _BLOCK,
    "union_tag_not_found": _BLOCK,
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "at least {min_length} entries are needed",
    "too_long": "at most {max_length} entries are allowed",
}
"""The condition that a value does not meet, by the type of pydantic's error."""


def _wrong_type(details: ErrorDetails, classes: tuple[type[Settings], ...]) -> str:
    value = shown(details["input"])
    limits = {name: _limit(limit) for name, limit in details.get("ctx", {}).items()}
    needed = _NEEDED.get(details["type"], "").format_map(limits)
    needed = needed or details["msg"].replace("Input should", "should")
    if needed == _BLOCK and (kinds := _kinds(classes)):
        needed += f", e.g. {{kind: {nearest(details['input'], kinds) or kinds[0]}}}"
    return f"{needed}, not {value}"


def refusal(settings: Settings, name: str, value: object) -> str | None:
    """The message that refuses another value of a key by its own bounds; None if it fits."""
    try:
        type(settings).model_validate({**dict(settings), name: value})
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        return next((_wrong_type(m, ()) for m in mistakes if m["loc"][:1] == (name,)), None)
    return None


def _limit(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unknown_name(value: object, known: list[str], word: str) -> str:
    return f"unknown {word} {shown(value)}{did_you_mean(value, known)} known: {', '.join(known)}"


def _unknown_key(path: Path, settings: type[Settings], data: object) -> str:
    cls, others = _block(path[:-1], settings, data)
    known = list(cls.model_fields) if cls else []
    if kinds := _kinds(other for other in others if path[-1] in other.model_fields):
        return f"unknown key; kind {kinds[0]} has it, known here: {', '.join(known)}"
    same = [key for key in all_keys(settings, data) if key[-1] == path[-1]]
    # A key that many blocks have is not the one that was meant, unless it is in a block of this one.
    below = [key for key in same if key[:-2] == path[:-1]]
    misplaced = below[0] if below else same[0] if len(same) == 1 else None
    close = nearest(path[-1], known)
    if longer := [key for key in known if key.startswith(f"{path[-1]}_")]:
        return f"unknown key, did you mean {' or '.join(dotted((*path[:-1], k)) for k in longer)}?"
    meant = misplaced or ((*path[:-1], close) if close else None)
    if meant:
        return f"unknown key, did you mean {dotted(meant)}?"
    return f"unknown key; known here: {', '.join(known)}"


def all_keys(settings: type[Settings], data: object, path: Path = ()) -> list[Path]:
    """Every key of the blocks with their chosen kinds."""
    keys: list[Path] = []
    for name, information in settings.model_fields.items():
        here = (*path, name)
        keys.append(here)
        classes = _classes(information.annotation)
        value = data.get(name) if isinstance(data, Mapping) else None
        chosen = _chosen(classes, _kind_of(value))
        for cls in chosen:
            keys += all_keys(cls, value, here)
    return keys


def _missing(path: Path, settings: type[Settings], data: object) -> list[tuple[Path, str]]:
    """The message for the missing key at `path`; for a missing block, a message for each of its
    required keys."""
    cls, _ = _block(path[:-1], settings, data)
    information = cls.model_fields.get(str(path[-1])) if cls else None
    if cls is None or information is None:
        return [(path, "missing")]
    classes = _classes(information.annotation)
    if kinds := _kinds(classes):
        return [((*path, "kind"), f"missing; one of {', '.join(kinds)}")]
    if names := _literals(information.annotation):
        return [(path, f"missing; one of {', '.join(names)}")]
    inner = classes[0].model_fields if classes else {}
    required = [(*path, name) for name, field in inner.items() if field.is_required()]
    if required:
        return [line for name in required for line in _missing(name, settings, data)]
    meaning = cls.meaning(str(path[-1])).split(";")[0].rstrip(".")
    return [(path, f"missing; it is required{f' ({meaning})' if meaning else ''}")]


def _block(
    path: Path, settings: type[Settings], data: object
) -> tuple[type[Settings] | None, tuple[type[Settings], ...]]:
    """The settings class of the block at `path`, and the classes of the other kinds of this
    block."""
    classes = _locate(path, settings, data, plain=True)[1]
    value = value_at(data, path)
    cls = next(iter(_chosen(classes, _kind_of(value))), None)
    return cls, tuple(other for other in classes if other is not cls)


def _locate(
    location: tuple[str | int, ...], settings: type[Settings], data: object, plain: bool = False
) -> tuple[Path, tuple[type[Settings], ...]]:
    """The path in the user's data of pydantic's `location`, which also names branches of unions,
    and the settings classes that are possible at this path. `plain`: the location is a path
    already."""
    path: Path = ()
    annotation: Any = settings
    value = data
    for part in location:
        if isinstance(part, int) and isinstance(value, Mapping) and part not in value:
            continue  # one block in the place of a list of blocks
        if part in (BLOCK, LIST):
            continue  # the branch of a key that takes both
        classes = _classes(annotation)
        if len(classes) > 1:
            chosen = _chosen(classes, _kind_of(value))
            if not plain and chosen != classes and part in _kinds(chosen):
                annotation = chosen[0]
                continue
            classes = chosen
        information = classes[0].model_fields.get(str(part)) if len(classes) == 1 else None
        if information is not None:
            annotation = information.annotation
        elif len(classes) == 1 and isinstance(value, Mapping) and has(value, part):
            annotation = None
        elif has(value, part):
            annotation = _item(annotation, part)
        else:
            continue  # the branch of a union of plain types
        path = (*path, part)
        value = value_at(value, (part,))
        if isinstance(value, Mapping):  # one block may stand for a list of blocks
            inner = annotation
            while get_origin(inner) in (Union, UnionType, Annotated):
                inner = get_args(inner)[0]
            annotation = (
                get_args(inner)[0]
                if get_origin(inner) in (list, tuple) and get_args(inner)
                else annotation
            )
    return path, _classes(annotation)


def _chosen(classes: tuple[type[Settings], ...], kind: object) -> tuple[type[Settings], ...]:
    return tuple(cls for cls in classes if kind in _kinds((cls,))) or classes


def _kind_of(value: object) -> object:
    return value.get("kind") if isinstance(value, Mapping) else None


def _kinds(classes: Iterable[type[Settings]]) -> list[str]:
    fields = [cls.model_fields["kind"] for cls in classes if "kind" in cls.model_fields]
    return [kind for information in fields for kind in _literals(information.annotation)]


def _choices(
    path: Path, settings: type[Settings], data: object, context: Mapping[str, Any]
) -> list[str]:
    cls, _ = _block(path[:-1], settings, data)
    information = cls.model_fields.get(str(path[-1])) if cls else None
    return _literals(information.annotation) if information else [context.get("expected", "")]


def _literals(annotation: object) -> list[str]:
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return [word for argument in arguments for word in _literals(argument)]
    return [str(word) for word in arguments] if get_origin(annotation) is Literal else []


def _classes(annotation: object) -> tuple[type[Settings], ...]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return (annotation,)
    if get_origin(annotation) in (Union, UnionType):
        return tuple(cls for argument in get_args(annotation) for cls in _classes(argument))
    if get_origin(annotation) is Annotated:
        return _classes(get_args(annotation)[0])
    return ()


def _item(annotation: object, part: str | int) -> Any:
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType, Annotated):
        return next(
            (item for argument in arguments if (item := _item(argument, part)) is not None), None
        )
    if get_origin(annotation) is dict:
        return arguments[1]
    if get_origin(annotation) in (list, tuple) and arguments:
        fixed = isinstance(part, int) and part < len(arguments) and Ellipsis not in arguments
        return arguments[int(part)] if fixed else arguments[0]
    return None
