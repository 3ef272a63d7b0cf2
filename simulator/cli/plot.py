"""`simulator plot`: draw the pictures of a run, or of several together."""

import argparse
import math
import re
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "plot",
        help="draw the pictures of a run, or of several together",
        description="Draw what a run has written so far into RUN/plots/: diagnostics against time, and spectra, "
        "slices, projections, profiles, histograms and whatever else it measured, at several times. Several runs "
        "(or a sweep's folder), and means over time, are drawn as curves in one picture.",
        epilog="example: simulator plot outputs/a outputs/b --what spectra --time 3:5 --average --compensate 5/3",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a run's folder; the run may still be running")
    parser.add_argument(
        "--what", type=_list, metavar="KIND,...", help="diagnostics, spectra, slices, ... (default: all)"
    )
    parser.add_argument(
        "--field",
        type=_list,
        default=(),
        metavar="NAME,...",
        help="only these fields or quantities, e.g. dye",
    )
    parser.add_argument("--time", type=_times, metavar="FROM:TO", help="only rows of these times")
    parser.add_argument("--compensate", type=_number, metavar="P", help="multiply spectra by k^P, e.g. 5/3")
    parser.add_argument(
        "--average", action="store_true", help="means over the time, with their standard errors"
    )
    parser.add_argument(
        "--format", type=_formats, default=("png",), metavar="png,pdf,svg", help="default png"
    )
    parser.add_argument("--style", choices=("screen", "paper"), default="screen", help="paper: for print")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="another folder for the pictures")
    parser.set_defaults(func=execute)


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _number(text: str) -> float:
    found = re.fullmatch(r"(-?[\d.]+)(?:/([\d.]+))?", text)
    try:
        if found is None:
            raise ValueError
        return float(found[1]) / float(found[2] or 1)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"a number is needed, e.g. 5/3, not {text!r}") from None


def _times(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        found = float(low) if low else -math.inf, float(high) if high else math.inf
        if not colon or not found[0] <= found[1]:
            raise ValueError
        return found
    except ValueError:
        raise argparse.ArgumentTypeError(f"two times are needed, e.g. 3:5 or 3:, not {text!r}") from None


def _formats(text: str) -> tuple[str, ...]:
    known = ("png", "pdf", "svg")
    found = _list(text)
    if not all(kind in known for kind in found):
        raise argparse.ArgumentTypeError(f"some of {', '.join(known)} are needed, not {text!r}")
    return found


def execute(args: argparse.Namespace) -> int:
    """Draw, and print one file a line; pictures that could not be drawn are reported on stderr."""
    from simulator.errors import UserError
    from simulator.measure import KINDS
    from simulator.show import Selection, plot_runs

    known = ("diagnostics", *KINDS)
    for kind in args.what or ():
        there = any((Path(run) / f"{kind}.h5").exists() for run in args.runs)  # of a user's function
        if kind not in known and not there:
            raise UserError(f"--what: no {kind!r}; known: {', '.join(known)}")
    choice = Selection(
        args.what, args.field, args.time, args.compensate, args.average, args.format, args.style
    )
    plotted = plot_runs(args.runs, choice, args.output)
    for path in plotted.files:
        print(path)
    for line in plotted.missing:
        print(line, file=sys.stderr)
    return 0
