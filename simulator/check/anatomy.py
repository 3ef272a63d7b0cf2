"""The transforms of a step and their exchanges in isolation, to be timed without the rest of the step."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from simulator.spectral import Local
from simulator.spectral.anatomy import Exchange, Part
from simulator.spectral.program import Program


def part_alone(part: Part) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
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


def exchange_alone(exchange: Exchange) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
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
