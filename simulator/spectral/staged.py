"""The backend `custom_partitioning`: staged transforms, of real fields truncated before they are sent."""

import math
from functools import cache, partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from simulator.spectral.choices import Candidate, Devices, Modes, factors, make_mesh
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.local import LocalTransform, Points, Reductions, reduce_values
from simulator.spectral.program import Program
from simulator.spectral.stages import PLANS, SLABS, Z_Y_X, Plan
from simulator.spectral.transform import Evaluated, Local, PointwiseFunction, Stacked, Tree, described, stack

CPU_BLOCK_BYTES = 4 << 20
GPU_BLOCK_BYTES = 512 << 20


NAME = "custom_partitioning"


def candidates(modes: Modes, count: int) -> list[Candidate]:
    """The ways to share the grid among `count` devices, best first: slabs, else pencils.

    Every device has planes of its own on both sides of every exchange; what does not divide is padded.
    """
    (nx, ny, _), (_, my, mz) = modes.grid.shape, modes.counts
    slabs = [Candidate(NAME, "slab", plan, (count,)) for plan in SLABS if count <= min(ny, mz)]
    pencils = [
        Candidate(NAME, "pencil", Z_Y_X.name, (rows, columns))
        for rows, columns in factors(count)
        if rows <= min(nx, my) and columns <= min(ny, mz)
    ]

    def cost(pencil: Candidate) -> tuple[bool, int]:
        """Proper pencils first, then those with the fewest points and modes on a device, padding included."""
        rows, columns = pencil.mesh
        held = ceil(nx / rows) * ceil(ny / columns) + ceil(my / rows) * ceil(mz / columns)
        return min(rows, columns) == 1, held

    return slabs + sorted(pencils, key=cost)


def needs(modes: Modes) -> str:
    """What a device count has to meet, in words."""
    (nx, ny, _), (_, my, mz) = modes.grid.shape, modes.counts
    return (
        f"slabs take at most {min(ny, mz)} devices ({ny} planes in y, {mz} in kz), pencils at most "
        f"{min(nx, my)} x {min(ny, mz)} ({nx} in x and {my} in ky by {ny} in y and {mz} in kz)"
    )


def build(
    modes: Modes, candidate: Candidate, devices: Devices, dtype: Any, block: int | None
) -> "StagedTransform":
    plan = PLANS[candidate.plan]
    mesh = make_mesh(plan.mesh_axes, candidate.mesh, devices)
    return StagedTransform(modes, mesh, plan, dtype, block=block)


class StagedTransform:
    """Runs a `Plan` on a mesh whose axes are `plan.mesh_axes`.

    `block` is the number of planes visited at a time; None chooses it from the cache (CPU) or the device's memory.
    """

    def __init__(
        self,
        modes: Modes,
        mesh: Mesh,
        plan: Plan,
        dtype: Any = np.float64,
        *,
        block: int | None = None,
    ):
        self.grid, self.mesh, self.plan, self.dtype = modes.grid, mesh, plan, np.dtype(dtype)
        self.physical = PhysicalLayout(self.grid, mesh, "xyz", plan.physical)
        self.layout = Layout(
            self.grid,
            mesh,
            plan.order,
            plan.spectral,
            labels={a: modes.labels(a) for a in "xyz"},
            half=modes.real,
            real=modes.real,
            truncated=not modes.every,
        )
        self.name = f"{NAME}_{plan.name}"
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

    def _kept(self, modes: jax.Array) -> jax.Array:
        """Modes without those that lie in the box of kept wavenumbers but not in the sphere."""
        if self.grid.dealias != "spherical" or not self.layout.truncated:
            return modes
        return jnp.where(self.layout.mask, modes, 0)

    def forward(self, values: jax.Array) -> jax.Array:
        dtype = self.dtype if self.layout.half else self.complex_dtype
        return self._kept(self._apply("forward", values, self.physical, dtype))

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
        modes = self._kept(results.pop(0)) if products.leads else None
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
            lambda v, x, q: pointwise(given.split(v), Points(x, x, x), q), values, one, parameters
        )
