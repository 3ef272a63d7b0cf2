"""The protocol between `bench_peers.py` and a contender: for each line on stdin it runs a round and
prints a line.

This file and the contenders beside it run under the interpreters of their environments; only
`simulator_step.py` imports `simulator`."""

import json
import os
import sys
import time
from collections.abc import Callable


def problem() -> dict:
    """The problem to solve: a JSON object in the first argument."""
    return json.loads(sys.argv[1])


class Line:
    """The line back to the benchmark; all other output goes to stderr."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, value: object) -> None:
        self._out.write(json.dumps(value) + "\n")


def serve(line: Line, report: dict, seconds_per_step, comm=None) -> None:
    """Send `report`, then run a round for every line read. `comm`: the communicator of mpi4py,
    whose rank 0 reads."""
    first = comm is None or comm.rank == 0
    if first:
        line.say(report)
    while _go_on(first, comm):
        seconds = seconds_per_step()
        if first:
            line.say(seconds)


def _go_on(first: bool, comm) -> bool:
    go = bool(sys.stdin.readline()) if first else False
    if comm is None:
        return go
    if first:
        for other in range(1, comm.size):
            comm.send(go, other)
        return go
    while not comm.Iprobe(source=0):  # waiting inside MPI would occupy a core that others need
        time.sleep(0.002)
    return comm.recv(source=0)


def timed(steps: int, run, barrier=lambda: None) -> float:
    """Duration of a step in seconds, from a call of `run`, which takes `steps` steps."""
    barrier()
    began = time.perf_counter()
    run()
    barrier()
    return (time.perf_counter() - began) / steps


def mean_seconds(pair: Callable[[], tuple[float, float]], pairs: int) -> tuple[float, float]:
    """Mean seconds of a forward and of an inverse transform, from `pairs` calls of `pair`."""
    forward, inverse = zip(*[pair() for _ in range(pairs)], strict=True)
    return sum(forward) / pairs, sum(inverse) / pairs
