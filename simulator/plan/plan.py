"""Predicts memory, files and duration of a run on given devices, alternatives that fit, and the
request to Slurm."""

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, prod

import jax

from simulator.archive.rounding import bits
from simulator.config import RunConfig
from simulator.measure.kind import Cadence
from simulator.plan.capacity import fewest_devices, largest_shape, step_on, surely_fits, usable
from simulator.plan.machines import Machine
from simulator.plan.step_count import StepCount
from simulator.plan.step_memory import Step
from simulator.plan.step_time import StepSeconds, step_seconds
from simulator.words import size

START = 300.0  # Seconds allowed for a job's start, compilation and last checkpoint.
MARGIN = 1.5  # The ratio of a job's time limit to its planned duration.
DAY = 24 * 3600.0


@dataclass(frozen=True)
class OutputSize:
    """Bytes of a snapshot, uncompressed unless it is rounded, and of a checkpoint, and the numbers of both at the
    end of a run."""

    snapshot: float
    checkpoint: float
    snapshots: int | None  # None if snapshots are due by wall-clock time.
    checkpoints: int

    @property
    def all(self) -> float | None:
        """Bytes of the whole run."""
        if self.snapshots is None:
            return None
        return self.snapshots * self.snapshot + self.checkpoints * self.checkpoint


def files_of(step: Step, steps: int | None) -> OutputSize:
    config = step.config
    simulation = step.simulation
    wanted = config.output.snapshots
    single = "single" in (wanted.precision, config.precision)
    points = prod(config.grid.shape)

    names = wanted.fields or tuple(simulation.model.fields)
    arrays = {n: jax.eval_shape(simulation.field_program(n), simulation.template) for n in names}
    waves = wanted.error is None and all(a.dtype.kind == "c" for a in arrays.values())
    modulus = 4 if waves and wanted.index else 0  # Bytes of a value of each `NAME_modulus`.

    def values(name: str, array: jax.ShapeDtypeStruct) -> float:
        parts = 2 if array.dtype.kind == "c" else 1
        components = prod(array.shape[: -len(config.grid.shape)])
        if wanted.error is None:
            return float(((4 if single else 8) * parts + modulus) * components * points)
        of_field = simulation.model.transforms.get(name)
        truncated = of_field is not None and of_field.layout.truncated
        numbers = of_field.grid.modes if of_field is not None and truncated else points
        return parts * components * numbers * bits(wanted.error) / 8

    def coefficients(array: jax.ShapeDtypeStruct) -> float:
        layout = simulation.transform.layout
        modes = array.ndim >= 3 and array.shape[-3:] == layout.shape
        count = prod(array.shape[:-3]) * prod(layout.valid) if modes else prod(array.shape)
        return float(count * array.dtype.itemsize)

    checkpoints = config.output.checkpoints
    thinned = (
        steps // checkpoints.keep_every
        if checkpoints.keep_every and checkpoints.every_steps and steps
        else 0
    )
    return OutputSize(
        sum(values(name, array) for name, array in arrays.items()),
        sum(map(coefficients, jax.tree.leaves(simulation.template))),
        snapshots_of(config, steps),
        checkpoints.keep_last + thinned,
    )


def snapshots_of(config: RunConfig, steps: int | None) -> int | None:
    """The number of snapshots: the first and the last state, and the states due in between; None if
    it is unknown."""
    wanted: Cadence = config.output.snapshots
    if wanted.every_wall is not None or (wanted.every_steps is not None and steps is None):
        return None
    count = 2
    if isinstance(wanted.every, tuple):
        count += sum(time < config.time.stop for time in wanted.every)
    elif wanted.every is not None:
        count += max(0, floor(config.time.stop / wanted.every * (1 - 1e-9)))
    if wanted.every_steps is not None and steps is not None:
        count += max(0, (steps - 1) // wanted.every_steps)
    return count


@dataclass
class Plan:
    """The plan of a configuration on `devices` devices. Raises UserError if the devices cannot
    share the grid."""

    config: RunConfig
    machine: Machine
    devices: int
    steps: StepCount
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
    def seconds(self) -> StepSeconds:
        return step_seconds(self.step.work, self.machine)

    @property
    def whole_run(self) -> float | None:
        """Duration of all steps in seconds."""
        return None if self.steps.count is None else self.steps.count * self.seconds.all

    @cached_property
    def files(self) -> OutputSize:
        return files_of(self.step, self.steps.count)

    @cached_property
    def largest_shape(self) -> tuple[int, ...] | None:
        """The largest grid with the configuration's proportions that fits on these devices."""
        return largest_shape(self.config, self.machine, self.devices, self.beside)

    @property
    def beside(self) -> float:
        """The ratio of the whole run's memory to that of its steps."""
        return self.step.largest / self.step.memory

    def ask(self) -> dict[str, int | str]:
        """The resources to request from Slurm, by the keys of the block `slurm`."""
        nodes = ceil(self.devices / self.machine.per_node)
        each = ceil(self.devices / nodes)
        if self.machine.platform == "gpu":
            asked: dict[str, int | str] = {"nodes": nodes, "gpus_per_node": each}
        else:
            asked = {
                "nodes": nodes,
                "tasks_per_node": each,
                "cpus_per_task": self.machine.threads,
            }
        if self.whole_run is not None:
            asked["time"] = slurm_time(min(DAY, START + MARGIN * self.whole_run))
        return asked

    def refuse(self) -> None:
        """Raises UserError, with the missing memory and the alternatives that fit, if the run does
        not fit."""
        if self.fits:
            return
        short = self.step.largest - self.available
        shape = " x ".join(map(str, self.config.grid.shape))
        cures = []
        if smaller := self.largest_shape:
            cures.append(f"{' x '.join(map(str, smaller))} would fit on these devices")
        if (
            more := fewest_devices(self.config, self.machine, self.devices, self.beside)
        ) is not None:
            cures.append(f"{more} devices would suffice for this shape")
        raise self.config.error(
            "grid.shape",
            f"{shape} in {self.config.precision} precision needs {size(self.step.largest)} on each of "
            f"{self.devices} {device_words(self.machine, self.devices)}, {size(short)} more than the available "
            f"{size(self.available)}; {', or '.join(cures) or 'no number of devices would suffice'}",
        )


def device_words(machine: Machine, devices: int) -> str:
    word = "device" if devices == 1 else "devices"
    return f"{word} of {machine.name}" if machine.measured else f"{machine.name} {word}"


def slurm_time(duration: float) -> str:
    """A duration (seconds) as a time limit, rounded up to minutes, and above an hour to quarters of
    an hour."""
    unit = 60 if duration <= 3600 else 900
    minutes = ceil(duration / unit) * unit // 60
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
