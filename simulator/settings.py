"""The base class of all settings classes and the types of their values.

Every part defines its settings in its own file (`NavierStokesSettings` in
`physics/models/navier_stokes.py`); `simulator/config` assembles them into the description of a
run."""

import ast
import inspect
import math
import operator
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError

from simulator.errors import shortened, shown


class Settings(BaseModel):
    """Base of every settings class: immutable, unknown keys refused, defaults checked.

    The string under a field is its description in the exported JSON schema."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, defer_build=True
    )

    @classmethod
    def meaning(cls, name: str) -> str:
        """The description of a field: that of its `Field`, else the string under it, read from the
        source on demand because reading all of them takes as long as a fifth of the imports of a
        command."""
        description = cls.model_fields[name].description
        return description or next(
            (m[name] for base in cls.__mro__ if name in (m := _strings_under_fields(base))), ""
        )

    def further_files(self) -> Mapping[str, Sequence[Path]]:
        """The files, by key, that belong to the input file which that key names, such as the other
        files of a snapshot."""
        return {}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Any:
        schema = handler(core_schema)
        for name, property in handler.resolve_ref_schema(schema).get("properties", {}).items():
            if meaning := cls.meaning(name):
                property["description"] = meaning
        return schema


@cache
def _strings_under_fields(cls: type) -> Mapping[str, str]:
    """Empty if the class has no source of its own, such as a class made by `create_model`."""
    try:
        source: Any = (
            ast.parse(dedent(inspect.getsource(cls))) if issubclass(cls, Settings) else None
        )
    except (OSError, TypeError):
        return {}
    descriptions = {}
    for pair in pairwise(source.body[0].body if source else ()):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                descriptions[name] = inspect.cleandoc(text)
    return descriptions


def walk(item: object, key: str = "", annotation: object = None) -> Iterator[tuple[str, Any, Any]]:
    """An item and all items inside it, each with its dotted key and with its annotation if it is a
    setting."""
    yield key, item, annotation
    inner: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(item, Settings):
        inner = (
            (name, getattr(item, name), f.annotation) for name, f in type(item).model_fields.items()
        )
    elif isinstance(item, Mapping):
        inner = ((name, value, None) for name, value in item.items())
    elif isinstance(item, tuple | list):
        inner = ((i, value, None) for i, value in enumerate(item))
    for name, value, of in inner:
        yield from walk(value, f"{key}.{name}" if key else str(name), of)


def with_value(settings: Any, key: str, value: Any) -> Any:
    """Settings with another value of `key` (`model.scalars.0.diffusivity`), which exists, not
    validated."""
    name, _, rest = key.partition(".")
    if isinstance(settings, tuple | list):
        i = int(name)
        inner = with_value(settings[i], rest, value) if rest else value
        return (*settings[:i], inner, *settings[i + 1 :])
    if isinstance(settings, Mapping):  # parameters of a user's equation or function
        inner = with_value(settings[name], rest, value) if rest else value
        return {**settings, name: inner}
    assert isinstance(settings, Settings)
    inner = with_value(getattr(settings, name), rest, value) if rest else value
    return settings.model_copy(update={name: inner})


def wrong(key: str, message: str) -> PydanticCustomError:
    """The error of a validator of several keys that blames `key`: `raise wrong("dt", "...")`.

    `key` is relative to the validator's class; dots separate nested keys."""
    return PydanticCustomError("wrong_key", "{message}", {"key": key, "message": message})


def refuse_key(data: object, key: str, cure: str) -> None:
    """Refuses a key that `data`, a block before validation, can no longer have; for validators of
    mode "before"."""
    if isinstance(data, Mapping) and key in data:
        raise wrong(key, cure)


def check_names_differ(key: str, names: Sequence[str], others: Sequence[str] = ()) -> None:
    """Refuses a name of the list `key` that stands before in the list, or among `others`."""
    for index, name in enumerate(names):
        if name in names[:index] or name in others:
            raise wrong(f"{key}.{index}.name", f"{name} is taken; choose another name")


class RootedText(str):
    """Text in which a relative input path starts at `folder`, by default the current folder, and
    not at the folder of the configuration file: text from the command line or from the file of a
    sweep."""

    folder = ""

    def from_folder(self, folder: str) -> Self:
        self.folder = folder
        return self


