"""`simulator analyze`: measure finished runs again, from their snapshots."""

import argparse
import sys
from pathlib import Path
from typing import Any

from simulator.cli.parser import EXECUTES


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "analyze",
        help="measure a run again, from its snapshots",
        description="Measure every snapshot of a run with the code that measures while it runs, on the devices of "
        "this machine, into RUN/analysis: diagnostics.csv and a file for each series. `simulator plot RUN/analysis` "
        "draws them. " + EXECUTES,
        epilog="example: simulator analyze outputs/taylor_green --what transfer,histograms",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="run folders, then key=value of output or devices"
    )
    parser.add_argument(
        "--what",
        metavar="KIND,...",
        help="kinds of series (default: those of the run's configuration), or all that its model has",
    )
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Measure, and print one folder a line."""
    from rich.console import Console
    from rich.progress import Progress

    from simulator.errors import UserError
    from simulator.read.analyze import analyze

    overrides = [word for word in args.runs if "=" in word and not Path(word).exists()]
    runs = [Path(word) for word in args.runs if word not in overrides]
    if not runs:
        raise UserError("simulator analyze: name a run's folder")
    kinds = args.what.split(",") if args.what else None
    for run in runs:
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"{run}: snapshots", total=None)
            found = analyze(
                run,
                kinds,
                overrides,
                lambda done, total, task=task, bar=bar: bar.update(task, completed=done, total=total),
            )
        print(f"{found.folder}  {found.rows} rows of diagnostics, {', '.join(found.series)}")
        for line in found.refused:
            print(line, file=sys.stderr)
    return 0
