"""The duration of a step on a machine where no step has been measured:

    seconds = missed bytes / bandwidth + other bytes / cache + sent bytes / (link or network)

The bytes follow from the components that the traced step transforms, and the sent bytes are those
of the exchanges in the trace. This works for any model and integrator, on devices that exist only
by name. The formula counts no kernel launches and no latencies, and lets nothing overlap. Tests
compare its bytes with those of compiled programs (a factor of at most 1.7), and the seconds that
follow from a measured rate with measured steps (1.5)."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from numpy.typing import DTypeLike

from simulator.plan.machines import Machine
from simulator.simulation.abstract_run import Platform
from simulator.simulation.simulation import Simulation
from simulator.spectral.program import program_p

ACCESSES = {"gpu": (8.0, 10.0, 14.0), "cpu": (5.0, 6.0, 8.0)}
"""How often a step reads or writes each component that it transforms, if no axis, one axis or two
axes are distributed; products at the points, stages of the integrator and copies for exchanges are
included. The numbers are means over the compiled programs of all models, which differ from them by
factors of up to 1.7."""
PARTICLES = 200.0
"""How often a step reads or writes the bytes of its particles, from compiled programs of cold dark
matter."""
CACHED = 0.65
"""The fraction of the bytes of a processor's step that its transforms and blocks find in the
cache."""


class Neighbours(NamedTuple):
    """The devices that exchange messages with one another along one axis of a mesh."""

    devices: int
    stride: int
    """Distance between them in the list of all devices, of which a node holds consecutive ones."""


@dataclass
class StepWork:
    """The work of a step, of one device."""

    bytes: float = 0.0  # Bytes read and written, an estimate.
    exchanges: int = 0  # Number of all-to-alls.
    messages: dict[Neighbours, float] = field(default_factory=dict)
    """Bytes of the messages of these exchanges, with those that the device keeps."""
    components: float = 0.0
    """Bytes, at the grid's points on all devices, of the components that transforms read and return."""
    transformed: float = 0.0  # The same of the components that are transformed.
    operations: float = 0.0
    """Operations of the transforms of all devices: 2.5 N log2 N each, for complex data 5 N log2 N."""

    @property
    def sent(self) -> float:
        """Bytes that the device sends to others."""
        return sum(size * (n - 1) / n for (n, _), size in self.messages.items())


def step_work(simulation: Simulation, platform: Platform) -> StepWork:
    """The work of a step of `simulation`, whose devices need not exist."""
    work = traced_work(simulation.step, simulation.placed_template, np.float64(1e-3))
    distributed = sum(extent > 1 for extent in simulation.transform.layout.mesh.shape.values())
    particles = jax.tree.leaves(simulation.placed_template.particles)
    work.bytes = ACCESSES[platform][min(distributed, 2)] * work.components
    work.bytes /= len(simulation.cluster.devices)
    work.bytes += PARTICLES * sum(
        _bytes(a.sharding.shard_shape(a.shape), a.dtype) for a in particles
    )
    return work


def traced_work(step: Callable[..., Any], *arguments: Any) -> StepWork:
    """The transforms and exchanges in `step(*arguments)`; the arguments may be shapes. Every part
    of a transform is a `Program`, and every loop states its number of iterations."""
    work = StepWork()
    for call, times in _equations(jax.make_jaxpr(step)(*arguments).jaxpr, 1):
        if call.primitive is not program_p or (program := call.params["program"]).part is None:
            continue
        transform, direction = program.part
        inputs, outputs = ([v.aval for v in side] for side in (call.invars, call.outvars))
        read = inputs[0].shape[0]
        # An evaluation that only finds maxima and means returns no component.
        returned = outputs[0].shape[0] if outputs[0].ndim == 4 else 0
        numbers = times * (1 if transform.layout.real else 2)
        component = numbers * _bytes(transform.physical.shape, transform.dtype)
        transformed = read + returned if direction == "evaluate" else read
        points = transform.grid.points
        work.components += (read + returned) * component
        work.transformed += transformed * component
        work.operations += transformed * numbers * 2.5 * points * math.log2(points)
        for equation, inner in _equations(program.local_jaxpr(inputs).jaxpr, times):
            if equation.primitive.name == "all_to_all" and program.mesh.size > 1:
                operand = equation.invars[0].aval
                axis = _neighbours(transform.layout.mesh.shape, equation.params["axis_name"])
                size = inner * _bytes(operand.shape, operand.dtype)
                work.exchanges += inner
                work.messages[axis] = work.messages.get(axis, 0.0) + size
    return work


def _neighbours(extents: Mapping[str, int], axis: str | tuple[str, ...]) -> Neighbours:
    name = axis if isinstance(axis, str) else axis[0]
    at = list(extents).index(name)
    return Neighbours(extents[name], math.prod(list(extents.values())[at + 1 :]))


def _bytes(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def _equations(jaxpr: Jaxpr, times: int) -> Iterator[tuple[Any, int]]:
    """All equations of a jaxpr, each with the number of times that it runs; the body of a `while`
    counts once."""
    for equation in jaxpr.eqns:
        yield equation, times
        if equation.primitive is program_p:
            continue
        inner = times * equation.params["length"] if equation.primitive.name == "scan" else times
        for value in jax.tree.leaves(
            equation.params, is_leaf=lambda v: isinstance(v, ClosedJaxpr | Jaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                value = value.jaxpr
            if isinstance(value, Jaxpr):
                yield from _equations(value, inner)


class StepSeconds(NamedTuple):
    """The duration of a step."""

    arrays: float  # Seconds in which a device reads, writes and transforms arrays.
    exchange: float

    @property
    def all(self) -> float:
        return self.arrays + self.exchange


def step_seconds(work: StepWork, machine: Machine) -> StepSeconds:
    """The duration of a step: a device reads and writes at its bandwidth (a processor: the fraction
    CACHED of the bytes at the bandwidth of its cache), and sends to devices on its own node and on
    other nodes at the same time."""
    cached = CACHED if machine.cache else 0.0
    rate = cached / (machine.cache or 1.0) + (1 - cached) / machine.bandwidth
    exchange = 0.0
    for (devices, stride), size in work.messages.items():
        on_node = min(devices, max(1, machine.per_node // stride))
        within = size * (on_node - 1) / devices / machine.link
        beyond = size * (devices - on_node) / devices / (machine.network / machine.per_node)
        exchange += max(within, beyond)
    return StepSeconds(work.bytes * rate, exchange)
