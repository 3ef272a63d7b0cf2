"""Numbers of a configuration that depend on place and time: formulas of x, y, z and t."""

import ast
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BeforeValidator

from simulator.errors import shown
from simulator.settings import evaluate_number, evaluated
from simulator.spectral.arrays import Number, OverPoints

NAMES = ("x", "y", "z", "t")
_CONSTANTS = {"pi": np.pi, "e": np.e}
_FUNCTIONS = ("sqrt", "exp", "log", "sin", "cos", "tanh", "abs")


def _formula(value: object) -> Any:
    """A number, or the text of a formula. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"a number or a formula of x, y, z and t is needed, not {shown(value)}")
    if not isinstance(value, str):
        return float(value)
    try:
        return evaluate_number(value)
    except ValueError:
        pass
    try:
        with np.errstate(all="ignore"):  # with NumPy, which starts no device
            _value(value, dict.fromkeys(NAMES, np.float64(1)), np)
    except (SyntaxError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        known = f"numbers, {', '.join(NAMES)}, pi, e, {', '.join(_FUNCTIONS)}"
        raise ValueError(f"{shown(value)} is no formula of {known}") from error
    return value


def _value(text: str, names: Mapping[str, Any], library: ModuleType) -> Any:
    tree = ast.parse(text.strip(), mode="eval").body
    functions = {name: getattr(library, name) for name in _FUNCTIONS}
    return evaluated(tree, {**_CONSTANTS, **names}, functions)


Formula = Annotated[float | str, BeforeValidator(_formula)]
"""A number, or a formula of x, y, z and t such as `1.5*(1 - (y/2)**2)*cos(t)`."""


def formula_value(
    formula: float | str | jax.Array, points: Sequence[OverPoints], time: Number
) -> jax.Array:
    """The value of a formula at points, one coordinate for each axis of the grid. Raises ValueError
    for a formula of z in a plane."""
    if not isinstance(formula, str):
        return jnp.asarray(formula)
    names = dict(zip("xyz", points, strict=False))
    # Beside the place the time is as precise as the place.
    t = time.astype(points[0].dtype) if points else time
    try:
        return jnp.asarray(_value(formula, {**names, "t": t}, jnp))
    except TypeError as error:
        raise ValueError(str(error)) from None


def moment_value(formula: float | str | jax.Array, time: Number) -> Number:
    """The value, in double precision, of a formula that depends on time alone. Raises ValueError
    for one that depends on the place."""
    return jnp.asarray(formula_value(formula, (), time), jnp.float64)


def check_moment(formula: float | str | jax.Array) -> None:
    """Raises ValueError for a formula that depends on the place. Starts no device."""
    time = jax.ShapeDtypeStruct((), jnp.float64)
    jax.eval_shape(lambda t: moment_value(formula, t), time)
