"""Counts the transforms and exchanges in the trace of a step, and estimates the step's memory
traffic from them.

This works for any model and integrator, on devices that exist only by name: every part of a
transform is a `Program` in the traced step, and every loop states its number of iterations."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from simulator.simulation.simulation import Simulation
from simulator.spectral.program import program_p
from simulator.spectral.transform import Transform


class TimedPart(NamedTuple):
    """A part of a transform: `forward`, `inverse` or `evaluate`, from `given` to `made`
    components."""

    transform: Transform
    direction: str
    given: int
    made: int  # 0 if only maxima and means are computed.


class TimedExchange(NamedTuple):
    """An all-to-all of messages (message, component, ...) of one device over an axis of a
    transform's mesh."""

    transform: Transform
    axis: str
    shape: tuple[int, ...]
    dtype: Any

    @property
    def sent(self) -> float:
        """Bytes that a device sends; it keeps one of the messages."""
        extent = self.transform.layout.mesh.shape[self.axis]
        return _bytes(self, self.shape) * (extent - 1) / extent


class Anatomy(NamedTuple):
    parts: Counter[TimedPart]  # How often each part occurs in a step.
    exchanges: Counter[TimedExchange]
    ffts: int  # Number of local Fourier transforms of one device, without the transforms of the native kernels.
    planes: float
    """Bytes that a device sends so that all devices get planes of modes which only one of them
    holds (`operators.hermitian`); XLA takes a sum over the devices for that."""

    @property
    def sent(self) -> float:
        """Bytes that a device sends in the exchanges."""
        return sum(count * exchange.sent for exchange, count in self.exchanges.items())


class Sent(NamedTuple):
    """The exchanges of a step along one axis of a mesh."""

    bytes: float  # Bytes of the messages of a device in all of them, with those that it keeps.
    devices: int  # Number of devices that take part in one exchange.
    stride: int
    """Distance between neighbours among them in the list of all devices, of which a node holds
    consecutive ones."""


@dataclass(frozen=True)
class Traffic:
    """The traffic of one device in a step. Bytes and kernels are estimates."""

    bytes: float  # Bytes read and written.
    sent: float  # Bytes that the device sends to others.
    exchanges: int  # Number of all-to-alls.
    kernels: int  # Number of routines that a GPU starts.
    overlapped: float = 0.0  # Bytes that a GPU reads and writes while it exchanges others.
    exchanged: tuple[Sent, ...] = ()


ACCESSES = {"gpu": (8.0, 10.0, 14.0), "cpu": (5.0, 6.0, 8.0)}
"""How often a step reads or writes each component that it transforms, if no axis, one axis or two
axes are distributed; products at the points, stages of the integrator and copies for exchanges are
included. The numbers are means over the compiled programs of all models, which differ from them by
factors of up to 1.7."""
PARTICLES = 200.0
"""How often a step reads or writes the bytes of its particles, from compiled programs of cold dark
matter."""
PER_FFT = 2
PER_EXCHANGE = 3
"""Number of GPU kernels for each local transform and each exchange, from compiled programs."""


OVERLAPPED = {(False, 1): 0.44, (True, 1): 0.15, (False, 2): 0.60, (True, 2): 0.39}
"""The fraction of a step's bytes that a GPU's program reads and writes while other components are
exchanged, by `run.memory: low` and the number of distributed axes; from the schedules of programs
for 8 and 64 H100s."""
SHORT = 0.6
"""The overlap of half-precision exchanges with computation, relative to that of exchanges in full
precision, which take longer; from the same programs."""


