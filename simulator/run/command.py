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
    """Runs `config` as one process of a run, or launches the processes that `--processes` asks for.

    `args.arguments` is the command line, for provenance and for the processes; `allow` names frozen keys that may
    differ from those of the run in the folder.
    """
    from simulator.run.execute import Choices, look
    from simulator.run.simulation import check_devices

    choices = Choices(getattr(args, "overwrite", False), tuple(allow), ("simulator", *args.arguments))
    folder = Path(config.output.directory)
    # Everything that can be refused without a device is, before anything starts.
    if args.processes is not None and args.processes < 1:
        raise UserError(f"--processes: {args.processes} is no number of processes; 1 or more")
    by_hand = {"--coordinator": args.coordinator, "--num-processes": args.num_processes}
    by_hand["--process-id"] = args.process_id
    if args.processes is not None and (
        given := [name for name, value in by_hand.items() if value is not None]
    ):
        raise UserError(
            f"--processes starts all processes of the run itself; leave out {' and '.join(given)}"
        )
    decision = look(config, choices)
    decision.raise_if_refused()
    if decision.action is Action.FINISHED:
        for line in decision.lines:
            print(line)
        return 0
    if args.processes is not None:
        check_devices(config, config.devices.count, args.processes)
        return _launch(args.arguments, args.processes, folder)
    return _run(config, args, choices, overwritten=decision.clear)


def _launch(arguments: Sequence[str], processes: int, folder: Path) -> int:
    from simulator.cluster.launcher import launch

    command = [sys.executable, "-m", "simulator", *_without_processes(arguments)]
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


def _run(config: RunConfig, args: argparse.Namespace, choices, *, overwritten: bool) -> int:
    from simulator.cluster import discover
    from simulator.cluster.failure import contained

    allocation = discover(
        os.environ,
        coordinator=args.coordinator,
        num_processes=args.num_processes,
        process_id=args.process_id,
    )
    with contained(allocation.process_id, allocation.num_processes):
        return _one_process(config, allocation, choices, overwritten)


def _one_process(config: RunConfig, allocation, choices, overwritten: bool) -> int:
    from simulator.cluster.failure import to_log_file
    from simulator.run.execute import execute
    from simulator.run.inputs import Inputs
    from simulator.run.log import RunLog
    from simulator.run.signals import SignalFlags
    from simulator.run.simulation import Simulation, connect

    folder = Path(config.output.directory)
    cluster = connect(config, allocation, folder)
    with SignalFlags() as signals:
        log = RunLog(quiet=not cluster.is_first)
        inputs = Inputs(None if overwritten else folder / "inputs")
        simulation = Simulation(config, cluster=cluster, inputs=inputs, report=log.say)

        def claimed() -> None:
            if not cluster.is_first:
                to_log_file(folder / "logs", cluster.process_id)

        code = execute(simulation, choices, log, signals, claimed)
    cluster.close()
    return code
