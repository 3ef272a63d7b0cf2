"""Functions of users' Python files: calls whose errors name file and line, and a check that they
work point by point.

Nonlinear terms are evaluated in blocks of points, separately on each device. A mean over the box, a
finite difference or a transform in them would silently see the points of one block only. The check
reads traced operations, without a device."""

import contextlib
import inspect
import pickle
import random
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import xxhash
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.extend.core import Literal as Constant
from jax.typing import DTypeLike

from simulator.errors import UserError, in_a_line
from simulator.spectral import Grid, Points, Transform


class UserFiles(Protocol):
    """Opens the files that a configuration names; passed in by the run, which keeps a copy of each
    file."""

    def function(
        self, path: str, name: str, what: Literal["function", "class"] = ...
    ) -> Callable[..., Any]:
        """The function or class `name` of a Python file."""
        ...

    def read(self, path: str) -> bytes:
        """The contents of a file."""
        ...

    def generators(self, path: str) -> "Generators | None":
        """The states that a Python file has given to the global generators of random numbers; None
        if it has left them alone."""
        ...

    def take_changed(self, path: str) -> None:
        """Use the original of a Python file of which the run keeps a copy, if it has changed and
        nothing has read the copy yet."""
        ...

    traces: dict[str, str]
    """Checksums of what users' functions compute, by file and function, if `compares` is set."""
    compares: bool


@dataclass(frozen=True)
class Generators:
    """The states of the global generators of random numbers, of Python's `random` and of numpy."""

    states: bytes

    @classmethod
    def now(cls) -> "Generators":
        return cls(pickle.dumps((random.getstate(), np.random.get_state())))

    @classmethod
    def seeded(cls, text: str) -> "Generators":
        """States that are the same in every process."""
        seed = zlib.crc32(text.encode())
        states = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()
        return cls(pickle.dumps(states))

    def set(self) -> None:
        python, numpy = pickle.loads(self.states)
        random.setstate(python)
        np.random.set_state(numpy)

    @contextlib.contextmanager
    def in_use(self) -> "Iterator[Generators]":
        """The generators begin with these states, and have their earlier ones afterwards."""
        before = Generators.now()
        self.set()
        try:
            yield self
        finally:
            before.set()


class Stored(Protocol):
    """Fields on disk, on their own grid; passed in by the run."""

    grid: Grid
    components: Mapping[str, tuple[int, ...]]  # Fields with their leading shapes.

    def coefficients(self, name: str, transform: Transform) -> jax.Array:
        """The coefficients of a field in the layout of `transform`, whose resolution may differ
        from that of the file: modes that are not stored are zero, and stored modes that the layout
        does not keep are left out."""
        ...


