"""The commands that draw: `plot`, `movie`, `render`, `report`."""

import argparse
import math
import sys
import time
from fractions import Fraction
from pathlib import Path

from simulator.cli.parser import arg, command, overrides, progress_bar
from simulator.errors import UserError

_FORMATS = ("png", "pdf", "svg")
_EVERY = 30
"""Seconds between two versions of a page with --watch."""


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _power(text: str) -> float:
    try:
        return float(Fraction(text))
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
    if not set(_list(text)) <= set(_FORMATS):
        raise argparse.ArgumentTypeError(f"some of {', '.join(_FORMATS)} are needed, not {text!r}")
    return _list(text)


@command(
    "draw the pictures of a run, or of several together",
    arg("runs", metavar="RUN", nargs="+", help="a run's folder; the run may still be running"),
    arg("--what", type=_list, metavar="KIND,...", help="diagnostics, spectra, slices, ... (default: all)"),
    arg("--field", type=_list, default=(), metavar="NAME,...", help="only these fields or quantities, e.g. dye"),
    arg("--time", type=_times, metavar="FROM:TO", help="only rows between these times"),
    arg("--compensate", type=_power, metavar="P", help="multiply spectra by k^P, e.g. 5/3"),
    arg("--average", action="store_true", help="draw means over time, with their standard errors"),
    arg("--format", type=_formats, default=("png",), metavar="png,pdf,svg", help="default png"),
    arg("--style", choices=("screen", "paper"), default="screen", help="paper: for print"),
    arg("--output", type=Path, metavar="FOLDER", help="another folder for the pictures"),
)  # fmt: skip
def plot(args: argparse.Namespace) -> int:
    """Draw the present output of a run into RUN/plots/: diagnostics against time, and spectra, slices, projections,
    profiles, histograms and all other series, at several times. Several runs (or the folder of a sweep), and means
    over time, are drawn as curves in one picture. Pictures that cannot be drawn are reported on stderr.

    example: simulator plot outputs/a outputs/b --what spectra --time 3:5 --average --compensate 5/3"""
    from simulator.measure import KINDS
    from simulator.show import Selection, plot_runs

    known = ("diagnostics", *KINDS, "halos")
    for kind in args.what or ():
        there = any((Path(run) / f"{kind}.h5").exists() for run in args.runs)  # the series of a user's function
        if kind not in known and not there:
            raise UserError(f"--what: no {kind!r}; known: {', '.join(known)}")
    choice = Selection(args.what, args.field, args.time, args.compensate, args.average, args.format, args.style)
    plotted = plot_runs(args.runs, choice, args.output)
    for path in plotted.files:
        print(path)
    for line in plotted.missing:
        print(line, file=sys.stderr)
    return 0


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= 240 or math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text} is not a number of frames per second between 0 and 240")
    return value


@command(
    "make a movie of a field of a run",
    arg("run", metavar="RUN", help="the run's folder; the run may still be running"),
    arg("--field", help="a scalar field, e.g. density, speed, velocity_x, phase"),
    arg("--axis", choices=("x", "y", "z"), default="z", help="cut across or project along this axis"),
    arg("--slice", action="store_true", help="the plane through the middle of the box (default)"),
    arg("--render", action="store_true", help="the volume pictures of output.render"),
    arg("--projection", action="store_true", help="integrals of densities, means of other fields"),
    arg("--fps", type=_rate, default=15.0, help="frames per second (default 15)"),
    arg("--output", type=Path, help="an .mp4 or .gif; default RUN/plots/FIELD_slice_AXIS.mp4"),
    arg("--frames", type=Path, metavar="FOLDER", help="also keep the frames in FOLDER as PNG"),
)
def movie(args: argparse.Namespace) -> int:
    """Make a movie of a field from mid-plane slices (slices.h5) or projections (projections.h5), or from snapshots if
    they give more frames; with --render, of the run's volume pictures.

    example: simulator movie outputs/soliton_merger --field density --projection"""
    from simulator.show.movie import ffmpeg, movie

    if args.slice + args.render + args.projection > 1:
        raise UserError("simulator movie: --slice, --render and --projection exclude one another")
    if args.field is not None and args.render:
        raise UserError("simulator movie: --field and --render exclude one another")
    field = None if args.render else args.field or ""
    with progress_bar(f"{args.field or 'render'}: frames") as progress:
        made = movie(
            args.run, field, axis=args.axis, projected=args.projection, fps=args.fps,
            output=args.output, keep=args.frames, encoder=ffmpeg(), progress=progress,
        )  # fmt: skip
    print(f"{made.path}  {made.frames} frames from {made.source}, {made.path.stat().st_size / 1e6:.2g} MB")
    if made.note:
        print(made.note, file=sys.stderr)
    return 0


