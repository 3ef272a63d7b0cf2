"""The backend `custom_partitioning`: staged transforms of real or complex fields; axes are
truncated, then sent."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
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
from simulator.spectral.plans import PLANS, SLABS, Z_Y_X, Decomposition
from simulator.spectral.points import Points
from simulator.spectral.program import Program
from simulator.spectral.schedules.device_part import (
    Arrays,
    DevicePart,
    Reductions,
    reduce_values,
)
from simulator.spectral.schedules.pointwise import PointwiseCall
from simulator.spectral.schedules.schedule import DeviceSchedule, order_of_modes
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
        options = replace(options, platform=platform, kernels=self.kernels)
        self.physical = PhysicalLayout(self.grid, mesh, AXES, plan.physical)
        self.layout = Layout(
            self.grid,
            mesh,
            order_of_modes(plan, self.kernels),
            plan.spectral,
            mode_numbers={axis: modes.mode_numbers(axis) for axis in AXES},
            half=modes.real,
            real=modes.real,
            truncated=not modes.every,
        )
        part = DevicePart(plan, self.layout, self.physical, self.dtype, options)
        self.schedule = DeviceSchedule.of(part)
        self.threads = options.threads
        self.kept_order = self.schedule.stages.values_order
        self.name = _name(plan, options)
        self._program = cache(self._make_program)
        # The stages of a step share one program.
        self._evaluation = lru_cache(maxsize=8)(partial(FieldProducts, self))

    def _make_program(self, direction: str) -> Program:
        run = getattr(self.schedule.of_fields(), direction)
        values = self.kept_spec if direction == "inverse_kept" else self.physical.spec_of(4)
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

    @cached_property
    def kept_spec(self) -> PartitionSpec:
        """The partition of values that `evaluate` keeps."""
        return PartitionSpec(None, *map(self.physical.sharded.get, self.kept_order or ""))

    def _apply(
        self, direction: str, array: jax.Array, source: Arrangement, dtype: np.dtype
    ) -> jax.Array:
        array = source.whole(array, direction)
        components = array.astype(dtype).reshape(-1, *source.shape)
        (result,) = self._program(direction)(components)
        return result.reshape(*array.shape[:-3], *result.shape[1:])

    def truncated(self, modes: jax.Array) -> jax.Array:
        """The modes of the state, of all modes that the layout has."""
        if not self.grid.spherical or not self.layout.truncated:
            return modes
        return jnp.where(self.layout.mask, modes, 0)

    def forward(self, values: jax.Array) -> jax.Array:
        return self.truncated(self._apply("forward", values, self.physical, self.value_dtype))

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
        arguments, tree = jax.tree.flatten(parameters)
        evaluation = self._evaluation(
            comparable(pointwise),
            Positions.of(inputs),
            tree,
            tuple([jax.ShapeDtypeStruct(jnp.shape(a), jnp.result_type(a)) for a in arguments]),
            () if self.kept_order is None else tuple(keep),
            tuple([OnGrid(name, a.shape[:-3], a.dtype) for name, a in stored.items()]),
        )
        modes = stack(inputs).astype(self.complex_dtype)
        return evaluation(modes, *stored.values(), *map(jnp.asarray, arguments))


def _name(plan: Decomposition, options: TransformOptions) -> str:
    name = f"{NAME}_{plan.name}"
    name += "_native" if options.kernels == "native" else ""
    name += f"_block{options.block}" if options.block else ""
    if options.sequential:
        name += "_sequential" if options.platform == "cpu" else "_in_blocks"
    # XLA compiles loops for a number of threads, so their programs have names of their own.
    name += f"_{options.threads}_threads" if options.threads > 1 else ""
    return name + (f"_{options.exchange}" if options.exchange != "full" else "")


@dataclass(frozen=True)
class OnGrid:
    """An array of values on the grid that a pointwise function reads."""

    name: str
    lead: tuple[int, ...]
    dtype: np.dtype


class Bound(NamedTuple):
    """A function with its first arguments, equal to another one of the same."""

    function: Callable[..., Local]
    first: tuple[Any, ...]

    def __call__(self, *others: Any) -> Local:
        return self.function(*self.first, *others)


def comparable(function: PointwiseFunction) -> PointwiseFunction:
    """`function`, such that partial functions of the same arguments are equal and share a
    program."""
    if not isinstance(function, partial) or function.keywords:
        return function
    bound = Bound(function.func, tuple(map(comparable, function.args)))
    try:
        hash(bound)
    except TypeError:
        return function
    return bound


class FieldProducts:
    """Products of fields at points as a program on the devices."""

    def __init__(
        self,
        transform: StagedTransform,
        pointwise: PointwiseFunction,
        fields: Positions,
        tree: Any,
        shapes: tuple[jax.ShapeDtypeStruct, ...],
        keep: tuple[str, ...],
        stored: tuple[OnGrid, ...],
    ):
        """`tree` and `shapes` describe the parameters of the pointwise function."""
        self.transform, self.pointwise = transform, pointwise
        self.fields, self.tree, self.keep, self.stored = fields, tree, keep, stored
        self.schedule = transform.schedule
        point = (1, 1, 1)
        x = jax.ShapeDtypeStruct(point, transform.dtype)
        values = jax.ShapeDtypeStruct((fields.components, *point), transform.value_dtype)
        arrays = [jax.ShapeDtypeStruct((*s.lead, *point), s.dtype) for s in stored]
        traced, local = jax.make_jaxpr(self._at_a_point, return_shape=True)(
            values, x, *arrays, *shapes
        )
        self.maxima, self.means = sorted(local.maxima), sorted(local.means)
        self.products = Positions.of(local.products)
        self.operations = self.schedule.stages.operations(
            traced, len(stored), len(self.products.leads), len(self.maxima)
        )
        self.program = self._program(len(shapes))

    def _program(self, parameters: int) -> Program:
        transform = self.transform
        modes, everywhere = transform.layout.spec_of(4), PartitionSpec()
        arrays = [transform.physical.spec_of(3 + len(s.lead)) for s in self.stored]
        reductions = len(self.maxima) + len(self.means)
        products = [modes] if self.products.leads else []
        values = [transform.kept_spec] * len(self.keep)
        return Program(
            self._run,
            transform.mesh,
            [modes, *arrays, *[everywhere] * parameters],
            [*values, *products, *[everywhere] * reductions],
            name=f"{transform.name}_evaluate",
            part=(transform, "evaluate"),
            reversible=partial(self._run, reverse=True),
        )

    def __call__(self, modes: jax.Array, *arguments: jax.Array) -> Evaluated:
        transform = self.transform
        results = iter(self.program(modes, *arguments))
        values = dict(zip(self.keep, results, strict=False))
        products = transform.truncated(next(results)) if self.products.leads else None
        maxima = dict(zip(self.maxima, results, strict=False))
        means = {name: next(results) / transform.grid.points for name in self.means}
        return Evaluated(self.products.split(products), maxima, means, values)

    def _run(
        self, modes: jax.Array, *arguments: jax.Array, reverse: bool = False
    ) -> tuple[jax.Array, ...]:
        """One device's part of values to keep, products, maxima and sums."""
        call = PointwiseCall(
            partial(self._of_block, arguments),
            self.fields.components,
            self.products.components,
            [self.fields.ranges[name] for name in self.keep],
            self.maxima,
            self.means,
            reverse,
            self.operations,
            arguments,
        )
        products, reduced, values = self.schedule.evaluate(modes, call)
        maxima = map(reduced.maxima.__getitem__, self.maxima)
        return (*values, *products, *maxima, *map(reduced.sums.__getitem__, self.means))

    def _of_block(
        self, arguments: Arrays, values: jax.Array, points: Points, inside: jax.Array
    ) -> tuple[jax.Array | None, Reductions]:
        count = len(self.stored)
        part, axes = self.schedule.part, self.schedule.stages.reduced_axes
        arrays = [part.values_at(array, points) for array in arguments[:count]]
        local = self._local(values, points, (*arrays, *arguments[count:]))
        local = local.everywhere(values.shape[1:])
        products = stack(local.products) if self.products.leads else None
        return products, reduce_values(local.maxima, local.means, inside, axes)

    def _at_a_point(self, values: jax.Array, x: jax.Array, *arguments: jax.Array) -> Local:
        return self._local(values, Points(x, x, x), arguments)

    def _local(self, values: jax.Array, points: Points, arguments: Arrays) -> Local:
        count = len(self.stored)
        fields = self.fields.split(values)
        if count:
            fields |= {s.name: a for s, a in zip(self.stored, arguments[:count], strict=True)}
        return self.pointwise(fields, points, self.tree.unflatten(arguments[count:]))


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
