"""The code that `simulator run` and `simulator resume` share: from a configuration to processes,
devices and the run."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from simulator.cluster import Allocation, discover
from simulator.cluster.failure import Watchdog, contained, describe
from simulator.cluster.hardware import check_address_space
from simulator.cluster.memory import keep_freed_memory
from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.files import exit_called
from simulator.run.folder import (
    Action,
    Choices,
    Decision,
    FolderContent,
    RunFolder,
    shared_decision,
)
from simulator.stopwatch import Stopwatch


@contextlib.contextmanager
def allocated(args: argparse.Namespace) -> Iterator[Allocation | None]:
    """The allocation of this process, valid while the context is open; None for the launcher of
    `--processes`.

    If several processes find the same mistake, only process 0 reports it (`failure.contained`)."""
    options = ("coordinator", "num_processes", "process_id")
    by_hand = {name: getattr(args, name, None) for name in options}
    if getattr(args, "processes", None) is not None:
        if args.processes < 1:
            raise UserError(f"--processes: must be at least 1, not {args.processes}")
        if given := [f"--{name}" for name, value in by_hand.items() if value is not None]:
            names = " and ".join(given).replace("_", "-")
            raise UserError(
                f"--processes starts all processes of the run itself; leave out {names}"
            )
        yield None
        return
    check_address_space()  # before JAX is imported
    keep_freed_memory()  # before there are threads
    allocation = discover(os.environ, **by_hand)
    with contained(allocation):
        try:
            yield allocation
        except SystemExit as error:  # in a function of the user's: no reason to exit with its code
            raise UserError(exit_called(error)) from error


def run_config(
    config: RunConfig,
    args: argparse.Namespace,
    allocation: Allocation | None,
    allow: Sequence[str] = (),
) -> int:
    """Runs `config` as one process of a run, or launches as many processes as `--processes`
    requests.

    `args.arguments` is the command line, for provenance and for the launched processes.
    `args.spent` has counted the time since the command began. `allocation` comes from `allocated`.
    `allow` names frozen keys whose values may differ from those of the run in the folder."""
    choices = Choices(
        getattr(args, "overwrite", False), tuple(allow), ("simulator", *args.arguments)
    )
    process = (0, 1) if allocation is None else (allocation.process_id, allocation.num_processes)
    # Functions of the user are called, which may hang.
    watchdog = Watchdog(config.run.watchdog, describe(*process))
    if allocation is not None and allocation.num_processes > 1:
        with watchdog:
            record = _record(config, allocation.num_processes, choices)
        return _one_process(config, allocation, choices, args.spent, record=record)
    from simulator.run.refusals import may_run

    # A refusal that needs no device comes before any process or device starts.
    with watchdog:
        decision = may_run(config, args.processes or 1, choices)
    if decision.action is Action.FINISHED:
        for line in decision.lines:
            print(line)
        return 0
    if allocation is not None:
        return _one_process(config, allocation, choices, args.spent, decision)
    return launched(args.arguments, args.processes, Path(config.output.directory))


def _record(config: RunConfig, processes: int, choices: Choices) -> dict[str, str]:
    """The input files of one of several processes and their checksums, for `agreement`, or the
    reason why this process refuses the configuration. What is in the folder is decided by process
    0, after the processes have met."""
    from simulator.cluster.meeting import REFUSED, UNREAD
    from simulator.run.refusals import check_configuration, decision_of

    decision = decision_of(config, choices)
    folder = RunFolder(Path(config.output.directory))
    if folder.content() is FolderContent.FOREIGN:
        decision.raise_if_refused()
    if decision.action in (Action.REFUSE, Action.FINISHED):
        return {UNREAD: "not read"}
    copies = None if choices.overwrite else folder.path / "inputs"
    try:
        return check_configuration(config, processes, copies).digests()
    except UserError as error:
        return {REFUSED: str(error)}


def launched(arguments: Sequence[str], processes: int, folder: Path | None = None) -> int:
    from simulator.cluster.launcher import launch, without_processes

    command = [sys.executable, "-m", "simulator", *without_processes(arguments)]
    return launch(command, processes, logs=folder and folder / "logs")


def _one_process(
    config: RunConfig,
    allocation: Allocation,
    choices: Choices,
    spent: Stopwatch,
    decision: Decision | None = None,
    record: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """`decision`: from `may_run`, for a single process. `record`: what this process has read, to be
    compared with the other processes."""
    from simulator.archive.provenance import earlier_choice
    from simulator.archive.stored_state import RunInputs
    from simulator.run.execute import execute
    from simulator.run.log import RunLog
    from simulator.run.refusals import decision_of
    from simulator.run.signals import SignalFlags
    from simulator.simulation.placement import connect
    from simulator.simulation.simulation import Simulation

    folder = Path(config.output.directory)
    name = describe(allocation.process_id, allocation.num_processes)
    flags = SignalFlags(within=config.run.stop_within, name=name)
    log = RunLog(quiet=allocation.process_id > 0)
    earlier = earlier_choice(config)
    cluster = connect(config, allocation, folder, record=record)
    decision = decision or shared_decision(cluster, partial(decision_of, config, choices))
    decision.raise_if_refused()
    if decision.action is Action.FINISHED:
        for line in decision.lines:
            log.say(line)
        cluster.close()
        return 0
    with flags as signals:
        inputs = RunInputs(None if choices.overwrite else folder / "inputs")
        simulation = Simulation(
            config, cluster=cluster, inputs=inputs, report=log.say, earlier=earlier
        )
        code = execute(simulation, choices, log, signals, spent, decision, logs=True)
    cluster.close()
    return code
