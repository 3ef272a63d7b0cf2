"""`simulator submit`: write a job script into the run folder and submit it."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from simulator.cli.parser import EXECUTES, add_config_arguments, with_output

# every option has the name of a key of the `slurm` block
_OPTIONS = {
    "nodes": ("N", "number of nodes"),
    "tasks-per-node": ("M", "processes on each node; by default one per GPU"),
    "gpus-per-node": ("G", "GPUs of each node"),
    "cpus-per-task": ("K", "cores of each process"),
    "time": ("T", "time limit, e.g. 2:00:00; the run stops before it and the job is requeued"),
    "partition": ("P", ""),
    "account": ("A", ""),
    "qos": ("Q", ""),
    "constraint": ("C", ""),
    "sbatch": ("FLAGS", "further flags of sbatch, e.g. --sbatch='--mem=64G --exclusive'"),
}

_NUMBERS = ("nodes", "tasks-per-node", "gpus-per-node", "cpus-per-task")


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "submit",
        help="submit a run to Slurm",
        description="Write a job script into the run folder and submit it. Resources that are not given are taken "
        "from the `slurm` block of the configuration, then from slurm.yaml in the user's configuration folder "
        "(~/.config/simulator); otherwise Slurm's defaults apply. " + EXECUTES,
        epilog="example: simulator submit configs/taylor_green.yaml time.stop=20 --nodes 2 --tasks-per-node 4 "
        "--time 2:00:00",
    )
    add_config_arguments(parser)
    parser.add_argument("--output", metavar="DIR", help="the run folder; the same as output.directory=DIR")
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="the kind of device in the nodes, as in simulator plan; nodes, GPUs and time are then suggested",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the script; write and submit nothing")
    group = parser.add_argument_group("resources")
    for name, (value, text) in _OPTIONS.items():
        group.add_argument(f"--{name}", metavar=value, help=text)
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Submit; returns the exit code."""
    from simulator.config import load_config
    from simulator.config.overrides import text_override
    from simulator.run.progress import typed
    from simulator.run.submit_run import prepare, site_settings, submit

    overrides = with_output(args.overrides, args.output)
    # resources on the command line are checked as overrides of the `slurm` block
    for name in _OPTIONS:
        key = name.replace("-", "_")
        if (value := getattr(args, key)) is not None:
            overrides.append(
                f"slurm.{key}={value}" if name in _NUMBERS else text_override(f"slurm.{key}", value)
            )
    config, site, lines = load_config(args.config, overrides), site_settings(), []
    if device := args.device or config.slurm.device or site.device:
        from simulator.planning.suggest import suggested

        config, lines = suggested(config, site, device)
    job = prepare(config, site)
    for line in job.lines:
        print(line)
    for line in lines if job.script is not None else ():
        print(line, file=sys.stderr if args.dry_run else sys.stdout)
    if job.script is None:
        return 0
    if args.dry_run:
        print(job.script, end="")
        return 0
    number = submit(config, job)
    folder = _short(job.folder)
    print(f"submitted job {number}: {folder / 'job.sbatch'}")
    log = folder / "logs" / f"slurm-{number}.out"
    print("next:")
    for words in ((*typed(), "status", str(folder)), ("tail", "-F", str(log))):
        print(f"  {shlex.join(words)}")
    return 0


def _short(folder: Path) -> Path:
    """The path relative to the current folder if it is below it, else as it is."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder
