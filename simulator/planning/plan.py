"""What a run needs on given devices: memory, files, time; what would fit; and what to ask Slurm for."""

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from simulator.config import RunConfig
from simulator.planning.files import Files, files_of
from simulator.planning.fitting import fewest_devices, largest_shape, step_on, surely_fits, usable
from simulator.planning.machines import Machine
from simulator.planning.step import Step
from simulator.planning.step_time import Seconds, seconds
from simulator.planning.steps import Steps

START = 300.0
"""Seconds that a job is given for its start, compilation and last checkpoint."""
MARGIN = 1.5
"""How much longer than planned a job may take."""
DAY = 24 * 3600.0


@dataclass(frozen=True)
class Ask:
    """What to ask Slurm for."""

    nodes: int
    devices: int
    gpus_per_node: int | None
    tasks_per_node: int
    cpus_per_task: int | None
    time: str | None

    def flags(self) -> list[str]:
        given = {
            "nodes": self.nodes,
            "gpus-per-node": self.gpus_per_node,
            "tasks-per-node": self.tasks_per_node if self.gpus_per_node is None else None,
            "cpus-per-task": self.cpus_per_task,
            "time": self.time,
        }
        return [f"--{name} {value}" for name, value in given.items() if value is not None]


@dataclass
class Plan:
    """Of a configuration on `devices` devices of a machine. Raises UserError where the grid cannot be shared so."""

    config: RunConfig
    machine: Machine
    devices: int
    steps: Steps
    step: Step = field(init=False)

    def __post_init__(self) -> None:
        self.step = step_on(self.config, self.machine, self.devices)

    @property
    def available(self) -> float:
        """Bytes that a run may take of one device."""
        return usable(self.machine)

    @cached_property
    def fits(self) -> bool:
        return surely_fits(self.step, self.machine) or self.step.largest <= self.available

    @cached_property
    def seconds(self) -> Seconds:
        """Of one step."""
        return seconds(self.step.traffic, self.machine, self.config.precision, self.devices)

    @property
    def whole_run(self) -> float | None:
        """Seconds of all steps."""
        return None if self.steps.count is None else self.steps.count * self.seconds.all

    @cached_property
    def files(self) -> Files:
        return files_of(self.step, self.steps.count)

    @cached_property
    def largest_shape(self) -> tuple[int, ...] | None:
        """The largest grid of the same proportions that fits on these devices."""
        return largest_shape(self.config, self.machine, self.devices, self.beside)

    @property
    def beside(self) -> float:
        """What the whole run needs, over what its steps need."""
        return self.step.largest / self.step.memory

    def ask(self) -> Ask:
        per_node, gpu = self.machine.per_node, self.machine.platform == "gpu"
        nodes = ceil(self.devices / per_node)
        each = ceil(self.devices / nodes)
        time = None if self.whole_run is None else slurm_time(min(DAY, START + MARGIN * self.whole_run))
        return Ask(
            nodes, self.devices, each if gpu else None, each if gpu else 1, None if gpu else each, time
        )

    def refuse(self) -> None:
        """Raises UserError where it does not fit: by how much, and what would."""
        if self.fits:
            return
        short = self.step.largest - self.available
        shape = " x ".join(map(str, self.config.grid.shape))
        cures = []
        if smaller := self.largest_shape:
            cures.append(f"{' x '.join(map(str, smaller))} would fit on these")
        if (more := fewest_devices(self.config, self.machine, self.devices, self.beside)) is not None:
            cures.append(f"{more} devices would do for this shape")
        raise self.config.error(
            "grid.shape",
            f"{shape} in {self.config.precision} precision needs {size(self.step.largest)} on each of "
            f"{self.devices} {counted(self.machine, self.devices)}, {size(short)} more than the "
            f"{size(self.available)} there are; {', or '.join(cures) or 'no number of devices would do'}",
        )


def counted(machine: Machine, devices: int) -> str:
    word = "device" if devices == 1 else "devices"
    return f"{word} of {machine.name}" if machine.measured else f"{machine.name} {word}"


def slurm_time(duration: float) -> str:
    """A time limit, rounded up to minutes, and beyond an hour to quarters of one."""
    unit = 60 if duration <= 3600 else 900
    minutes = ceil(duration / unit) * unit // 60
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"
