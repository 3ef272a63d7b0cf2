"""Settings of where and how a run is computed, which change its results by round-off only."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from simulator.errors import shown
from simulator.settings import Count, Integer, Seconds, Settings

MOST_DEVICES = 2**20
"""Upper limit of `devices.count` and `fft.block`: more than any machine or grid has."""


def _auto_or_count(value: Any) -> Any:
    if value == "auto":
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 1 or value % 1:
        raise ValueError(f"auto or a whole number of at least 1 is needed, not {shown(value)}")
    if value > MOST_DEVICES:
        raise ValueError(f"must be at most {MOST_DEVICES}, not {shown(value)}")
    return value


def _auto_or_mesh(value: Any) -> Any:
    if value == "auto":
        return value
    numbers = list(value) if isinstance(value, list | tuple) else []
    if len(numbers) != 2 or not all(
        isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers
    ):
        raise ValueError(f"auto or [rows, columns] is needed, two whole numbers, not {shown(value)}")
    return numbers


AutoOrMesh = Annotated[Literal["auto"] | tuple[int, int], BeforeValidator(_auto_or_mesh)]
AutoOrCount = Annotated[Literal["auto"] | int, BeforeValidator(_auto_or_count)]


class DeviceSettings(Settings):
    platform: Literal["auto", "cpu", "gpu"] = "auto"
    """auto uses GPUs if there are any."""
    count: AutoOrCount = "auto"
    """Number of devices of the whole run, over all processes; on the CPU, of virtual devices."""


class FftSettings(Settings):
    backend: Literal["auto", "custom_partitioning", "jaxdecomp"] = "custom_partitioning"
    """The implementation of distributed transforms; auto measures the candidates once and keeps the fastest."""
    decomposition: Literal["auto", "slab", "pencil", "z_xy", "zx_y", "z_y_x"] = "auto"
    """How a field is divided among the devices; the last three name a plan of custom_partitioning."""
    mesh: AutoOrMesh = "auto"
    """Rows and columns of devices among which pencils are shared, their product the number of devices; columns are
    neighbours, and with one row or one column they are slabs. auto takes the mesh that pads least, and with
    fft.backend: auto the fastest."""
    block: AutoOrCount = "auto"
    """Number of planes of physical space that are processed at a time; auto fits them into a processor's cache, and
    on GPUs takes all of them."""
    kernels: Literal["auto", "native", "xla"] = "auto"
    """The implementation of the local stages of transforms: native code, which runs on processors and needs a C++
    compiler, or XLA; auto uses native code where it is available."""
    exchange: Literal["full", "single", "half_scaled"] = "full"
    """What the nonlinear term of a double-precision run sends between devices: full numbers, single ones (half the
    bytes), or 16 bits scaled plane by plane (a quarter). Everything is computed and kept in full."""


class ProcessSettings(Settings):
    """The block `run`: memory and supervision of the processes."""

    memory: Literal["auto", "low", "fast"] = "auto"
    """low transforms components one after another and needs about half the memory; auto does so only if fast does not
    fit in the memory of the devices."""

    watchdog: Seconds = 600.0
    """A process that makes no progress for this long prints the stacks of its threads and ends the run."""

    stop_within: Seconds = 60.0
    """A process whose loop has not answered a signal to stop for this long does the same. A step, a row of output, or
    a compilation may take as long."""

    rendezvous: Seconds = 900.0
    """How long processes wait for one another at the start; proportionally longer for more than 512 processes."""


def _slurm_time(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and re.fullmatch(r"(\d+-\d+(:\d+){0,2})|(\d+(:\d+){0,2})", text):
        return text
    raise ValueError(f"a time in Slurm's format is needed, e.g. 00:30:00 or 2-12:00:00, not {shown(value)}")


def _one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("one line of text is needed")
    return value


Word = Annotated[str, AfterValidator(_one_line)]


class SlurmSettings(Settings):
    """Resources that `simulator submit` requests from Slurm; Slurm's defaults apply to the others."""

    nodes: Count | None = None
    """Number of nodes."""
    tasks_per_node: Count | None = None
    """Processes on each node; by default one per GPU if there are GPUs."""
    gpus_per_node: Annotated[Integer, Field(ge=0)] | None = None
    """GPUs on each node."""
    cpus_per_task: Count | None = None
    """Cores for each process."""
    time: Annotated[str, BeforeValidator(_slurm_time, json_schema_input_type=str | int)] | None = None
    """Time limit in Slurm's format: minutes, HH:MM:SS or D-HH:MM:SS."""
    partition: Word | None = None
    """Partition (queue) of the job."""
    account: Word | None = None
    """Account that is charged."""
    qos: Word | None = None
    """Quality of service."""
    constraint: Word | None = None
    """Features that the nodes must have."""
    sbatch: Word | None = None
    """Further flags of sbatch, as on its command line."""
    prologue: str | None = None
    """Shell commands that run first, for example to load modules or configure the network."""
    device: Word | None = None
    """The kind of device in the nodes, by its name in `simulator plan`; resources that are not given are then
    suggested."""
