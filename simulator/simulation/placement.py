"""Distributes a configuration's grid over devices: the possible device counts, the devices, the
transform."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from simulator.cluster import Allocation
from simulator.cluster.meeting import REFUSED
from simulator.cluster.mesh import MEMBERS
from simulator.cluster.start import Cluster, Meeting, start
from simulator.cluster.variables import whole_number
from simulator.config import RunConfig
from simulator.config.blocks import MOST_DEVICES
from simulator.errors import UserError
from simulator.physics.models import MODELS, Equation
from simulator.simulation.agreement import installed_record, settings_record
from simulator.spectral import (
    Grid,
    Modes,
    Transform,
    plans,
    staged,
)
from simulator.spectral.backends import build
from simulator.spectral.collectives import Kind
from simulator.spectral.requested_transform import Chosen, Request
from simulator.spectral.transform import Tree

BLOCK = "SIMULATOR_FFT_BLOCK"
SMALLEST = plans.ZX_THEN_Y.name  # The plan of custom_partitioning with the smallest memory.


def grid_of(config: RunConfig) -> Grid:
    return Grid.of(config.grid.shape, config.grid.box, config.grid.dealias, config.grid.shell_width)


def request_of(config: RunConfig, equation: Equation | None = None) -> Request:
    """The transform that a configuration requests. `equation`: the equation of a user's file, which is
    not known from the configuration alone."""
    model = equation or MODELS[config.model.kind]
    fft = config.fft
    name = config.model.kind if equation is None else type(equation).__name__
    return Request(
        Modes(grid_of(config)),
        np.dtype(np.float64 if config.precision == "double" else np.float32),
        fft.backend,
        fft.decomposition,
        fft.mesh,
        fft.kernels,
        fft.exchange,
        name if model.numerics.split else None,
    )


@dataclass(frozen=True)
class Placement:
    """The placement of a run's fields and the choice of transform: decided once, and passed
    down."""

    config: RunConfig
    cluster: Cluster
    chosen: Chosen
    low: bool = False  # Whether a step minimizes memory at the cost of speed.
    members: int = 1  # Equal parts of the devices, each with the grid for its share of an ensemble.
    block: int | None = None  # Planes of physical space that are visited at a time, if set.

    @property
    def grid(self) -> Grid:
        return grid_of(self.config)

    @property
    def saves_memory(self) -> bool:
        """Whether a plan with less memory exists."""
        return self.chosen.candidate.backend == staged.NAME

    def with_low_memory(self) -> "Placement":
        """The same devices with the plan of smallest memory. Raises UserError if the backend has
        none."""
        candidate = self.chosen.candidate
        if not self.saves_memory:
            raise self.config.error(
                "run.memory", f"low needs fft.backend: {staged.NAME}, not {candidate.backend}"
            )
        candidates = request_of(self.config).candidates(len(self.cluster.devices) // self.members)
        least = next((c for c in candidates if c.plan == SMALLEST), candidate)
        if self.cluster.platform == "gpu" and len(candidate.mesh) == 2:
            least = candidate  # pencils, because slabs would hold much padding
        return replace(self, chosen=self.chosen._replace(candidate=least), low=True)

    def transform(self, exchange: Kind | None = None, **kind: bool) -> Transform:
        """The transform of one kind of field. `real=True, every=False` selects real or complex
        fields, and all modes or those that dealiasing keeps. All kinds share one arrangement of
        points. `exchange`: another number format of exchanges than the run's."""
        config = self.config
        request = request_of(self.config)
        # Not the chosen ones: jaxdecomp accepts `auto` and refuses `native`.
        kernels = "xla" if self.chosen.kernels == "xla" else config.fft.kernels
        return build(
            replace(request.modes, **kind),
            self.chosen.candidate,
            self.cluster.devices,
            request.dtype,
            block=self.block,
            sequential=self.low,
            platform=self.cluster.platform,
            kernels=kernels,
            exchange=exchange or config.fft.exchange,
            members=self.members,
            threads=self.cluster.threads,
        )


def place(
    config: RunConfig,
    cluster: Cluster,
    report: Callable[[str], None] = print,
    members: int = 1,
    earlier: Mapping[str, Any] | None = None,
) -> Placement:
    """The placement of a configuration's run on the devices of `cluster`, or of an ensemble of such
    runs, whose `members` are laid over equal parts of the devices. All processes call this.
    `earlier`: on the first process the transform that an earlier start has measured as the fastest.

    Raises UserError if grid, devices, backend, plan and kernels are incompatible."""
    check_devices(config, len(cluster.devices), cluster.num_processes, members)
    with config.blaming(""):
        chosen = request_of(config).chosen(cluster, members, earlier, report)
    placement = Placement(config, cluster, chosen, members=members, block=_block(os.environ))
    return placement.with_low_memory() if config.run.memory == "low" else placement


def _block(environ: Mapping[str, str]) -> int | None:
    """Planes of physical space that are visited at a time; None: chosen by the schedule."""
    text = environ.get(BLOCK)
    if not text:
        return None
    if not (number := whole_number(text)):
        raise UserError(f"{BLOCK}: a number of planes is needed, not {text}")
    return number


