"""Predicted scaling: the same grid on more devices (strong), and as much for each device (weak)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.planning.fitting import (
    MOST_DEVICES,
    NICE,
    POWERS,
    fits,
    largest_shape,
    step_on,
    usable,
    with_shape,
)
from simulator.planning.machines import Machine
from simulator.planning.step_time import seconds


@dataclass(frozen=True)
class Point:
    devices: int
    shape: tuple[int, ...]
    transform: str
    memory: float
    """Bytes of a device."""
    fits: bool
    seconds: float
    """Of a step."""
    exchange: float
    """Of these, for exchanges."""
    efficiency: float
    """Points per second and device over those of the first row."""


def strong(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on 1, 2, 4, ... devices, from the first that it fits on."""
    return _compared(_points(config, machine, [(n, config.grid.shape) for n in POWERS if n <= most]))


def weak(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on one device, or the largest of its proportions that fits there, and grids of as many
    points a device on 8, 64, 512, ...; of planes on 4, 16, 64, ..."""
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
            continue  # more devices than the grid can be shared among
        took = seconds(step.traffic, machine, config.precision, devices)
        fits = step.memory <= usable(machine)
        name = step.simulation.transform.name.removeprefix("custom_partitioning_")
        yield Point(devices, shape, name, step.memory, fits, took.all, took.exchange, 1.0)


def _compared(points: Iterator[Point]) -> list[Point]:
    found = list(points)
    first = next((p for p in found if p.fits), found[0] if found else None)
    if first is None:
        return []

    def rate(p: Point) -> float:
        return prod(p.shape) / (p.seconds * p.devices)

    kept = [p for p in found if p.devices >= first.devices]
    return [Point(**{**vars(p), "efficiency": rate(p) / rate(first)}) for p in kept]
