"""The programs of a run: compiled before its first step, several at a time, and the memory that
they need, as the compiler states it before anything is allocated."""

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
from jax.stages import Compiled

from simulator.cluster.environment import QUICK
from simulator.cluster.hardware import usable_cores
from simulator.cluster.start import Cluster
from simulator.config import RunConfig
from simulator.spectral.transform import Tree

MOST = 4  # Concurrent compilations: each takes memory and several threads.
PATIENCE = 1.0  # Seconds after which the user is told of compilation; the compile cache takes less.


class Compilable(NamedTuple):
    """A function under `jax.jit`, and the shapes, types and shardings of its arguments."""

    function: Any
    arguments: tuple[Any, ...]
    often: bool = False  # Whether its speed matters more than the duration of its compilation.


class Compiling:
    """Compiles programs in the background, several at a time if `together`: processes that share
    devices must compile in one order, because a GPU's compiler exchanges its measurements of
    kernels. A function that is not under `jax.jit` is not compiled: in a batch of runs such
    functions call programs that the runs share."""

    def __init__(self, *, together: bool):
        workers = min(MOST, usable_cores()) if together else 1
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="compile")
        self._begun: dict[str, Future[Any]] = {}

    def begin(self, programs: Mapping[str, Compilable]) -> None:
        """Trace the programs that were not begun, by name, and start to compile them."""
        # Tracing holds Python's lock, so threads do not speed it up; the compiler releases the
        # lock.
        for name, program in programs.items():
            if name not in self._begun and isinstance(program.function, jax.stages.Wrapped):
                compile = program.function.lower(*program.arguments).compile
                self._begun[name] = self._pool.submit(compile, None if program.often else QUICK)

    def finish(
        self, programs: Mapping[str, Compilable], say: Callable[[str], None]
    ) -> dict[str, Callable[..., Any]]:
        """The compiled programs, by name. `say` gets a line if compilation takes time."""
        self.begin(programs)
        waiting = wait(self._begun.values(), timeout=PATIENCE).not_done
        if waiting:
            say(
                f"compiling {', '.join(name for name, future in self._begun.items() if future in waiting)}"
            )
        ready = {name: program.function for name, program in programs.items()}
        ready |= {name: future.result() for name, future in self._begun.items()}
        self.close()
        return ready

    def close(self) -> None:
        """Start no further compilation."""
        self._pool.shutdown(wait=False, cancel_futures=True)


ROOM = 64  # Bound of a program's memory in states (models need 3 to 20): with more free, nothing is checked.
AT_LEAST = 2  # Every step holds at least this many times the state.
SMALL = 1 << 30  # Bytes that every device is assumed to have free: smaller programs skip the check.

_LIMITS = (  # limit and present use of a control group
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


@dataclass(frozen=True)
class Memory:
    """Bytes that a compiled program needs on one device."""

    resident: int  # Arguments, and results that do not reuse the arguments' memory: the state.
    temporary: int

    @property
    def total(self) -> int:
        return self.resident + self.temporary

    @classmethod
    def of(cls, compiled: Compiled) -> Self:
        analysis: Any = compiled.memory_analysis()
        resident = (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            - analysis.alias_size_in_bytes
        )
        return cls(resident, analysis.temp_size_in_bytes)


def free_bytes(cluster: Cluster) -> int | None:
    """Free memory of each device of this process; None if it is unknown."""
    device: Any = cluster.local_devices[0]
    if cluster.platform == "gpu":
        with contextlib.suppress(Exception):  # not every driver reports it
            stats = device.memory_stats()
            return stats["bytes_limit"] - stats["bytes_in_use"]
        return None
    free = _free_host_bytes()
    if free is None:
        return None
    return free // (max(cluster.allocation.local_processes, 1) * len(cluster.local_devices))


def _free_host_bytes() -> int | None:
    """Available memory of this host, or of the control group if that is less."""
    available: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available.append(
            1024 * int(next(x for x in lines if x.startswith("MemAvailable")).split()[1])
        )
    for limit, used in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            available.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
    return min(available, default=None)


def shortage(
    cluster: Cluster, template: Tree, compiled_loop: Callable[[], Any]
) -> tuple[float, float, float] | None:
    """The bytes of a state like `template`, the bytes that its step needs, and the free bytes, on a
    device whose memory is too small; None if a step fits, or if the free memory is unknown. All
    processes call this. `compiled_loop` is called only if memory may be short and `AT_LEAST` times
    the state fits, which every step needs."""
    state = bytes_of(template) / len(cluster.devices)
    if ROOM * state <= SMALL:
        return None
    free = free_everywhere(cluster)
    if free is None or ROOM * state <= free:
        return None
    needs = AT_LEAST * state
    if needs <= free:
        needs = Memory.of(compiled_loop()).total
    return (state, needs, free) if needs > free else None


def bytes_of(tree: Tree) -> int:
    """The bytes of all arrays of a tree, or of shapes and types in their place."""
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(tree))


def free_everywhere(cluster: Cluster) -> int | None:
    """The smallest `free_bytes` of all processes, on every process."""
    own = free_bytes(cluster)
    return min((free for free in cluster.gather(own) if free is not None), default=None)


def words(count: float, config: RunConfig, points: int, devices: int) -> float:
    """Memory in bytes of one device, as the equivalent number of values of the run's precision per
    grid point."""
    return count / (8 if config.precision == "double" else 4) / (points / devices)
