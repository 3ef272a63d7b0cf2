"""Starts JAX according to an `Allocation`: platform, devices, `jax.distributed`."""

import contextlib
import ctypes
import functools
import json
import os
import re
import signal
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from simulator.cluster import environment, failure, meeting, mpi, rendezvous
from simulator.cluster.allocation import LAUNCHER, Allocation
from simulator.cluster.cores import Threads, cores_of, pool_of, threads_of
from simulator.cluster.hardware import (
    SETUP,
    check_address_space,
    gpu_vendor,
    has_gpu_plugin,
    is_mig,
    plugin_problem,
    present_gpus,
)
from simulator.cluster.join import join
from simulator.cluster.mesh import Device, make_mesh
from simulator.cluster.variables import whole_number
from simulator.errors import RunFailure, UserError, shown
from simulator.files import reason
from simulator.words import counted, say

Platform = Literal["auto", "cpu", "gpu"]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Cluster:
    """The processes and devices of a run.

    devices: the devices in use, ordered by process; every process has the same number. environment:
    the settings made for speed, for `provenance.json`. threads: of each device of a processor.
    transport: how processes exchange arrays on processors. All processes must call the five
    collective methods in the same order, from the main thread. With one process these methods are
    trivial and do not use JAX."""

    allocation: Allocation
    platform: Literal["cpu", "gpu"]
    devices: tuple[Device, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    threads: int = 1
    transport: mpi.Transport = field(default_factory=mpi.Transport)
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
        """The devices of this process."""
        return self.devices[self.process_id * self.per_process :][: self.per_process]

    @property
    def per_process(self) -> int:
        """The number of devices of each process."""
        return len(self.devices) // self.num_processes

    @property
    def processes(self) -> Mesh:
        """The first devices of all processes, along the axis `process`."""
        firsts = self.devices[:: self.per_process]
        return make_mesh(firsts, (self.num_processes,), ("process",))

    def any(self, flags: np.ndarray) -> np.ndarray:
        """Elementwise maximum of `flags` (bool or integer, one shape everywhere) over all
        processes."""
        flags = np.asarray(flags)
        if self.num_processes == 1:
            return flags.copy()
        return self._stack(flags.astype(np.int64)).max(axis=0).astype(flags.dtype)

    def barrier(self, name: str) -> None:
        """Returns when every process has called it. Raises RunFailure if the names of the barriers
        differ."""
        if self.num_processes == 1:
            return
        if len(set(self._stack(np.array([zlib.crc32(name.encode())])).ravel())) > 1:
            raise RunFailure(
                f"processes met at different barriers, this one at {name!r}; please report this bug"
            )

    def gather(self, value: object) -> list[Any]:
        """The small JSON values of all processes, in the order of their ids, on every process."""
        if self.num_processes == 1:
            return [value]
        data = np.frombuffer(json.dumps(value).encode(), np.uint8)
        sizes = self._stack(np.array([data.size])).ravel()
        room = 1 << int(max(sizes) - 1).bit_length()  # few sizes, so few compilations
        rows = self._stack(np.pad(data, (0, room - data.size)))
        return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]

    def broadcast(self, value: object) -> Any:
        """The small JSON value of process 0, on every process."""
        return self.gather(value if self.is_first else None)[0]

    def together(self, action: Callable[[], Any]) -> Any:
        """The JSON value of `action`, which process 0 calls, on every process; or its error
        (RunFailure for an OSError)."""
        answer: dict[str, Any] = {}
        if self.is_first:
            try:
                answer = {"value": action()}
            except UserError as error:
                answer = {"refused": error.args}
            except (RunFailure, OSError) as error:
                answer = {"failed": reason(error)}
        answer = self.broadcast(answer)
        if "refused" in answer:
            raise UserError(*answer["refused"])
        if "failed" in answer:
            raise RunFailure(answer["failed"])
        return answer["value"]

    def close(self) -> None:
        """Waits for all processes, then disconnects this one, which ignores signals from then on.
        Idempotent."""
        if self.num_processes > 1 and jax.distributed.is_initialized():
            failure.ignore_requests()
            self.barrier("close")
            jax.distributed.shutdown()
        if self._claim is not None:
            self._claim.release()

    def _stack(self, row: np.ndarray) -> np.ndarray:
        """The rows of all processes, stacked in the order of their ids, by one small collective."""
        mesh = self.processes
        rows = jax.make_array_from_single_device_arrays(
            (self.num_processes, *row.shape),
            NamedSharding(mesh, PartitionSpec("process")),
            [jax.device_put(row[None], self.local_devices[0])],
        )
        return np.asarray(_replicate(mesh)(rows))


