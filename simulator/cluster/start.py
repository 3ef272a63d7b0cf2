"""Acts on an `Allocation`: platform, devices, `jax.distributed`; everything is passed explicitly."""

import contextlib
import ctypes
import functools
import json
import os
import re
import signal
import socket
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.cluster import environment, failure, rendezvous
from simulator.cluster.allocation import LAUNCHER, Allocation
from simulator.cluster.environment import Environment
from simulator.cluster.gpus import is_mig
from simulator.cluster.hardware import has_gpu_plugin, present_gpus, usable_cores
from simulator.cluster.mesh import Device, make_mesh
from simulator.errors import RunFailure, UserError

HEARTBEAT = 10  # seconds after which a silent process counts as dead (JAX: 100)
SHUTDOWN = 20  # seconds to wait for the others at the end (JAX: 300)

Platform = Literal["auto", "cpu", "gpu"]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Cluster:
    """The processes and devices of a run.

    devices: those used, of all processes, process by process; every process has equally many.
    environment: what was set for speed, for provenance, and the cache's folder.
    The four collective methods are called by all processes in the same order, from the main thread. With
    one process they are trivial and do not touch JAX.
    """

    allocation: Allocation
    platform: Literal["cpu", "gpu"]
    devices: tuple[Device, ...]
    environment: Environment = field(default_factory=Environment, repr=False)
    _claim: rendezvous.Claim | None = field(default=None, repr=False, compare=False)

    @property
    def process_id(self) -> int:
        return self.allocation.process_id

    @property
    def num_processes(self) -> int:
        return self.allocation.num_processes

    @property
    def is_first(self) -> bool:
        return self.process_id == 0

    @property
    def local_devices(self) -> tuple[Device, ...]:
        """Those of `devices` that are this process's."""
        per_process = len(self.devices) // self.num_processes
        return self.devices[self.process_id * per_process :][:per_process]

    def any(self, flags: np.ndarray) -> np.ndarray:
        """Elementwise maximum of `flags` (bool or integer, one shape everywhere) over all processes."""
        flags = np.asarray(flags)
        if self.num_processes == 1:
            return flags.copy()
        return self._stack(flags.astype(np.int64)).max(axis=0).astype(flags.dtype)

    def barrier(self, name: str) -> None:
        """Returns when every process has come here. Raises RunFailure where they came to different ones."""
        if self.num_processes == 1:
            return
        if len(set(self._stack(np.array([zlib.crc32(name.encode())])).ravel())) > 1:
            raise RunFailure(
                f"processes met at different barriers, this one at {name!r}: a bug, please report"
            )

    def gather(self, value: Any) -> list[Any]:
        """The (small, JSON) values of all processes, by process id, on every process."""
        if self.num_processes == 1:
            return [value]
        data = np.frombuffer(json.dumps(value).encode(), np.uint8)
        sizes = self._stack(np.array([data.size])).ravel()
        room = 1 << int(max(sizes) - 1).bit_length()  # few sizes, so few compilations
        rows = self._stack(np.pad(data, (0, room - data.size)))
        return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """Process 0's (small, JSON) value."""
        return self.gather(value if self.is_first else None)[0]

    def close(self) -> None:
        """Leaves together: waits for all, then ends the connection. Requests to stop are ignored from here on.

        Idempotent.
        """
        if self.num_processes > 1 and jax.distributed.is_initialized():
            failure.ignore_requests()
            self.barrier("close")
            jax.distributed.shutdown()
        if self._claim is not None:
            self._claim.release()

    def _stack(self, row: np.ndarray) -> np.ndarray:
        """Rows of all processes, stacked by process id: one small collective."""
        per_process = len(self.devices) // self.num_processes
        mesh = make_mesh(self.devices[::per_process], (self.num_processes,), ("process",))
        rows = jax.make_array_from_single_device_arrays(
            (self.num_processes, *row.shape),
            NamedSharding(mesh, PartitionSpec("process")),
            [jax.device_put(row[None], self.local_devices[0])],
        )
        return np.asarray(_replicate(mesh)(rows))


@functools.cache
def _replicate(mesh: jax.sharding.Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))


def to_stderr(line: str) -> None:
    print(f"simulator: {line}", file=sys.stderr, flush=True)


