"""What `simulator run` and `simulator resume` share: from a configuration to processes, devices and the run."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.run.folder import Action


def run_config(config: RunConfig, args: argparse.Namespace, allow: Sequence[str] = ()) -> int:
    """Runs `config` as one process of a run, or launches the processes that `--processes` asks for."""
    from simulator.run.execute import Choices, look

    choices = Choices(args.overwrite if "overwrite" in args else False, tuple(allow), sys.argv)
    folder = Path(config.output.directory)
    # Everything that can be refused without a device is, before anything starts.
    decision = look(config, choices)
    decision.raise_if_refused()
    if decision.action is Action.FINISHED:
        for line in decision.lines:
            print(line)
        return 0
    if args.processes is not None:
        return _launch(config, args.processes, folder)
    return _run(config, args, choices, folder)


def _launch(config: RunConfig, processes: int, folder: Path) -> int:
    from simulator.cluster.launcher import launch
    from simulator.run.simulation import check_devices

    if processes < 1:
        raise UserError(f"--processes: {processes} is no number of processes; 1 or more")
    if config.devices.count != "auto":
        check_devices(config, config.devices.count, processes)
    command = [sys.executable, "-m", "simulator", *_without_processes(sys.argv[1:])]
    return launch(command, processes, logs=folder / "logs")


def _without_processes(arguments: Sequence[str]) -> list[str]:
    """The command line that each child gets."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--processes":
            skip = True
        elif not argument.startswith("--processes="):
            kept.append(argument)
    return kept


def _run(config: RunConfig, args: argparse.Namespace, choices, folder: Path) -> int:
    from simulator.cluster import discover, failure
    from simulator.run.execute import execute
    from simulator.run.inputs import Inputs
    from simulator.run.log import RunLog
    from simulator.run.simulation import Simulation, connect

    allocation = discover(
        os.environ,
        coordinator=args.coordinator,
        num_processes=args.num_processes,
        process_id=args.process_id,
    )
    failure.install(allocation.process_id, allocation.num_processes)
    if allocation.process_id > 0:
        failure.to_log_file(folder / "logs", allocation.process_id)
    cluster = connect(config, allocation, folder)
    log = RunLog(quiet=not cluster.is_first)
    inputs = Inputs(folder / "inputs")
    simulation = Simulation(config, cluster=cluster, inputs=inputs, report=log.say)
    code = execute(simulation, choices, log)
    cluster.close()
    return code
