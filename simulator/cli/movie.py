"""`simulator movie`: makes a movie of a slice or projection of a field."""

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
        description="Make a movie of a field from mid-plane slices (slices.h5) or projections (projections.h5), or "
        "from snapshots if these give more frames, or of the run's volume pictures.",
        epilog="example: simulator movie outputs/soliton_merger --field density --projection",
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder; the run may still be running")
    parser.add_argument("--field", help="a scalar field, e.g. density, speed, velocity_x, phase")
    parser.add_argument("--axis", choices=("x", "y", "z"), default="z", help="cut across or project along it")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--slice", action="store_true", help="the plane through the middle of the box (default)"
    )
    kind.add_argument("--render", action="store_true", help="the volume pictures of output.render")
    kind.add_argument(
        "--projection", action="store_true", help="integrals of densities, means of other fields"
    )
    parser.add_argument("--fps", type=_rate, default=15.0, help="frames per second (default 15)")
    parser.add_argument("--output", type=Path, help="an .mp4 or .gif; default RUN/plots/FIELD_slice_AXIS.mp4")
    parser.add_argument("--frames", type=Path, metavar="FOLDER", help="also keep the frames there as PNG")
    parser.set_defaults(func=execute)


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= 240 or math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text} is not a number of frames per second between 0 and 240")
    return value


def execute(args: argparse.Namespace) -> int:
    """Write the movie and print its name; progress and notes go to stderr."""
    from rich.console import Console
    from rich.progress import Progress

    from simulator.errors import UserError
    from simulator.show.movie import ffmpeg, movie

    if (args.field is None) != args.render:
        raise UserError("simulator movie: give either --field NAME or --render")

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{args.field or 'render'}: frames", total=None)
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