def start(
    allocation: Allocation,
    *,
    platform: Platform = "auto",
    count: int | Literal["auto"] = "auto",
    limit: int | None = None,
    folder: Path | None = None,
    report: Report = to_stderr,
) -> Cluster:
    """Starts JAX as the allocation says and returns the cluster.

    count: devices over all processes, a multiple of their number; `auto` takes all GPUs, on the CPU one
    virtual device per core. limit: how many the layout can use, for `auto` on the CPU.
    folder: the shared run folder, made where missing, in which a step's processes find each other.
    report: gets warnings, one line each (on process 0, and on any process what concerns it alone).

    Raises UserError for what the user can cure, RunFailure when the processes do not come together.
    Settings of JAX that every part relies on (double precision, partitionable random numbers) are made
    here. Where the process has started JAX's backend before (a notebook), its devices are taken as they
    are.
    """
    follow_launcher()
    failure.install(allocation)
    if allocation.process_id == 0:
        for warning in allocation.warnings:
            report(f"warning: {warning}")
    chosen = choose_platform(allocation, platform, report)
    made = environment.apply(chosen, report, first=allocation.process_id == 0)
    _configure(chosen)
    local_ids = _gpu_ids(allocation) if chosen == "gpu" else None
    claim = None
    if allocation.num_processes > 1 and not jax.distributed.is_initialized():
        claim = _connect(allocation, local_ids, folder)
    each = _per_process(allocation, count)  # now that they are joined, all refuse together
    if chosen == "cpu":
        _set_cpu_devices(each or _auto_cpu_devices(allocation, limit))
    try:
        present = jax.devices("cuda" if chosen == "gpu" else "cpu")
    except RuntimeError as error:
        raise RunFailure(f"JAX did not start on the {chosen.upper()}: {error}") from error
    devices = _select(allocation, present, each, limit, chosen, report)
    cluster = Cluster(allocation, chosen, devices, made, claim)
    if cluster.num_processes > 1:
        with _silent_stdout():  # Gloo tells there of every group of devices that it connects
            cluster.barrier("start")
            _touch_all(devices)
    return cluster


@contextlib.contextmanager
def _silent_stdout() -> Iterator[None]:
    sys.stdout.flush()
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)


def _touch_all(devices: Sequence[Device]) -> None:
    """One collective over all devices: connects them now, and fails here where they do not reach another."""
    mesh = make_mesh(devices, (len(devices),), ("device",))
    sharded, whole = NamedSharding(mesh, PartitionSpec("device")), NamedSharding(mesh, PartitionSpec())
    total = jax.jit(lambda: jnp.arange(len(devices)), out_shardings=sharded)()
    if (found := int(jax.jit(jnp.sum, out_shardings=whole)(total))) != sum(range(len(devices))):
        raise RunFailure(f"the first sum over {len(devices)} devices is wrong: {found}")


def follow_launcher() -> None:
    """Makes this process stop (SIGTERM) when the launcher of --processes dies without a word."""
    launcher = os.environ.get(LAUNCHER)
    if launcher is None or not sys.platform.startswith("linux"):
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != int(launcher):
        raise RunFailure("the launcher of --processes is gone")


def choose_platform(allocation: Allocation, requested: Platform, report: Report) -> Literal["cpu", "gpu"]:
    """The platform to run on. Raises UserError where GPUs are wanted, or given to the job, but unusable."""
    if requested == "auto" and os.environ.get("JAX_PLATFORMS", "").split(",")[0] == "cpu":
        requested = "cpu"
    if requested == "cpu":
        return "cpu"
    visible = allocation.gpus.visible
    given = len(visible) if visible is not None else present_gpus()
    if given == 0:
        if requested == "gpu":
            hint = "; ask Slurm for them, e.g. with --gpus-per-node" if allocation.job else ""
            raise UserError(f"devices.platform: gpu, but this process is given no GPU{hint}")
        return "cpu"
    if not has_gpu_plugin():
        cure = "this JAX runs on the CPU only; install the GPU version with ./scripts/run --setup cuda12"
        if requested == "gpu" or allocation.job:
            raise UserError(f"GPUs are given but {cure} (or set devices.platform: cpu)")
        report(f"warning: this machine has GPUs, but {cure}")
        return "cpu"
    if allocation.gpus.problem:
        raise UserError(allocation.gpus.problem)
    return "gpu"


def _per_process(allocation: Allocation, count: int | Literal["auto"]) -> int | None:
    if count == "auto":
        return None
    if count < 1 or count % allocation.num_processes:
        n = allocation.num_processes
        raise UserError(
            f"devices.count: {count} is no multiple of the {n} processes; "
            f"it is the total over the whole run, e.g. {max(count // n, 1) * n}"
        )
    return count // allocation.num_processes


def _configure(platform: Literal["cpu", "gpu"]) -> None:
    jax.config.update("jax_enable_x64", True)  # time and dt are double in single-precision runs too
    # the run's own handlers take SIGTERM; JAX's service would swallow it
    jax.config.update("jax_enable_preemption_service", False)
    settings = {
        "jax_threefry_partitionable": True,
        "jax_cpu_collectives_implementation": "gloo",
        "jax_platforms": "cpu" if platform == "cpu" else "cuda,cpu",
    }
    for name, value in settings.items():
        if hasattr(jax.config, name):  # the first two are defaults that later versions may drop
            jax.config.update(name, value)


