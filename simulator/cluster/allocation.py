"""Reads from flags and environment how many processes a run has, and the id of this process.

`discover` is a function from an environment to an `Allocation`; `start` acts on it. Flags take
precedence over SIMULATOR_COORDINATOR, SIMULATOR_NUM_PROCESSES and SIMULATOR_PROCESS_ID, these over
MPI's `mpirun` and Flux, these over a Slurm step, a Slurm step over other launchers, and these over
a single local process. (Inside a job `mpirun` starts its helpers with `srun`, so that its processes
have the variables of a step that is not theirs.) A Slurm environment counts only if `srun` started
the task: batch scripts, `salloc` shells, notebooks and ssh sessions have some of Slurm's variables,
and a program that relied on those variables would wait for processes that nobody started."""

import contextlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from simulator.cluster.hardware import GpuShare, is_mig, step_share, visible_gpus
from simulator.cluster.hostlist import host_names, tasks_per_node
from simulator.cluster.variables import whole_number
from simulator.errors import UserError, shortened, shown

COORDINATOR = "SIMULATOR_COORDINATOR"
NUM_PROCESSES = "SIMULATOR_NUM_PROCESSES"
PROCESS_ID = "SIMULATOR_PROCESS_ID"
# Only the launcher of --processes sets these two variables. Its processes share the cores and GPUs
# of one host.
LOCAL_RANK = "SIMULATOR_LOCAL_RANK"
LOCAL_PROCESSES = "SIMULATOR_LOCAL_PROCESSES"
SECRET = "SIMULATOR_SECRET"  # A secret of the processes of one run. No record and no message contains it.
LAUNCHER = "SIMULATOR_LAUNCHER"  # the launcher's process id: its children stop when it dies


class _Launcher(NamedTuple):
    """The variables of a launcher: id and number of processes, id and number among those of this
    host, the name of the launch, and the number of hosts; empty where it has none.

    over_slurm: whether its variables win over those of a Slurm step, which then belong to its
    helpers. Slurm sets the variables of the others, too."""

    process: str
    number: str = ""
    local: str = ""
    sharers: str = ""
    launch: str = ""
    hosts: str = ""
    over_slurm: bool = False


# Open MPI; Hydra, the launcher of MPICH and Intel MPI; Flux; PALS of Cray; another PMI; PMIx alone
_LAUNCHERS = (
    _Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMIX_NAMESPACE",
        over_slurm=True,
    ),
    _Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", over_slurm=True),
    _Launcher(
        "FLUX_TASK_RANK",
        "FLUX_JOB_SIZE",
        "FLUX_TASK_LOCAL_ID",
        launch="FLUX_JOB_ID",
        hosts="FLUX_JOB_NNODES",
        over_slurm=True,
    ),
    _Launcher("PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PMI_LOCAL_SIZE", "PALS_APID"),
    _Launcher("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    _Launcher("PMIX_RANK"),
)
# the ids of processes that an MPI library can connect
_PMI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
# ids of Slurm steps that were not started by an srun command line (slurm.h)
_BATCH_LIKE_STEPS = {"4294967290": "interactive", "4294967291": "batch", "4294967292": "extern"}
_LONGEST_HOST = 256
# ports below Linux's ephemeral range, which outgoing connections use
PORTS = range(20000, 32768)


@dataclass(frozen=True)
class Job:
    """The Slurm job around the process, which may be just a shell in it."""

    id: str
    step: str | None = None
    restarts: int = 0


@dataclass(frozen=True)
class Allocation:
    """Processes, nodes and devices, as far as flags and environment determine them.

    source: the origin of the description; `local` is a single process, `mpi` a process of `mpirun`
    or another launcher.
    mpi: whether an MPI library in these processes connects them (`mpirun`, `srun --mpi`). nodes: the host names, if
    known; `node` is the index of this process's host in `nodes`. local_rank, local_processes: rank
    among the processes of this node, and their number. hosts: the host of every process, indexed by
    process id, if known. cores: the most cores that this process may use; None if only its affinity
    limits them. coordinator: `host:port` if given. Otherwise process 0 picks a port,
    `coordinator_host` is the host of process 0 and `rendezvous` a name that is unique to the
    processes of this step. port: a port derived from `rendezvous`, for commands without a shared
    folder. secret: the value of SIMULATOR_SECRET, which the launcher sets; empty if process 0
    publishes a secret (`join`)."""

    source: Literal["local", "explicit", "mpi", "slurm"] = "local"
    process_id: int = 0
    num_processes: int = 1
    nodes: tuple[str, ...] = ()
    node: int = 0
    local_rank: int = 0
    local_processes: int = 1
    hosts: tuple[str, ...] = ()
    cores: int | None = None
    gpus: GpuShare = field(default_factory=GpuShare)
    coordinator: str | None = None
    coordinator_host: str | None = None
    rendezvous: str | None = None
    job: Job | None = None
    warnings: tuple[str, ...] = ()
    mpi: bool = False
    secret: str = field(default="", repr=False)

    @property
    def port(self) -> int | None:
        return PORTS[zlib.crc32(self.rendezvous.encode()) % len(PORTS)] if self.rendezvous else None

    @property
    def host(self) -> str | None:
        """The launcher's name for this node."""
        return self.nodes[self.node] if self.nodes else None


