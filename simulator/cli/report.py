"""`simulator report`: one HTML page about a run or a sweep."""

import argparse
import time
from pathlib import Path
from typing import Any

from simulator.errors import UserError

_EVERY = 30


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "report",
        help="write one HTML page about a run or a sweep",
        description="Write one self-contained HTML page: parameters, provenance, health, pictures with captions, "
        "timing and links to the data. By default it is report.html in the folder of the run or sweep.",
        epilog="example: simulator report outputs/taylor_green",
    )
    parser.add_argument("path", metavar="RUN|SWEEP", help="a run's folder, or a sweep's file or folder")
    parser.add_argument("--output", type=Path, metavar="FILE", help="another file, *.html")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=_EVERY,
        metavar="SECONDS",
        help=f"write it again every so often (default {_EVERY} s) until the end; a browser follows by itself",
    )
    parser.set_defaults(func=execute)


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of seconds is needed, not {text!r}")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Write the page and print its name; with --watch until the run or sweep has ended."""
    if args.output is not None and (args.output.suffix != ".html" or not args.output.parent.is_dir()):
        raise UserError(f"--output: {args.output}: a file *.html in an existing folder is needed")
    written = False
    while True:
        path, going = _write(Path(args.path), args.output, args.watch)
        if not written:
            print(path, flush=True)
            written = True
        if args.watch is None or not going:
            return 0
        time.sleep(args.watch)


def _write(path: Path, output: Path | None, refresh: int | None) -> tuple[Path, bool]:
    """The page, and whether what it is about goes on."""
    from simulator.show.report import is_going_on, report_run, report_sweep, sweep_at

    sweep = sweep_at(path)
    if sweep is not None:
        return report_sweep(sweep, output, refresh=refresh), is_going_on([r.folder for r in sweep.runs])
    return report_run(path, output, refresh=refresh), is_going_on([path])
