"""The backend `custom_partitioning`: staged transforms of real or complex fields; axes are
truncated, then sent."""

from collections.abc import Collection, Mapping
from functools import cache, lru_cache, partial
from math import ceil, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jax.typing import DTypeLike

from simulator.cluster.mesh import MEMBERS, make_mesh
from simulator.spectral import native
from simulator.spectral.backend import Backend
from simulator.spectral.candidates import Candidate, Devices, Modes, TransformOptions, factors
from simulator.spectral.grid import AXES
from simulator.spectral.layout import Arrangement, Layout, PhysicalLayout
from simulator.spectral.program import Program
from simulator.spectral.schedules import SCHEDULES
from simulator.spectral.schedules.schedule import Points, Ranges, Reductions, reduce_values
from simulator.spectral.stages import PLANS, SLABS, Z_Y_X, Decomposition
from simulator.spectral.transform import (
    NOTHING_STORED,
    Evaluated,
    Local,
    PointwiseFunction,
    Positions,
    Transform,
    Tree,
    stack,
)

NAME = "custom_partitioning"


class OnGrid(NamedTuple):
    """An array of values on the grid that a pointwise function reads."""

    name: str
    lead: tuple[int, ...]
    dtype: np.dtype


def padding(modes: Modes, count: int) -> float:
    """The ratio of the points or modes that slabs on `count` devices send, with padding, to those
    of the grid."""
    return prod(ceil(n / count) * count / n for n in (modes.grid.shape[1], modes.counts[2]))


class StagedTransform(Transform):
    """Runs a `Decomposition` on a mesh with the axes `plan.mesh_axes`, preceded by the axis MEMBERS
    if the members of an ensemble are distributed over devices."""

    def __init__(
        self,
        modes: Modes,
        mesh: Mesh,
        plan: Decomposition,
        dtype: DTypeLike,
        options: TransformOptions,
    ):
        self.grid, self.mesh, self.plan = modes.grid, mesh, plan
        self.dtype = np.dtype(dtype)
        platform = options.platform or str(mesh.devices.flat[0].platform)
        self.kernels = native.chosen(options.kernels, platform)
        kind = SCHEDULES["cpu" if platform == "cpu" else "gpu", self.kernels]
        self.physical = PhysicalLayout(self.grid, mesh, AXES, plan.physical)
        self.layout = Layout(
            self.grid,
            mesh,
            kind.order_of(plan),
            plan.spectral,
            mode_numbers={axis: modes.mode_numbers(axis) for axis in AXES},
            half=modes.real,
            real=modes.real,
            truncated=not modes.every,
        )
        schedule = kind(
            plan,
            self.layout,
            self.physical,
            self.dtype,
            options.block,
            options.sequential,
            options.exchange,
            options.threads,
        )
        self.schedule = schedule
        self.threads = options.threads
        self._of_fields = schedule.of_fields()
        self.kept_order = schedule.values_order
        self.name = f"{NAME}_{plan.name}"
        self.name += "_native" if self.kernels == "native" else ""
        self.name += f"_block{options.block}" if options.block else ""
        self.name += schedule.low_name if options.sequential else ""
        # XLA compiles loops for a number of threads, so their programs have names of their own.
        self.name += f"_{options.threads}_threads" if options.threads > 1 else ""
        self.name += f"_{options.exchange}" if options.exchange != "full" else ""
        self._program = cache(self._make_program)
        # The stages of a step share one program.
        self._evaluation = lru_cache(maxsize=8)(self._make_evaluation)

    def _make_program(self, direction: str) -> Program:
        run = getattr(self._of_fields, direction)
        values = self._kept_spec if direction == "inverse_kept" else self.physical.spec_of(4)
        modes = self.layout.spec_of(4)
        source, target = (values, modes) if direction == "forward" else (modes, values)
        return Program(
            lambda array: (run(array),),
            self.mesh,
            [source],
            [target],
            name=f"{self.name}_{direction}",
            linear=True,
            part=(self, direction.removesuffix("_kept")),
        )

    @property
    def _kept_spec(self) -> PartitionSpec:
        return PartitionSpec(None, *map(self.physical.sharded.get, self.kept_order or ""))

    def _apply(
        self, direction: str, array: jax.Array, source: Arrangement, dtype: np.dtype
    ) -> jax.Array:
        array = source.whole(array, direction)
        components = array.astype(dtype).reshape(-1, *source.shape)
        (result,) = self._program(direction)(components)
        return result.reshape(*array.shape[:-3], *result.shape[1:])

    def _truncated(self, modes: jax.Array) -> jax.Array:
        if not self.grid.spherical or not self.layout.truncated:
            return modes
        return jnp.where(self.layout.mask, modes, 0)

    def forward(self, values: jax.Array) -> jax.Array:
        return self._truncated(self._apply("forward", values, self.physical, self.value_dtype))

    def inverse(self, modes: jax.Array) -> jax.Array:
        return self._apply("inverse", modes, self.layout, self.complex_dtype)

    def inverse_kept(self, modes: jax.Array) -> jax.Array:
        assert self.kept_order is not None
        (values,) = self._program("inverse_kept")(modes.astype(self.complex_dtype))
        return values

    def evaluate_once(
        self,
        inputs: Tree,
        pointwise: PointwiseFunction,
        parameters: Tree = (),
        keep: Collection[str] = (),
        stored: Mapping[str, jax.Array] = NOTHING_STORED,
    ) -> Evaluated:
        fields = Positions.of(inputs)
        kept = [] if self.kept_order is None else list(keep)
        ranges = fields.ranges()
        arguments, tree = jax.tree.flatten(parameters)
        shapes = tuple(jax.ShapeDtypeStruct(jnp.shape(a), jnp.result_type(a)) for a in arguments)
        parts = tuple(ranges[name] for name in kept)
        held = tuple(OnGrid(name, a.shape[:-3], a.dtype) for name, a in stored.items())
        program, local, products = self._evaluation(pointwise, fields, tree, shapes, parts, held)
        modes = stack(inputs).astype(self.complex_dtype)
        remaining = iter(program(modes, *stored.values(), *map(jnp.asarray, arguments)))
        values = {name: next(remaining) for name in kept}
        modes = self._truncated(next(remaining)) if products.leads else None
        return Evaluated(
            products.split(modes),
            {name: next(remaining) for name in local.maxima},
            {name: next(remaining) / self.grid.points for name in local.means},
            values,
        )

    def _make_evaluation(
        self,
        pointwise: PointwiseFunction,
        fields: Positions,
        parameter_tree: Any,
        shapes: tuple[jax.ShapeDtypeStruct, ...],
        keep: Ranges,
        stored: tuple[OnGrid, ...],
    ) -> tuple[Program, Local, Positions]:
        """The program of `evaluate_once`, the shapes of the pointwise result at a point, and its
        products."""
        at_a_point = self._at_a_point(pointwise, fields, parameter_tree.unflatten(shapes), stored)
        products = Positions.of(at_a_point.products)
        components = sum(fields.sizes) + sum(products.sizes)

        def run(
            array: jax.Array, *arguments: jax.Array, reverse: bool = False
        ) -> tuple[jax.Array, ...]:
            parameters = parameter_tree.unflatten(arguments[len(stored) :])
            arrays = dict(zip((s.name for s in stored), arguments, strict=False))

            def local(
                values: jax.Array, points: Points, inside: jax.Array
            ) -> tuple[jax.Array | None, Reductions]:
                known = fields.split(values)
                known |= {n: self.schedule.values_at(a, points) for n, a in arrays.items()}
                result = pointwise(known, points, parameters)
                full = result.everywhere(values.shape[1:])
                stacked = stack(full.products) if products.leads else None
                return stacked, reduce_values(
                    full.maxima, full.means, inside, self.schedule.reduced_axes
                )

            modes, reduced, values = self.schedule.evaluate(array, local, components, reverse, keep)
            maxima = [reduced.maxima[name] for name in at_a_point.maxima]
            sums = [reduced.sums[name] for name in at_a_point.means]
            return (*values, *modes, *maxima, *sums)

        reductions = len(at_a_point.maxima) + len(at_a_point.means)
        modes, everywhere = self.layout.spec_of(4), PartitionSpec()
        program = Program(
            run,
            self.mesh,
            [
                modes,
                *(self.physical.spec_of(3 + len(s.lead)) for s in stored),
                *[everywhere] * len(shapes),
            ],
            [
                *[self._kept_spec] * len(keep),
                *[modes] * bool(products.leads),
                *[everywhere] * reductions,
            ],
            name=f"{self.name}_evaluate",
            part=(self, "evaluate"),
            reversible=partial(run, reverse=True),
        )
        return program, at_a_point, products

    def _at_a_point(
        self,
        pointwise: PointwiseFunction,
        fields: Positions,
        parameters: Tree,
        stored: tuple[OnGrid, ...],
    ) -> Local:
        """The shapes and types of the pointwise result on one point."""

        def result(
            values: jax.Array, arrays: dict[str, jax.Array], x: jax.Array, parameters: Tree
        ) -> Local:
            known = fields.split(values)
            known |= arrays
            return pointwise(known, Points(x, x, x), parameters)

        x = jax.ShapeDtypeStruct((1, 1, 1), self.dtype)
        values = jax.ShapeDtypeStruct((sum(fields.sizes), 1, 1, 1), self.value_dtype)
        arrays = {s.name: jax.ShapeDtypeStruct((*s.lead, 1, 1, 1), s.dtype) for s in stored}
        return jax.eval_shape(result, values, arrays, x, parameters)


