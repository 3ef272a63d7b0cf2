"""`simulator assimilate`: recovers a flow from observations."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from simulator.cli.parser import PROCESSES, arg, command, overrides
from simulator.errors import UserError


@command(
    "recover a flow from observations",
    arg("file FILE", "the assimilation's YAML file"),
    overrides("values that replace those of the base configuration, read as YAML"),
    arg("--output DIR", "the folder of the result"),
    arg("--overwrite", "first remove an earlier result", action="store_true"),
    *PROCESSES,
    group="study",
)
def assimilate_command(args: argparse.Namespace) -> int:
    """Find the initial condition that fits observations best, given a prior (4D-Var), or the flow at the last
    observation by an ensemble Kalman filter (method: ensemble). Writes the flow as a snapshot, a configuration
    that begins with it, and report.html. After Ctrl-C or a crash the same command continues.

    example: simulator assimilate recover.yaml devices.count=2"""
    try:
        import optax  # noqa: F401
    except ImportError:
        raise UserError(
            "assimilate: needs the package optax: pip install 'simulator[learn]'"
        ) from None
    from simulator.plugins.assimilation.assimilation import (
        Assimilating,
        check_assimilation,
        open_assimilation,
    )
    from simulator.run.command import allocated, launched

    with allocated(args) as allocation:
        task = open_assimilation(args.file, args.overrides, args.output)
        check_assimilation(task, allocation.num_processes if allocation else args.processes)
        if allocation is None:
            return launched(args.arguments, args.processes, task.settings.output)
        from simulator.cluster.failure import describe
        from simulator.run.log import RunLog
        from simulator.run.progress import typed
        from simulator.run.signals import SignalFlags
        from simulator.simulation.placement import connect
        from simulator.words import short

        log = RunLog(quiet=allocation.process_id > 0)
        cluster = connect(task.config, allocation, Path(task.settings.output))
        with SignalFlags(name=describe(allocation.process_id, allocation.num_processes)) as signals:
            code = Assimilating(task, cluster, log, signals).run(args.overwrite)
        if code == 0 and cluster.is_first:
            log.say(_reported(task.settings.output))
            log.say(f"next:\n  {' '.join(typed())} run {short(task.settings.output / 'run.yaml')}")
        cluster.close()
    return code


def _reported(folder: Path) -> str:
    """Writes the report of a finished assimilation; returns the line about it."""
    if find_spec("simulator.plugins.pictures") is None:
        return "no report: it needs the plugin pictures"
    from simulator.plugins.assimilation.report import report_assimilation
    from simulator.words import short

    return f"report: {short(report_assimilation(folder))}"
