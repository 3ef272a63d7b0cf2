"""The commands that time this installation and compare its results with exact solutions: `bench` and `validate`."""

import argparse
import time
from pathlib import Path

from simulator.cli.parser import Command, arg, command, config_arguments
from simulator.errors import UserError
from simulator.words import aligned


def _shape(text: str) -> tuple[int, ...]:
    try:
        extents = tuple(int(n) for n in text.split(","))
    except ValueError:
        extents = ()
    if len(extents) not in (2, 3):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write e.g. 256,256,256 or 1024,1024")
    if min(extents) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every extent must be at least 1")
    return extents


@command(
    "a whole step of a configuration: time, memory, compilation",
    *config_arguments(required=False),
    arg("--shape", type=_shape, metavar="NX,NY[,NZ]", help="the same as grid.shape=NX,NY[,NZ]"),
    arg("--devices", type=int, metavar="N", help="the same as devices.count=N"),
    arg("--precision", choices=("single", "double"), help="the same as precision=..."),
    arg("--processes", type=int, metavar="N", help="start N local processes"),
    arg("--seconds", type=float, default=10.0, help="duration of the timing of steps (default: 10)"),
    arg("--json", type=Path, metavar="FILE", help="also write all results to FILE"),
)
def step(args: argparse.Namespace) -> int:
    """Time, in turns, steps of CONFIG (by default a Taylor-Green vortex at 128^3), the transforms of a step alone and
    its exchanges alone; read memory and collectives from the compiled program. A step that does not fit in memory is
    refused before it starts, with a shape that fits.

    example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single
    """
    from simulator.check.bench import step

    return step(args)


bench = Command(
    "measure a step on this machine",
    None,
    commands={"step": step},
    about="Measure on this machine.\n\n"
    "example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single",
)


@command(
    "compare this installation with exact solutions and published numbers",
    arg("cases", metavar="CASE", nargs="*", help="names of cases; see --list"),
    arg("--full", action="store_true", help="run every case"),
    arg("--list", action="store_true", help="print the cases and run nothing"),
    arg(
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("outputs/validation"),
        help="folder for validation.md, validation.json and plots (default: %(default)s)",
    ),
)
def validate(args: argparse.Namespace) -> int:
    """Run validation cases and print expected and measured values with their sources. By default only fast cases run,
    within minutes; --full also runs the cases that need a GPU or a night. The exit code is 1 if a case misses.

    example: simulator validate taylor_green_64 alfven_wave
    """
    from simulator.check import CASES
    from simulator.check.case import HEADER, CaseOutcome, row, write

    if args.list:
        for case in CASES.values():
            print(f"{case.name:24}{case.what}{' (--full)' if case.full else ''}")
        return 0
    if unknown := [name for name in args.cases if name not in CASES]:
        raise UserError(f"simulator validate: unknown case {unknown[0]!r}; known: {', '.join(CASES)}")
    chosen = [CASES[n] for n in args.cases] or [c for c in CASES.values() if args.full or not c.full]
    outcomes = []
    for case in chosen:
        print(f"{case.name}: {case.what} ...", flush=True)
        began = time.monotonic()
        outcomes.append(CaseOutcome(case, case.run(), time.monotonic() - began))
    rows = [HEADER, *(row(o.case.name, check) for o in outcomes for check in o.result.checks)]
    print("\n".join(aligned(rows, ())))
    for path in write(args.output, outcomes):
        print(path)
    missed = [o.case.name for o in outcomes if not o.passed]
    verdict = f"missed: {', '.join(missed)}" if missed else "all within their tolerances"
    print(f"{len(outcomes)} cases, {verdict}")
    return 1 if missed else 0