def check_devices(
    config: RunConfig,
    count: int | Literal["auto"],
    processes: int = 1,
    members: int = 1,
    equation: Equation | None = None,
) -> None:
    """Refuses a number of devices over which the layout, the processes or the members cannot be
    distributed, and exchanges that have no effect or a harmful one. `equation` as in `request_of`."""
    if members < 1:
        raise UserError(f"members: must be at least 1, not {members}")
    with config.blaming(""):
        request_of(config, equation).check(count, MOST_DEVICES, processes, members)


def most_devices(config: RunConfig, most: int) -> int | None:
    """The largest number of devices up to `most` over which the layout can be distributed; None if
    there is none."""
    with config.blaming(""):
        return request_of(config).most(most)


def connect(
    config: RunConfig,
    allocation: Allocation,
    folder: Path | None = None,
    members: int = 1,
    record: Mapping[str, str] = MappingProxyType({}),
) -> Cluster:
    """Starts JAX with the devices of the configuration and the allocation; refuses impossible
    numbers first, and processes that differ in configuration, installation or `record`."""
    settings = config.devices
    several = allocation.num_processes > 1
    # One dimension is not divided, however many GPUs there are.
    one = settings.count == "auto" and grid_of(config).dimensions == 1 and not several
    try:
        check_devices(config, settings.count, allocation.num_processes, members)
    except UserError as error:
        if not several:
            raise
        record = {REFUSED: str(error), **record}  # said after the processes have met
    if several:
        planes = {BLOCK: os.environ.get(BLOCK, "")}
        record = {**settings_record(config), **installed_record(), **planes, **record}
    return start(
        allocation,
        platform=settings.platform,
        count=members if one else settings.count,
        threads=settings.threads,
        members=members,
        meet=Meeting(folder, config.run.rendezvous, config.run.transport, record),
    )


Axes = int | Sequence[Any] | None
"""`in_axes` of `jax.vmap`."""


def together(function: Callable[..., Any], mesh: Mesh, in_axes: Axes = 0) -> Callable[..., Any]:
    """`function` over a leading axis of its arguments and results, laid over MEMBERS, compiled."""
    name = f"{getattr(function, '__name__', 'function')}_together"
    over = MEMBERS if MEMBERS in mesh.axis_names else None

    def laid(leaf: ArrayLike) -> jax.Array:
        """`leaf`, constrained by `vmap` alone, which shards the new axis over MEMBERS."""
        free = PartitionSpec(*(PartitionSpec.UNCONSTRAINED,) * jnp.ndim(leaf))
        return lax.with_sharding_constraint(leaf, NamedSharding(mesh, free))

    def one(*arguments: Any) -> Any:
        return jax.tree.map(laid, function(*jax.tree.map(laid, arguments)))

    batched = jax.vmap(one if over else function, in_axes, spmd_axis_name=over)
    batched.__name__ = name
    return jax.jit(batched)


def stacked(sharding: NamedSharding) -> NamedSharding:
    """The sharding of many arrays along a new leading axis, from the sharding of one array."""
    over = MEMBERS if MEMBERS in sharding.mesh.axis_names else None
    return NamedSharding(sharding.mesh, PartitionSpec(over, *sharding.spec))


def stack_members(states: Sequence[Tree], shardings: Tree, parts: int) -> Tree:
    """One tree, whose arrays have a new leading axis, from many trees. `shardings` are those of the
    arrays of one tree. Raises UserError if the trees cannot be divided equally among the `parts` of
    the devices."""
    if not states or len(states) % parts:
        near = max(len(states) // parts, 1) * parts
        raise UserError(
            f"{len(states)} members cannot be divided among {parts} parts of the devices; {near} can"
        )
    places, tree = jax.tree.flatten(shardings)
    return _stacking(tuple(places), tree)(tuple(states))


@lru_cache(maxsize=32)
def _stacking(places: tuple[NamedSharding, ...], tree: Any) -> Callable[[tuple[Tree, ...]], Tree]:
    shardings = jax.tree.unflatten(tree, map(stacked, places))
    return jax.jit(
        lambda states: jax.tree.map(lambda *a: jnp.stack(a), *states), out_shardings=shardings
    )


def unstack_members(states: Tree, shardings: Tree) -> list[Tree]:
    """The many trees that `stack_members` has joined to one tree."""
    places, tree = jax.tree.flatten(shardings)
    return list(_unstacking(tuple(places), tree, len(jax.tree.leaves(states)[0]))(states))


@lru_cache(maxsize=32)
def _unstacking(
    places: tuple[NamedSharding, ...], tree: Any, count: int
) -> Callable[[Tree], tuple[Tree, ...]]:
    def unstacking(states: Tree) -> tuple[Tree, ...]:
        return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(count))

    return jax.jit(unstacking, out_shardings=(jax.tree.unflatten(tree, places),) * count)