class FunctionKeys(Protocol):
    """Settings that name a function of a user's file."""

    @property
    def path(self) -> Path: ...
    @property
    def function(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class UserFunction:
    """A function of a user's file, which is called with `parameters` as keyword arguments."""

    function: Callable[..., Any]
    path: Path | str
    name: str
    arguments: str  # The arguments in words, for a message about numpy.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""  # The beginning of messages, such as "subgrid: ".
    line: int | None = None  # The line in messages about a result.
    files: UserFiles | None = None  # With them, the generators of random numbers are seeded.

    @classmethod
    def of(
        cls, files: UserFiles, settings: FunctionKeys, arguments: str, key: str = ""
    ) -> "UserFunction":
        """The function that settings with `path`, `function` and `parameters` name; `files` opens
        the file."""
        function = files.function(str(settings.path), settings.function)
        line = getattr(getattr(function, "__code__", None), "co_firstlineno", None)
        named = settings.path, settings.function, arguments, settings.parameters
        return cls(function, *named, key, line, files)

    def __call__(self, *arguments: Any) -> Any:
        """The result. Raises UserError, with the user's line, for any error in the function.

        The global generators of random numbers start from the same state in every process and at
        every call: the user's, or one that follows from file, function and parameters."""
        with contextlib.suppress(ValueError):  # some callables have no signature
            signature = inspect.signature(self.function)
            try:
                bound = signature.bind(*arguments, **self.parameters).arguments
            except TypeError as error:
                names = ", ".join(self.parameters)
                called = f"{len(arguments)} arguments ({self.arguments})"
                called += f" and {f'the parameters {names}' if names else 'no parameters'}"
                raise self.refused(
                    f"takes {signature}, and is called with {called}: {error}"
                ) from None
            for axis in sorted(self._absent & bound.keys() - {*self.parameters}):
                raise self.refused(f"takes {signature}; there is no {axis}, but {self.arguments}")
        call = partial(self.function, *arguments, **self.parameters)
        try:
            if self.files is None:
                return call()
            with self._generators.in_use():
                result = call()
                trace(self.files, f"{self.path}: {self.name}", call)
            return result
        except UserError:
            raise
        except jax.errors.JAXTypeError as error:
            raise self.refused(
                f"uses numpy, or an if, on {self.arguments}; use jax.numpy instead, with jnp.where for an if",
                error,
            ) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.refused(in_a_line(error), error) from error

    @property
    def _absent(self) -> set[str]:
        """The axes of space that the grid of a function of place lacks."""
        return {a for words, axes in _COORDINATES.items() if words in self.arguments for a in axes}

    @property
    def _generators(self) -> Generators:
        assert self.files is not None
        text = f"{Path(self.path).name}:{self.name}:{self.parameters}"
        return self.files.generators(str(self.path)) or Generators.seeded(text)

    def refused(self, problem: str, error: BaseException | None = None) -> UserError:
        """The error about a problem of the function; `error` gives the line."""
        frames = [] if error is None else traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(self.path)]
        line = lines[-1] if lines else self.line
        place = f"{self.path}:{line}" if line else self.path
        return UserError(f"{self.key}{place}: {self.name}: {problem}")

    def values(
        self,
        result: Any,
        lead: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: DTypeLike,
        name: str = "its result",
    ) -> jax.Array:
        """A result, or the part `name` of one, as an array (*lead, *shape). Raises UserError for
        values of another shape, and for complex ones unless `dtype` is complex."""
        try:
            if lead:
                if len(result) != lead[0]:
                    raise ValueError(f"{lead[0]} components are needed, not {len(result)}")
                result = jnp.stack([jnp.broadcast_to(jnp.asarray(v), shape) for v in result])
            array = jnp.broadcast_to(jnp.asarray(result), (*lead, *shape))
        except (TypeError, ValueError) as error:
            raise self.refused(f"{name}: {error}") from None
        if jnp.iscomplexobj(array) and not jnp.issubdtype(dtype, jnp.complexfloating):
            raise self.refused(f"{name} is complex; real values are needed")
        return array.astype(dtype)

    def by_field(
        self,
        result: Any,
        leads: Mapping[str, tuple[int, ...]],
        shape: tuple[int, ...],
        dtype: DTypeLike,
        what: str,
    ) -> dict[str, jax.Array]:
        """A result by field as arrays (*leads[name], *shape). Raises UserError for another result,
        and for a field that is not in `leads`; `what`: the result in words."""
        if not isinstance(result, Mapping) or not result:
            raise self.refused(f"a dict of {what} by field is needed, not {result!r}")
        if unknown := [name for name in result if name not in leads]:
            raise self.refused(
                f"returned {unknown[0]!r}; {what} of {', '.join(leads)} are possible"
            )
        return {n: self.values(v, leads[n], shape, dtype, n) for n, v in result.items()}

    def check_pointwise(self, traced: ClosedJaxpr, advice: str) -> None:
        """Raises UserError if the function, `traced` on a block of `POINTS`, uses values at several
        points."""
        if (mixed := mixing(traced)) is None:
            return
        operation, trace = mixed
        lines = [f.line_num for f in getattr(trace, "frames", ()) if f.file_name == str(self.path)]
        place = replace(self, line=lines[0]) if lines else self
        raise place.refused(f"uses {operation}, but it sees the points of one block only; {advice}")


POINTS = (101, 103, 107)
"""Extents of a block that no other axis has, which identify axes of points."""


_COORDINATES = {
    "the coordinate x of a line": "yz",
    "the coordinates x and y of a plane": "z",
    "the coordinates x, y and z": "",
}
"""The arguments of functions of place by the number of dimensions, and the axes that are not there."""


def coordinates(grid: Grid) -> str:
    """The arguments of a function of place, in words."""
    return [*_COORDINATES][grid.dimensions - 1]


def traced_values(
    leads: Mapping[str, tuple[int, ...]], dtype: DTypeLike
) -> dict[str, jax.ShapeDtypeStruct]:
    """Fields with these leading shapes on a block of `POINTS`, with which functions are traced."""
    return {n: jax.ShapeDtypeStruct((*lead, *POINTS), dtype) for n, lead in leads.items()}


