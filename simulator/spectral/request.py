"""The request of a run for a transform: checks the request, and chooses the transform on the run's
devices.

`fft.backend: auto` times the candidates briefly, once per problem and machine. The timed program is
the core of a step: three products of six fields. The winner is stored in a small JSON file, and the
file's name depends on everything that the timing depends on."""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from simulator.cluster.cache_folders import base_folder, check_private
from simulator.cluster.start import Cluster
from simulator.errors import UserError
from simulator.spectral import native, staged
from simulator.spectral.arrays import PointValues, SpectralVector
from simulator.spectral.backends import build, candidates, choose, most, preferred
from simulator.spectral.candidates import Candidate, Devices, Kernels, Modes, Shape
from simulator.spectral.collectives import Kind
from simulator.spectral.schedules.device_part import Points
from simulator.spectral.transform import Local, Transform, Tree

ROUNDS = 5

Broadcast = Callable[[Any], Any]
"""Gives every process the (small, JSON) value of the first process."""
Report = Callable[[str], None]


def measured(
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
) -> dict[str, Any]:
    """The fastest `backend` and `plan` for `modes` on `devices`, the arrangement of the devices,
    `on`, and the `milliseconds` of every candidate, the winner's first; from an earlier measurement
    in `folder` or a new one.

    All processes of a run call this function; the file and the times of the first process decide.
    The parameters are many, because the measurement depends on all of them, and `broadcast` and
    `report` belong to a run. If `folder` cannot be written, the next start measures again. `nodes`:
    number of hosts of the devices; links within and between hosts differ.

    Raises UserError if no candidate works on these devices."""
    possible = choose(modes, len(devices), "auto", decomposition, mesh)
    candidates = worth_timing(possible)
    key = _key(
        modes, devices, dtype, candidates, native.chosen(kernels, devices[0].platform), nodes
    )
    path = (
        None
        if folder is None
        else folder / f"transform-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    )
    known = broadcast(_read(path, key))
    if known is not None:
        return known
    if len(candidates) == 1:
        return _described(candidates[0], {})
    times = broadcast(_time_all(modes, candidates, devices, dtype, kernels))
    if not any(t is not None for t in times):
        points = modes.grid.seen(modes.grid.shape)
        raise UserError(f"fft.backend: auto: no transform of {points} fits on these devices")
    ranked = sorted((t, i) for i, t in enumerate(times) if t is not None)
    best = candidates[ranked[0][1]]
    rounded = {str(candidates[i]): round(t, 3) for t, i in ranked}
    listed = ", ".join(f"{name} {t:.3g} ms" for name, t in rounded.items())
    report(f"transform: {best} is the fastest of {listed}")
    fastest = _described(best, rounded)
    _write(path, key, fastest)
    return fastest


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


def _key(
    modes: Modes,
    devices: Devices,
    dtype: Any,
    candidates: list[Candidate],
    kernels: str,
    nodes: int,
) -> str:
    processes = {device.process_index for device in devices}
    problem = [modes.grid.shape, modes.grid.dealias, modes.real, modes.every, np.dtype(dtype).name]
    machine = [len(devices), len(processes), nodes, devices[0].device_kind, os.cpu_count()]
    choice = [list(map(str, candidates)), kernels, jax.__version__]
    return json.dumps([*problem, *machine, *choice])


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


def _time_all(
    modes: Modes, candidates: list[Candidate], devices: Devices, dtype: Any, kernels: Kernels
) -> list[float | None]:
    """Milliseconds of each candidate, the least of a few interleaved rounds; None if the memory
    does not suffice."""
    runs: dict[int, Callable[[], float]] = {}
    for number, candidate in enumerate(candidates):
        supported = kernels if candidate.backend == staged.NAME else "auto"
        with contextlib.suppress(jax.errors.JaxRuntimeError, MemoryError):
            run = _nonlinear_term(build(modes, candidate, devices, dtype, kernels=supported))
            run()  # warms up
            runs[number] = run
    rounds = [{number: run() for number, run in runs.items()} for _ in range(ROUNDS)]
    return [
        min(times[number] for times in rounds) if number in runs else None
        for number in range(len(candidates))
    ]


def _nonlinear_term(transform: Transform) -> Callable[[], float]:
    """A function that evaluates three products of six fields and gives the milliseconds that this
    took."""

    def cross(values: PointValues, points: Points, parameters: Tree) -> Local:
        return Local({"c": jnp.cross(values["a"], values["b"], axis=0)})

    def run(array: SpectralVector) -> SpectralVector:
        return transform.evaluate({"a": array, "b": 2 * array}, cross).products["c"]

    run.__name__ = f"term_{transform.name}"  # distinguishes programs in the compile cache
    layout, dtype = transform.layout, transform.complex_dtype
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
    return jax.jit(
        lambda: jax.random.normal(jax.random.key(0), shape, dtype), out_shardings=sharding
    )()


UNITARITY = {"single": "1e-9", "half_scaled": "1e-6"}
"""Lost mass of waves, for 32^3 values on 4 devices."""


class Chosen(NamedTuple):
    """The transform of a run."""

    candidate: Candidate  # Backend, plan, and arrangement of the devices.
    kernels: Literal["native", "xla"]
    """Of local stages: native only if every process has compiled it."""
    measured: Mapping[str, Any] | None  # The choice of backend `auto`, and the conditions.


@dataclass(frozen=True)
class Request:
    """The modes that a run keeps, its precision, and the keys of `fft`. Every error message begins
    with a key."""

    modes: Modes
    dtype: Any
    backend: str
    decomposition: str
    mesh: Shape
    kernels: Kernels
    exchange: Kind
    waves: str | None = None  # The model of wave functions, which only unitary transforms keep.

    def candidates(self, count: int) -> list[Candidate]:
        """The ways to distribute the modes over `count` devices. Raises UserError if there are
        none."""
        return choose(self.modes, count, self.backend, self.decomposition, self.mesh)

    def most(self, limit: int, processes: int = 1) -> int | None:
        """The largest number of devices up to `limit` over which the modes and this many processes
        can be distributed; None if there is none."""
        bound = min(limit, most(self.modes, self.backend)) // processes * processes
        wanted = self.backend, self.decomposition, self.mesh
        return next(
            (n for n in range(bound, 0, -processes) if candidates(self.modes, n, *wanted)), None
        )

    def check(
        self, count: int | Literal["auto"], limit: int, processes: int = 1, members: int = 1
    ) -> None:
        """Raises UserError if the modes, the processes or the members of an ensemble cannot be
        distributed over `count` devices, or if the kernels or the number format of the exchanges
        are not available there. A count `auto` is a number up to `limit` that is not known yet."""
        if members > 1 and self.backend != staged.NAME:
            raise UserError(
                f"fft.backend: {self.backend} cannot lay members over devices; {staged.NAME} can"
            )
        self._check_exchange()
        if count == "auto":
            # The number is not known yet, only that every process has a device.
            if members > 1 or self.most(limit, processes) is not None:
                return
            count = processes
        if count % processes:
            nearest = max(count // processes, 1) * processes
            raise UserError(
                f"devices.count: {count} is not a multiple of {processes} processes; {nearest} is"
            )
        if count % members:
            can = max(count // members, 1) * members
            raise UserError(
                f"devices.count: {count} cannot be divided among members={members}; {can} can"
            )
        self.candidates(count // members)
        if self.kernels == "native":
            native.chosen(self.kernels, "cpu")

    def _check_exchange(self) -> None:
        kind = self.exchange
        if kind == "full":
            return
        if self.waves is not None:
            cost = (
                f"their unitarity ({UNITARITY[kind]} of the mass in every transform, against 1e-16)"
            )
            key = f"fft.exchange: {kind} would cost wave functions {cost}"
            raise UserError(f"{key}; remove the key for {self.waves}")
        if self.dtype == "float32" and kind == "single":
            anyway = "whose numbers are single anyway; full or half_scaled works"
            raise UserError(f"fft.exchange: has no effect with precision: single, {anyway}")
        if self.backend != staged.NAME:
            raise UserError(f"fft.exchange: {kind} needs fft.backend: {staged.NAME}")

    def chosen(
        self,
        cluster: Cluster,
        members: int = 1,
        earlier: Mapping[str, Any] | None = None,
        report: Callable[[str], None] = print,
    ) -> Chosen:
        """The transform on the devices of a cluster, or on each of `members` equal parts of the
        devices. All processes call this method, after `check`; the errors are the same. `earlier`:
        an earlier start's choice."""
        kernels = native.chosen(self.kernels, cluster.platform)
        if cluster.num_processes > 1:
            kernels = "native" if all(k == "native" for k in cluster.gather(kernels)) else "xla"
        found = self.candidates(len(cluster.devices) // members)
        if self.backend != "auto":
            return Chosen(preferred(self.modes, found, kernels, cluster.platform), kernels, None)
        choice = self._measured(cluster, kernels, earlier, report)
        wanted = (choice["backend"], choice["plan"], choice["on"])
        fastest = (c for c in found if (c.backend, c.plan, list(c.mesh)) == wanted)
        return Chosen(
            next(fastest, preferred(self.modes, found, kernels, cluster.platform)), kernels, choice
        )

    def _measured(
        self,
        cluster: Cluster,
        kernels: Literal["native", "xla"],
        earlier: Mapping[str, Any] | None,
        report: Callable[[str], None],
    ) -> Mapping[str, Any]:
        nodes = cluster.broadcast(
            -(-cluster.num_processes // max(cluster.allocation.local_processes, 1))
        )
        conditions = {
            "devices": len(cluster.devices),
            "processes": cluster.num_processes,
            "nodes": nodes,
            "kind": cluster.devices[0].device_kind,
            "decomposition": self.decomposition,
            "mesh": self.mesh if self.mesh == "auto" else list(self.mesh),
            "kernels": kernels,
        }
        known = cluster.broadcast(remembered(earlier))
        if known and all(known.get(key) == value for key, value in conditions.items()):
            return known
        fastest = measured(
            self.modes,
            cluster.devices,
            self.dtype,
            decomposition=self.decomposition,
            mesh=self.mesh,
            kernels=kernels,
            nodes=nodes,
            folder=base_folder(os.environ),
            broadcast=cluster.broadcast,
            report=report if cluster.is_first else lambda line: None,
        )
        return {**conditions, **fastest}
