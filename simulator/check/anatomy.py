"""The transforms of a step and their exchanges: how many there are in the traced step, and each alone, to time it.

This works for any model and integrator: every part of a transform is a `Program` in the traced step, and loops state
how often they run.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import PartitionSpec

from simulator.spectral import Local
from simulator.spectral.program import Program, program_p
from simulator.spectral.transform import Transform


class TimedPart(NamedTuple):
    """A part of a transform: `forward`, `inverse` or `evaluate`, from `given` to `made` components."""

    transform: Transform
    direction: str
    given: int
    made: int
    """0 if only maxima and means are computed."""


class TimedExchange(NamedTuple):
    """An all-to-all of messages (message, component, ...) of one device over an axis of a transform's mesh."""

    transform: Transform
    axis: str
    shape: tuple[int, ...]
    dtype: Any


class Anatomy(NamedTuple):
    parts: Counter[TimedPart]
    """How often each part occurs in a step."""
    exchanges: Counter[TimedExchange]


def anatomy(step: Callable[..., Any], *arguments: Any) -> Anatomy:
    """The transforms in `step(*arguments)`; the arguments may be shapes."""
    parts: Counter[TimedPart] = Counter()
    exchanges: Counter[TimedExchange] = Counter()
    for program, given, made, times in _programs(jax.make_jaxpr(step)(*arguments).jaxpr, 1):
        if program.part is None:
            continue
        transform, direction = program.part
        outputs = made[0].shape[0] if made[0].ndim == 4 else 0
        parts[TimedPart(transform, direction, given[0].shape[0], outputs)] += times
        if program.mesh.size > 1:
            for axis, operand, inner in _all_to_alls(program.local_jaxpr(given).jaxpr, times):
                exchanges[TimedExchange(transform, axis, operand.shape, operand.dtype)] += inner
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


def part_alone(part: TimedPart) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """The part with the least work at the points that keeps every transform from being optimized away, and its
    arguments."""
    transform = part.transform
    forward = part.direction == "forward"
    source = transform.physical if forward else transform.layout
    real = forward and transform.layout.real
    kind = transform.dtype if real else jnp.result_type(transform.dtype, jnp.complex64)
    argument = jax.ShapeDtypeStruct((part.given, *source.shape), kind, sharding=source.sharding(4))

    def spread(values, points, parameters) -> Local:
        fields = values["f"]
        if not part.made:
            return Local({}, means={"f": fields.real.sum(0)})
        rest = fields[part.made :]
        products = [fields[i % part.given] for i in range(part.made)]
        for i in range(len(rest)):
            products[i % part.made] = products[i % part.made] + rest[i]
        return Local({"f": jnp.stack(products)})

    def run(array: jax.Array) -> Any:
        if part.direction == "evaluate":
            return transform.evaluate_once({"f": array}, spread)
        return transform.forward(array) if forward else transform.inverse(array)

    run.__name__ = f"{part.direction}_{transform.name}_{part.given}_{part.made}"  # for the compile cache
    return run, [argument]


def exchange_alone(exchange: TimedExchange) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """The all-to-all alone, and its arguments: one array for each block that is sent."""
    mesh, (blocks, *shape) = exchange.transform.layout.mesh, exchange.shape
    spec = PartitionSpec(mesh.axis_names)
    # In the form in which transforms pass them: see `LocalTransform._separated`.
    argument = jax.ShapeDtypeStruct(
        (mesh.size, *shape), exchange.dtype, sharding=jax.sharding.NamedSharding(mesh, spec)
    )

    def local(*parts: jax.Array) -> tuple[jax.Array, ...]:
        received = lax.all_to_all(jnp.concatenate(parts), exchange.axis, 0, 0, tiled=True)
        return tuple(received[i : i + 1] for i in range(blocks))

    program = Program(local, mesh, [spec] * blocks, [spec] * blocks, name="exchange", linear=True)

    def run(*parts: jax.Array) -> Any:
        return program(*parts)

    return run, [argument] * blocks
