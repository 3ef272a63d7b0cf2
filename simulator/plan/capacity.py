"""Finds the smallest number of devices on which a run fits, and the largest grid that fits on given
devices.

The memory of a program is nearly proportional to the state. One program is compiled near the
expected limit; the memory of its neighbours is estimated from it, and read from a compiled program
only if the estimate is close to the limit."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.plan.machines import USABLE_MEMORY, Machine, target_of
from simulator.plan.step_count import scaled
from simulator.plan.step_memory import Step
from simulator.simulation.compiling import ROOM
from simulator.simulation.placement import check_devices
from simulator.spectral.jaxdecomp import NAME as JAXDECOMP

T = TypeVar("T")
LOW = {"memory": "low"}  # Keys of the block `run`.
MOST_DEVICES = 4096
POWERS = [2**i for i in range(MOST_DEVICES.bit_length())]
_PRODUCTS = (2**a * 3**b * 5**c for a in range(16) for b in range(4) for c in range(3))
NICE = sorted(n for n in _PRODUCTS if 8 <= n <= 65536)
"""Numbers of points for which transforms are fast."""

# A step typically holds this many times its state; the search starts with this estimate.
TYPICAL = 14
LEAST_SHARE = 0.3
USUAL_SHARE = {"cpu": 0.7, "gpu": 0.65}
"""The smallest and the usual ratio of the memory of a low-memory step to that of the fast step."""
ERROR = 0.25
SAME_DEVICES_ERROR = 0.06
"""The relative error of a memory that is estimated from the program of another number of devices,
or of another shape on the same devices. Measured: at most 4 % on the same devices (three models
from 864^3 to 1440^3, and 600^3 to 675^3 with a GPU's blocks), 4 to 9 % from two devices to four, 15
% between one device, which exchanges nothing, and two."""


class Fitting:
    """Tells whether the steps of a configuration fit on a machine, for any shape and number of
    devices. `beside` is the ratio of the whole run's memory to the memory of its steps."""

    def __init__(self, config: RunConfig, machine: Machine, beside: float = 1.0):
        self._config = config
        self._machine = machine
        self._beside = beside
        # The last compiled step, by the name of its transform.
        self._compiled: dict[str, Step] = {}

    def fits(self, devices: int, shape: tuple[int, ...] | None = None) -> bool:
        """Whether a step fits; with `run.memory: auto`, whether the fast or the low-memory step
        fits."""
        config = self._config if shape is None else self._config.changed(grid={"shape": shape})
        try:
            share = self._share(_step(config, self._machine, devices))
        except UserError:
            return False
        if share <= 1 or not may_be_low(config) or share * LEAST_SHARE > 1:
            return share <= 1
        return self._share(_step(config.changed(run=LOW), self._machine, devices)) <= 1

    def _share(self, step: Step) -> float:
        """The fraction of the available memory that a step takes; an estimate if it is clearly
        above or below 1."""
        if surely_fits(step, self._machine):
            return 0.0
        limit = usable(self._machine) / self._beside
        name = step.simulation.transform.name
        if known := self._compiled.get(name):
            share = known.memory / known.state * step.state / limit
            if abs(share - 1) > (SAME_DEVICES_ERROR if known.devices == step.devices else ERROR):
                return share
        self._compiled[name] = step
        return step.memory / limit


def usable(machine: Machine) -> float:
    """The memory of a device that a run may use, in bytes."""
    return USABLE_MEMORY[machine.platform] * machine.memory


def surely_fits(step: Step, machine: Machine) -> bool:
    """Whether a step fits because its state is so small that every program of such a state fits."""
    return ROOM * step.state <= usable(machine)


def may_be_low(config: RunConfig) -> bool:
    """Whether a run chooses low memory by itself if the fast step does not fit."""
    return config.run.memory == "auto" and config.fft.backend != JAXDECOMP


def _step(config: RunConfig, machine: Machine, devices: int) -> Step:
    return Step(config, devices, machine.platform, target_of(machine))


def step_on(config: RunConfig, machine: Machine, devices: int) -> Step:
    """The step of a run on these devices: with `run.memory: auto` the low-memory step if the fast
    step does not fit."""
    step = _step(config, machine, devices)
    if not may_be_low(config) or surely_fits(step, machine) or step.memory <= usable(machine):
        return step
    return _step(config.changed(run=LOW), machine, devices)


def fewest_devices(
    config: RunConfig, machine: Machine, above: int = 0, beside: float = 1.0
) -> int | None:
    """The smallest power of two above `above` such that a run fits on that many devices; None if
    there is none."""
    counts = [n for n in POWERS if n > above and _shareable(config, n)]
    if not counts:
        return None
    state = _step(config, machine, counts[0]).state * counts[0]
    need = beside * TYPICAL * state / usable(machine)
    return _first_that_fits(
        counts, sum(n < need for n in counts), Fitting(config, machine, beside).fits
    )


def _first_that_fits(cases: Sequence[T], likely: int, fits: Callable[[T], bool]) -> T | None:
    """The first of `cases` that fits, each of which needs less than the one before; `likely` is its
    likely index."""
    at = min(likely, len(cases) - 1)
    if not fits(cases[at]):
        return next((case for case in cases[at + 1 :] if fits(case)), None)
    while at > 0 and fits(cases[at - 1]):
        at -= 1
    return cases[at]


def _shareable(config: RunConfig, devices: int) -> bool:
    try:
        check_devices(config, devices)
    except UserError:
        return False
    return True


def largest_shape(
    config: RunConfig, machine: Machine, devices: int, beside: float = 1.0
) -> tuple[int, ...] | None:
    """The largest grid with the configuration's proportions that fits; its sides are products of 2,
    3 and 5."""
    need = beside * _step(config, machine, devices).memory
    if may_be_low(config):
        config = config.changed(run=LOW)
        need = USUAL_SHARE[machine.platform] * need
    shape = config.grid.shape
    likely = max(shape) * (usable(machine) / need) ** (1 / len(shape))
    candidates = (scaled(shape, n) for n in reversed(NICE))
    shapes = [s for s in candidates if _shareable(config.changed(grid={"shape": s}), devices)]
    fits = partial(Fitting(config, machine, beside).fits, devices)
    return _first_that_fits(shapes, sum(max(s) > likely for s in shapes), fits) if shapes else None