@command(
    "make volume pictures of a run's snapshots",
    arg("run", metavar="RUN", help="the run's folder; the run may still be going on"),
    arg(
        "--field",
        action="append",
        default=[],
        help="a scalar field; may be repeated: the fields are then blended in one picture (default: the vorticity "
        "magnitude, else the density)",
    ),
    arg("--azimuth", type=float, metavar="DEGREES", help="angle of the camera from x towards y"),
    arg("--elevation", type=float, metavar="DEGREES", help="angle of the camera above the x-y plane"),
    arg("--zoom", type=float, help="with 1 the box's diagonal is the picture's shorter side"),
    arg("--size", metavar="WIDTH,HEIGHT", help="size of the picture in pixels"),
    arg("--step", type=int, action="append", help="step of a snapshot; may be repeated (default: the last)"),
    arg("--all", action="store_true", help="every snapshot"),
    overrides("values that replace the run's keys of output or devices"),
)
def render(args: argparse.Namespace) -> int:
    """Render scalar fields of a run's snapshots on the devices of this machine, of which each renders its own part of
    the box, and write PNG files into RUN/plots. The run's output.render replaces the options that are not given.

    example: simulator render outputs/passive_scalar --field vorticity_magnitude --field dye"""
    from simulator.archive.recompute import render

    asked = {"camera.azimuth": args.azimuth, "camera.elevation": args.elevation, "camera.zoom": args.zoom}
    asked |= {"size": args.size}
    own = [f"output.render.{key}={value}" for key, value in asked.items() if value is not None]
    steps = None if args.all else args.step or [-1]
    for path in render(Path(args.run), steps, [*args.overrides, *own], args.field):
        print(path, flush=True)
    return 0


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of seconds is needed, not {text!r}")
    return int(text)


@command(
    "write one HTML page about a run or a sweep",
    arg("path", type=Path, metavar="RUN|SWEEP", help="a run's folder, or a sweep's file or folder"),
    arg("--output", type=Path, metavar="FILE", help="another file, *.html"),
    arg(
        "--watch",
        nargs="?",
        type=_seconds,
        const=_EVERY,
        metavar="SECONDS",
        help=f"write the page again every SECONDS (default {_EVERY}) until the end; a browser reloads the page",
    ),
)
def report(args: argparse.Namespace) -> int:
    """Write one self-contained HTML page with parameters, provenance, health, pictures with captions, timing and
    links to the data. By default the page is report.html in the folder of the run or sweep.

    example: simulator report outputs/taylor_green"""
    from simulator.show.report import is_going_on, report_run, report_sweep, sweep_at

    if args.output is not None and (args.output.suffix != ".html" or not args.output.parent.is_dir()):
        raise UserError(f"--output: {args.output}: a file *.html in an existing folder is needed")
    written = False
    while True:
        sweep = sweep_at(args.path)
        if sweep is not None:
            page = report_sweep(sweep, args.output, refresh=args.watch)
        else:
            page = report_run(args.path, args.output, refresh=args.watch)
        if not written:
            print(page, flush=True)
            written = True
        folders = [args.path] if sweep is None else [run.folder for run in sweep.runs]
        if args.watch is None or not is_going_on(folders):
            return 0
        time.sleep(args.watch)
