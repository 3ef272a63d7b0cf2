"""Where and how a run is computed: nothing in here changes its results beyond round-off."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from simulator.settings import Count, Integer, Seconds, Settings


def _auto_or_count(value: Any) -> Any:
    if value == "auto":
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 1 or value % 1:
        raise ValueError(f"auto or a whole number of at least 1 is needed, not {value!r}")
    return value


AutoOrCount = Annotated[Literal["auto"] | int, BeforeValidator(_auto_or_count)]


class DeviceSettings(Settings):
    platform: Literal["auto", "cpu", "gpu"] = "auto"
    """auto takes GPUs where there are some."""
    count: AutoOrCount = "auto"
    """Devices over the whole run, all processes together; on the CPU this many virtual devices."""


class FftSettings(Settings):
    backend: Literal["auto", "custom_partitioning", "jaxdecomp"] = "custom_partitioning"
    """How distributed transforms are done; auto measures the candidates once and remembers the winner."""
    decomposition: Literal["auto", "slab", "pencil", "z_xy", "zx_y", "z_y_x"] = "auto"
    """How a field is divided among the devices; the last three name a plan of custom_partitioning."""
    block: AutoOrCount = "auto"
    """Number of planes of physical space that are visited at a time."""


class ProcessSettings(Settings):
    """The block `run`: how the processes of a run watch over each other, and how much memory they take."""

    memory: Literal["auto", "low", "fast"] = "auto"
    """low transforms components one after another and holds about half as much; auto does so only where fast does not
    fit in the devices' memory."""

    watchdog: Seconds = 600.0
    """A process that makes no progress for this long dumps its threads' stacks and ends the run."""


def _slurm_time(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and re.fullmatch(r"(\d+-\d+(:\d+){0,2})|(\d+(:\d+){0,2})", text):
        return text
    raise ValueError(f"Slurm's form of a time is needed, e.g. 00:30:00 or 2-12:00:00, not {value!r}")


def _one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("one line of text is needed")
    return value


Word = Annotated[str, AfterValidator(_one_line)]


class SlurmSettings(Settings):
    """What `simulator submit` asks of Slurm; whatever is not given is left to Slurm."""

    nodes: Count | None = None
    tasks_per_node: Count | None = None
    gpus_per_node: Annotated[Integer, Field(ge=0)] | None = None
    cpus_per_task: Count | None = None
    time: Annotated[str, BeforeValidator(_slurm_time, json_schema_input_type=str | int)] | None = None
    """Time limit in Slurm's form: minutes, HH:MM:SS or D-HH:MM:SS."""
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    sbatch: Word | None = None
    """Any other flags of sbatch, as on its command line."""
    prologue: str | None = None
    """Lines of shell for modules and the network, before anything starts."""
    device: Word | None = None
    """What the nodes have, by a name that `simulator plan` knows: what is not given is then suggested."""
