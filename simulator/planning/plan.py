"""What a run needs on given devices: memory, files, time; what would fit; and what to ask Slurm for."""

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.planning.clock import Seconds, seconds
from simulator.planning.files import Files, files_of
from simulator.planning.machines import USABLE_MEMORY, Machine
from simulator.planning.paper import with_memory
from simulator.planning.step import Step
from simulator.planning.steps import Steps
from simulator.run.sharing import check_devices
from simulator.spectral.jaxdecomp import NAME as JAXDECOMP

MOST_DEVICES = 4096
POWERS = [2**i for i in range(MOST_DEVICES.bit_length())]
ROOM = 100
"""No program of a run holds so many times its state."""
START = 300.0
"""Seconds that a job is given for its start, compilation and last checkpoint."""
MARGIN = 1.5
"""How much longer than planned a job may take."""
DAY = 24 * 3600.0


NICE = sorted(
    2**a * 3**b * 5**c
    for a in range(16)
    for b in range(4)
    for c in range(3)
    if 8 <= 2**a * 3**b * 5**c <= 65536
)
"""Numbers of points that transforms are quick at."""


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
        return _surely_fits(self.step, self.machine) or self.step.largest <= self.available

    @cached_property
    def seconds(self) -> Seconds:
        """Of one step."""
        return seconds(self.step.work, self.machine, self.config.precision, self.devices)

    @property
    def whole_run(self) -> float | None:
        """Seconds of all steps."""
        return None if self.steps.count is None else self.steps.count * self.seconds.all

    @cached_property
    def files(self) -> Files:
        return files_of(self.step, self.steps.count)

    @cached_property
    def largest_shape(self) -> tuple[int, int, int] | None:
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


def usable(machine: Machine) -> float:
    """Bytes of a device that a run may take."""
    return USABLE_MEMORY[machine.platform] * machine.memory


def counted(machine: Machine, devices: int) -> str:
    word = "device" if devices == 1 else "devices"
    return f"{word} of {machine.name}" if machine.measured else f"{machine.name} {word}"


def step_on(config: RunConfig, machine: Machine, devices: int) -> Step:
    """The step that a run takes there: with `run.memory: auto` the one of low memory where the fast is too large."""
    step = Step(config, devices, machine.platform)
    if not _may_be_low(config) or _surely_fits(step, machine) or step.memory <= usable(machine):
        return step
    return Step(with_memory(config, "low"), devices, machine.platform)


def _may_be_low(config: RunConfig) -> bool:
    """Whether a run takes to low memory by itself."""
    return config.run.memory == "auto" and config.fft.backend != JAXDECOMP


def fits(config: RunConfig, machine: Machine, devices: int, beside: float = 1.0) -> bool:
    """Whether a run's steps fit on so many devices, among which the grid can be shared. `beside`: what the whole run
    needs, over what its steps need."""
    try:
        step = step_on(config, machine, devices)
    except UserError:
        return False
    return _surely_fits(step, machine) or beside * step.memory <= usable(machine)


def _surely_fits(step: Step, machine: Machine) -> bool:
    """Whether there is no need to compile anything to see that it fits."""
    return ROOM * step.state <= usable(machine)


def fewest_devices(config: RunConfig, machine: Machine, above: int = 0, beside: float = 1.0) -> int | None:
    """The smallest power of two of devices, more than `above`, on which a run fits."""
    counts = [n for n in POWERS if n > above and _shareable(config, n)]
    if not counts:
        return None
    if fits(config, machine, counts[0], beside):
        return counts[0]
    # Memory goes with one over the devices, nearly: a guess, then up or down.
    need = beside * step_on(config, machine, counts[0]).memory * counts[0] / usable(machine)
    at = min(sum(n < need for n in counts), len(counts) - 1)
    if fits(config, machine, counts[at], beside):
        while at > 1 and fits(config, machine, counts[at - 1], beside):
            at -= 1
        return counts[at]
    return next((n for n in counts[at + 1 :] if fits(config, machine, n, beside)), None)


def _shareable(config: RunConfig, devices: int) -> bool:
    try:
        check_devices(config, devices)
    except UserError:
        return False
    return True


def largest_shape(
    config: RunConfig, machine: Machine, devices: int, beside: float = 1.0
) -> tuple[int, int, int] | None:
    """The largest grid of the configuration's proportions that fits; sides are products of 2, 3 and 5."""
    config = with_memory(config, "low") if _may_be_low(config) else config
    shape = config.grid.shape
    longest = max(shape)

    def scaled(n: int) -> tuple[int, int, int]:
        x, y, z = (max(1, round(m * n / longest)) for m in shape)
        return x, y, z

    def fitting(n: int) -> bool:
        grid = config.grid.model_copy(update={"shape": scaled(n)})
        return fits(config.model_copy(update={"grid": grid}), machine, devices, beside)

    # Memory goes with the volume, nearly: a guess, then one size up or down at a time.
    need = beside * Step(config, devices, machine.platform).memory
    guess = longest * (usable(machine) / need) ** (1 / 3)
    at = max(0, sum(n <= guess for n in NICE) - 1)
    if fitting(NICE[at]):
        while at < len(NICE) - 1 and fitting(NICE[at + 1]):
            at += 1
        return scaled(NICE[at])
    while at >= 0 and not fitting(NICE[at]):
        at -= 1
    return scaled(NICE[at]) if at >= 0 else None


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
