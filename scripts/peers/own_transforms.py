"""This program's transforms (backends, plans, kernels) as contenders of `bench_fft.py`, which times
them in rounds.

All contenders transform the same three components forward and back.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, cast

import jax
import numpy as np
from peers.collectives import collectives
from peers.turns import mean_seconds

from simulator.spectral import native, staged
from simulator.spectral.backends import build, candidates, preferred
from simulator.spectral.candidates import Candidate, Devices, Kernels, Modes
from simulator.spectral.timing import random_array
from simulator.words import size

COMPONENTS = 3


class Contender(Protocol):
    """A pair of transforms."""

    name: str

    def round(self) -> tuple[float, float]:
        """Mean seconds of a forward and of an inverse transform of all components, from several
        pairs."""
        ...


@dataclass
class Row:
    """The result of one contender: median times in ms, communication and memory of the forward
    transform."""

    name: str
    forward: float
    inverse: float
    sent: int | None = None
    """Bytes that one device sends."""
    temporary: float | None = None
    """Temporary memory of one device, in units of its share of the input."""
    rounds: list[tuple[float, float]] = field(default_factory=list, repr=False)

    @property
    def both(self) -> float:
        return self.forward + self.inverse


class Compiled:
    """A pair of compiled transforms of sharded arrays."""

    def __init__(
        self, name: str, forward: Callable, inverse: Callable, values: jax.Array, pairs: int
    ):
        self.name = name
        self._values = values
        self._pairs = pairs
        self._forward = jax.jit(_named(forward, f"forward_{name}")).lower(values).compile()
        modes = self._forward(values)
        self._inverse = jax.jit(_named(inverse, f"inverse_{name}")).lower(modes).compile()
        self.sent = sum(c.bytes for c in collectives(self._forward).values())
        share = sum(s.data.nbytes for s in values.addressable_shards) / len(
            values.addressable_shards
        )
        memory = cast(Any, self._forward.memory_analysis())
        self.temporary = memory.temp_size_in_bytes / share

    def round(self) -> tuple[float, float]:
        return mean_seconds(self._pair, self._pairs)

    def _pair(self) -> tuple[float, float]:
        start = perf_counter()
        modes = jax.block_until_ready(self._forward(self._values))
        middle = perf_counter()
        jax.block_until_ready(self._inverse(modes))
        return middle - start, perf_counter() - middle


def _named(function: Callable, name: str) -> Callable:
    """The function under a name that tells its program apart in the compile cache."""

    def call(array: jax.Array) -> jax.Array:
        return function(array)

    call.__name__ = "".join(c if c.isalnum() else "_" for c in name)
    return call


def transforms(
    modes: Modes, devices: Devices, dtype: Any, threads: int, pairs: int
) -> list[Contender]:
    """Every backend and plan that works on these devices of `threads` threads, with every kind of
    kernel; the default comes first."""
    count = len(devices)
    contenders: list[Contender] = []
    seen: set[tuple[str, str]] = set()
    default = preferred(modes, candidates(modes, count), "auto", devices[0].platform)
    for candidate in (default, *candidates(modes, count, "auto")):
        if (candidate.backend, candidate.plan) not in seen:
            seen.add((candidate.backend, candidate.plan))
            each = _with_each_kernel(modes, candidate, devices, dtype, threads)
            contenders += [Compiled(*parts, pairs) for parts in each]
    return contenders


def _with_each_kernel(
    modes: Modes, candidate: Candidate, devices: Devices, dtype: Any, threads: int
) -> Iterator[tuple[str, Callable, Callable, jax.Array]]:
    has_native = (
        candidate.backend == staged.NAME and native.chosen("auto", devices[0].platform) == "native"
    )
    kinds: tuple[Kernels, ...] = ("native", "xla") if has_native else ("auto",)
    for kernels in kinds:
        transform = build(modes, candidate, devices, dtype, kernels=kernels, threads=threads)
        values = random_array(
            (COMPONENTS, *transform.physical.shape), dtype, transform.physical.sharding(4)
        )
        name = f"{candidate}, {kernels}" if has_native else str(candidate)
        yield name, transform.forward, transform.inverse, values


def timed_in_rounds(
    contenders: Sequence[Callable[[], Any]],
    seconds: float,
    agree: Callable[[Any], Any] = lambda value: value,
) -> list[list]:
    """The results of the rounds of every contender, a function that returns the seconds of its
    parts: at least five rounds, for about `seconds`, after a warm-up round.

    `agree` broadcasts the value of the first process, so that all processes run the same number of
    rounds."""
    results: list[list] = [[] for _ in contenders]
    for contender in contenders:
        contender()
    start = perf_counter()
    go = True
    while go:
        for times, contender in zip(results, contenders, strict=True):
            times.append(contender())
        go = agree(len(results[0]) < 5 or perf_counter() - start < seconds)
    return results


def compare(
    contenders: Sequence[Contender],
    seconds: float,
    agree: Callable[[Any], Any] = lambda value: value,
) -> list[Row]:
    """One row per contender, timed in turns for about `seconds`. Called by every process."""
    rows = []
    timed = timed_in_rounds([contender.round for contender in contenders], seconds, agree)
    for contender, rounds in zip(contenders, timed, strict=True):
        forward, inverse = (1e3 * float(np.median(times)) for times in zip(*rounds, strict=True))
        sent = getattr(contender, "sent", None)
        temporary = getattr(contender, "temporary", None)
        rows.append(Row(contender.name, forward, inverse, sent, temporary, rounds))
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as text, each with its ratio to the first."""
    lines = [
        f"{'':40} {'forward':>9} {'inverse':>9} {'both':>9} {'ratio':>6} {'sends':>8} {'temporary':>9}"
    ]
    for row in rows:
        sent = "" if row.sent is None else size(row.sent)
        temporary = "" if row.temporary is None else f"{row.temporary:.2f}"
        lines.append(
            f"{row.name:40} {row.forward:6.1f} ms {row.inverse:6.1f} ms {row.both:6.1f} ms "
            f"{rows[0].both / row.both:6.2f} {sent:>8} {temporary:>9}"
        )
    return [
        *lines,
        "ratio: time of the first row over the time of this row; sends: bytes that one device sends in a forward",
        "transform; temporary: temporary memory of a forward transform in units of its input.",
    ]
