"""`fft.backend: auto`: times the candidates briefly, once per problem and machine.

The timed program is the core of a step: three products of six fields. The winner is stored in a small JSON file, and
the file's name depends on everything that the timing depends on.
"""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.cluster.compile_cache import check_private
from simulator.errors import UserError
from simulator.spectral import native, staged
from simulator.spectral.backends import build, choose
from simulator.spectral.candidates import Candidate, Devices, Kernels, Modes, Shape
from simulator.spectral.transform import Local, Transform

ROUNDS = 5

Broadcast = Callable[[Any], Any]  # Gives every process the (small, JSON) value of the first process.
Report = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """The measured winner. A run whose keys `fft.backend` and `fft.decomposition` have the values `backend` and
    `decomposition` uses the winner without measuring."""

    backend: str
    decomposition: str
    milliseconds: dict[str, float]  # The time of every candidate, the winner's first.
    mesh: list[int] | None = None  # The winner's arrangement of devices.


def measured(  # many parameters: the measurement depends on all of them, and `broadcast` and `report` belong to a run
    modes: Modes,
    devices: Devices,
    dtype: Any,
    *,
    decomposition: str = "auto",
    mesh: Shape = "auto",
    kernels: Kernels = "auto",
    nodes: int = 1,
    folder: Path | None = None,
    broadcast: Broadcast = lambda value: value,
    report: Report = print,
) -> Choice:
    """The fastest backend and plan for `modes` on `devices`, from an earlier measurement in `folder` or a new one.

    All processes of a run call this function; the file and the times of the first process decide. If `folder` cannot
    be written, the next start measures again. `nodes`: number of hosts of the devices; links within and between hosts
    differ.

    Raises UserError if no candidate works on these devices.
    """
    possible = choose(modes, len(devices), "auto", decomposition, mesh)
    candidates = worth_timing(possible)
    key = _key(modes, devices, dtype, candidates, native.chosen(kernels, devices[0].platform), nodes)
    path = None if folder is None else folder / f"transform-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    known = broadcast(_read(path, key))
    if known is not None:
        return Choice(**known)
    if len(candidates) == 1:
        return Choice(candidates[0].backend, candidates[0].plan, {}, list(candidates[0].mesh))
    times = broadcast(_time_all(modes, candidates, devices, dtype, kernels))
    if not any(t is not None for t in times):
        raise UserError(
            f"fft.backend: auto: no transform of {modes.grid.seen(modes.grid.shape)} fits on these devices"
        )
    ranked = sorted((t, i) for i, t in enumerate(times) if t is not None)
    best = candidates[ranked[0][1]]
    rounded = {str(candidates[i]): round(t, 3) for t, i in ranked}
    choice = Choice(best.backend, best.plan, rounded, list(best.mesh))
    listed = ", ".join(f"{name} {t:.3g} ms" for name, t in choice.milliseconds.items())
    report(f"transform: {best} is the fastest of {listed}")
    _write(path, key, choice)
    return choice


def worth_timing(found: list[Candidate]) -> list[Candidate]:
    """The candidates without duplicates. A plan with proper pencils, of several rows and columns, is timed on all of
    these; any other plan in one arrangement, because with a single row or column all arrangements are slabs."""
    kept: list[Candidate] = []
    for candidate in found:
        same = [c for c in found if (c.backend, c.plan) == (candidate.backend, candidate.plan)]
        proper = [c for c in same if len(c.mesh) == 2 and min(c.mesh) > 1]
        if candidate in (proper or same[:1]):
            kept.append(candidate)
    return kept


def _key(modes: Modes, devices: Devices, dtype: Any, candidates: list[Candidate], kernels: str, nodes: int) -> str:
    grid, first, processes = modes.grid, devices[0], len({d.process_index for d in devices})
    parts = [grid.shape, grid.dealias, modes.real, modes.every, np.dtype(dtype).name, len(devices), processes, nodes]
    return json.dumps(
        [*parts, first.device_kind, os.cpu_count(), list(map(str, candidates)), kernels, jax.__version__]
    )


def _read(path: Path | None, key: str) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        check_private(path.parent, sticky=stat.S_ISVTX)
        check_private(path)
        stored = json.loads(path.read_text())
        return stored["choice"] if stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path | None, key: str, choice: Choice) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.touch(0o600)
        beside.write_text(json.dumps({"key": key, "choice": asdict(choice)}))
        beside.replace(path)
    except OSError:
        return  # A run does without the cache.


def _time_all(
    modes: Modes, candidates: list[Candidate], devices: Devices, dtype: Any, kernels: Kernels
) -> list[float | None]:
    """Milliseconds of each candidate, the least of a few interleaved rounds; None if the memory does not suffice."""
    runs: dict[int, Callable[[], float]] = {}
    for number, candidate in enumerate(candidates):
        supported = kernels if candidate.backend == staged.NAME else "auto"
        with contextlib.suppress(jax.errors.JaxRuntimeError, MemoryError):
            run = _nonlinear_term(build(modes, candidate, devices, dtype, kernels=supported))
            run()  # warms up
            runs[number] = run
    rounds = [{number: run() for number, run in runs.items()} for _ in range(ROUNDS)]
    return [min(times[number] for times in rounds) if number in runs else None for number in range(len(candidates))]


def _nonlinear_term(transform: Transform) -> Callable[[], float]:
    """A function that evaluates three products of six fields and gives the milliseconds that this took."""

    def cross(values, points, parameters):
        return Local({"c": jnp.cross(values["a"], values["b"], axis=0)})

    def run(array):
        return transform.evaluate({"a": array, "b": 2 * array}, cross).products["c"]

    run.__name__ = f"term_{transform.name}"  # distinguishes programs in the compile cache
    layout, dtype = transform.layout, np.result_type(transform.dtype, np.complex64)
    array = random_array((3, *layout.shape), dtype, layout.sharding(4))
    array = jax.jit(lambda a: jnp.where(layout.mask, a, 0))(array)
    compiled = jax.jit(run).lower(array).compile()

    def timed() -> float:
        start = perf_counter()
        jax.block_until_ready(compiled(array))
        return 1e3 * (perf_counter() - start)

    return timed


def random_array(shape: tuple[int, ...], dtype: Any, sharding: Any) -> jax.Array:
    """Normal random numbers, generated on the devices that hold them."""
    return jax.jit(lambda: jax.random.normal(jax.random.key(0), shape, dtype), out_shardings=sharding)()
