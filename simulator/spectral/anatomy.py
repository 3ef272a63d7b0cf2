"""Counts the transforms in a step, with their numbers of components and their messages.

The counts are read from the traced step, for any model and integrator: every part of a transform is a `Program`
there, and loops state how often they run.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from simulator.spectral.program import Program, program_p
from simulator.spectral.transform import Transform


class Part(NamedTuple):
    """A part of a transform: `forward`, `inverse` or `evaluate`, from `given` to `made` components."""

    transform: Transform
    direction: str
    given: int
    made: int
    """0 if only maxima and means are computed."""


class Exchange(NamedTuple):
    """An all-to-all of messages (message, component, ...) of one device over an axis of a transform's mesh."""

    transform: Transform
    axis: str
    shape: tuple[int, ...]
    dtype: Any


class Anatomy(NamedTuple):
    parts: Counter[Part]
    """How often each part occurs in a step."""
    exchanges: Counter[Exchange]


def anatomy(step: Callable[..., Any], *arguments: Any) -> Anatomy:
    """The transforms in `step(*arguments)`; the arguments may be shapes."""
    parts: Counter[Part] = Counter()
    exchanges: Counter[Exchange] = Counter()
    for program, given, made, times in _programs(jax.make_jaxpr(step)(*arguments).jaxpr, 1):
        if program.part is None:
            continue
        transform, direction = program.part
        outputs = made[0].shape[0] if made[0].ndim == 4 else 0
        parts[Part(transform, direction, given[0].shape[0], outputs)] += times
        if program.mesh.size > 1:
            for axis, operand, inner in _all_to_alls(program.local_jaxpr(given).jaxpr, times):
                exchanges[Exchange(transform, axis, operand.shape, operand.dtype)] += inner
    return Anatomy(parts, exchanges)


def _equations(jaxpr: Jaxpr, times: int) -> Iterator[tuple[Any, int]]:
    """All equations of a program with the number of times they run; a `while`'s body counts once."""
    for equation in jaxpr.eqns:
        yield equation, times
        if equation.primitive is program_p:
            continue
        inner = times * equation.params["length"] if equation.primitive.name == "scan" else times
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                if isinstance(item, ClosedJaxpr):
                    yield from _equations(item.jaxpr, inner)
                elif isinstance(item, Jaxpr):
                    yield from _equations(item, inner)


def _programs(jaxpr: Jaxpr, times: int) -> Iterator[tuple[Program, list[Any], list[Any], int]]:
    for equation, count in _equations(jaxpr, times):
        if equation.primitive is program_p:
            given, made = ([v.aval for v in side] for side in (equation.invars, equation.outvars))
            yield equation.params["program"], given, made, count


def _all_to_alls(jaxpr: Jaxpr, times: int) -> Iterator[tuple[str, Any, int]]:
    for equation, count in _equations(jaxpr, times):
        if equation.primitive.name == "all_to_all":
            name = equation.params["axis_name"]
            yield (name[0] if isinstance(name, tuple) else name), equation.invars[0].aval, count
