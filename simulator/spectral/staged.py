"""The backend `custom_partitioning`: staged transforms of real or complex fields; axes are
truncated, then sent."""

from dataclasses import replace
from functools import cache, lru_cache, partial
from math import ceil, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from simulator.cluster.mesh import MEMBERS, make_mesh
from simulator.spectral import native
from simulator.spectral.candidates import Candidate, Devices, Modes, TransformOptions, factors
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.local import Kept, LocalTransform, Points, Reductions, reduce_values
from simulator.spectral.native.local import LANES, ORDER, NativeTransform, flat
from simulator.spectral.program import Program
from simulator.spectral.stages import PLANS, SLABS, XYZ, Z_THEN_YX, Z_Y_X, ZX_THEN_Y, Decomposition
from simulator.spectral.transform import (
    Evaluated,
    Local,
    PointwiseFunction,
    Stacked,
    Transform,
    Tree,
    described,
    stack,
)

CPU_BLOCK_BYTES = 4 << 20
NATIVE_BLOCK_BYTES = 1 << 20
GPU_BLOCK_BYTES = 256 << 20
FEW = 4  # components, of values and products together, for which blocks save no memory of a GPU


NAME = "custom_partitioning"


def candidates(modes: Modes, count: int) -> list[Candidate]:
    """The ways to distribute the grid over `count` devices, best first: slabs, then pencils.

    Every device has at least one plane on both sides of every exchange; extents that do not divide
    are padded."""
    (nx, ny, _), (_, my, mz) = modes.grid.shape, modes.counts
    slabs = [Candidate(NAME, "slab", plan, (count,)) for plan in SLABS if count <= min(ny, mz)]
    pencils = [
        Candidate(NAME, "pencil", Z_Y_X.name, (rows, columns))
        for rows, columns in factors(count)
        if rows <= min(nx, my) and columns <= min(ny, mz)
    ]

    def cost(pencil: Candidate) -> tuple[bool, int]:
        """Sort key: proper pencils first, then by the number of points and modes on a device,
        padding included."""
        rows, columns = pencil.mesh
        held = ceil(nx / rows) * ceil(ny / columns) + ceil(my / rows) * ceil(mz / columns)
        return min(rows, columns) == 1, held

    return slabs + sorted(pencils, key=cost)


def padding(modes: Modes, count: int) -> float:
    """The ratio of the points or modes that slabs on `count` devices send, with padding, to those
    of the grid."""
    return prod(ceil(n / count) * count / n for n in (modes.grid.shape[1], modes.counts[2]))


def most(modes: Modes) -> int:
    """The largest number of devices over which the grid can be distributed."""
    (nx, ny, _), (_, my, mz) = modes.grid.shape, modes.counts
    return min(nx, my) * min(ny, mz)


def missing() -> str:
    """Why no transform can be built here; nothing, because the program brings all of them."""
    return ""


def needs(modes: Modes) -> str:
    """The conditions on a device count, in words."""
    (nx, ny, _), (_, my, mz) = modes.grid.shape, modes.counts
    return (
        f"slabs take at most {min(ny, mz)} devices ({ny} planes in y, {mz} in kz), pencils at most "
        f"{min(nx, my)} x {min(ny, mz)} ({nx} in x and {my} in ky by {ny} in y and {mz} in kz)"
    )


def build(
    modes: Modes, candidate: Candidate, devices: Devices, dtype: Any, options: TransformOptions
) -> "StagedTransform":
    plan = PLANS[candidate.plan]
    shape, names = candidate.mesh, plan.mesh_axes
    if options.members > 1:
        shape, names = (options.members, *shape), (MEMBERS, *names)
    return StagedTransform(modes, make_mesh(devices, shape, names), plan, dtype, options)


