"""The backend `custom_partitioning`: staged transforms, of real fields truncated before they are sent."""

from dataclasses import replace
from functools import cache, partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from simulator.cluster.mesh import make_mesh
from simulator.spectral.choices import Candidate, Devices, Modes, factors
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.local import LocalTransform, Points, Reductions, reduce_values
from simulator.spectral.program import Program
from simulator.spectral.stages import PLANS, SLABS, XYZ, Z_Y_X, Plan
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
    modes: Modes,
    candidate: Candidate,
    devices: Devices,
    dtype: Any,
    block: int | None,
    in_turn: bool = False,
    platform: str | None = None,
) -> "StagedTransform":
    plan = PLANS[candidate.plan]
    mesh = make_mesh(devices, candidate.mesh, plan.mesh_axes)
    return StagedTransform(modes, mesh, plan, dtype, block=block, in_turn=in_turn, platform=platform)


class StagedTransform:
    """Runs a `Plan` on a mesh whose axes are `plan.mesh_axes`.

    `block` is the number of planes of physical space visited at a time; None chooses it from the cache (CPU) or
    the device's memory, and as many as there are visit nothing in blocks. `in_turn` transforms components one after
    another, where that holds less. `platform` (cpu, gpu) says whose program it is, by default that of the devices.
    """

    def __init__(
        self,
        modes: Modes,
        mesh: Mesh,
        plan: Plan,
        dtype: Any = np.float64,
        *,
        block: int | None = None,
        in_turn: bool = False,
        platform: str | None = None,
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
        self.name = (
            f"{NAME}_{plan.name}" + (f"_block{block}" if block else "") + ("_in_turn" if in_turn else "")
        )
        self._block = block
        cpu = (platform or mesh.devices.flat[0].platform) == "cpu"
        self._block_bytes = CPU_BLOCK_BYTES if cpu else GPU_BLOCK_BYTES
        self._local = LocalTransform(plan, self.layout, self.physical, self.dtype, self.block, cpu, in_turn)
        self._linear = replace(self._local, own_blanks=False)
        if cpu and mesh.size == 1 and block is None:
            # A call of the FFT uses all cores when it is whole, XLA's loop bodies use one; and a single call over all
            # axes passes fewest times over memory.
            self._linear = replace(
                self._linear, plan=XYZ, blocks=lambda stage, components: max(self.grid.shape)
            )
        self._program = cache(self._make_program)

    @property
    def complex_dtype(self) -> np.dtype:
        return np.result_type(self.dtype, np.complex64)

    def block(self, stage: int, components: int) -> int:
        """Planes that a stage visits at a time when it holds `components` values at each of their points."""
        first, second, third = self.plan.stages[stage].order
        extent = partial(self._local.local, stage)
        if first in self.plan.stages[stage].axes:
            return extent(first)  # it is transformed: there are no planes
        if self._block is not None:
            if stage == 0:
                return self._block
            if self._block >= self._local.local(0, self.plan.stages[0].order[0]):
                return extent(first)
        value = self.dtype if stage == 0 and self.layout.half else self.complex_dtype
        plane = components * value.itemsize * extent(second) * extent(third)
        return max(1, self._block_bytes // plane)

    def _make_program(self, direction: str) -> Program:
        physical, modes = self.physical.spec_of(4), self.layout.spec_of(4)
        run = getattr(self._linear, direction)
        return Program(
            lambda array: (run(array),),
            self.mesh,
            [physical if direction == "forward" else modes],
            [modes if direction == "forward" else physical],
            name=f"{self.name}_{direction}",
            linear=True,
            part=(self, direction),
        )

    def _apply(self, direction: str, array: jax.Array, source, dtype) -> jax.Array:
        if array.shape[-3:] != source.shape:
            raise ValueError(f"{direction} takes arrays (..., {source.shape}), not {array.shape}")
        flat = array.astype(dtype).reshape(-1, *source.shape)
        (result,) = self._program(direction)(flat)
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

            def everywhere(value: jax.Array, lead: tuple[int, ...] = ()) -> jax.Array:
                return jnp.broadcast_to(value, (*lead, *values.shape[1:]))

            full = jax.tree.map(lambda a: everywhere(a, a.shape[:-3]), found.products)
            maxima, means = (
                {k: everywhere(v) for k, v in part.items()} for part in (found.maxima, found.means)
            )
            return stack(full)[0], reduce_values(maxima, means, inside)

        components = sum(given.sizes) + sum(products.sizes)

        def run(array, *flat):
            parameters = jax.tree.unflatten(parameter_tree, flat)
            modes, reduced = self._local.evaluate(array, partial(local, parameters=parameters), components)
            return (
                *jax.tree.leaves(modes),
                *(reduced.maxima[k] for k in wanted.maxima),
                *(reduced.sums[k] for k in wanted.means),
            )

        reductions = len(wanted.maxima) + len(wanted.means)
        outputs = [self.layout.spec_of(4)] * bool(products.leads) + [PartitionSpec()] * reductions
        program = Program(
            run,
            self.mesh,
            [self.layout.spec_of(4), *(PartitionSpec() for _ in flat)],
            outputs,
            name=f"{self.name}_evaluate",
            part=(self, "evaluate"),
        )
        results = iter(program(array.astype(self.complex_dtype), *map(jnp.asarray, flat)))
        return Evaluated(
            products.split(self._kept(next(results)) if products.leads else None),
            {k: next(results) for k in wanted.maxima},
            {k: next(results) / self.grid.points for k in wanted.means},
        )

    def _probe(self, pointwise: PointwiseFunction, given: Stacked, parameters: Tree) -> Local:
        """Shapes of what `pointwise` returns, at a single point."""
        dtype = self.dtype if self.layout.half else self.complex_dtype
        one = jax.ShapeDtypeStruct((1, 1, 1), self.dtype)
        values = jax.ShapeDtypeStruct((sum(given.sizes), 1, 1, 1), dtype)
        return jax.eval_shape(
            lambda v, x, q: pointwise(given.split(v), Points(x, x, x), q), values, one, parameters
        )