def traffic(simulation: Simulation, platform: Literal["cpu", "gpu"]) -> Traffic:
    """The traffic of a step of `simulation`, whose devices need not exist."""
    counts = anatomy(simulation.step, simulation.placed_template, np.float64(1e-3))
    layout = simulation.transform.layout
    devices = len(simulation.cluster.devices)
    moved = 0.0
    for part, count in counts.parts.items():
        transform = part.transform
        values = math.prod(transform.physical.shape) * (1 if transform.layout.real else 2)
        moved += (
            count * (part.given + part.made) * values * np.dtype(transform.dtype).itemsize / devices
        )
    cut = min(sum(extent > 1 for extent in layout.mesh.shape.values()), 2)
    arrays = jax.tree.leaves(simulation.placed_template.particles)
    particles = sum(_bytes(array, array.sharding.shard_shape(array.shape)) for array in arrays)
    exchanged: dict[tuple[int, int], float] = {}
    for exchange, count in counts.exchanges.items():
        mesh = exchange.transform.layout.mesh.shape
        names = list(mesh)
        extents = list(mesh.values())
        at = names.index(exchange.axis)
        key = extents[at], math.prod(extents[at + 1 :])
        exchanged[key] = exchanged.get(key, 0.0) + count * _bytes(exchange, exchange.shape)
    exchanges = sum(counts.exchanges.values())
    accessed = ACCESSES[platform][cut] * moved + PARTICLES * particles
    hidden = 0.0
    if platform == "gpu" and exchanges:
        narrow = SHORT if simulation.config.fft.exchange == "half_scaled" else 1.0
        hidden = narrow * OVERLAPPED[simulation.placement.low, cut]
    # On devices that exist only by name it is unknown whether modes of a user's equation grow, and
    # most do not.
    planes = 0.0 if simulation.model.linear_growth.unknown else counts.planes
    kernels = PER_FFT * counts.ffts + PER_EXCHANGE * exchanges
    along_axes = tuple(Sent(size, *key) for key, size in exchanged.items())
    sent = planes + counts.sent
    return Traffic(accessed, sent, exchanges, kernels, hidden * accessed, along_axes)


def _bytes(array: Any, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * np.dtype(array.dtype).itemsize


def anatomy(step: Callable[..., Any], *arguments: Any) -> Anatomy:
    """The transforms in `step(*arguments)`; the arguments may be shapes."""
    parts: Counter[TimedPart] = Counter()
    exchanges: Counter[TimedExchange] = Counter()
    ffts = 0
    planes = 0.0
    slices = []
    layouts = {}
    for call, times in _equations(jax.make_jaxpr(step)(*arguments).jaxpr, 1):
        slices += [(call, times)] if call.primitive.name == "slice" else []
        if call.primitive is not program_p or (program := call.params["program"]).part is None:
            continue
        transform, direction = program.part
        layouts[transform.layout.shape] = transform.layout
        inputs, results = ([v.aval for v in side] for side in (call.invars, call.outvars))
        outputs = results[0].shape[0] if results[0].ndim == 4 else 0
        parts[TimedPart(transform, direction, inputs[0].shape[0], outputs)] += times
        for equation, inner in _equations(program.local_jaxpr(inputs).jaxpr, times):
            if equation.primitive.name == "all_to_all" and program.mesh.size > 1:
                axis = equation.params["axis_name"]
                operand = equation.invars[0].aval
                axis = axis[0] if isinstance(axis, tuple) else axis
                exchanges[TimedExchange(transform, axis, operand.shape, operand.dtype)] += inner
            ffts += inner * (equation.primitive.name == "fft")
    for call, times in slices:
        source = call.invars[0].aval
        plane = call.outvars[0].aval
        if (layout := layouts.get(source.shape[-3:])) is None:
            continue
        for axis, name in layout.sharded.items():
            place = layout.order.index(axis) - 3
            extent = layout.mesh.shape[name]
            if plane.shape[place] == 1 < source.shape[place]:
                planes += times * _bytes(plane, plane.shape) * 2 * (extent - 1) / extent
    return Anatomy(parts, exchanges, ffts, planes)


def _equations(jaxpr: Jaxpr, times: int) -> Iterator[tuple[Any, int]]:
    """All equations of a jaxpr, each with the number of times that it runs; the body of a `while`
    counts once."""
    for equation in jaxpr.eqns:
        yield equation, times
        if equation.primitive is program_p:
            continue
        inner = times * equation.params["length"] if equation.primitive.name == "scan" else times
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                if isinstance(item, ClosedJaxpr):
                    yield from _equations(item.jaxpr, inner)
                elif isinstance(item, Jaxpr):
                    yield from _equations(item, inner)
