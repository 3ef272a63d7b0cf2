"""`simulator movie`: a plane of a field through time."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "movie",
        help="make a movie of a field of a run",
        description="Make a movie of a field: of mid-plane slices (from slices.h5 or snapshots) or of projections "
        "(from projections.h5 or snapshots), whichever has more frames.",
        epilog="example: simulator movie outputs/soliton_merger --field density --projection",
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder; the run may still be going on")
    parser.add_argument(
        "--field", required=True, help="a scalar field, e.g. density, speed, velocity_x, phase"
    )
    parser.add_argument("--axis", choices=("x", "y", "z"), default="z", help="cut across or project along it")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--slice", action="store_true", help="the plane through the middle of the box (default)"
    )
    kind.add_argument(
        "--projection", action="store_true", help="integrals of densities, means of other fields"
    )
    parser.add_argument("--fps", type=_rate, default=15.0, help="frames per second (default 15)")
    parser.add_argument("--output", type=Path, help="an .mp4 or .gif; default RUN/plots/FIELD_slice_AXIS.mp4")
    parser.add_argument("--frames", type=Path, metavar="FOLDER", help="keep the frames there as PNG too")
    parser.set_defaults(func=execute)


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= 240 or math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text} is no number of frames per second between 0 and 240")
    return value


def execute(args: argparse.Namespace) -> int:
    """Write the movie and print its name; progress and notes go to stderr."""
    from rich.console import Console
    from rich.progress import Progress

    from simulator.plotting.movie import ffmpeg, movie

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{args.field}: frames", total=None)
        made = movie(
            args.run,
            args.field,
            axis=args.axis,
            projected=args.projection,
            fps=args.fps,
            output=args.output,
            keep=args.frames,
            encoder=ffmpeg(),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print(f"{made.path}  {made.frames} frames from {made.source}, {made.path.stat().st_size / 1e6:.2g} MB")
    if made.note:
        print(made.note, file=sys.stderr)
    return 0
