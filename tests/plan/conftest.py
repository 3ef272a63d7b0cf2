"""Programs that are not compiled: for what a plan makes of their memory."""

from concurrent.futures import Future
from math import sin

import pytest

from simulator.plan import Step
from simulator.plan import step as module
from simulator.plan.step import needs

TIMES = {"loop": 16, "diagnostics": 14, "output": 7}
LOW = 11


class Proportional:
    """Memory in proportion to the state, but for a deviation of `deviation` at most; says what was asked for."""

    def __init__(self):
        self.deviation = 0.0
        self.asked: set[tuple] = set()

    def held(self, config, devices, platform, program) -> float:
        self.asked.add((config.grid.shape, devices, config.run.memory, program))
        times = LOW if program == "loop" and config.run.memory == "low" else TIMES[program]
        deviation = self.deviation * sin(sum(config.grid.shape) + 7 * devices)
        return (1 + deviation) * times * Step(config, devices, platform).state

    def needs(self, config, devices, platform, program, target=None) -> Future[int]:
        known: Future[int] = Future()
        known.set_result(round(self.held(config, devices, platform, program)))
        return known

    def step(self, config, devices, platform) -> float:
        return self.held(config, devices, platform, "loop")


@pytest.fixture
def proportional(monkeypatch) -> Proportional:
    found = Proportional()
    monkeypatch.setattr(module, needs.__name__, found.needs)
    return found
