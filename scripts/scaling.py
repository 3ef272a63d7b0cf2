#!/usr/bin/env python3
"""Predicts the strong and the weak scaling of a run to thousands of devices.

    .venv/bin/python scripts/scaling.py CONFIG [key.path=value ...] --device h100 [--most 4096]

Strong: the same grid on 1, 2, 4, ... devices. Weak: the same number of points per device. Memory
and time of a step are those of `simulator plan`; rates are those of simulator/plan/devices.yaml
times assumed fractions of the peaks, so that times on GPUs may be wrong by a factor.
simulator/docs/internals/planning.md discusses the result."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from simulator.config import RunConfig, load_config
from simulator.errors import UserError
from simulator.plan import machine
from simulator.plan.capacity import (
    MOST_DEVICES,
    NICE,
    POWERS,
    Fitting,
    largest_shape,
    step_on,
    usable,
)
from simulator.plan.machines import Machine
from simulator.plan.plan_text import seconds_text
from simulator.plan.step_time import step_seconds
from simulator.words import size

SMALLER = 4  # How often the grids of a weak scaling are made smaller until all of them fit.


@dataclass(frozen=True)
class Point:
    devices: int
    shape: tuple[int, ...]
    transform: str
    memory: float  # Memory of a device in bytes.
    fits: bool
    seconds: float  # Duration of a step.
    exchange: float  # Duration of the exchanges of a step.
    efficiency: float  # Points per second and device, relative to the first row.


def strong(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on 1, 2, 4, ... devices, starting with the first number on which it
    fits."""
    return _compared(
        _points(config, machine, [(n, config.grid.shape) for n in POWERS if n <= most])
    )


def weak(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on one device, or the largest grid with its proportions that fits
    there, and grids with the same number of points per device on 8, 64, 512, ... devices (in two
    dimensions on 4, 16, 64, ...). All grids are smaller if one of them would not fit."""
    shape = (
        config.grid.shape if Fitting(config, machine).fits(1) else largest_shape(config, machine, 1)
    )
    base = shape or config.grid.shape
    more = 2 ** len(base)
    counts = [more**i for i in range(most.bit_length()) if more**i <= most]
    points = list[Point]()
    for _ in range(SMALLER):
        cases = [(count, tuple(_nice(n * 2**i, n) for n in base)) for i, count in enumerate(counts)]
        points = list(_points(config, machine, cases))
        worst = max((p.memory for p in points), default=0.0) / usable(machine)
        if worst <= 1 or shape is None:
            break
        base = tuple(_nice(int(n * worst ** (-1 / len(base))), n) for n in base)
    return _compared(points)


def _nice(n: int, before: int) -> int:
    return 1 if before == 1 else max((m for m in NICE if m <= n), default=n)


def _points(
    config: RunConfig, machine: Machine, cases: Sequence[tuple[int, tuple[int, ...]]]
) -> Iterator[Point]:
    for devices, shape in cases:
        try:
            step = step_on(config.changed(grid={"shape": shape}), machine, devices)
        except UserError:
            continue  # the grid cannot be distributed over so many devices
        took = step_seconds(step.work, machine)
        fits = step.memory <= usable(machine)
        name = step.simulation.transform.name.removeprefix("custom_partitioning_")
        yield Point(devices, shape, name, step.memory, fits, took.all, took.exchange, 1.0)


def _compared(points: Iterable[Point]) -> list[Point]:
    predicted = list(points)
    first = next((p for p in predicted if p.fits), predicted[0] if predicted else None)
    if first is None:
        return []

    def rate(p: Point) -> float:
        return prod(p.shape) / (p.seconds * p.devices)

    return [
        replace(p, efficiency=rate(p) / rate(first))
        for p in predicted
        if p.devices >= first.devices
    ]


def scaling_lines(points: Sequence[Point], title: str) -> list[str]:
    longest = max((len(p.transform) for p in points), default=0)
    form = f"  {{:>7}}  {{:<24}}{{:<{max(10, longest)}}}{{:>11}}{{:>11}}{{:>11}}{{:>12}}"
    lines = [
        title,
        form.format("devices", "shape", "transform", "memory", "a step", "exchange", "efficiency"),
    ]
    for p in points:
        shape = " x ".join(map(str, p.shape))
        memory = size(p.memory) + ("" if p.fits else " !")
        times = (seconds_text(p.seconds), seconds_text(p.exchange))
        lines.append(
            form.format(
                p.devices, shape, p.transform, memory, *times, f"{100 * p.efficiency:.0f} %"
            )
        )
    if not all(p.fits for p in points):
        lines.append("  ! more than a device has")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="a run's YAML file")
    parser.add_argument("overrides", nargs="*", help="key.path=value")
    parser.add_argument("--device", required=True, help="a name in simulator/plan/devices.yaml")
    parser.add_argument("--most", type=int, default=MOST_DEVICES, help="largest number of devices")
    args = parser.parse_args()
    config = load_config(args.config, args.overrides)
    target = machine(args.device)
    title = f"strong scaling of {config.name} on {target.name}, predicted"
    print(*scaling_lines(strong(config, target, args.most), title), sep="\n")
    print(*scaling_lines(weak(config, target, args.most), "\nweak scaling"), sep="\n")


if __name__ == "__main__":
    main()
