"""`simulator verify`: read everything back and say file by file what is wrong."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.storage import Report

_EPILOG = """example: simulator verify outputs/taylor_green
  simulator verify outputs/taylor_green/checkpoints/00000010

exit code 1 where anything is missing, short, altered, or not finite."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify",
        help="check the snapshots and checkpoints of a run",
        description="Read every file of a run's snapshots and checkpoints, or of one; report file by file.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, help="a run folder, or one snapshot or checkpoint")
    parser.add_argument("--quiet", action="store_true", help="name only what is wrong")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """0 where everything is good (a missing index is made again), 1 where anything is wrong."""
    from simulator.files import TEMPORARY
    from simulator.storage import stored_in, verify
    from simulator.storage.reader import snapshot_folder

    files = problems = count = 0
    for folder in stored_in(snapshot_folder(args.path)):
        report = verify(folder)
        if not folder.exists():  # pruned by the run meanwhile
            continue
        if report.restorable and not report.ok:
            report = _with_index(report)
        count, files, problems = count + 1, files + len(report.files), problems + len(report.problems)
        for line in (f"{c.file}: {c.problem}" for c in report.problems) if args.quiet else report.lines():
            print(line)
    for kind in ("snapshots", "checkpoints"):
        for path in sorted((args.path / kind).glob(f"{TEMPORARY}*")):
            print(f"{path}: being written, or left by a killed run; the next start of the run removes it")
    print(
        f"{count} snapshots and checkpoints, {files} files: {f'{problems} wrong' if problems else 'all good'}"
    )
    return 1 if problems else 0


def _with_index(report: "Report") -> "Report":
    """Make missing derived files again, where the disk allows it."""
    from simulator.files import reason
    from simulator.storage import rebuild_index, verify

    assert report.manifest is not None
    try:
        made = rebuild_index(report.folder, report.manifest)
    except OSError as error:
        report.notes.append(f"{report.folder}: its index cannot be made again ({reason(error)})")
        return report
    if made:
        report = verify(report.folder)
        report.notes += [f"{path}: was missing, made again" for path in made]
    return report
