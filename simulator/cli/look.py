"""The commands that inspect runs: `status`, `verify`, `environment`, `analyze`."""

import argparse
import sys
from pathlib import Path

from simulator.cli.parser import arg, command, overrides, progress_bar, runs_and_overrides
from simulator.errors import UserError
from simulator.words import aligned_lines, counted

_COLUMNS = ("run", "job", "state", "step", "t", "%", "steps/s", "expected end", "last checkpoint")

_TEXT = 3  # number of columns with text; the columns after them have numbers, aligned to the right


@command(
    "show the progress of runs and the state of their jobs",
    arg("runs RUN", "run folders", nargs="*"),
    arg(
        "--folder-of ARGUMENT",
        "print only the folder in which `simulator run ARGUMENT ...` would compute, for job scripts; takes the rest "
        "of the command line",
        nargs=argparse.REMAINDER,
    ),
)
def status_command(args: argparse.Namespace) -> int:
    """Show a line for each run: job, state, step, t, percent, steps/s, expected end, last checkpoint. Without RUN,
    show all runs under outputs/.

    example: simulator status outputs/taylor_green"""
    if args.folder_of is not None:
        from simulator.cli import build_parser
        from simulator.config import load_config

        asked = build_parser(["run"]).parse_args(["run", *args.folder_of])
        config = load_config(asked.config, asked.overrides, output=asked.output)
        print(config.output.directory)
        return 0
    folders = [Path(run) for run in args.runs] or sorted(
        path.parent for path in Path("outputs").glob("*/config.yaml")
    )
    if not folders:
        raise UserError("simulator status: no runs under outputs/; name a run folder")
    if other := [folder for folder in folders if not (folder / "config.yaml").is_file()]:
        raise UserError(f"{other[0]}: not a run folder (it has no config.yaml)")
    from datetime import datetime

    from simulator.run.run_status import look_at

    now = datetime.now().astimezone()
    rows = [_COLUMNS, *(look_at(folder, now).cells(now) for folder in folders)]
    print("\n".join(aligned_lines(rows, range(_TEXT, len(_COLUMNS)))))
    return 0


@command(
    "read every file of a run and report problems",
    arg("path RUN", "a run folder, or one snapshot or checkpoint", type=Path),
    arg("--quiet", "print problems only", action="store_true"),
)
def verify_command(args: argparse.Namespace) -> int:
    """Read every file of a run, or of one snapshot or checkpoint, and report file by file. The run may still be
    running.

    example: simulator verify outputs/taylor_green
      simulator verify outputs/taylor_green/checkpoints/00000010

    The exit code is 1 if a file is missing, short, altered, or not finite; a missing or altered index is made again.
    Only files in the run's ledger.json are checked; your own files, plots/ and logs/ are ignored."""
    from simulator.archive.verify import verification

    files = problems = count = 0
    checks = verification(args.path)
    with progress_bar(f"reading {args.path}") as progress:
        for number, report in enumerate(checks.reports, start=1):
            count = count + (report.manifest is not None)
            files = files + len(report.files)
            problems += len(report.problems)
            for line in (
                (f"{c.file}: {c.problem}" for c in report.problems)
                if args.quiet
                else report.lines()
            ):
                print(line)
            progress(number, checks.total)
    what = f"{problems} wrong" if problems else "all good"
    print(
        f"{counted(count, 'snapshot or checkpoint', 'snapshots and checkpoints')}, "
        f"{counted(files, 'file')}: {what}"
    )
    return 1 if problems else 0


@command(
    "write the values of rounded snapshots for other programs",
    arg("path RUN", "a run folder, or one snapshot", type=Path),
)
def unpack_command(args: argparse.Namespace) -> int:
    """Write the fields of rounded snapshots (output.snapshots.error) as values in single precision into the index and
    the VTKHDF file beside each snapshot, for ParaView, yt, openPMD and h5py. This program reads rounded snapshots
    as they are.

    example: simulator unpack outputs/taylor_green/snapshots/00000010"""
    from simulator.archive.derived import unpack
    from simulator.archive.snapshot_reader import snapshot_folder
    from simulator.archive.verify import stored_in

    files = [file for save in stored_in(snapshot_folder(args.path)) for file in unpack(save)]
    if not files:
        raise UserError(
            f"{args.path}: no rounded snapshot; other programs read its fields as it is"
        )
    print("\n".join(map(str, files)))
    return 0


@command(
    "print the packages that computed a run, as pip requirements",
    arg("run RUN", "the run's folder", type=Path),
)
def environment_command(args: argparse.Namespace) -> int:
    """Print the installation that computed a run, as a requirements file for pip: the exact version of every package,
    and as comments Python, the commit of the checkout and the commands. Of several starts, the last one counts.

    example: simulator environment outputs/taylor_green"""
    from simulator.archive import provenance

    start = provenance.read(args.run)
    if not {"started", "versions", "host"} <= start.keys():
        raise UserError(f"{args.run}: records no start of a run (no readable {provenance.NAME})")
    print(f"# the installation that computed {args.run}")
    print("\n".join(provenance.installation(start)))
    others = {
        f"{name} {earlier['versions'][name]}"
        for earlier in start.get("earlier", ())
        for name in earlier["versions"].keys() & start["versions"].keys()
        if earlier["versions"][name] != start["versions"][name]
    }
    if others:
        print(f"earlier starts had {', '.join(sorted(others))}", file=sys.stderr)
    return 0


@command(
    "measure a run again, from its snapshots",
    arg("runs RUN", "run folders", nargs="+"),
    overrides("values that replace the run's keys of output or devices"),
    arg("--what KIND,...", "kinds of series (default: those of the run's configuration), or all"),
)
def analyze_command(args: argparse.Namespace) -> int:
    """Measure every snapshot of a run on the devices of this machine, with the same code as the run itself, and write
    diagnostics.csv and a file for each series into RUN/analysis. `simulator plot RUN/analysis` draws these files.
    Python files that the configuration names are executed, with your permissions.

    example: simulator analyze outputs/taylor_green --what spectral_maps"""
    from simulator.analysis.recompute import analyze_snapshots

    runs, changes = runs_and_overrides(args)
    kinds = args.what.split(",") if args.what else None
    for run in runs:
        with progress_bar(f"{run}: snapshots") as progress:
            written, refused = analyze_snapshots(run, kinds, changes, progress)
        print(written)
        for line in refused:
            print(line, file=sys.stderr)
    return 0