class StagedTransform(Transform):
    """Runs a `Decomposition` on a mesh with the axes `plan.mesh_axes`, preceded by the axis MEMBERS
    if the members of an ensemble are distributed over devices."""

    def __init__(
        self, modes: Modes, mesh: Mesh, plan: Decomposition, dtype: Any, options: TransformOptions
    ):
        block, exchange = options.block, options.exchange
        self.grid, self.mesh, self.plan, self.dtype = modes.grid, mesh, plan, np.dtype(dtype)
        platform = options.platform or str(mesh.devices.flat[0].platform)
        cpu = self._cpu = platform == "cpu"
        self.kernels = native.chosen(options.kernels, platform)
        # On a GPU, blocks of physical space take least memory, and cost memory traffic; sending the
        # components in turn would take more memory.
        self._in_blocks = options.sequential or cpu
        sequential = options.sequential and cpu
        self.physical = PhysicalLayout(self.grid, mesh, "xyz", plan.physical)
        self.layout = Layout(
            self.grid,
            mesh,
            ORDER if self.kernels == "native" else plan.order,
            plan.spectral,
            mode_numbers={a: modes.mode_numbers(a) for a in "xyz"},
            half=modes.real,
            real=modes.real,
            truncated=not modes.every,
        )
        devices = self.layout.devices
        self.name = (
            f"{NAME}_{plan.name}"
            + ("_native" if self.kernels == "native" else "")
            + (f"_block{block}" if block else "")
            + (
                "_sequential"
                if sequential
                else "_in_blocks"
                if options.sequential and not cpu
                else ""
            )
            + ("" if exchange == "full" else f"_{exchange}")
        )
        self._block = block
        cpu_bytes = NATIVE_BLOCK_BYTES if self.kernels == "native" else CPU_BLOCK_BYTES
        self._block_bytes = cpu_bytes if cpu else GPU_BLOCK_BYTES
        kind = NativeTransform if self.kernels == "native" else LocalTransform
        self._local = kind(
            plan, self.layout, self.physical, self.dtype, self.block, cpu, sequential
        )
        self.kept_order = (
            self._local.values_order if isinstance(self._local, NativeTransform) else None
        )
        if not cpu and devices == 1 and plan is ZX_THEN_Y and not options.sequential:
            # No messages are sent, so that both directions may take the plan with the least memory
            # traffic.
            self._local = replace(self._local, plan=Z_THEN_YX, back=self._local)
        self._linear = replace(self._local, own_blanks=False)
        if devices > 1:
            self._local = replace(self._local, exchange=exchange)
        if self._local.back is not None:
            self._linear = replace(self._linear, back=replace(self._local.back, own_blanks=False))
        if (
            not cpu and block is None and not options.sequential
        ):  # faster, and the values exist whole anyway
            self._linear = replace(self._linear, blocks=lambda *_: max(self.grid.shape))
        if cpu and devices == 1 and block is None and self.kernels == "xla":
            # A call of the FFT over a whole array uses all cores, while XLA's loop bodies use one;
            # and a single call over all axes makes the fewest passes over memory.
            self._linear = replace(self._linear, plan=XYZ, blocks=lambda *_: max(self.grid.shape))
        self._program = cache(self._make_program)
        self._evaluation = lru_cache(maxsize=8)(
            self._make_evaluation
        )  # the stages of a step share one program

    @property
    def complex_dtype(self) -> np.dtype:
        return np.result_type(self.dtype, np.complex64)

    @property
    def value_dtype(self) -> np.dtype:
        """Type of values on the grid."""
        return self.dtype if self.layout.half else self.complex_dtype

    def block(self, stage: int, components: int, reducing: bool = False) -> int:
        """The number of planes that a stage visits at a time, with `components` values at each
        point. If the stage only reduces the values (`reducing`), blocks cost nothing on a GPU."""
        first, second, third = self.plan.stages[stage].order
        extent = partial(self._local.local, stage)
        if first in self.plan.stages[stage].axes:
            return extent(first)  # the axis is transformed, so there are no planes
        if stage > 0 and not self._cpu:
            return extent(first)  # copies into and out of a GPU's loop cost more than they save
        if self._block is not None:
            if stage == 0:
                return self._block
            if self._block >= self._local.local(0, self.plan.stages[0].order[0]):
                return extent(first)
        few = not self._cpu and components <= FEW
        if not reducing and (few or not self._in_blocks):
            return extent(first)
        value = self.value_dtype if stage == 0 else self.complex_dtype
        plane = components * value.itemsize * extent(second) * extent(third)
        planes = max(1, self._block_bytes // plane)
        return (
            max(LANES, planes // LANES * LANES)
            if self.kernels == "native" and flat(self.grid)
            else planes
        )

    def _make_program(self, direction: str) -> Program:
        physical, modes = self.physical.spec_of(4), self.layout.spec_of(4)
        run = getattr(self._linear, direction)
        if direction == "inverse_kept":
            physical = self._kept_spec
        return Program(
            lambda array: (run(array),),
            self.mesh,
            [physical if direction == "forward" else modes],
            [modes if direction == "forward" else physical],
            name=f"{self.name}_{direction}",
            linear=True,
            part=(self, direction.removesuffix("_kept")),
        )

    @property
    def _kept_spec(self) -> PartitionSpec:
        return PartitionSpec(None, *map(self.physical.sharded.get, self.kept_order or ""))

    def _apply(self, direction: str, array: jax.Array, source, dtype) -> jax.Array:
        array = source.whole(array, direction)
        flat = array.astype(dtype).reshape(-1, *source.shape)
        (result,) = self._program(direction)(flat)
        return result.reshape(*array.shape[:-3], *result.shape[1:])

    def _kept(self, modes: jax.Array) -> jax.Array:
        if not self.grid.spherical or not self.layout.truncated:
            return modes
        return jnp.where(self.layout.mask, modes, 0)

    def forward(self, values: jax.Array) -> jax.Array:
        return self._kept(self._apply("forward", values, self.physical, self.value_dtype))

    def inverse(self, modes: jax.Array) -> jax.Array:
        return self._apply("inverse", modes, self.layout, self.complex_dtype)

    def inverse_kept(self, modes: jax.Array) -> jax.Array:
        assert self.kept_order is not None
        (values,) = self._program("inverse_kept")(modes.astype(self.complex_dtype))
        return values

    def evaluate_once(self, inputs, pointwise, parameters=(), keep=()) -> Evaluated:
        array, given = stack(inputs)
        if array is None:
            raise ValueError("evaluate needs at least one input field")
        first = np.cumsum(given.sizes) - given.sizes
        ranges = jax.tree.unflatten(
            given.treedef, list(zip(map(int, first), given.sizes, strict=True))
        )
        kept = {} if self.kept_order is None else {name: ranges[name] for name in keep}
        flat, parameter_tree = jax.tree.flatten(parameters)
        shapes = tuple(jax.ShapeDtypeStruct(jnp.shape(a), jnp.result_type(a)) for a in flat)
        program, wanted, products = self._evaluation(
            pointwise, given, parameter_tree, shapes, tuple(kept.values())
        )
        results = iter(program(array.astype(self.complex_dtype), *map(jnp.asarray, flat)))
        values = {name: next(results) for name in kept}
        return Evaluated(
            products.split(self._kept(next(results)) if products.leads else None),
            {k: next(results) for k in wanted.maxima},
            {k: next(results) / self.grid.points for k in wanted.means},
            values,
        )

    def _make_evaluation(
        self,
        pointwise: PointwiseFunction,
        given: Stacked,
        parameter_tree: Any,
        shapes: Any,
        parts: Kept,
    ) -> tuple[Program, Local, Stacked]:
        wanted = self._probe(pointwise, given, jax.tree.unflatten(parameter_tree, shapes))
        products = described(wanted.products)

        def local(values, points, inside, parameters) -> tuple[jax.Array | None, Reductions]:
            result = pointwise(given.split(values), points, parameters)
            full = result.everywhere(values.shape[1:])
            return stack(full.products)[0], reduce_values(full.maxima, full.means, inside)

        components = sum(given.sizes) + sum(products.sizes)

        def run(array, *flat, reverse=False):
            parameters = jax.tree.unflatten(parameter_tree, flat)
            function = partial(local, parameters=parameters)
            modes, reduced, values = self._local.evaluate(
                array, function, components, reverse, parts
            )
            return (
                *values,
                *jax.tree.leaves(modes),
                *(reduced.maxima[k] for k in wanted.maxima),
                *(reduced.sums[k] for k in wanted.means),
            )

        reductions = len(wanted.maxima) + len(wanted.means)
        modes = self.layout.spec_of(4)
        program = Program(
            run,
            self.mesh,
            [modes, *(PartitionSpec() for _ in shapes)],
            [self._kept_spec] * len(parts)
            + [modes] * bool(products.leads)
            + [PartitionSpec()] * reductions,
            name=f"{self.name}_evaluate",
            part=(self, "evaluate"),
            reversible=partial(run, reverse=True),
        )
        return program, wanted, products

    def _probe(self, pointwise: PointwiseFunction, given: Stacked, parameters: Tree) -> Local:
        one = jax.ShapeDtypeStruct((1, 1, 1), self.dtype)
        values = jax.ShapeDtypeStruct((sum(given.sizes), 1, 1, 1), self.value_dtype)
        return jax.eval_shape(
            lambda v, x, q: pointwise(given.split(v), Points(x, x, x), q), values, one, parameters
        )