def traced_points(dtype: DTypeLike) -> tuple[Points, jax.ShapeDtypeStruct]:
    """The coordinates of the block, and the time."""
    shapes = ((POINTS[0], 1, 1), (1, POINTS[1], 1), (1, 1, POINTS[2]))
    axes: Any = (jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)
    return Points(*axes), jax.ShapeDtypeStruct((), jnp.float64)


def trace(files: UserFiles, name: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Adds a call to the checksums of `files.traces`: its operations and the numbers in it."""
    if not files.compares:
        return
    with contextlib.suppress(Exception):  # a result that is refused elsewhere
        traced = jax.make_jaxpr(call)(*arguments)
        files.traces[name] = _trace_sum(traced, files.traces.get(name, ""))


def _trace_sum(traced: ClosedJaxpr, before: str) -> str:
    digest = xxhash.xxh3_64(before.encode())

    def add(value: Any) -> None:
        if isinstance(value, ClosedJaxpr):
            add([value.jaxpr, value.consts])
        elif isinstance(value, Jaxpr):
            for equation in value.eqns:
                digest.update(equation.primitive.name.encode())
                add(equation.invars)
                add([equation.params[name] for name in sorted(equation.params)])
            add(value.outvars)
        elif isinstance(value, tuple | list):
            for item in value:
                add(item)
        elif isinstance(value, Constant):
            add(value.val)
        elif isinstance(value, bool | int | float | complex | str):
            digest.update(repr(value).encode())
        elif isinstance(value, np.ndarray | np.generic | jax.Array) and not isinstance(
            value, Tracer
        ):
            numbers: Any = value
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                numbers = jax.random.key_data(numbers)
            digest.update(np.asarray(numbers).tobytes())

    add(traced)
    return digest.hexdigest()


_RUNNING = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
_ALONG = {"rev": "dimensions", "sort": "dimension", **dict.fromkeys(_RUNNING, "axis")}
"""Operations that keep the shape, with the parameter that names the axes along which they mix
values."""


def mixing(traced: ClosedJaxpr) -> tuple[str, Any] | None:
    """The first operation that mixes points in a function traced on a block of `POINTS`, with its
    traceback, or None."""
    for outer in traced.jaxpr.eqns:
        for equation in _operations(outer):
            if not _is_pointwise(equation):
                name = equation.primitive.name
                words = [word for start, word in _WORDS.items() if name.startswith(start)]
                # Of JAX's own functions only the call appears in the user's file.
                return [*words, "values at other points"][0], outer.source_info.traceback
    return None


def _operations(equation: JaxprEqn) -> Iterator[JaxprEqn]:
    parameters = jax.tree.leaves([*equation.params.values()])
    inner = [getattr(p, "jaxpr", p) for p in parameters if isinstance(p, ClosedJaxpr | Jaxpr)]
    if not inner:
        yield equation
    for jaxpr in inner:
        for called in jaxpr.eqns:
            yield from _operations(called)


def _points(shape: Sequence[int]) -> list[int]:
    return [n for n in shape if n in POINTS]


def _shapes(variables: Sequence[Any]) -> list[tuple[int, ...]]:
    return [v.aval.shape for v in variables if hasattr(v.aval, "shape")]


def _is_pointwise(equation: JaxprEqn) -> bool:
    """Whether every input axis of points appears in the outputs, in the same order, and is not
    mixed."""
    name = equation.primitive.name
    params = equation.params
    inputs = _shapes(equation.invars)
    extents = {n for shape in inputs for n in _points(shape)}
    outputs = [_points(shape) for shape in _shapes(equation.outvars)]
    if any(points != sorted(points) or not extents <= {*points} for points in outputs):
        return False
    if name in ("iota", "random_bits", "threefry2x32"):
        # Positions or random numbers of a block, not of the box.
        return not any(outputs)
    if name == "fft" or name.startswith(("conv_general", "reduce_window")):
        return not extents
    if name == "gather":
        return {*_points(inputs[0])} <= {*params["slice_sizes"]}
    if name in ("scatter", "scatter-add", "scatter_add"):
        return {*_points(inputs[0])} <= {*inputs[2]}
    if name in _ALONG:
        return not any(inputs[0][int(axis)] in POINTS for axis in np.ravel(params[_ALONG[name]]))
    return True


_WORDS = {
    "reduce_": "a sum, mean or maximum over points",
    "fft": "a Fourier transform",
    "random": "random numbers",
    "threefry": "random numbers",
    "iota": "positions (jnp.arange)",
    "cum": "a running sum over points",
    "dot_general": "a sum over points",
}
"""The words for operations, by the beginning of their names."""
