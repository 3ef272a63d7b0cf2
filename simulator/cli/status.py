"""`simulator status`: the progress of runs, from their folders and Slurm's queue."""

import argparse
from pathlib import Path
from typing import Any

from simulator.errors import UserError


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "status",
        help="show the progress of runs and the state of their jobs",
        description="One line for each run: job, state, step, t, percent, steps/s, expected end, last checkpoint. "
        "Without a name: all runs under outputs/.",
        epilog="example: simulator status outputs/taylor_green",
    )
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run folders")
    parser.add_argument(
        "--folder-of",
        metavar="ARGUMENT",
        nargs=argparse.REMAINDER,
        help="print the folder that `simulator run` would write with these arguments (for job scripts)",
    )
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the table, or the folder; returns the exit code."""
    if args.folder_of is not None:
        print(_folder_of(args.folder_of))
        return 0
    folders = [Path(run) for run in args.runs] or sorted(
        path.parent for path in Path("outputs").glob("*/config.yaml")
    )
    if not folders:
        raise UserError("simulator status: no runs under outputs/; name a run folder")
    for folder in folders:
        if not (folder / "config.yaml").is_file():
            raise UserError(f"{folder}: not a run folder (it has no config.yaml)")
    _print_table(folders)
    return 0


def _folder_of(arguments: list[str]) -> str:
    """The run folder of `simulator run ARGUMENTS`. Raises UserError like that command."""
    from simulator.cli import run
    from simulator.cli.parser import CommandParser, with_output
    from simulator.config import load_config

    parser = CommandParser(prog="simulator")
    run.add_parser(parser.add_subparsers())
    args = parser.parse_args(["run", *arguments])
    config = load_config(args.config, with_output(args.overrides, args.output))
    return str(config.output.directory)


_COLUMNS = ("run", "job", "state", "step", "t", "%", "steps/s", "expected end", "last checkpoint")
_TEXT = 3  # the first columns are text; the others are numbers, aligned to the right


def _print_table(folders: list[Path]) -> None:
    from datetime import datetime

    from simulator.run.run_status import look_at

    now = datetime.now().astimezone()
    rows = [_COLUMNS, *(look_at(folder, now).cells(now) for folder in folders)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        cells = [
            cell.ljust(width) if i < _TEXT else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
