"""`simulator verify`: read everything back and say file by file what is wrong."""

import argparse
from pathlib import Path

_EPILOG = """example: simulator verify outputs/taylor_green
  simulator verify outputs/taylor_green/checkpoints/00000010

exit code 1 where anything is missing, short, altered, or not finite; a missing index is made again."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify",
        help="read a run back and report file by file",
        description="Read every file of a run, or of one snapshot or checkpoint, and report file by file. "
        "A run that is going on can be verified.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, help="a run folder, or one snapshot or checkpoint")
    parser.add_argument("--quiet", action="store_true", help="name only what is wrong")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """0 where everything is good, 1 where anything is wrong, UserError where there is nothing of ours."""
    from simulator.run.verify import verify_path

    files = problems = count = 0
    for report in verify_path(args.path):
        count, files = count + (report.manifest is not None), files + len(report.files)
        problems += len(report.problems)
        for line in (f"{c.file}: {c.problem}" for c in report.problems) if args.quiet else report.lines():
            print(line)
    what = f"{problems} wrong" if problems else "all good"
    print(f"{count} snapshots and checkpoints, {files} files: {what}")
    return 1 if problems else 0
