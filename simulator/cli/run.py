"""The commands that start runs: `run`, `resume`, `submit`."""

import argparse
import shlex
import sys
from pathlib import Path

from simulator.cli.parser import PROCESSES, arg, command, config_arguments, overrides
from simulator.errors import UserError


@command(
    "run a configuration, or continue an interrupted run",
    *config_arguments(),
    arg("--output DIR", "the run folder; the same as output.directory=DIR"),
    arg("--overwrite", "first remove the files of an earlier run", action="store_true"),
    *PROCESSES,
)
def run_command(args: argparse.Namespace) -> int:
    """Run a configuration. An interrupted run continues from its newest good checkpoint; a finished run is left
    as it is.

    example: simulator run configs/taylor_green.yaml time.stop=2 devices.count=4 --output outputs/tg"""
    from simulator.config import load_config
    from simulator.run.command import allocated, run_config

    with allocated(args) as allocation:
        config = load_config(args.config, args.overrides, output=args.output)
        return run_config(config, args, allocation)


@command(
    "continue a run from its folder",
    arg("folder RUN", "a run folder", type=Path),
    overrides("values that replace those of RUN/config.yaml, read as YAML"),
    arg(
        "--allow KEY",
        "allow a change of this frozen key, e.g. model.viscosity; may be repeated",
        action="append",
    ),
    *PROCESSES,
)
def resume_command(args: argparse.Namespace) -> int:
    """Continue the run in the folder RUN, which may have been moved, from its newest good checkpoint, on any number
    of devices. A finished run continues to a later time.stop.

    example: simulator resume outputs/taylor_green time.stop=2 --processes 2"""
    from simulator.archive.open_run import open_run
    from simulator.archive.set_aside import stored_text
    from simulator.config import load_config
    from simulator.run.command import allocated, run_config

    with allocated(args) as allocation:
        for override in args.overrides:
            if override.partition("=")[0] in ("output.directory", "output"):
                raise UserError(
                    f"command line: {override}: resume continues in the folder RUN; move it instead"
                )
        folder = open_run(args.folder).path.absolute()
        # `absolute` keeps links in the path. Input files need not exist any more, because the run uses its copies.
        config = load_config(
            folder / "config.yaml",
            args.overrides,
            output=str(folder),
            check_files=False,
            text=stored_text(folder),
        )
        return run_config(config, args, allocation, allow=args.allow)


_OPTIONS = {
    "nodes": ("N", "number of nodes"),
    "tasks-per-node": (
        "M",
        "processes on each node; by default one per GPU, on CPUs one per socket",
    ),
    "gpus-per-node": ("G", "GPUs of each node"),
    "cpus-per-task": ("K", "cores of each process"),
    "time": ("T", "time limit, e.g. 2:00:00; the run stops before it and the job is requeued"),
    "partition": ("P", "partition (queue)"),
    "account": ("A", "account to charge"),
    "qos": ("Q", "quality of service"),
    "constraint": ("C", "features that the nodes must have"),
    "sbatch": ("FLAGS", "further flags of sbatch, e.g. --sbatch='--mem=64G --exclusive'"),
}

_NUMBERS = ("nodes", "tasks-per-node", "gpus-per-node", "cpus-per-task")


@command(
    "submit a run to Slurm",
    *config_arguments(),
    arg("--output DIR", "the run folder; the same as output.directory=DIR"),
    arg(
        "--device NAME",
        "kind of device of the nodes; simulator plan then suggests nodes, GPUs and time",
    ),
    arg("--dry-run", "print the script; write and submit nothing", action="store_true"),
    *(
        arg(f"--{name} {value}", text, group="resources")
        for name, (value, text) in _OPTIONS.items()
    ),
)
def submit_command(args: argparse.Namespace) -> int:
    """Write a job script into the run folder and submit it. Resources that are not given are taken from the `slurm`
    block of the configuration, then from slurm.yaml in the user's configuration folder (~/.config/simulator);
    otherwise Slurm's defaults apply. Python files that the configuration names are executed, with your permissions.

    example: simulator submit configs/taylor_green.yaml time.stop=20 --nodes 2 --tasks-per-node 4 --time 2:00:00"""
    from simulator.config import load_config
    from simulator.config.overrides import text_override
    from simulator.run.progress import typed
    from simulator.run.submit_run import prepare_job, site_settings, submit_job
    from simulator.words import short

    changes = list(args.overrides)
    # Resources on the command line become overrides of the `slurm` block, whose checks then apply to them.
    for name in _OPTIONS:
        key = name.replace("-", "_")
        if (value := getattr(args, key)) is not None:
            changes.append(
                f"slurm.{key}={value}" if name in _NUMBERS else text_override(f"slurm.{key}", value)
            )
    config = load_config(args.config, changes, output=args.output)
    site = site_settings()
    lines = []
    if device := args.device or config.slurm.device or site.device:
        from simulator.plan.plan_text import suggested

        config, lines = suggested(config, site, device)
    job = prepare_job(config, site)
    for line in job.lines:
        print(line)
    for line in lines if job.script is not None else ():
        print(line, file=sys.stderr if args.dry_run else sys.stdout)
    if job.share:
        print(job.share, file=sys.stderr if args.dry_run else sys.stdout)
    if job.script is None:
        return 0
    if args.dry_run:
        print(job.script, end="")
        return 0
    number = submit_job(config, job)
    folder = short(job.folder)
    print(f"submitted job {number}: {folder / 'job.sbatch'}")
    log = folder / "logs" / f"slurm-{number}.out"
    print("next:")
    for words in ((*typed(), "status", str(folder)), ("tail", "-F", str(log))):
        print(f"  {shlex.join(words)}")
    return 0
