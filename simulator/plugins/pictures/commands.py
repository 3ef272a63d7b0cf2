"""The commands `plot`, `movie`, `render` and `report`."""

import argparse
import math
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import sleep

from simulator.cli.parser import arg, command, overrides, progress_bar
from simulator.errors import UserError, nearest
from simulator.words import counted

_FORMATS = ("png", "pdf", "svg")
_EVERY = 30  # Seconds between two versions of a page with --watch.


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _number(text: str) -> float:
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"a number is needed, e.g. 5/3, not {text!r}") from None


def _times(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        interval = float(low) if low else -math.inf, float(high) if high else math.inf
        if not colon or not interval[0] <= interval[1]:
            raise ValueError
        return interval
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"two times are needed, e.g. 3:5 or 3:, not {text!r}"
        ) from None


def _shifts(text: str) -> tuple[float, ...]:
    return tuple(map(_number, text.split(",")))


def _formats(text: str) -> tuple[str, ...]:
    if not set(_list(text)) <= set(_FORMATS):
        raise argparse.ArgumentTypeError(f"some of {', '.join(_FORMATS)} are needed, not {text!r}")
    return _list(text)


@command(
    "draw the pictures of a run, or of several together",
    arg("runs RUN", "a run's folder; the run may still be running", nargs="+"),
    arg("--what KIND,...", "diagnostics, spectra, slices, ... (default: all)", type=_list),
    arg("--field NAME,...", "only these fields or quantities, e.g. dye", type=_list, default=()),
    arg("--time FROM:TO", "only rows between these times", type=_times),
    arg("--compensate P", "multiply spectra by k^P, e.g. 5/3", type=_number),
    arg(
        "--shift T,...",
        "add these times to those of the runs, one for each run",
        type=_shifts,
        default=(),
    ),
    arg("--average", "draw means over time, with their standard errors", action="store_true"),
    arg("--format png,pdf,svg", "default png", type=_formats, default=("png",)),
    arg(
        "--style",
        "screen (default) or paper, for print",
        choices=("screen", "paper"),
        default="screen",
    ),
    arg("--output FOLDER", "another folder for the pictures", type=Path),
    group="look",
)
def plot_command(args: argparse.Namespace) -> int:
    """Draw the present output of a run into RUN/plots/: diagnostics against time, and spectra, slices, projections,
    profiles, histograms and all other series, at several times. Several runs (or the folder of a sweep), and means
    over time, are drawn as curves in one picture, in plots/with_OTHERS of the first run. Pictures that cannot be
    drawn are reported on stderr.

    example: simulator plot outputs/a outputs/b --what spectra --time 3:5 --average --compensate 5/3"""
    from simulator.measure import OUTPUTS
    from simulator.plugins.pictures.choice import Selection
    from simulator.plugins.pictures.runs import kind_drawing, plot_runs
    from simulator.plugins.pictures.series_pictures import pictured

    known = dict.fromkeys(("diagnostics", *OUTPUTS.names, *pictured()))
    for kind in args.what or ():
        # the series of a user's function
        there = any((Path(run) / f"{kind}.h5").exists() for run in args.runs)
        if kind not in known and not there:
            meant = kind_drawing(args.runs, kind, known) or nearest(kind, known)
            hint = f", did you mean {meant}?" if meant else ";"
            raise UserError(f"--what: no {kind!r}{hint} known: {', '.join(known)}")
    choice = Selection(
        args.what,
        args.field,
        args.time,
        args.compensate,
        args.average,
        args.format,
        args.style,
        args.shift,
    )
    plotted = plot_runs(args.runs, choice, args.output)
    for path in plotted.files:
        print(path)
    for line in plotted.missing:
        print(line, file=sys.stderr)
    return 0


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= 240 or math.isnan(value):
        raise argparse.ArgumentTypeError(
            f"{text} is not a number of frames per second between 0 and 240"
        )
    return value