def discover(
    environ: Mapping[str, str],
    *,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> Allocation:
    """The allocation that flags (the keywords) and environment describe. A pure function of them and
    of PBS's list of hosts.

    Raises UserError for contradictions, incomplete descriptions by hand or by a launcher, and
    heterogeneous jobs. A suspicious environment (such as a shell inside a job) gives a local
    allocation with a warning."""
    name = COORDINATOR if coordinator is None else "--coordinator"
    coordinator = (environ.get(COORDINATOR) or None) if coordinator is None else coordinator
    if coordinator is not None:
        if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\s/]+):\d{1,5}", coordinator):
            raise UserError(
                f"{name}: {shown(coordinator)} is not an address; write HOST:PORT, e.g. node1:12345"
            )
        if not 0 < int(coordinator.rpartition(":")[2]) < 2**16:
            raise UserError(f"{name}: {shown(coordinator)}: ports go from 1 to 65535")
    number = _integer(environ, NUM_PROCESSES) if num_processes is None else num_processes
    process = _integer(environ, PROCESS_ID) if process_id is None else process_id
    step = _launched(environ, coordinator, True) or _step(environ, coordinator)
    if not isinstance(step, Allocation) and "SLURM_PTY_PORT" not in environ:
        step = _launched(environ, coordinator, False) or step
    if number is not None or process is not None:
        return _explicit(environ, coordinator, number, process, step)
    if isinstance(step, Allocation):
        return step
    if coordinator is not None:
        more = f"add --num-processes N --process-id I, or {NUM_PROCESSES} and {PROCESS_ID}"
        raise UserError(f"{name} {coordinator} needs the number of processes too: {more}")
    _refuse_unknown_number(environ)
    return Allocation(
        cores=_cores(environ, 1),
        gpus=GpuShare(visible_gpus(environ)),
        job=_job(environ),
        warnings=(step,) if step else (),
    )


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if text and whole_number(text) is None:
        raise UserError(f"{name}: {shown(text)} is not a whole number")
    return whole_number(text)


def _explicit(
    environ: Mapping[str, str],
    coordinator: str | None,
    number: int | None,
    process: int | None,
    step: Allocation | str | None,
) -> Allocation:
    if number is None or process is None or (number > 1 and coordinator is None):
        settings = {
            f"--coordinator ({COORDINATOR})": coordinator,
            f"--num-processes ({NUM_PROCESSES})": number,
            f"--process-id ({PROCESS_ID})": process,
        }
        missing = " and ".join(name for name, value in settings.items() if value is None)
        raise UserError(
            f"processes started by hand need all three of their settings; missing: {missing}"
        )
    if number < 1:
        raise UserError(f"--num-processes {number}: at least 1 is needed")
    if not 0 <= process < number:
        ids = f"process ids go from 0 to {number - 1}"
        raise UserError(f"--process-id {process} with --num-processes {number}: {ids}")
    if isinstance(step, Allocation) and (step.process_id, step.num_processes) == (process, number):
        return step  # srun has bound this process to cores and GPUs
    rank = _integer(environ, LOCAL_RANK) or 0
    sharers = _integer(environ, LOCAL_PROCESSES) or 1
    visible = visible_gpus(environ)
    gpus = GpuShare(visible, rank, sharers)
    if visible and len(visible) < sharers:
        gpus = GpuShare(
            visible, problem=f"{sharers} processes for {len(visible)} visible GPUs; start fewer"
        )
    return Allocation(
        source="explicit",
        process_id=process,
        num_processes=number,
        local_rank=rank,
        local_processes=sharers,
        cores=_cores(environ, sharers),
        gpus=gpus,
        coordinator=coordinator,
        job=_job(environ),
        secret=_secret(environ),
    )


