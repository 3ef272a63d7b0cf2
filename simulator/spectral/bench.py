"""Times the transforms against each other and against their peers, in one run.

All contenders transform the same three components forward and back. A round runs each of them once, so that a
busy moment of the machine meets all alike; medians over the rounds are compared.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from simulator.cluster.hardware import usable_cores
from simulator.cluster.mesh import make_mesh
from simulator.spectral.backends import build, candidates
from simulator.spectral.choices import Candidate, Devices, Modes
from simulator.spectral.collectives import collectives
from simulator.spectral.peers import Scipy, mpi4py_fft
from simulator.spectral.recipe import recipe
from simulator.spectral.transform import Local

COMPONENTS = 3


class Timed(Protocol):
    def round(self) -> Any:
        """Seconds, once."""
        ...


class Contender(Protocol):
    name: str

    def round(self) -> tuple[float, ...]:
        """Seconds of each thing that is timed, once."""
        ...


@dataclass
class Row:
    """What is reported of one contender: medians in ms, bytes and memory of the forward transform."""

    name: str
    forward: float
    inverse: float
    sent: int | None = None
    """Bytes that one device sends."""
    temporary: float | None = None
    """Temporary memory over the input's, on one device."""
    rounds: list[tuple[float, ...]] = field(default_factory=list, repr=False)

    @property
    def both(self) -> float:
        return self.forward + self.inverse


class Compiled:
    """A pair of compiled transforms of sharded arrays."""

    def __init__(self, name: str, forward: Callable, inverse: Callable, values: jax.Array):
        self.name = name
        for function, what in ((forward, "forward"), (inverse, "inverse")):
            function.__name__ = f"{what}_{name}".replace(
                " ", "_"
            )  # tells programs apart in the compile cache
        self._values = values
        self._forward = jax.jit(forward).lower(values).compile()
        modes = self._forward(values)
        self._inverse = jax.jit(inverse).lower(modes).compile()
        self.sent = sum(c.bytes for c in collectives(self._forward).values())
        share = sum(s.data.nbytes for s in values.addressable_shards) / len(values.addressable_shards)
        self.temporary = temporary_bytes(self._forward) / share

    def round(self) -> tuple[float, float]:
        start = perf_counter()
        modes = jax.block_until_ready(self._forward(self._values))
        middle = perf_counter()
        jax.block_until_ready(self._inverse(modes))
        return middle - start, perf_counter() - middle


def timed(contenders: Sequence[Timed], seconds: float, agree: Callable[[Any], Any]) -> list[list]:
    """Rounds of all contenders, for about `seconds` and at least five; the first is not counted.

    `agree` gives every process the first one's value: all take the same number of rounds.
    """
    rounds: list[list] = [[] for _ in contenders]
    for contender in contenders:
        contender.round()
    start, go = perf_counter(), True
    while go:
        for found, contender in zip(rounds, contenders, strict=True):
            found.append(contender.round())
        go = agree(len(rounds[0]) < 5 or perf_counter() - start < seconds)
    return rounds


def temporary_bytes(compiled: Any) -> int:
    """Memory that a compiled program needs on one device besides its arguments and results."""
    return compiled.memory_analysis().temp_size_in_bytes


def filled(shape: tuple[int, ...], dtype: Any, sharding: Any) -> jax.Array:
    """Random numbers, made where they lie."""
    make = jax.jit(lambda: jax.random.normal(jax.random.key(0), shape, dtype), out_shardings=sharding)
    return make()


