"""`simulator plot`: draw the pictures of a run."""

import argparse
import sys
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "plot",
        help="draw the pictures of a run",
        description="Draw what a run has written so far into RUN/plots/: diagnostics against time, and spectra, "
        "slices, projections, profiles, histograms and whatever else it measured, at several times.",
        epilog="example: simulator plot outputs/taylor_green",
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder; the run may still be going on")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Draw, and print one file a line; what could not be drawn goes to stderr."""
    from simulator.plotting import plot_run

    plotted = plot_run(args.run)
    for path in plotted.files:
        print(path)
    for line in plotted.missing:
        print(line, file=sys.stderr)
    return 0
