"""The backend `custom_partitioning`: staged transforms, of real fields truncated before they are sent."""

import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from simulator.spectral.grid import Grid
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.local import LocalTransform, Points, Reductions, reduce_values
from simulator.spectral.program import Program
from simulator.spectral.stages import Plan
from simulator.spectral.transform import Evaluated, Local, PointwiseFunction, Stacked, Tree, described, stack

CPU_BLOCK_BYTES = 4 << 20
GPU_BLOCK_BYTES = 512 << 20


class StagedTransform:
    """Runs a `Plan` on a mesh whose axes are `plan.mesh_axes`.

    `every` keeps all modes instead of those that dealiasing keeps; `real` is False for complex fields (wave
    functions). `block` is the number of planes visited at a time; None chooses it from the cache (CPU) or the
    device's memory.
    """

    def __init__(
        self,
        grid: Grid,
        mesh: Mesh,
        plan: Plan,
        dtype: Any = np.float64,
        *,
        real: bool = True,
        every: bool = False,
        block: int | None = None,
    ):
        self.grid, self.mesh, self.plan, self.dtype = grid, mesh, plan, np.dtype(dtype)
        self.physical = PhysicalLayout(grid, mesh, "xyz", plan.physical)
        self.layout = Layout(
            grid,
            mesh,
            plan.order,
            plan.spectral,
            labels={a: grid.labels(a, half=real and a == "z", every=every) for a in "xyz"},
            half=real,
            truncated=not every,
        )
        self.name = f"custom_partitioning_{plan.name}"
        self._local = LocalTransform(plan, self.layout, self.physical, self.dtype)
        self._block = block
        self._platform = mesh.devices.flat[0].platform
        self._program = cache(self._make_program)

    @property
    def complex_dtype(self) -> np.dtype:
        return np.result_type(self.dtype, np.complex64)

    def block(self, components: int) -> int:
        """Planes visited at a time when `components` values are held at each point."""
        if self._block is not None:
            return self._block
        itemsize = self.dtype.itemsize * (1 if self.layout.half else 2)
        plane = math.prod(self.physical.shape) // self.physical.shape[1] * itemsize * components
        plane //= math.prod(self.physical.parts(a) for a in "xz")
        limit = CPU_BLOCK_BYTES if self._platform == "cpu" else GPU_BLOCK_BYTES
        return max(1, limit // max(plane, 1))

    def _whole(self) -> int:
        return self.physical.shape[1]

    def _make_program(self, direction: str, block: int) -> Program:
        physical, modes = self.physical.spec_of(4), self.layout.spec_of(4)
        run = getattr(self._local, direction)
        return Program(
            lambda array: (run(array, block),),
            self.mesh,
            [physical if direction == "forward" else modes],
            [modes if direction == "forward" else physical],
            name=f"{self.name}_{direction}",
            linear=True,
        )

    def _apply(self, direction: str, array: jax.Array, source, dtype) -> jax.Array:
        if array.shape[-3:] != source.shape:
            raise ValueError(f"{direction} takes arrays (..., {source.shape}), not {array.shape}")
        flat = array.astype(dtype).reshape(-1, *source.shape)
        # Alone on its device, a transform is fastest whole: XLA's loop bodies use one core.
        alone = self.mesh.size == 1 and self._platform == "cpu"
        block = self._whole() if alone and self._block is None else self.block(2 * flat.shape[0])
        (result,) = self._program(direction, block)(flat)
        return result.reshape(*array.shape[:-3], *result.shape[1:])

    def forward(self, values: jax.Array) -> jax.Array:
        dtype = self.dtype if self.layout.half else self.complex_dtype
        return self._apply("forward", values, self.physical, dtype)

    def inverse(self, modes: jax.Array) -> jax.Array:
        return self._apply("inverse", modes, self.layout, self.complex_dtype)

    def evaluate(self, inputs: Tree, pointwise: PointwiseFunction, parameters: Tree = ()) -> Evaluated:
        array, given = stack(inputs)
        if array is None:
            raise ValueError("evaluate needs at least one input field")
        flat, parameter_tree = jax.tree.flatten(parameters)
        wanted = self._probe(pointwise, given, parameters)
        products = described(wanted.products)

        def local(values, points, inside, parameters) -> tuple[jax.Array | None, Reductions]:
            found = pointwise(given.split(values), points, parameters)
            shape = values.shape[1:]
            full = jax.tree.map(
                lambda a, w: jnp.broadcast_to(a, (*w.shape[:-3], *shape)), found.products, wanted.products
            )
            return stack(full)[0], reduce_values(found.maxima, found.means, inside)

        block = self.block(sum(given.sizes) + sum(products.sizes))

        def run(array, *flat):
            parameters = jax.tree.unflatten(parameter_tree, flat)
            modes, reduced = self._local.evaluate(array, partial(local, parameters=parameters), block)
            return (*jax.tree.leaves(modes), *reduced.maxima.values(), *reduced.sums.values())

        reductions = [*wanted.maxima, *wanted.means]
        outputs = [self.layout.spec_of(4)] * bool(products.leads) + [PartitionSpec()] * len(reductions)
        program = Program(
            run,
            self.mesh,
            [self.layout.spec_of(4), *(PartitionSpec() for _ in flat)],
            outputs,
            name=f"{self.name}_evaluate",
        )
        results = list(program(array.astype(self.complex_dtype), *map(jnp.asarray, flat)))
        modes = results.pop(0) if products.leads else None
        reduced = dict(zip(reductions, results, strict=True))
        return Evaluated(
            products.split(modes),
            {k: reduced[k] for k in wanted.maxima},
            {k: reduced[k] / self.grid.points for k in wanted.means},
        )

    def _probe(self, pointwise: PointwiseFunction, given: Stacked, parameters: Tree) -> Local:
        """Shapes of what `pointwise` returns, at a single point."""
        dtype = self.dtype if self.layout.half else self.complex_dtype
        one = jax.ShapeDtypeStruct((1, 1, 1), self.dtype)
        values = jax.ShapeDtypeStruct((sum(given.sizes), 1, 1, 1), dtype)
        return jax.eval_shape(
            lambda v, p, q: pointwise(given.split(v), p, q), values, Points(one, one, one), parameters
        )
