"""Checks that a function of values on the grid is pointwise, from its traced operations and without a device.

Nonlinear terms are evaluated in blocks of points, separately on each device. A mean over the box, a finite difference
or a transform in them would silently see the points of one block only.
"""

from collections.abc import Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

POINTS = (101, 103, 107)
"""Extents of a block that no other axis has, so that axes of points are recognized by their length."""
_ALONG = {"rev": "dimensions", "sort": "dimension", "cumsum": "axis", "cumprod": "axis", "cummax": "axis"}
_ALONG |= {"cummin": "axis", "cumlogsumexp": "axis"}
"""Operations that keep the shape, with the parameter that names the axes along which they mix values."""


def mixing(traced: ClosedJaxpr) -> tuple[str, Any] | None:
    """The first operation that is not pointwise in a function traced on a block of `POINTS`, with its traceback; None
    if all are pointwise."""
    for outer in traced.jaxpr.eqns:
        for equation in _operations(outer):
            if not _is_pointwise(equation):
                # Of JAX's own functions only the call appears in the user's file.
                return _named(equation), outer.source_info.traceback
    return None


def _operations(equation: Any) -> Iterator[Any]:
    """The operation, or the operations of the functions that it calls."""
    inner = [j for value in equation.params.values() for j in _jaxprs(value)]
    if not inner:
        yield equation
    for jaxpr in inner:
        for called in jaxpr.eqns:
            yield from _operations(called)


def _jaxprs(value: Any) -> Iterator[Jaxpr]:
    if isinstance(value, ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, Jaxpr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _jaxprs(item)


def _points(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n in POINTS]


def _is_pointwise(equation: Any) -> bool:
    """Whether every input axis of points appears in the outputs, in the same order, and is not mixed."""
    name, params = equation.primitive.name, equation.params
    given = [v.aval.shape for v in equation.invars if hasattr(v.aval, "shape")]
    made = [v.aval.shape for v in equation.outvars if hasattr(v.aval, "shape")]
    held = {n for shape in given for n in _points(shape)}
    if any(_points(shape) != sorted(_points(shape)) for shape in made):
        return False
    if any(not held <= set(shape) for shape in made):
        return False
    match name:
        case "fft":
            return not held
        case "iota" | "random_bits" | "threefry2x32":
            return not any(map(_points, made))  # positions or random numbers of a block, not of the box
        case "gather":
            return set(_points(given[0])) <= set(params["slice_sizes"])
        case "scatter" | "scatter-add" | "scatter_add":
            return set(_points(given[0])) <= set(given[2])
        case _ if name in _ALONG:
            along = params[_ALONG[name]]
            axes = along if isinstance(along, tuple | list) else (along,)
            return not any(given[0][axis] in POINTS for axis in axes)
        case _ if name.startswith(("conv_general", "reduce_window")):
            return not held
    return True


def _named(equation: Any) -> str:
    """The operation in the user's terms."""
    name = equation.primitive.name
    for start, word in (
        ("reduce_", "a sum, mean or maximum over points"),
        ("fft", "a Fourier transform"),
        ("random", "random numbers"),
        ("threefry", "random numbers"),
        ("iota", "positions (jnp.arange)"),
        ("cum", "a running sum over points"),
        ("dot_general", "a sum over points"),
    ):
        if name.startswith(start):
            return word
    return "values at other points"
