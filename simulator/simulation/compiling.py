"""The programs of a run, compiled before its first step, several at a time."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import jax

from simulator.cluster.hardware import usable_cores

MOST = 4
"""The largest number of concurrent compilations. Each takes memory, and the compiler itself uses several threads."""
PATIENCE = 1.0
"""Seconds after which the user is told which programs are compiled; programs in the compile cache take less."""


class Compilable(NamedTuple):
    """A function under `jax.jit`, and the shapes, types and shardings of its arguments."""

    function: Any
    arguments: tuple[Any, ...]


def compiled(
    programs: Mapping[str, Compilable], *, together: bool, say: Callable[[str], None]
) -> dict[str, Callable[..., Any]]:
    """The compiled programs, by name. `say` gets a line if this takes time. A function that is not under `jax.jit` is
    returned as it is: those of a batch of runs call programs that the runs share.

    together: compile several programs at a time. Processes that share devices must compile in one order, because a
    GPU's compiler exchanges its measurements of kernels.
    """
    workers = min(MOST, usable_cores()) if together else 1
    with ThreadPoolExecutor(workers, thread_name_prefix="compile") as pool:
        # Tracing holds Python's lock, so threads do not speed it up; the compiler releases the lock.
        futures = {
            name: pool.submit(program.function.lower(*program.arguments).compile)
            for name, program in programs.items()
            if isinstance(program.function, jax.stages.Wrapped)
        }
        waiting = wait(futures.values(), timeout=PATIENCE).not_done
        if waiting:
            names = [name for name, future in futures.items() if future in waiting]
            say(f"compiling {', '.join(names)}")
        ready = {name: program.function for name, program in programs.items()}
        return ready | {name: future.result() for name, future in futures.items()}
