"""`simulator sweep`: the commands for many runs from one file."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.cli.parser import Command, arg, command
from simulator.words import counted

if TYPE_CHECKING:
    from simulator.study.planned import PlannedSweep
    from simulator.study.sweep import Sweep

FILE = arg("file FILE", "the sweep's YAML file")
RUNNING = (
    arg(
        "--jobs N", "number of processes at a time, which share cores and GPUs", type=int, default=1
    ),
    arg(
        "--batch",
        "auto: advance together the runs that differ only in numbers",
        choices=("auto", "off"),
        default="off",
    ),
)


def _opened(file: str) -> "Sweep":
    from simulator.study.sweep import open_sweep

    return open_sweep(file)


def _planned(file: str) -> "PlannedSweep":
    """The sweep in `file`, without JAX if its plan is up to date."""
    from simulator.study.planned import open_plan

    return open_plan(file) or _opened(file)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"numbers of runs are needed, e.g. 3,7, not {text!r}"
        ) from None


@command("show the runs, their sizes and their costs", FILE)
def sweep_plan(args: argparse.Namespace) -> int:
    """Check everything and show the table of runs: number, values, folder, size of the state, steps and cost (grid
    points times steps, known where dt is fixed). Writes nothing and starts no device.

    example: simulator sweep plan configs/sweep_viscosity.yaml"""
    from simulator.study.sweep_text import plan_lines

    sweep = _opened(args.file)
    sweep.check()
    print("\n".join(plan_lines(sweep)))
    return 0


@command(
    "show the progress of the runs",
    FILE,
    arg("--folder-of I", "print only the folder of run I (for job scripts)", type=int),
)
def sweep_status(args: argparse.Namespace) -> int:
    """Show the progress of every run.

    example: simulator sweep status configs/sweep_viscosity.yaml"""
    if args.folder_of is not None:
        print(_folder(args.file, args.folder_of))
        return 0
    from simulator.study.sweep_text import status_lines

    print("\n".join(status_lines(_planned(args.file))))
    return 0


@command(
    "show swept values and collected quantities",
    FILE,
    arg("--csv OUT", "write the table to OUT as CSV, with all digits", type=Path),
    arg("--json OUT", "write the table to OUT as JSON", type=Path),
)
def sweep_table(args: argparse.Namespace) -> int:
    """Show the swept values and the collected quantities, one row per run; unfinished runs are marked.

    example: simulator sweep table configs/sweep_viscosity.yaml --csv viscosity.csv"""
    from simulator.files import replace_file
    from simulator.study.sweep_text import table_lines
    from simulator.study.table import as_csv, table_as_json

    sweep = _planned(args.file)
    rows = sweep.rows()
    print("\n".join(table_lines(sweep, rows)))
    if args.csv:
        replace_file(args.csv, as_csv(rows))
    if args.json:
        replace_file(args.json, table_as_json(rows))
    return 0


@command(
    "draw quantities against parameters, and all runs' series and spectra",
    FILE,
    arg(
        "--x KEY|EXPRESSION",
        "a swept key (default: the first numeric key), a formula of them, or an expression as in collect",
    ),
    arg("--y EXPRESSION", "may be repeated (default: all collected quantities)", action="append"),
    arg("--hue KEY", "the swept key that colours distinguish"),
)
def sweep_plot(args: argparse.Namespace) -> int:
    """Draw a collected quantity against a swept key, and overlays of the time series and the latest spectra of all
    runs, into the sweep's folder plots/.

    example: simulator sweep plot configs/sweep_viscosity.yaml --x model.viscosity --y max.dissipation --hue
    precision"""
    import simulator
    from simulator.errors import UserError

    plot_sweep = getattr(simulator, "plot_sweep", None)
    if plot_sweep is None:
        raise UserError("simulator sweep plot: needs the plugin pictures, which is not installed")
    for path in plot_sweep(_opened(args.file), x=args.x, y=args.y, hue=args.hue):
        print(path)
    return 0


@command(
    "run the missing runs on this machine",
    FILE,
    *RUNNING,
    arg("--index I", "only run I, in this process: a task of an array", type=int),
)
def sweep_run(args: argparse.Namespace) -> int:
    """Run every waiting or interrupted run on this machine; for a finished sweep, do nothing. Ctrl-C stops all runs
    cleanly; the same command continues them.

    example: simulator sweep run configs/sweep_viscosity.yaml --jobs 2"""
    if args.index is not None:
        from simulator.study.execution import run_one

        return run_one(_folder(args.file, args.index), args.arguments)
    from simulator.study.execution import run_sweep

    return run_sweep(_opened(args.file), jobs=args.jobs, batch=args.batch == "auto")


@command(
    "run failed or interrupted runs again",
    FILE,
    *RUNNING,
    arg("--failed", "only failed runs", action="store_true"),
    arg("--index I,J", "only the runs with these numbers", type=_numbers),
)
def sweep_retry(args: argparse.Namespace) -> int:
    """Run failed and interrupted runs again on this machine, each from its newest checkpoint if it has one.

    example: simulator sweep retry configs/sweep_viscosity.yaml --failed"""
    from simulator.errors import UserError
    from simulator.study.execution import UNFINISHED, run_sweep
    from simulator.study.study_status import MemberState

    stages = (MemberState.FAILED,) if args.failed else (MemberState.FAILED, MemberState.INTERRUPTED)
    if args.index is not None:
        if args.failed:
            raise UserError("simulator sweep retry: --index names runs; leave --failed out")
        stages = UNFINISHED
    sweep = _opened(args.file)
    return run_sweep(sweep, stages, args.index, jobs=args.jobs, batch=args.batch == "auto")


def _folder(file: str, index: int) -> Path:
    from simulator.study.planned import planned_folder

    if Path(file).is_dir():
        return planned_folder(Path(file).absolute(), index)

    sweep = _opened(file)
    run = sweep.run(index)
    if not (run.folder / "config.yaml").exists():
        sweep.prepare()
    return run.folder


@command(
    "submit the missing runs to Slurm as one array",
    FILE,
    arg("--failed", "also failed runs", action="store_true"),
    arg("--dry-run", "print the job script; write and submit nothing", action="store_true"),
)
def sweep_submit(args: argparse.Namespace) -> int:
    """Submit every waiting or interrupted run as a task of one Slurm array, with the resources in the file's slurm
    block, whose key throttle limits the number of runs at a time.

    example: simulator sweep submit configs/sweep_viscosity.yaml --dry-run"""
    from simulator.cluster.queue import largest_array
    from simulator.study.execution import (
        MISSING,
        UNFINISHED,
        in_stages,
        plan_submission,
        submit_sweep,
    )
    from simulator.study.study_status import status_counts
    from simulator.study.sweep_progress import typed_sweep
    from simulator.words import short

    sweep = _opened(args.file)
    statuses = sweep.statuses()
    runs = in_stages(sweep, statuses, UNFINISHED if args.failed else MISSING)
    if not runs:
        print(f"{sweep.name}: {status_counts(statuses)}; nothing to submit")
        return 0
    sweep.check(runs)
    chunks = plan_submission(sweep, runs, largest_array())
    if args.dry_run:
        for chunk in chunks:
            print(chunk.script, end="")
        return 0
    jobs = submit_sweep(sweep, chunks)
    script = short(sweep.folder / "sweep.sbatch")
    print(f"submitted {counted(len(runs), 'run')}: array {', then array '.join(jobs)}, {script}")
    print(f"next:\n  {typed_sweep('status', sweep)}")
    return 0


sweep_command = Command(
    "plan, run, continue and compare many runs from one file",
    None,
    commands={
        "plan": sweep_plan,
        "run": sweep_run,
        "retry": sweep_retry,
        "submit": sweep_submit,
        "status": sweep_status,
        "table": sweep_table,
        "plot": sweep_plot,
    },
    about="A parameter study: a YAML file names a base configuration and the keys that vary.\n\n"
    "example: simulator sweep plan configs/sweep_viscosity.yaml",
)
