#!/usr/bin/env python3
"""Predicts the scaling of a run: of its grid over more devices (strong), and of grids with as many points per device
(weak), on up to 4096 devices.

    .venv/bin/python scripts/plan_scaling.py CONFIG [key.path=value ...] --device h100

Every row is the plan of a step, as `simulator plan --devices N` makes it.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # JAX then loads its plugin without a driver

from simulator.cli.parser import CommandParser
from simulator.config import RunConfig, load_config
from simulator.errors import UserError
from simulator.plan import machine, this_machine
from simulator.plan.abstract_run import with_shape
from simulator.plan.fitting import MOST_DEVICES, NICE, POWERS, Fitting, largest_shape, step_on, usable
from simulator.plan.machines import Machine
from simulator.plan.plan import seconds
from simulator.plan.report import in_seconds
from simulator.words import size


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
    """Duration of the exchanges of a step."""
    efficiency: float
    """Points per second and device, relative to the first row."""


def strong(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on 1, 2, 4, ... devices, starting with the first number on which it fits."""
    return _compared(_points(config, machine, [(n, config.grid.shape) for n in POWERS if n <= most]))


def weak(config: RunConfig, machine: Machine, most: int = MOST_DEVICES) -> list[Point]:
    """The configuration's grid on one device, or the largest grid with its proportions that fits there, and grids
    with the same number of points per device on 8, 64, 512, ... devices (in two dimensions on 4, 16, 64, ...)."""
    shape = config.grid.shape if Fitting(config, machine).fits(1) else largest_shape(config, machine, 1)
    base = shape or config.grid.shape
    more, cases = 2 ** len(base), []
    for i in range(most.bit_length()):
        if more**i <= most:
            cases.append((more**i, tuple(_nice(n * 2**i, n) for n in base)))
    return _compared(_points(config, machine, cases))


def _nice(n: int, before: int) -> int:
    return 1 if before == 1 else max((m for m in NICE if m <= n), default=n)


def _points(config: RunConfig, machine: Machine, cases: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[Point]:
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


def scaling_lines(points: Sequence[Point], title: str) -> list[str]:
    """A table of predicted scaling."""
    form = "  {:>7}  {:<24}{:<10}{:>11}{:>11}{:>11}{:>12}"
    lines = [
        title,
        form.format("devices", "shape", "transform", "memory", "a step", "exchange", "efficiency"),
    ]
    for p in points:
        shape = " x ".join(map(str, p.shape))
        lines.append(
            form.format(
                p.devices,
                shape,
                p.transform,
                size(p.memory) + ("" if p.fits else " !"),
                in_seconds(p.seconds),
                in_seconds(p.exchange),
                f"{100 * p.efficiency:.0f} %",
            )
        )
    if not all(p.fits for p in points):
        lines.append("  ! more than a device has")
    return lines


def main(argv: list[str]) -> int:
    parser = CommandParser(description=__doc__)
    parser.add_argument("config", metavar="CONFIG", help="a run's YAML file")
    parser.add_argument("overrides", metavar="key.path=value", nargs="*", help="values that replace the file's")
    parser.add_argument("--device", metavar="NAME", default="here", help="as for simulator plan")
    args = parser.parse_args(argv)
    config = load_config(args.config, args.overrides)
    found = this_machine(config) if args.device == "here" else machine(args.device)
    print(
        "\n".join(scaling_lines(strong(config, found), f"strong scaling of {config.name} on {found.name}, predicted"))
    )
    print("\n".join(scaling_lines(weak(config, found), "\nweak scaling")))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
