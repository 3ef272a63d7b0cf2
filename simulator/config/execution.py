"""Settings of the devices, the transform and the processes of a run, which change results by round-off only."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from simulator.errors import shown
from simulator.settings import Seconds, Settings

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
    if len(numbers) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers):
        raise ValueError(f"auto or [rows, columns] is needed, two whole numbers, not {shown(value)}")
    return numbers


AutoOrMesh = Annotated[Literal["auto"] | tuple[int, int], BeforeValidator(_auto_or_mesh)]
AutoOrCount = Annotated[Literal["auto"] | int, BeforeValidator(_auto_or_count)]


class DeviceSettings(Settings):
    platform: Literal["auto", "cpu", "gpu"] = "auto"
    """auto uses GPUs if there are any."""
    count: AutoOrCount = "auto"
    """Number of devices of the whole run, over all processes; on the CPU the number of virtual devices."""


class FftSettings(Settings):
    backend: Literal["auto", "custom_partitioning", "jaxdecomp"] = "custom_partitioning"
    """The implementation of distributed transforms; auto measures the candidates once and keeps the fastest."""
    decomposition: Literal["auto", "slab", "pencil", "z_xy", "zx_y", "z_y_x"] = "auto"
    """How a field is divided among the devices; the last three are names of plans of custom_partitioning."""
    mesh: AutoOrMesh = "auto"
    """Rows and columns of the devices that share pencils; their product is the number of devices. The devices of a
    column are neighbours; with one row or one column the pencils are slabs. auto takes the mesh that pads least, and
    with fft.backend: auto the fastest mesh."""
    block: AutoOrCount = "auto"
    """Number of planes of physical space that are processed at a time; auto takes as many as fit into a processor's
    cache, and on GPUs all planes."""
    kernels: Literal["auto", "native", "xla"] = "auto"
    """The implementation of the local stages of transforms: native code, which runs on processors and needs a C++
    compiler, or XLA; auto uses native code where it is available."""
    exchange: Literal["full", "single", "half_scaled"] = "full"
    """Format of the numbers that the nonlinear term of a double-precision run sends between devices: double
    precision, single precision (half the bytes), or 16 bits scaled plane by plane (a quarter). All arrays are
    computed and stored in double precision."""


class ProcessSettings(Settings):
    """The block `run`: memory and supervision of the processes."""

    memory: Literal["auto", "low", "fast"] = "auto"
    """low transforms components one after another and needs about half the memory; auto is low only if fast does not
    fit in the memory of the devices."""

    watchdog: Seconds = 600.0
    """A process that makes no progress for this long prints the stacks of its threads and ends the run."""

    stop_within: Seconds = 60.0
    """A process whose loop has not answered a signal to stop for this long prints the stacks of its threads and ends
    the run. Give more time if a step, a row of output or a compilation takes longer."""

    rendezvous: Seconds = 900.0
    """Time for which processes wait for one another at the start; longer for more than 512 processes."""

    sync: bool = True
    """Make each file durable as it is written. false does so at checkpoints and at the end only, which is faster for
    many small files; after a power failure the run continues from its last checkpoint. By default false in the runs
    of a study with `dataset`."""