def _gpu_ids(allocation: Allocation) -> list[int]:
    """Ordinals of the GPUs to take among the visible ones."""
    visible = allocation.gpus.visible
    present = len(visible) if visible is not None else present_gpus()
    if visible is None and allocation.gpus.expected not in (None, present):
        raise UserError(
            f"Slurm gave {allocation.gpus.expected} GPUs of this node, but {present} are visible and "
            "CUDA_VISIBLE_DEVICES is unset: start with --gpus-per-task=1 or without --gpu-bind=none"
        )
    taken = allocation.gpus.take(present)
    if not taken:
        raise UserError(f"{allocation.gpus.sharers} processes on this host for {present} GPUs; start fewer")
    if visible is not None and is_mig(visible):
        # CUDA shows a process the first MIG device only, so its own has to be the first
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[taken[0]]
        return [0]
    return list(taken)


def _auto_cpu_devices(allocation: Allocation, limit: int | None) -> int:
    cores = usable_cores()
    if allocation.cores is not None:
        cores = min(cores, allocation.cores)
    elif allocation.local_processes > 1:
        cores = max(1, cores // allocation.local_processes)
    return min(cores, max(1, limit // allocation.num_processes)) if limit else cores


def _set_cpu_devices(number: int) -> None:
    if re.search(r"--xla_force_host_platform_device_count=\d+", os.environ.get("XLA_FLAGS", "")):
        return  # the user's word; _select says so where it is too few
    with contextlib.suppress(
        RuntimeError
    ):  # the backend runs already (a notebook): _select takes what it has
        jax.config.update("jax_num_cpu_devices", number)


def _connect(
    allocation: Allocation, local_ids: list[int] | None, folder: Path | None
) -> rendezvous.Claim | None:
    """Joins the processes by `jax.distributed`; returns the claim on the coordinator's port, if any."""
    first = allocation.process_id == 0
    if allocation.coordinator is not None:
        host, _, port = allocation.coordinator.rpartition(":")
        if first and not _free(int(port)):
            raise UserError(f"port {port} of this host is in use: choose another for --coordinator")
        _initialize(allocation, local_ids, allocation.coordinator, timeout=300)
        return None
    if allocation.rendezvous is None or allocation.port is None:
        raise AssertionError("several processes have a coordinator or a step")
    host = _own_name(allocation) if first else allocation.coordinator_host or ""
    if folder is None:
        claim = rendezvous.claim_port([allocation.port]) if first else None
        _initialize(allocation, local_ids, f"{host}:{allocation.port}", timeout=120)
        return claim
    if not first:
        address = rendezvous.find(folder, allocation.rendezvous, host)
        _initialize(allocation, local_ids, address, timeout=60)
        return None
    try:
        return rendezvous.serve(
            folder,
            allocation.rendezvous,
            host,
            lambda port: _initialize(allocation, local_ids, f"{host}:{port}", timeout=150),
        )
    finally:  # initialize returns when all have come, so all have read it
        rendezvous.retract(folder, allocation.rendezvous)
        # Whether there will be a run is decided later. Another step may have made the folder, or still use it.
        with contextlib.suppress(OSError):
            folder.rmdir()


def _own_name(allocation: Allocation) -> str:
    """A name of this host that others resolve: the launcher's where it is in the name service."""
    for name in filter(None, (allocation.host, socket.gethostname())):
        with contextlib.suppress(OSError):
            socket.getaddrinfo(name, None)
            return name
    return socket.gethostname()


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _initialize(allocation: Allocation, local_ids: list[int] | None, address: str, timeout: int) -> None:
    host, _, port = address.rpartition(":")
    loopback = host in ("127.0.0.1", "localhost", "[::1]")
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        # gRPC would ask a site's web proxy for the way to the next node
        os.environ.setdefault("no_grpc_proxy", host.strip("[]"))
    try:
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=allocation.num_processes,
            process_id=allocation.process_id,
            local_device_ids=local_ids,
            cluster_detection_method="deactivate",
            coordinator_bind_address=f"127.0.0.1:{port}" if loopback else f"[::]:{port}",
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=SHUTDOWN,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise RunFailure(
            f"process {allocation.process_id} of {allocation.num_processes} on {socket.gethostname()} "
            f"did not join the others at {address}: {reason}"
        ) from error


def _select(
    allocation: Allocation,
    present: list[Device],
    each: int | None,
    limit: int | None,
    platform: Literal["cpu", "gpu"],
    report: Report,
) -> tuple[Device, ...]:
    """The first devices of every process, equally many of each."""
    n = allocation.num_processes
    owned = [
        sorted(
            (device for device in present if device.process_index == process), key=lambda device: device.id
        )
        for process in range(n)
    ]
    counts = [len(devices) for devices in owned]
    fewest = min(counts)
    if each is None:
        if len(set(counts)) > 1 and allocation.process_id == 0:
            report(f"warning: processes have {min(counts)} to {max(counts)} devices: each uses {fewest}")
        each = fewest if platform == "gpu" or not limit else min(fewest, max(1, limit // n))
    if each > fewest or each < 1:
        poorest = counts.index(fewest)
        started = "; JAX was started before with this number" if platform == "cpu" else ""
        raise UserError(
            f"devices.count: {each * n} needs {each} {platform.upper()} devices in each of {n} processes, "
            f"process {poorest} has {fewest}{started}"
        )
    return tuple(device for devices in owned for device in devices[:each])
