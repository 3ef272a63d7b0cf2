"""Refuses a benchmark that does not fit in memory before anything is allocated."""

import math
from collections.abc import Callable
from typing import Any

from simulator.errors import UserError
from simulator.simulation.memory import Memory, free_everywhere
from simulator.simulation.simulation import Simulation
from simulator.words import size


def check_fits(
    simulation: Simulation, compiled: Any, smaller: Callable[[tuple[int, ...]], Simulation]
) -> None:
    """Raises UserError if a step needs more memory than is free, with the difference and a shape that fits.

    `smaller(shape)` is the same simulation on another grid; the shape in the message has been compiled.
    """
    cluster = simulation.cluster
    free = free_everywhere(cluster)
    need = Memory.of(compiled).total
    if free is None or need <= free:
        return
    shape = simulation.grid.seen(simulation.grid.shape)
    text = (
        f"grid.shape: a step on {' x '.join(map(str, shape))} needs {size(need)} on each of "
        f"{len(cluster.devices)} devices, {size(need - free)} more than the {size(free)} that are free"
    )
    fitting, factor = shape, (free / need) ** (1 / len(shape))
    while max(fitting) > 8:
        fitting = _scaled(shape, factor)
        if Memory.of(smaller(fitting).compiled_loop()).total <= free:
            raise UserError(f"{text}; {','.join(map(str, fitting))} fits")
        factor *= 0.9
    raise UserError(text)


def _scaled(shape: tuple[int, ...], factor: float) -> tuple[int, ...]:
    """Extents of at most `factor` times these, even and with small prime factors."""
    return tuple(_smooth(max(1, math.floor(n * factor))) if n > 1 else 1 for n in shape)


def _smooth(n: int) -> int:
    """The largest even number up to n without prime factors above 5."""

    def rest(m: int) -> int:
        for prime in (2, 3, 5):
            while m % prime == 0:
                m //= prime
        return m

    return next((m for m in range(n - n % 2, 1, -2) if rest(m) == 1), 1)
