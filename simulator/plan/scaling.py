"""Predicted scaling: the same grid on more devices (strong), and the same number of points per device (weak)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.plan.abstract_run import with_shape
from simulator.plan.fitting import MOST_DEVICES, NICE, POWERS, fits, largest_shape, step_on, usable
from simulator.plan.machines import Machine
from simulator.plan.plan import seconds


@dataclass(frozen=True)
class Point:
    devices: int
    shape: tuple[int, ...]
    transform: str
    memory: float
    """Memory of a device in bytes."""
    fits: bool
    seconds: float
    """Duration of a step."""
    exchange: float
    """The part of it that exchanges take."""
    efficiency: float
    """Points per second and device, relative to the first row."""


def strong(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on 1, 2, 4, ... devices, starting with the first number on which it fits."""
    return _compared(_points(config, machine, [(n, config.grid.shape) for n in POWERS if n <= most]))


def weak(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on one device, or the largest with its proportions that fits there, and grids with the
    same number of points per device on 8, 64, 512, ... devices (two-dimensional ones on 4, 16, 64, ...)."""
    shape = config.grid.shape if fits(config, machine, 1) else largest_shape(config, machine, 1)
    base = shape or config.grid.shape
    more, cases = 2 ** len(base), []
    for i in range(most.bit_length()):
        if more**i <= most:
            cases.append((more**i, tuple(_nice(n * 2**i, n) for n in base)))
    return _compared(_points(config, machine, cases))


def _nice(n: int, before: int) -> int:
    return 1 if before == 1 else max((m for m in NICE if m <= n), default=n)


def _points(
    config: RunConfig, machine: Machine, cases: Sequence[tuple[int, tuple[int, ...]]]
) -> Iterator[Point]:
    for devices, shape in cases:
        try:
            step = step_on(with_shape(config, shape), machine, devices)
        except UserError:
            continue  # the grid cannot be distributed over so many devices
        took = seconds(step.traffic, machine, devices)
        fits = step.memory <= usable(machine)
        name = step.simulation.transform.name.removeprefix("custom_partitioning_")
        yield Point(devices, shape, name, step.memory, fits, took.all, took.exchange, 1.0)


def _compared(points: Iterator[Point]) -> list[Point]:
    predicted = list(points)
    first = next((p for p in predicted if p.fits), predicted[0] if predicted else None)
    if first is None:
        return []

    def rate(p: Point) -> float:
        return prod(p.shape) / (p.seconds * p.devices)

    return [replace(p, efficiency=rate(p) / rate(first)) for p in predicted if p.devices >= first.devices]
