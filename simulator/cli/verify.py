"""`simulator verify`: reads a run back and reports file by file."""

import argparse
from pathlib import Path

_EPILOG = """example: simulator verify outputs/taylor_green
  simulator verify outputs/taylor_green/checkpoints/00000010

exit code 1 if anything is missing, short, altered, or not finite; a missing or altered index is made again.
Only files in the run's ledger.json are checked; your own files, plots/ and logs/ are ignored."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify",
        help="read a run back and report file by file",
        description="Read every file of a run, or of one snapshot or checkpoint, and report file by file. "
        "The run may still be running.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, help="a run folder, or one snapshot or checkpoint")
    parser.add_argument("--quiet", action="store_true", help="print problems only")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Verify; returns 0 if everything is good, else 1. Raises UserError if it is not a run or snapshot."""
    from rich.console import Console
    from rich.progress import track

    from simulator.archive.verify import verification

    files = problems = count = 0
    found = verification(args.path)
    # the progress bar goes to stderr, because stdout has the report
    console = Console(stderr=True)
    reports = track(
        found.reports,
        f"reading {args.path}",
        found.total,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    for report in reports:
        count, files = count + (report.manifest is not None), files + len(report.files)
        problems += len(report.problems)
        for line in (f"{c.file}: {c.problem}" for c in report.problems) if args.quiet else report.lines():
            print(line)
    what = f"{problems} wrong" if problems else "all good"
    print(f"{count} snapshots and checkpoints, {files} files: {what}")
    return 1 if problems else 0