def bench_transforms(
    modes: Modes,
    devices: Devices,
    dtype: Any,
    *,
    seconds: float = 10.0,
    processes: int = 1,
    agree: Callable[[Any], Any] = lambda value: value,
    report: Callable[[str], None] = print,
) -> list[Row]:
    """Every backend and plan, the complex recipe, scipy.fft and mpi4py-fft, on a grid's real fields.

    What cannot run here is left out, with a line saying why. The first row is the default's.
    """
    count, shape = len(devices), modes.grid.shape
    contenders: list[Contender] = []
    seen: set[tuple[str, str]] = set()
    for candidate in candidates(modes, count, "auto"):
        if (candidate.backend, candidate.plan) not in seen:
            seen.add((candidate.backend, candidate.plan))
            contenders.append(_staged(modes, candidate, devices, dtype))
    if shape[1] % count == shape[2] % count == 0:
        contenders.append(_recipe(shape, devices, dtype))
    else:
        report(f"left out: the complex recipe ({count} devices do not divide y and z)")
    with contextlib.ExitStack() as stack:
        if processes == 1 and devices[0].platform == "cpu":
            values = np.random.default_rng(0).standard_normal((COMPONENTS, *shape)).astype(dtype)
            contenders.append(Scipy(values, max(count, usable_cores())))
            peer = stack.enter_context(mpi4py_fft(shape, np.dtype(dtype), COMPONENTS, count))
            if peer is None:
                report("left out: mpi4py-fft (SIMULATOR_MPI4PY_FFT names no interpreter that has it)")
            else:
                contenders.append(peer)
        rounds = timed(contenders, seconds, agree)
    rows = []
    for contender, found in zip(contenders, rounds, strict=True):
        forward, inverse = (1e3 * float(np.median(t)) for t in zip(*found, strict=True))
        sent, temporary = getattr(contender, "sent", None), getattr(contender, "temporary", None)
        rows.append(Row(contender.name, forward, inverse, sent, temporary, found))
    return rows


def _staged(modes: Modes, candidate: Candidate, devices: Devices, dtype: Any) -> Compiled:
    transform = build(modes, candidate, devices, dtype)
    values = filled((COMPONENTS, *transform.physical.shape), dtype, transform.physical.sharding(4))
    return Compiled(str(candidate), lambda v: transform.forward(v), lambda m: transform.inverse(m), values)


def _recipe(shape: tuple[int, int, int], devices: Devices, dtype: Any) -> Compiled:
    mesh = make_mesh(devices, (len(devices),), ("slab",))
    forward, inverse, sharding = recipe(mesh)
    kind = np.result_type(dtype, np.complex64)
    return Compiled(
        "complex recipe",
        lambda v: forward(v),
        lambda m: inverse(m),
        filled((COMPONENTS, *shape), kind, sharding),
    )


class Term:
    """The nonlinear term of a flow: three products of six fields."""

    def __init__(self, name: str, transform: Any):
        def cross(values, points, parameters):
            return Local({"c": jnp.cross(values["a"], values["b"], axis=0)})

        def run(array):
            return transform.evaluate({"a": array, "b": 2 * array}, cross).products["c"]

        run.__name__ = f"term_{transform.name}"  # tells programs apart in the compile cache
        layout, self.name = transform.layout, name
        kind = np.result_type(transform.dtype, np.complex64)
        array = filled((COMPONENTS, *layout.shape), kind, layout.sharding(4))
        self._array = jax.jit(lambda a: jnp.where(layout.mask, a, 0))(array)
        self._run = jax.jit(run).lower(self._array).compile()
        self.temporary = temporary_bytes(self._run)

    def round(self) -> tuple[float]:
        start = perf_counter()
        jax.block_until_ready(self._run(self._array))
        return (perf_counter() - start,)


def bench_blocks(
    modes: Modes,
    devices: Devices,
    dtype: Any,
    *,
    decomposition: str = "auto",
    seconds: float = 5.0,
    agree: Callable[[Any], Any] = lambda value: value,
) -> list[tuple[str, float, float]]:
    """The nonlinear term in blocks and with whole fields: name, median ms, temporary MB of one device."""
    candidate = candidates(modes, len(devices), decomposition=decomposition)[0]
    contenders = [
        Term("in blocks", build(modes, candidate, devices, dtype)),
        Term("whole fields", build(modes, candidate, devices, dtype, block=modes.grid.shape[1])),
    ]
    rounds = timed(contenders, seconds, agree)
    return [
        (c.name, 1e3 * float(np.median(found)), c.temporary / 1e6)
        for c, found in zip(contenders, rounds, strict=True)
    ]