def _secret(environ: Mapping[str, str]) -> str:
    secret = environ.get(SECRET, "")
    if secret and not 16 <= len(secret) <= 256:
        raise UserError(
            f"{SECRET}: must have 16 to 256 characters; make one with: openssl rand -hex 16"
        )
    return secret


def launched_with_mpi(environ: Mapping[str, str]) -> bool:
    """Whether `mpirun`, or another launcher with a PMI, started this process."""
    return any(environ.get(name) for name in _PMI)


def _launched(
    environ: Mapping[str, str], coordinator: str | None, over_slurm: bool
) -> Allocation | None:
    """The allocation of a process of a launcher in the table; None for other processes."""
    for launcher in _LAUNCHERS:
        process, number, local, sharers = (whole_number(environ.get(n)) for n in launcher[:4])
        if process is None or number is None or launcher.over_slurm is not over_slurm:
            continue
        warnings = ()
        if hosts := whole_number(environ.get(launcher.hosts)):
            sharers = max(-(-number // hosts), (local or 0) + 1)
        if local is None or sharers is None:
            if over_slurm:
                continue
            local, sharers = 0, 1
            unknown = f"{launcher.process} does not tell how many processes share a host"
            warnings = (f"{unknown}: each uses all cores and GPUs that it sees",)
        if not (process < number and local < sharers <= number):
            values = ", ".join(
                f"{name}={environ[name]}" for name in launcher[:4] if name in environ
            )
            raise UserError(f"the launcher's variables contradict each other: {values}")
        job = _job(environ)
        # Open MPI, Flux and PALS name each launch; those of others differ by job alone.
        launch = environ.get(launcher.launch) or environ.get("PBS_JOBID", "")
        launch = re.sub(r"[^\w.-]", "-", launch, flags=re.ASCII)
        visible = visible_gpus(environ)
        # Fewer GPUs than processes: a script around the program, or the launcher, gave each its own.
        own = visible is not None and len(visible) < sharers
        return Allocation(
            "mpi",
            process,
            number,
            local_rank=local,
            local_processes=sharers,
            cores=_cores(environ, sharers),
            gpus=GpuShare(visible) if own else GpuShare(visible, local, sharers),
            coordinator=coordinator,
            coordinator_host="localhost" if sharers == number else _first_host(environ),
            rendezvous=".".join(filter(None, ("mpirun", job and job.id, launch))),
            job=job,
            warnings=warnings,
            mpi=any(whole_number(environ.get(name)) == process for name in _PMI),
            secret=_secret(environ),
        )
    return None


def _refuse_unknown_number(environ: Mapping[str, str]) -> None:
    """Raises UserError if a launcher other than Slurm has started this process as one of several
    without telling of how many."""
    if environ.get("SLURM_STEP_ID"):
        return
    for launcher in _LAUNCHERS:
        if (process := environ.get(launcher.process)) is not None:
            said = f"{launcher.process}={shown(process)} says that a launcher started this process"
            numbers = f"{COORDINATOR}=HOST:PORT, {NUM_PROCESSES} and {PROCESS_ID}"
            cure = (
                f"set {numbers} for each process, start with srun or mpirun, or unset the variable"
            )
            raise UserError(f"{said}, but not of how many: {cure}")


def _first_host(environ: Mapping[str, str]) -> str | None:
    """The first host of the job, where launchers put process 0, if Slurm or PBS names it."""
    with contextlib.suppress(ValueError):
        for host in host_names(environ.get("SLURM_JOB_NODELIST", "")):
            return host
    path = environ.get("PBS_NODEFILE", "")
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return file.readline(_LONGEST_HOST).strip() or None
    return None


def _step(environ: Mapping[str, str], coordinator: str | None) -> Allocation | str | None:
    """The allocation of one task of a Slurm step; or the reason to ignore Slurm's variables, None
    without any."""
    job = _job(environ)
    if job is None:
        names = ", ".join(name for name in ("SLURM_PROCID", "SLURM_NTASKS") if environ.get(name))
        return f"{names} without SLURM_JOB_ID: not in a Slurm job, one process" if names else None
    if job.step is None or job.step in _BATCH_LIKE_STEPS or "SLURM_PTY_PORT" in environ:
        return _shell_warning(environ, job)
    missing = [name for name in _TASK if whole_number(environ.get(name)) is None]
    missing += [] if environ.get("SLURM_STEP_NODELIST") else ["SLURM_STEP_NODELIST"]
    if missing:
        return f"Slurm's variables are incomplete (no usable {', '.join(missing)}): one process"
    if (whole_number(environ.get("SLURM_HET_SIZE") or environ.get("SLURM_PACK_SIZE")) or 1) > 1:
        mixed = f"job {job.id} is heterogeneous (SLURM_HET_SIZE is set), which is not supported"
        raise UserError(
            f"{mixed}: ask for equal nodes in one component, without `:` or `#SBATCH hetjob`"
        )
    try:
        nodes, per_node = _nodes(environ)
    except ValueError as error:
        return f"Slurm's variables contradict each other ({error}): one process"
    count, process, local, node = (int(environ[name]) for name in _TASK)
    distribution = environ.get("SLURM_DISTRIBUTION", "")
    port = environ.get("SLURM_STEP_LAUNCHER_PORT", "")  # of the step's srun
    gpus = step_share(environ, local, per_node[node])
    return Allocation(
        "slurm",
        process,
        count,
        nodes,
        node,
        local,
        per_node[node],
        _hosts(nodes, per_node, distribution),
        cores=_cores(environ, per_node[node]),
        gpus=gpus,
        coordinator=coordinator,
        coordinator_host=nodes[0],
        rendezvous=".".join(filter(None, (job.id, job.step, str(job.restarts), port))),
        job=job,
        warnings=_warnings(gpus, distribution.startswith("arbitrary") and coordinator is None),
        mpi=any(whole_number(environ.get(name)) == process for name in _PMI),
        secret=_secret(environ),
    )


_TASK = ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")


def _nodes(environ: Mapping[str, str]) -> tuple[tuple[str, ...], list[int]]:
    """The nodes of a step, and the number of tasks on each. Raises ValueError if the variables
    contradict each other."""
    count, process, local, node = (int(environ[name]) for name in _TASK)
    hosts = environ["SLURM_STEP_NODELIST"]
    nodes = tuple(host_names(hosts))
    per_node = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if not (process < count == sum(per_node) and node < len(nodes) == len(per_node)):
        where = f"node {node} of {shortened(hosts)}, {shortened(str(per_node))} per node"
        raise ValueError(f"task {process} of {count} on {where}")
    if local >= per_node[node]:
        raise ValueError(f"local task {local} of {per_node[node]}")
    return nodes, per_node


def _warnings(gpus: GpuShare, any_first: bool) -> tuple[str, ...]:
    """The warnings about a step; `any_first`: its first process may be on any node."""
    warnings = []
    seen = len(gpus.visible or ())
    if not gpus.problem and (idle := seen % gpus.sharers):
        warnings.append(f"{gpus.sharers} tasks divide {seen} GPUs of a node: {idle} of them idle")
    if is_mig(gpus.visible) and len(gpus.take(seen)) > 1:
        warnings.append("CUDA gives a process one MIG device only: start one task per MIG device")
    if any_first:
        warnings.append(
            "with --distribution=arbitrary the first process need not be on the first node"
        )
    return tuple(warnings)


def _hosts(nodes: Sequence[str], per_node: Sequence[int], distribution: str) -> tuple[str, ...]:
    """The host of every process: by default node after node (Slurm's block distribution)."""
    if distribution.startswith(("arbitrary", "plane")):
        return ()
    slots = [
        (local_rank, node) for node, number in enumerate(per_node) for local_rank in range(number)
    ]
    if distribution.startswith("cyclic"):
        slots.sort()
    return tuple(nodes[node] for _, node in slots)


def _job(environ: Mapping[str, str]) -> Job | None:
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    step = environ.get("SLURM_STEP_ID") or None
    return Job(job, step, restarts=whole_number(environ.get("SLURM_RESTART_COUNT")) or 0)


def _shell_warning(environ: Mapping[str, str], job: Job) -> str | None:
    """The warning for a program started by a job's shell instead of srun; None if the job has one
    task only."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS") if "SLURM_PTY_PORT" in environ else None
    tasks = tasks or environ.get("SLURM_NTASKS") or environ.get("SLURM_JOB_NUM_NODES") or "1"
    if tasks == "1":
        return None
    inside = f"inside Slurm job {job.id} with {tasks} tasks or nodes, but not started by srun"
    return f"{inside}: one process on this node; `srun simulator ...` uses them all"


def _cores(environ: Mapping[str, str], sharers: int) -> int | None:
    """The number of cores that Slurm gave this process. If Slurm does not bind tasks, the process
    sees more cores."""
    per_task = whole_number(environ.get("SLURM_CPUS_PER_TASK"))
    on_node = whole_number(environ.get("SLURM_CPUS_ON_NODE"))
    shares = [per_task] if per_task is not None and "SLURM_STEP_ID" in environ else []
    if on_node is not None:
        shares.append(on_node // sharers)
    return max(1, min(shares)) if shares else None