class Staged(Backend):
    """Staged transforms: slabs, then pencils."""

    name = NAME

    def candidates(self, modes: Modes, count: int) -> list[Candidate]:
        """Slabs, then pencils. Every device has at least one plane on both sides of every exchange;
        extents that do not divide are padded."""
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
            points = ceil(nx / rows) * ceil(ny / columns)
            return min(rows, columns) == 1, points + ceil(my / rows) * ceil(mz / columns)

        return slabs + sorted(pencils, key=cost)

    def most(self, modes: Modes) -> int:
        (nx, ny, _), (_, my, mz) = modes.grid.shape, modes.counts
        return min(nx, my) * min(ny, mz)

    def needs(self, modes: Modes) -> str:
        (nx, ny, _), (_, my, mz) = modes.grid.shape, modes.counts
        return (
            f"slabs take at most {min(ny, mz)} devices ({ny} planes in y, {mz} in kz), pencils at most "
            f"{min(nx, my)} x {min(ny, mz)} ({nx} in x and {my} in ky by {ny} in y and {mz} in kz)"
        )

    def build(
        self,
        modes: Modes,
        candidate: Candidate,
        devices: Devices,
        dtype: DTypeLike,
        options: TransformOptions,
    ) -> StagedTransform:
        plan = PLANS[candidate.plan]
        shape = candidate.mesh
        names = plan.mesh_axes
        if options.members > 1:
            shape, names = (options.members, *shape), (MEMBERS, *names)
        return StagedTransform(modes, make_mesh(devices, shape, names), plan, dtype, options)
