"""`simulator render`: volume pictures of stored snapshots."""

import argparse
import re
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "render",
        help="make volume pictures of a run's snapshots",
        description="Render scalar fields of a run's snapshots on the devices of this machine, each its own part of "
        "the box, and write PNG files into RUN/plots. Where no option says how, the run's output.render does.",
        epilog="example: simulator render outputs/passive_scalar --field vorticity_magnitude --field dye",
    )
    parser.add_argument("run", metavar="RUN", help="the run's folder; the run may still be going on")
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        help="a scalar field; given again, the fields are blended in one picture (default: the vorticity magnitude, "
        "else the density)",
    )
    parser.add_argument(
        "--azimuth", type=float, metavar="DEGREES", help="where the camera stands, from x towards y"
    )
    parser.add_argument("--elevation", type=float, metavar="DEGREES", help="above the x-y plane")
    parser.add_argument("--zoom", type=float, help="1: the box's diagonal is the picture's shorter side")
    parser.add_argument("--size", type=_size, metavar="WIDTH,HEIGHT", help="in pixels")
    parser.add_argument(
        "--step", type=int, action="append", help="a snapshot; may be given again (default: the last)"
    )
    parser.add_argument("--all", action="store_true", help="every snapshot")
    parser.add_argument(
        "overrides", metavar="key.path=value", nargs="*", default=[], help="of output or devices"
    )
    parser.set_defaults(func=execute)


def _size(text: str) -> str:
    if not re.fullmatch(r"\d+,\d+", text):
        raise argparse.ArgumentTypeError(f"width and height are needed, e.g. 1024,768, not {text!r}")
    return text


def execute(args: argparse.Namespace) -> int:
    """Render, and print one file a line."""
    from simulator.archive.recompute import render

    asked = {"camera.azimuth": args.azimuth, "camera.elevation": args.elevation, "camera.zoom": args.zoom}
    asked |= {"size": args.size}
    overrides = [f"output.render.{key}={value}" for key, value in asked.items() if value is not None]
    steps = None if args.all else args.step or [-1]
    for path in render(Path(args.run), steps, [*args.overrides, *overrides], args.field):
        print(path, flush=True)
    return 0