@command(
    "make a movie of a field of a run",
    arg("run RUN", "the run's folder; the run may still be running"),
    arg(
        "--field",
        "a scalar field, e.g. speed, velocity_x, phase (default: the vorticity magnitude, else the density)",
    ),
    arg("--axis", "cut across or project along this axis", choices=("x", "y", "z"), default="z"),
    arg("--render", "the volume pictures of output.render", action="store_true"),
    arg("--projection", "integrals of densities, means of other fields", action="store_true"),
    arg("--fps", "frames per second (default 15)", type=_rate, default=15.0),
    arg("--output", "an .mp4 or .gif; default RUN/plots/FIELD_slice_AXIS.mp4", type=Path),
    arg("--frames FOLDER", "also keep the frames in FOLDER as PNG", type=Path),
    group="look",
)
def movie_command(args: argparse.Namespace) -> int:
    """Make a movie of a field from mid-plane slices (slices.h5) or projections (projections.h5), or from snapshots if
    they give more frames; with --render, of the run's volume pictures.

    example: simulator movie outputs/soliton_merger --field density --projection"""
    from simulator.archive.open_run import open_run
    from simulator.plugins.pictures.frames import View, usual_view
    from simulator.plugins.pictures.movie import ffmpeg, movie

    if args.render and args.projection:
        raise UserError("simulator movie: --render and --projection exclude one another")
    if args.field is not None and args.render:
        raise UserError("simulator movie: --field and --render exclude one another")
    view = None
    if not args.render:
        view = View(args.field or "", args.axis, args.projection)
        view = view if args.field is not None else usual_view(open_run(args.run), view)
    with progress_bar(f"{view.field if view else 'render'}: frames") as progress:
        film = movie(
            args.run,
            view,
            fps=args.fps,
            output=args.output,
            keep=args.frames,
            encoder=ffmpeg(),
            progress=progress,
        )
    print(
        f"{film.path}  {counted(film.frames, 'frame')} from {film.source}, {film.path.stat().st_size / 1e6:.2g} MB"
    )
    if film.note:
        print(film.note, file=sys.stderr)
    return 0


@command(
    "make volume pictures of a run's snapshots",
    arg("run RUN", "the run's folder; the run may still be running"),
    arg(
        "--field",
        "may be repeated, to blend (default: the vorticity magnitude, else the density)",
        action="append",
    ),
    arg("--azimuth DEGREES", "angle of the camera from x towards y", type=float),
    arg("--elevation DEGREES", "angle of the camera above the x-y plane", type=float),
    arg("--zoom", "with 1 the box's diagonal is the picture's shorter side", type=float),
    arg("--size WIDTH,HEIGHT", "size of the picture in pixels"),
    arg(
        "--step",
        "step of a snapshot; may be repeated (default: the last)",
        type=int,
        action="append",
    ),
    arg("--all", "every snapshot", action="store_true"),
    overrides("values that replace the run's keys of output or devices"),
    group="look",
)
def render_command(args: argparse.Namespace) -> int:
    """Render scalar fields of a run's snapshots on the devices of this machine, each of which renders its part of
    the box, and write PNG files into RUN/plots. The run's output.render replaces the options that are not given.

    example: simulator render outputs/passive_scalar --field vorticity_magnitude --field dye"""
    from simulator.archive.open_run import open_run
    from simulator.plugins.pictures.kinds.render import volume_picture
    from simulator.plugins.pictures.rendered_snapshots import rendered_pictures
    from simulator.plugins.pictures.style import Labels, draw

    asked = {
        "camera.azimuth": args.azimuth,
        "camera.elevation": args.elevation,
        "camera.zoom": args.zoom,
    }
    asked |= {"size": args.size}
    options = [f"output.render.{key}={value}" for key, value in asked.items() if value is not None]
    steps = None if args.all else args.step or [-1]
    labels = Labels.of(open_run(args.run).config)
    for name, time, drawn in rendered_pictures(
        Path(args.run), steps, [*args.overrides, *options], args.field
    ):
        colours = {key.partition("/")[2]: table for key, table in drawn.items() if key != "image"}
        picture = partial(volume_picture, drawn["image"], labels.moment(time), colours)
        print(draw(picture, Path(args.run) / "plots" / f"render_{name}.png"), flush=True)
    return 0


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of seconds is needed, not {text!r}")
    return int(text)


@command(
    "write one HTML page about a run or a sweep",
    arg("path RUN|SWEEP", "a run's folder, or a sweep's file or folder", type=Path),
    arg("--output FILE", "another file, *.html", type=Path),
    arg(
        "--watch SECONDS",
        f"write the page again every SECONDS (default {_EVERY}) until the run ends",
        nargs="?",
        type=_seconds,
        const=_EVERY,
    ),
    group="look",
)
def report_command(args: argparse.Namespace) -> int:
    """Write one self-contained HTML page with parameters, provenance, health, pictures with captions, timing and
    links to the data. By default the page is report.html in the folder of the run or sweep.

    example: simulator report outputs/taylor_green"""
    from simulator.plugins.pictures.report import is_going_on, report_run, report_sweep, sweep_at

    if args.output is not None and (
        args.output.suffix != ".html" or not args.output.parent.is_dir()
    ):
        raise UserError(f"--output: {args.output}: a file *.html in an existing folder is needed")
    written = None
    while True:
        sweep = sweep_at(args.path)
        how = {"output": args.output, "refresh": args.watch}
        page = report_run(args.path, **how) if sweep is None else report_sweep(sweep, **how)
        if written is None:
            print(written := page, flush=True)
        folders = [args.path] if sweep is None else [run.folder for run in sweep.runs]
        if args.watch is None or not is_going_on(folders):
            return 0
        sleep(args.watch)