@functools.cache
def _replicate(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))


def to_stderr(line: str) -> None:
    say(f"simulator: {line}")


@dataclass(frozen=True)
class Meeting:
    """How the processes of a run find and connect one another.

    folder: the shared run folder, created if missing, in which the processes of a step find each
    other. wait: seconds for which they wait for one another (`run.rendezvous`; see
    `meeting.patience`). transport: `run.transport`. record: names and values that all processes
    must share."""

    folder: Path | None = None
    wait: float = meeting.DEFAULT
    transport: mpi.Requested = "auto"
    record: meeting.Record = field(default_factory=dict)


def start(
    allocation: Allocation,
    *,
    platform: Platform = "auto",
    count: int | Literal["auto"] = "auto",
    threads: Threads = "auto",
    members: int = 1,
    meet: Meeting = Meeting(),
    report: Report = to_stderr,
) -> Cluster:
    """Starts JAX according to the allocation and returns the cluster.

    count: devices over all processes, a multiple of their number; `auto` takes all GPUs, or on the
    CPU one device per process, or per member of an ensemble. threads: of each device of a
    processor (see `threads_of`). report: called with each warning, on process 0 or on the process
    that the warning concerns.

    Raises UserError for problems that the user can cure, RunFailure if the processes cannot be
    connected. This function also makes the settings of JAX on which all parts rely (double
    precision, partitionable random numbers). If JAX's backend is running already (in a notebook),
    its devices are used as they are."""
    follow_launcher()
    check_address_space()
    failure.install(allocation)
    if allocation.process_id == 0:
        for warning in allocation.warnings:
            report(f"warning: {warning}")
    chosen = choose_platform(allocation, platform, report)
    local_ids = gpu_ids(allocation) if chosen == "gpu" else None
    gpus = allocation.num_processes * len(local_ids or ())
    changes = environment.apply(chosen, report, first=allocation.process_id == 0, devices=gpus)
    if chosen == "cpu" and count == "auto" and (forced := _forced()) is not None:
        count = allocation.num_processes * forced
    carrier = _transport(meet.transport, chosen, allocation, count, report)
    _configure(chosen, carrier)
    claim = None
    if allocation.num_processes > 1 and not jax.distributed.is_initialized():
        attendee = meeting.Attendee(allocation, meet.wait, to_stderr, carrier.name, meet.record)
        claim = join(attendee, local_ids, meet.folder)
    each = _per_process(allocation, count)  # after joining, so that all processes refuse together
    if chosen == "cpu":
        each = each or max(members // allocation.num_processes, 1)
        of_device, present = _processors(allocation, each, count, threads)
    else:
        of_device, present = _gpus(threads)
    if carrier.name == "mpi":
        mpi.check_world(Path(os.environ[mpi.LIBRARY]), allocation.num_processes)
    used = _select(allocation, present, each, chosen, report)
    return _connected(Cluster(allocation, chosen, used, changes, of_device, carrier, claim))


def _connected(cluster: Cluster) -> Cluster:
    """The cluster, whose processes and devices are connected."""
    if cluster.num_processes == 1:
        return cluster
    with _silent_stdout():  # Gloo prints a line for every group of devices that it connects
        cluster.barrier("start")
        _touch_all(cluster.devices)
        # All processes run one program, which is compiled for a number of threads.
        return replace(cluster, threads=min(cluster.gather(cluster.threads)))


def _gpus(threads: Threads) -> tuple[int, list[Device]]:
    """The threads of each GPU, and all GPUs."""
    if threads != "auto":
        raise UserError(
            f"devices.threads: {threads} is for processors, but this run uses GPUs; leave the key out, "
            "or set devices.platform: cpu"
        )
    return 1, _present(gpu_vendor())


def _processors(
    allocation: Allocation, each: int, count: int | Literal["auto"], threads: Threads
) -> tuple[int, list[Device]]:
    """The threads of each CPU device, and all CPU devices, of which this process has `each`."""
    cores = max(cores_of(allocation) // each, 1)
    of_device = threads_of(threads, count, cores)
    # _select refuses a number of the user that is too small
    if _forced() is None:
        # the backend runs already (a notebook): _select takes its devices
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", each)
    # Virtual devices that the user counts share a pool of all cores.
    counted = threads == "auto" and count != "auto"
    with pool_of(None if counted else each * of_device):
        return of_device, _present("cpu")


def _present(backend: str) -> list[Device]:
    try:
        return jax.devices(backend)
    except RuntimeError as error:
        raise RunFailure(f"JAX did not start on the {backend.upper()}: {error}") from error


@contextlib.contextmanager
def _silent_stdout() -> Iterator[None]:
    sys.stdout.flush()
    saved = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)


def _touch_all(devices: Sequence[Device]) -> None:
    """One collective over all devices: it connects the devices now, so that a failure to connect is
    raised here."""
    mesh = make_mesh(devices, (len(devices),), ("device",))
    sharded = NamedSharding(mesh, PartitionSpec("device"))
    replicated = NamedSharding(mesh, PartitionSpec())
    numbers = jax.jit(lambda: jnp.arange(len(devices)), out_shardings=sharded)()
    result = int(jax.jit(jnp.sum, out_shardings=replicated)(numbers))
    if result != sum(range(len(devices))):
        raise RunFailure(f"the first sum over {len(devices)} devices is wrong: {result}")


def follow_launcher() -> None:
    """Makes the kernel send SIGTERM to this process when the launcher of --processes dies."""
    launcher = os.environ.get(LAUNCHER)
    if launcher is None:
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if whole_number(launcher) is None:
        raise UserError(
            f"{LAUNCHER}: {shown(launcher)} is not a process id; unset it, the launcher sets it"
        )
    if os.getppid() != whole_number(launcher):
        raise RunFailure("the launcher of --processes is gone")


def choose_platform(
    allocation: Allocation, requested: Platform, report: Report
) -> Literal["cpu", "gpu"]:
    """The platform to run on. Raises UserError if GPUs are requested, or given to the job, but
    unusable."""
    if requested == "auto" and os.environ.get("JAX_PLATFORMS", "").split(",")[0] == "cpu":
        requested = "cpu"
    if requested == "cpu":
        return "cpu"
    visible = allocation.gpus.visible
    gpus = len(visible) if visible is not None else present_gpus()
    if gpus == 0:
        if requested == "gpu":
            hint = "; ask Slurm for them, e.g. with --gpus-per-node" if allocation.job else ""
            raise UserError(f"devices.platform: gpu, but this process has no GPU{hint}")
        return "cpu"
    if not has_gpu_plugin():
        cure = f"this JAX runs on the CPU only; install the GPU version with {SETUP[gpu_vendor()]}"
        if requested == "gpu" or allocation.job:
            raise UserError(f"GPUs are given but {cure} (or set devices.platform: cpu)")
        report(f"warning: this machine has GPUs, but {cure}")
        return "cpu"
    if (problem := plugin_problem(gpu_vendor())) is not None:
        raise UserError(f"GPUs are given, but {problem}")
    if allocation.gpus.problem:
        raise UserError(allocation.gpus.problem)
    return "gpu"


def _transport(
    requested: mpi.Requested,
    platform: Literal["cpu", "gpu"],
    allocation: Allocation,
    count: int | Literal["auto"],
    report: Report,
) -> mpi.Transport:
    if platform == "gpu":
        if requested == "mpi":
            raise UserError("run.transport: mpi is for processors; GPUs communicate by themselves")
        return mpi.Transport()
    devices = allocation.num_processes if count == "auto" else count
    transport = mpi.choose_transport(requested, allocation, devices, os.environ)
    if transport.declined and allocation.process_id == 0:
        report(f"warning: processes communicate by gloo instead of MPI: {transport.declined}")
    return transport


def _forced() -> int | None:
    """The number of devices of a process, if the user's flag of XLA gives it."""
    flag = re.search(
        r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", "")
    )
    return None if flag is None else int(flag[1])


def _per_process(allocation: Allocation, count: int | Literal["auto"]) -> int | None:
    if count == "auto":
        return None
    if count < 1 or count % allocation.num_processes:
        n = allocation.num_processes
        total = f"it is the total over the whole run, e.g. {max(count // n, 1) * n}"
        raise UserError(f"devices.count: {count} is not a multiple of the {n} processes; {total}")
    return count // allocation.num_processes


def _configure(platform: Literal["cpu", "gpu"], transport: mpi.Transport) -> None:
    jax.config.update("jax_enable_x64", True)  # time and dt are double in single-precision runs too
    # the run handles SIGTERM itself; JAX's service would swallow it
    jax.config.update("jax_enable_preemption_service", False)
    settings = {
        "jax_threefry_partitionable": True,
        "jax_cpu_collectives_implementation": transport.name,
        "jax_platforms": "cpu" if platform == "cpu" else f"{gpu_vendor()},cpu",
    }
    for name, value in settings.items():
        if hasattr(jax.config, name):  # the first two are defaults that later versions may drop
            jax.config.update(name, value)


def gpu_ids(allocation: Allocation) -> list[int]:
    """Ordinals of the GPUs to take among the visible ones."""
    visible = allocation.gpus.visible
    present = len(visible) if visible is not None else present_gpus()
    if visible is None and allocation.gpus.expected not in (None, present):
        seen = f"but {present} are visible and CUDA_VISIBLE_DEVICES is unset"
        cure = "start with --gpus-per-task=1 or without --gpu-bind=none"
        raise UserError(f"Slurm gave {allocation.gpus.expected} GPUs of this node, {seen}: {cure}")
    taken = allocation.gpus.take(present)
    if not taken:
        raise UserError(
            f"{allocation.gpus.sharers} processes on this host for {present} GPUs; start fewer"
        )
    if visible is not None and is_mig(visible):
        # CUDA uses only the first visible MIG device, so this process's device must come first
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[taken[0]]
        return [0]
    return list(taken)


def _select(
    allocation: Allocation,
    present: list[Device],
    each: int | None,
    platform: Literal["cpu", "gpu"],
    report: Report,
) -> tuple[Device, ...]:
    """The first devices of every process, the same number of each."""
    n = allocation.num_processes
    owned = [
        sorted(
            (device for device in present if device.process_index == process),
            key=lambda device: device.id,
        )
        for process in range(n)
    ]
    counts = [len(devices) for devices in owned]
    fewest = min(counts)
    if each is None:
        if len(set(counts)) > 1 and allocation.process_id == 0:
            report(
                f"warning: processes have {min(counts)} to {max(counts)} devices: each uses {fewest}"
            )
        each = fewest
    if each > fewest or each < 1:
        poorest = counts.index(fewest)
        started = (
            "; JAX was started with these: restart Python or the kernel"
            if platform == "cpu"
            else ""
        )
        part = counted(each, f"{platform.upper()} device")
        needed = f"devices.count: {each * n} needs {part} in each of {n} processes"
        raise UserError(f"{needed}, process {poorest} has {fewest}{started}")
    return tuple(device for devices in owned for device in devices[:each])
