"""`simulator bench`: times a step on this machine."""

import argparse
from contextlib import suppress
from pathlib import Path

from simulator.cli.parser import PROCESSES, Command, arg, command, config_arguments


def _shape(text: str) -> tuple[int, ...]:
    extents = ()
    with suppress(ValueError):
        extents = tuple(int(n) for n in text.split(","))
    if len(extents) not in (2, 3):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape; write e.g. 256,256,256 or 1024,1024"
        )
    if min(extents) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every extent must be at least 1")
    return extents


@command(
    "measure time and memory of a step",
    *config_arguments(required=False),
    arg("--shape NX,NY[,NZ]", "the same as grid.shape=NX,NY[,NZ]", type=_shape),
    arg("--devices N", "the same as devices.count=N", type=int),
    arg("--precision", "the same as precision=...", choices=("single", "double")),
    arg("--seconds", "duration of the timing of steps (default: 10)", type=float, default=10.0),
    arg("--json FILE", "also write all results to FILE", type=Path),
    *PROCESSES,
)
def bench_step_command(args: argparse.Namespace) -> int:
    """Time steps of CONFIG (by default a Taylor-Green vortex at 128^3); read memory from the compiled program and
    exchanges from the trace of the step. A step that does not fit in memory is refused before it starts, with a shape
    that fits.

    example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single"""
    from simulator.plugins.validation.bench_step import time_and_report

    return time_and_report(args)


bench_command = Command(
    "measure a step on this machine",
    None,
    commands={"step": bench_step_command},
    group="cluster",
    about="Measure on this machine.\n\n"
    "example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single",
)
