"""Times the ways to distribute a transform, once per problem and machine.

The timed program is the core of a step: three products of six fields. The winner is stored in a
small JSON file, and the file's name depends on everything that the timing depends on."""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding
from jax.typing import DTypeLike

from simulator.cluster.cache_folders import check_private
from simulator.errors import UserError
from simulator.spectral import native, staged
from simulator.spectral.arrays import PointValues, SpectralVector
from simulator.spectral.backends import build, choose
from simulator.spectral.candidates import Candidate, Devices, Kernels, Modes, Shape
from simulator.spectral.points import Points
from simulator.spectral.transform import Local, Transform, Tree

ROUNDS = 5
POINTS = 1 << 22  # of the calls of a round, at most CALLS
CALLS = 16  # of a small grid, so that threads are awake and arrays in the caches, as in a run

Broadcast = Callable[[Any], Any]
"""Gives every process the (small, JSON) value of the first process."""
Report = Callable[[str], None]


@dataclass(frozen=True)
class Measurement:
    """Everything that the fastest transform of `modes` on `devices` depends on."""

    modes: Modes
    devices: Devices
    dtype: DTypeLike
    decomposition: str = "auto"
    mesh: Shape = "auto"
    kernels: Kernels = "auto"
    nodes: int = 1
    """The number of hosts of the devices; links within and between hosts differ."""

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The candidates to time. Raises UserError if none works on these devices."""
        count = len(self.devices)
        return worth_timing(choose(self.modes, count, "auto", self.decomposition, self.mesh))

    @cached_property
    def key(self) -> str:
        modes, devices = self.modes, self.devices
        kernels = native.chosen(self.kernels, devices[0].platform)
        processes = {device.process_index for device in devices}
        problem = [modes.grid.shape, modes.grid.dealias, modes.real, modes.every]
        precision = np.dtype(self.dtype).name
        machine = [len(devices), len(processes), self.nodes, devices[0].device_kind]
        choice = [list(map(str, self.candidates)), kernels, jax.__version__]
        return json.dumps([*problem, precision, *machine, os.cpu_count(), *choice])

    def fastest(
        self,
        folder: Path | None = None,
        broadcast: Broadcast = lambda value: value,
        report: Report = print,
    ) -> dict[str, Any]:
        """The fastest `backend` and `plan`, the arrangement of the devices, `on`, and the
        `milliseconds` of every candidate, the winner's first; from an earlier measurement in
        `folder` or a new one.

        All processes of a run call this function; the file and the times of the first process
        decide. If `folder` cannot be written, the next start measures again. Raises UserError if no
        candidate works on these devices."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:16]
        path = None if folder is None else folder / f"transform-{digest}.json"
        known = broadcast(_read(path, self.key))
        if known is not None:
            return known
        if len(self.candidates) == 1:
            return _described(self.candidates[0], {})
        times = broadcast(self._times())
        ranked = sorted((t, i) for i, t in enumerate(times) if t is not None)
        if not ranked:
            points = self.modes.grid.seen(self.modes.grid.shape)
            raise UserError(f"fft.backend: auto: no transform of {points} fits on these devices")
        best = self.candidates[ranked[0][1]]
        rounded = {str(self.candidates[i]): round(t, 3) for t, i in ranked}
        listed = ", ".join(f"{name} {t:.3g} ms" for name, t in rounded.items())
        report(f"transform: {best} is the fastest of {listed}")
        fastest = _described(best, rounded)
        _write(path, self.key, fastest)
        return fastest

    def _times(self) -> list[float | None]:
        """Milliseconds of each candidate, the least of a few interleaved rounds; None if the memory
        does not suffice."""
        runs: dict[int, Callable[[], float]] = {}
        for number, candidate in enumerate(self.candidates):
            kernels = self.kernels if candidate.backend == staged.NAME else "auto"
            with contextlib.suppress(jax.errors.JaxRuntimeError, MemoryError):
                transform = build(self.modes, candidate, self.devices, self.dtype, kernels=kernels)
                run = _nonlinear_term(transform)
                run()  # warms up
                runs[number] = run
        rounds = [{number: run() for number, run in runs.items()} for _ in range(ROUNDS)]
        return [
            min(times[number] for times in rounds) if number in runs else None
            for number in range(len(self.candidates))
        ]


def _described(best: Candidate, milliseconds: dict[str, float]) -> dict[str, Any]:
    return {
        "backend": best.backend,
        "plan": best.plan,
        "on": list(best.mesh),
        "milliseconds": milliseconds,
    }


def worth_timing(found: list[Candidate]) -> list[Candidate]:
    """The candidates without duplicates. A plan with proper pencils, of several rows and columns,
    is timed on all of these; any other plan in one arrangement, because with a single row or column
    all arrangements are slabs."""
    kept: list[Candidate] = []
    for candidate in found:
        same = [c for c in found if (c.backend, c.plan) == (candidate.backend, candidate.plan)]
        proper = [c for c in same if len(c.mesh) == 2 and min(c.mesh) > 1]
        if candidate in (proper or same[:1]):
            kept.append(candidate)
    return kept


def remembered(choice: object) -> dict[str, Any] | None:
    """A choice from a file, as `measured` returns it; None if the file is damaged."""
    kinds = {"backend": str, "plan": str, "on": list, "milliseconds": dict}
    if isinstance(choice, dict) and all(isinstance(choice.get(k), t) for k, t in kinds.items()):
        return choice
    return None


def _read(path: Path | None, key: str) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        check_private(path.parent, sticky=stat.S_ISVTX)
        check_private(path)
        stored = json.loads(path.read_text())
        return remembered(stored["fastest"]) if stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path | None, key: str, fastest: dict[str, Any]) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.touch(0o600)
        beside.write_text(json.dumps({"key": key, "fastest": fastest}))
        beside.replace(path)
    except OSError:
        return  # A run does without the cache.


def _nonlinear_term(transform: Transform) -> Callable[[], float]:
    """A function that evaluates three products of six fields, several times on a small grid, and
    gives the milliseconds of an evaluation."""

    def cross(values: PointValues, points: Points, parameters: Tree) -> Local:
        return Local({"c": jnp.cross(values["a"], values["b"], axis=0)})

    def run(array: SpectralVector) -> SpectralVector:
        return transform.evaluate({"a": array, "b": 2 * array}, cross).products["c"]

    run.__name__ = f"term_{transform.name}"  # distinguishes programs in the compile cache
    layout, dtype = transform.layout, transform.complex_dtype
    array = random_array((3, *layout.shape), dtype, layout.sharding(4))
    array = jax.jit(lambda a: jnp.where(layout.mask, a, 0))(array)
    compiled = jax.jit(run).lower(array).compile()
    calls = min(max(1, POINTS // prod(transform.physical.shape)), CALLS)

    def timed() -> float:
        start = perf_counter()
        for _ in range(calls):
            jax.block_until_ready(compiled(array))
        return 1e3 * (perf_counter() - start) / calls

    return timed


def random_array(shape: tuple[int, ...], dtype: DTypeLike, sharding: Sharding) -> jax.Array:
    """Normal random numbers, generated on the devices that hold them."""
    return jax.jit(
        lambda: jax.random.normal(jax.random.key(0), shape, dtype), out_shardings=sharding
    )()
