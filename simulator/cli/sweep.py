"""`simulator sweep`: many runs from one file."""

import argparse
from typing import Any

_EPILOG = "example: simulator sweep {} configs/sweep_viscosity.yaml{}"


def add_parser(subparsers: Any) -> None:
    """Register the command and its own commands."""
    parser = subparsers.add_parser(
        "sweep",
        help="plan, run, continue and compare many runs from one file",
        description="A parameter study: a YAML file names a base configuration and what is varied in it.",
        epilog=_EPILOG.format("plan", ""),
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="sweep_command", required=True)

    def command(name: str, help: str, description: str, function: Any, example: str = "") -> Any:
        added = commands.add_parser(
            name, help=help, description=description, epilog=_EPILOG.format(name, example)
        )
        added.add_argument("file", metavar="FILE", help="the sweep's YAML file")
        added.set_defaults(func=function)
        return added

    command(
        "plan",
        "show the runs and what they need",
        "Check everything and show the table of runs: number, values, folder, estimated memory, steps and cost "
        "(grid points times steps, known where dt is fixed). Writes nothing.",
        plan,
    )
    run = command(
        "run",
        "run what is missing, on this machine",
        "Run, on this machine, every run that is waiting or was interrupted; a finished sweep does nothing. "
        "Ctrl-C stops all of them cleanly; the same command continues them.",
        run_sweep,
        " --jobs 2",
    )
    _add_running(run)
    run.add_argument(
        "--index", type=int, metavar="I", help="this run only, in this process: a task of an array"
    )
    retry = command(
        "retry",
        "run again what failed or was interrupted",
        "Run again, on this machine, what failed and what was interrupted, from the newest checkpoint where there "
        "is one.",
        retry_sweep,
        " --failed",
    )
    _add_running(retry)
    retry.add_argument("--failed", action="store_true", help="only what failed")
    retry.add_argument("--interrupted", action="store_true", help="only what was interrupted")
    retry.add_argument("--index", metavar="I,J", type=_numbers, help="only the runs with these numbers")
    command("status", "show how far the runs are", "Show how far every run is.", status)
    table = command(
        "table",
        "show swept values and collected quantities",
        "Show the swept values and the collected quantities, one row per run; unfinished runs are marked.",
        table_of,
        " --csv viscosity.csv",
    )
    table.add_argument("--csv", metavar="OUT", help="write it as CSV, with all digits")
    table.add_argument("--json", metavar="OUT", help="write it as JSON")
    plot = command(
        "plot",
        "draw quantities against parameters, and all runs' series and spectra",
        "Draw a collected quantity against a swept key, and overlays of the time series and the latest spectra of "
        "all runs, into the sweep's folder plots/.",
        plot_runs,
        " --x model.viscosity --y max.dissipation --hue precision",
    )
    plot.add_argument("--x", metavar="KEY", help="the swept key across; by default the first with numbers")
    plot.add_argument(
        "--y",
        metavar="EXPRESSION",
        action="append",
        default=[],
        help="may be given again; by default all collected",
    )
    plot.add_argument("--hue", metavar="KEY", help="the swept key that colours tell apart")


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at a time; they share the devices"
    )
    parser.add_argument(
        "--batch",
        choices=("auto", "off"),
        default="off",
        help="auto: runs that differ only in numbers are stepped together on one device",
    )
    parser.add_argument("--fail-fast", action="store_true", help="the first failure stops the others")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"numbers of runs are needed, e.g. 3,7, not {text!r}") from None


def plan(args: argparse.Namespace) -> int:
    """The table of runs, and their total."""
    from simulator.sweeps import open_sweep
    from simulator.sweeps.report import plan_lines

    _print(plan_lines(open_sweep(args.file)))
    return 0


def status(args: argparse.Namespace) -> int:
    """One line per run, and how many are how far."""
    from simulator.sweeps import open_sweep
    from simulator.sweeps.report import status_lines

    _print(status_lines(open_sweep(args.file)))
    return 0


def table_of(args: argparse.Namespace) -> int:
    """The table; to files too."""
    from simulator.sweeps import open_sweep
    from simulator.sweeps.report import table_lines, write_text
    from simulator.sweeps.table import as_csv, as_json, rows

    sweep = open_sweep(args.file)
    found = rows(sweep)
    _print(table_lines(sweep, found))
    if args.csv:
        write_text(args.csv, as_csv(found))
    if args.json:
        write_text(args.json, as_json(found))
    return 0


def plot_runs(args: argparse.Namespace) -> int:
    """Draws, and prints one file a line."""
    from simulator.sweeps import open_sweep
    from simulator.sweeps.pictures import plot_sweep

    _print([str(path) for path in plot_sweep(open_sweep(args.file), x=args.x, y=args.y, hue=args.hue)])
    return 0


def run_sweep(args: argparse.Namespace) -> int:
    """Runs what is missing; returns the exit code."""
    from simulator.sweeps import open_sweep
    from simulator.sweeps.local import run_index, run_missing

    sweep = open_sweep(args.file)
    if args.index is not None:
        return run_index(sweep, args.index, args.arguments)
    return run_missing(sweep, jobs=args.jobs, fail_fast=args.fail_fast, batch=args.batch == "auto")


def retry_sweep(args: argparse.Namespace) -> int:
    """Runs again what failed or was interrupted; returns the exit code."""
    from simulator.sweeps import open_sweep
    from simulator.sweeps.local import run_again

    return run_again(
        open_sweep(args.file),
        failed=args.failed,
        interrupted=args.interrupted,
        indices=args.index,
        jobs=args.jobs,
        fail_fast=args.fail_fast,
        batch=args.batch == "auto",
    )


def _print(lines: list[str]) -> None:
    for line in lines:
        print(line)