ARITHMETIC: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
"""The operators of a formula."""
_NAMES = {"pi": math.pi, "e": math.e}
_FUNCTIONS = {"sqrt": math.sqrt, "exp": math.exp, "log": math.log}
_LONGEST_EXPRESSION = 1000
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def evaluated(
    node: ast.expr,
    names: Mapping[str, Any],
    functions: Mapping[str, Callable[[Any], Any]],
    operators: Mapping[type, Callable[..., Any]] = ARITHMETIC,
) -> Any:
    """The value of a formula of numbers, `names`, `functions` and `operators`. Raises TypeError for
    other syntax."""

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in operators:
                return operators[type(op)](value(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in operators:
                return operators[type(op)](value(left), value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in operators:
                return operators[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if (
                name in functions
            ):
                return functions[name](value(argument))
        raise TypeError(
            f"{ast.unparse(node)}: only numbers, + - * / **, {', '.join((*names, *functions))} are known"
        )

    return value(node)


def evaluate_number(text: str) -> float:
    """Value of an arithmetic expression such as `2*pi` or `1/1600`.

    Raises ValueError if `text` has more than numbers, + - * / **, parentheses, pi, e, sqrt, exp and
    log."""
    try:
        if len(text) > _LONGEST_EXPRESSION:
            raise ValueError(text)
        return float(evaluated(ast.parse(text.strip(), mode="eval").body, _NAMES, _FUNCTIONS))
    except (SyntaxError, ArithmeticError, ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(
            f"{shown(text)} is not a number; write e.g. 0.5, 1e-3, 2*pi or 1/1600"
        ) from None


def _number(value: object) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return evaluate_number(value) if isinstance(value, str) else value


def _moment(value: object) -> Any:
    if isinstance(value, Mapping) and [*value] in (["scale_factor"], ["redshift"]):
        raise ValueError(
            f"{next(iter(value))} needs an expanding box, model.background; give a time"
        )
    return _number(value)


def _whole(value: object) -> Any:
    if isinstance(value, bool):
        raise ValueError("a whole number is needed, not true or false")
    if isinstance(value, str):
        raise ValueError(f"a whole number is needed, not {shown(value)}")
    return value


def _seconds(value: object) -> Any:
    if isinstance(value, str) and (parts := re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+)\s*", value)):
        if parts[2] not in _UNITS:
            raise ValueError(f"{shown(parts[2])} is not a unit of time; use s, min, h or d")
        return evaluate_number(parts[1]) * _UNITS[parts[2]]
    return _number(value)


# Bounds of dimensional numbers, of which products of six are finite in double precision.
LARGEST = 1e50
SMALLEST = 1e-50
# Bounds of lengths and times: k^4 times two other numbers is finite.
LONGEST = 1e30
SHORTEST = 1e-30


def _within(least: float, most: float) -> AfterValidator:
    """Validates that a number is zero or has a magnitude from `least` to `most`."""

    def check(value: float) -> float:
        if math.isfinite(value) and value and not least <= abs(value) <= most:
            raise ValueError(f"must lie between {least:g} and {most:g} in magnitude, not {value:g}")
        return value

    return AfterValidator(check)


def _seen_as(bound: FieldInfo) -> Any:
    """The JSON schema's type of a number that may be an expression."""
    return Annotated[float, bound] | str


Real = Annotated[
    float, BeforeValidator(_number, json_schema_input_type=float | str), _within(SMALLEST, LARGEST)
]
"""A number or an expression such as `2*pi`; zero, or from 1e-50 to 1e50 in magnitude."""
_AboveZero = Annotated[
    float, Field(gt=0), BeforeValidator(_number, json_schema_input_type=_seen_as(Field(gt=0)))
]
Positive = Annotated[_AboveZero, _within(SMALLEST, LARGEST)]
_FromZero = Annotated[
    float, Field(ge=0), BeforeValidator(_number, json_schema_input_type=_seen_as(Field(ge=0)))
]
NonNegative = Annotated[_FromZero, _within(SMALLEST, LARGEST)]
Length = Annotated[_AboveZero, _within(SHORTEST, LONGEST)]  # A side of the box.
Duration = Annotated[_AboveZero, _within(SHORTEST, LONGEST)]  # A simulation time.
_Moment = Annotated[
    float, Field(gt=0), BeforeValidator(_moment, json_schema_input_type=float | str | dict)
]
Moment = Annotated[_Moment, _within(SHORTEST, LONGEST)]
"""A simulation time; the file of an expanding run may give a scale factor or a redshift, see
`physics.models.expansion`."""
Ratio = Annotated[_AboveZero, _within(1e-6, 1e6)]  # A dimensionless number from 1e-6 to 1e6.
Seconds = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(_seconds, json_schema_input_type=_seen_as(Field(gt=0))),
    _within(1e-3, 1e9),
]
"""A wall-clock time: seconds, or `10min`, `2h`; from a millisecond to thirty years."""
Integer = Annotated[int, BeforeValidator(_whole)]  # `1e6` is accepted, `true` and `'3'` are not.
# Such as a number of steps.
Count = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(_whole)]
Points = Annotated[int, Field(ge=1, le=2**16), BeforeValidator(_whole)]  # The extent of an array.
Few = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_whole)]  # Such as a number of solitons.
Seed = Annotated[int, Field(ge=0, lt=2**32), BeforeValidator(_whole)]  # Of random numbers.


def entries(needed: str, *lengths: int) -> BeforeValidator:
    """Validates that a value is a list with one of these `lengths`. `needed` is the beginning of
    the message."""

    def check(value: object) -> Any:
        if not isinstance(value, list | tuple) or len(value) not in lengths:
            raise ValueError(f"{needed}, not {shown(value)}")
        return value

    return BeforeValidator(check)


Vector = Annotated[
    tuple[Real, Real, Real], entries("three numbers are needed, one for each of x, y and z", 3)
]
"""A number for each of x, y and z."""
# One entry for each axis.
ONE_TO_THREE: Any = Field(json_schema_extra={"minItems": 1, "maxItems": 3})
AxisVector = Annotated[
    tuple[Real, ...], ONE_TO_THREE, entries("a number for each axis of the grid is needed", 1, 2, 3)
]
"""A number for each axis of the grid; `models.fields.along_axes` compares it with the grid."""
Flag = Annotated[bool, Strict()]  # Without the texts and numbers that pydantic would convert.


_LONGEST_NAME = 255
_LONGEST_PATH = 4095
_ROOM_BELOW = 128  # Bytes that a run appends to the path of its folder, as for a temporary shard.


def _expand(value: object) -> str:
    """The path `value` with `~` and environment variables expanded. Raises ValueError if `value` is
    not a path."""
    if not isinstance(value, str | os.PathLike) or not isinstance(path := os.fspath(value), str):
        raise ValueError(f"a path is needed, not {shown(value)}")
    if not path:
        raise ValueError("a path is needed, not an empty one")
    if "\0" in path:
        raise ValueError("a path cannot contain a null character")
    for name in re.findall(r"\$(?:(\w+)|\{(\w+)\})", path):
        if (variable := name[0] or name[1]) not in os.environ:
            raise ValueError(f"the environment variable {shortened(variable)} is not set")
    expanded = os.path.expanduser(os.path.expandvars(path))
    if expanded.startswith("~"):
        user = shortened(expanded.partition("/")[0])
        raise ValueError(f"there is no user {user[1:]}; a folder of that name is ./{user}")
    return expanded


def _possible(path: str, room: int = 0) -> Path:
    """`path` made absolute. Raises ValueError if `path` with `room` more bytes is too long for the
    file system."""
    try:
        encoded = os.path.abspath(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"a path is UTF-8 text, not {shown(path)}") from None
    except OSError:
        raise ValueError("the current folder is gone; change to another one") from None
    longest = max(map(len, encoded.split(b"/")))
    for what, length, most in (
        ("the path", len(encoded), _LONGEST_PATH - room),
        ("a file or folder name", longest, _LONGEST_NAME),
    ):
        if length > most:
            raise ValueError(f"{what} is {length} bytes long; at most {most} are possible")
    return Path(encoded.decode())


def _input_path(value: object, info: ValidationInfo) -> Path:
    context = info.context or {}
    folder = value.folder if isinstance(value, RootedText) else context.get("folder", "")
    path = _possible(os.path.join(folder, _expand(value)))
    if context.get("check_files") and not os.path.exists(path):
        raise ValueError(f"{shortened(str(path), 200)} does not exist")
    if not _is_storage(path):
        raise ValueError(f"{shortened(str(path), 200)} is a pipe or a device; a file is needed")
    return path


def _is_storage(path: Path) -> bool:
    """Whether a path is no pipe, socket or device, whose bytes can be read once, or never end."""
    try:
        mode = path.stat().st_mode
    except OSError:  # says more when it is opened
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _output_path(value: object) -> Path:
    return _possible(_expand(value), _ROOM_BELOW)


InputPath = Annotated[Path, BeforeValidator(_input_path, json_schema_input_type=str)]
"""An existing file or folder. A relative path starts at the folder of the configuration file that
gives it or, on the command line and in Python, at the current folder; the value is absolute. `~`
and `$VARIABLE` are expanded."""
_EXECUTED = Field(json_schema_extra={"executed": True})
PythonFile = Annotated[InputPath, _EXECUTED]
Parameters = Annotated[dict[str, Any], Field(default_factory=dict)]
"""Keyword arguments of a user's function."""
"""An `InputPath` whose file is executed as Python."""
ShellText = Annotated[str, _EXECUTED]
"""Text that a shell executes."""
OutputPath = Annotated[Path, BeforeValidator(_output_path, json_schema_input_type=str)]
"""A folder to write to, made absolute from the current folder; `~` and `$VARIABLE` are expanded."""
