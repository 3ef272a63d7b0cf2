"""The needs of a run on given devices: memory, files and time; alternatives that fit; and the request to Slurm."""

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from simulator.config import RunConfig
from simulator.plan.files import Files, files_of
from simulator.plan.fitting import fewest_devices, largest_shape, step_on, surely_fits, usable
from simulator.plan.machines import Machine
from simulator.plan.step import Step
from simulator.plan.step_time import Seconds, seconds
from simulator.plan.steps import Steps
from simulator.words import size

START = 300.0
"""Seconds allowed for a job's start, compilation and last checkpoint."""
MARGIN = 1.5
"""The ratio of a job's time limit to its planned duration."""
DAY = 24 * 3600.0


@dataclass(frozen=True)
class Ask:
    """The resources to request from Slurm."""

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
    """The plan of a configuration on `devices` devices. Raises UserError if the grid cannot be distributed over
    them."""

    config: RunConfig
    machine: Machine
    devices: int
    steps: Steps
    step: Step = field(init=False)

    def __post_init__(self) -> None:
        self.step = step_on(self.config, self.machine, self.devices)

    @property
    def available(self) -> float:
        """Bytes of one device that a run may use."""
        return usable(self.machine)

    @cached_property
    def fits(self) -> bool:
        return surely_fits(self.step, self.machine) or self.step.largest <= self.available

    @cached_property
    def seconds(self) -> Seconds:
        """The duration of one step, by part."""
        return seconds(self.step.traffic, self.machine, self.config.precision, self.devices)

    @property
    def whole_run(self) -> float | None:
        """Duration of all steps in seconds."""
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
        """The ratio of the whole run's memory to that of its steps."""
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
        """Raises UserError if the run does not fit, stating the excess and the alternatives that fit."""
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
    """A time limit, rounded up to minutes, and above an hour to quarters of an hour."""
    unit = 60 if duration <= 3600 else 900
    minutes = ceil(duration / unit) * unit // 60
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
