"""The evaluation of products at points as one call of the native kernels: from the messages of one
exchange to those of the next."""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from simulator.spectral.native import EVALUATE, load
from simulator.spectral.native.stage import Arrays, Form
from simulator.spectral.schedules.pointwise import Operations
from simulator.spectral.schedules.schedule import Reductions


@dataclass(frozen=True)
class Evaluation:
    """Planes of physical space: the stage that brings fields to points, the operations on their
    values, and the stage that transforms the products."""

    to_points: Form
    to_modes: Form
    operations: Operations

    @property
    def numbers(self) -> jax.Array:
        """The numbers of the operations, which are the same at all points."""
        numbers = [jnp.asarray(n, self.to_points.dtype) for n in self.operations.numbers]
        return jnp.stack(numbers) if numbers else jnp.zeros(1, self.to_points.dtype)

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Scratch memory of a thread in bytes, and the number of units that threads share."""
        return load().evaluation(
            self.to_points.geometry(),
            self.to_modes.geometry(),
            self.operations.sizes,
            self.to_points.dtype == "float64",
        )

    def run(self, messages: Arrays, numbers: jax.Array) -> tuple[Arrays, Reductions]:
        """The products as messages, and the reductions over the points of the device."""
        operations, target = self.operations, self.to_modes.target
        scratch, units = self.extents
        count = target.messages if operations.products else 0
        shape = target.array(operations.products)
        sent = [jax.ShapeDtypeStruct(shape, self.to_modes.dtype_of(target))] * count
        reduced = jax.ShapeDtypeStruct((operations.maxima + operations.sums, units), numbers.dtype)
        memory = jax.ShapeDtypeStruct((self.to_points.threads * scratch,), np.uint8)
        call = jax.ffi.ffi_call(EVALUATE, [*sent, reduced, memory], vmap_method="sequential")
        results = call(
            *messages,
            numbers,
            to_points=np.asarray(self.to_points.geometry(), np.int64),
            to_modes=np.asarray(self.to_modes.geometry(), np.int64),
            points_scale=np.float64(self.to_points.scale),
            modes_scale=np.float64(self.to_modes.scale),
            sizes=np.asarray(operations.sizes, np.int64),
            operations=np.asarray(operations.rows, np.int64).reshape(-1),
        )
        by_unit = jax.tree.map(lambda i: results[count][i], operations.reductions)
        return tuple(results[:count]), by_unit.over_planes()
