"""Prepares a run between the claim of its folder and its first step: repairs files, chooses the
first state."""

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from simulator.archive import provenance
from simulator.archive.derived import make_derived
from simulator.archive.ledger import NAME as LEDGER
from simulator.archive.ledger import Audit, Ledger, lost_or_altered
from simulator.archive.manifest import SAVES, clean_leftovers, committed, remove
from simulator.archive.run_state import CONFIG
from simulator.archive.run_writer import Output
from simulator.archive.series_file import TABLE
from simulator.archive.set_aside import set_records_aside, set_results_aside
from simulator.archive.snapshot_index import write_time_index
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.stored_state import restored_state
from simulator.archive.verify import newest_good
from simulator.config import RunConfig, dump_config
from simulator.errors import RunFailure, UserError
from simulator.files import Journal, remove_temporaries, replace_file
from simulator.measure import requested
from simulator.physics.models.outputs import conserved
from simulator.run.events import Moment, Schedule, events
from simulator.run.folder import Choices, RunFolder, check_restored, stored_config
from simulator.run.log import RunLog
from simulator.simulation.equation import model_name
from simulator.simulation.simulation import Simulation
from simulator.spectral.native import described
from simulator.words import counted


def find_start(config: RunConfig, choices: Choices, log: RunLog) -> str | None:
    """The newest intact checkpoint, from which the run continues. If no checkpoint was ever
    written, clears the folder and returns None: the run then begins anew.

    Raises RunFailure if there are checkpoints but none of them is intact, UserError if the
    checkpoint was computed with another configuration."""
    folder = config.output.directory
    for kind in SAVES:
        for line in clean_leftovers(folder / kind):
            log.say(line)
    chosen, skipped = newest_good(folder / "checkpoints")
    for path, problem in skipped:
        log.say(f"skipped {path}: {problem}")
    if chosen is not None:
        log.say(f"continuing from {chosen}")
        check_restored(chosen, config, choices.allow)
        return str(chosen)
    if skipped:
        raise RunFailure(f"{folder}: none of its checkpoints is good; start again with --overwrite")
    log.say(f"{folder}: no checkpoint was written; starting from the beginning")
    RunFolder(folder).clear()
    return None


def prepare_folder(
    simulation: Simulation, choices: Choices, log: RunLog, check: Callable[[], None]
) -> Ledger:
    """Opens ledger and log, writes the files that precede the first step, and repairs the traces of
    a killed start.

    Warns of files that were lost or altered since the last start. `check` raises if another process
    has taken over the folder."""
    path = simulation.config.output.directory
    audit = Audit(path)
    problem = audit.ledger_problem() if audit.expected else "missing"
    changed = dict(lost_or_altered(audit))
    if audit.expected and problem:
        changed[LEDGER] = problem
    said = set_records_aside(path)
    ledger = Ledger(path, RunFolder(path).recorded(), check, simulation.config.run.sync)
    series = (f"{name}.h5" for name, *_ in requested(simulation.config.output))
    opened = [TABLE, *series]
    # A series is altered if one of its parts is.
    stems = {Path(name.partition("/")[0]).stem for name in changed}
    suspects = opened if problem else [name for name in opened if Path(name).stem in stems]
    said |= set_results_aside(path, suspects, ledger)
    log.open(path / "run.log", ledger)
    for line in said.values():
        log.say(line)
    for name, altered in changed.items():
        if name not in said:
            log.say(
                f"warning: {path / name}: {altered}; the run continues with the remaining files"
            )
    for left in remove_temporaries(path):
        log.say(f"removed {left}: left by a run that was killed")
    for folder in committed(path / "snapshots"):  # a killed run may not have made their indices
        with contextlib.suppress(UserError, RunFailure):  # `verify` reports a damaged snapshot
            for file, problem in make_derived(folder, open_snapshot(folder).manifest).items():
                log.say(f"{file}: was {problem}, made again")
    simulation.inputs.keep(path / "inputs", ledger)
    replace_file(path / CONFIG, dump_config(simulation.config), ledger)
    _record_provenance(simulation, choices, ledger)
    return ledger


def _record_provenance(simulation: Simulation, choices: Choices, journal: Journal) -> None:
    cluster = simulation.cluster
    transform = simulation.transform
    devices = {
        "platform": cluster.platform,
        "kind": cluster.devices[0].device_kind,
        "count": len(cluster.devices),
        "threads": cluster.threads,
        "processes": cluster.num_processes,
        "source": cluster.allocation.source,
    }
    mesh = {
        "axes": dict(transform.layout.mesh.shape),
        "transform": transform.name,
        "physical": str(transform.physical.spec),
        "spectral": str(transform.layout.spec),
        "order": transform.layout.order,
        "kernels": described(transform.kernels, cluster.platform),
        "choice": simulation.placement.chosen.measured,
    }
    content = provenance.collect(
        choices.command or sys.argv,
        os.environ,
        devices=devices,
        mesh=mesh,
        environment_set=cluster.environment,
    )
    content["conserved"] = conserved(simulation.model)
    provenance.record_start(simulation.config.output.directory, content, journal)


def take_up(
    simulation: Simulation, checkpoint: Path | None, output: Output, journal: Journal, log: RunLog
) -> Schedule:
    """The schedule of the run. Restores from a `checkpoint` the state of the simulation and the
    arrays of the series, and removes the output later than it. All processes call this."""
    settings = simulation.config.time
    planned = events(simulation.config.output)
    if checkpoint is None:
        return Schedule(planned, settings.stop, simulation.first_time, max_steps=settings.max_steps)
    state = restored_state(simulation, checkpoint)
    stored = open_snapshot(checkpoint).attributes
    if stored["fixed_dt"] != (simulation.time_step.fixed or 0.0):
        # With a fixed dt the time is origin + since * dt; with another dt the steps are counted
        # from this time on.
        state = replace(state, origin=state.time + 0, since=state.since * 0)
    simulation.state = state
    moment = Moment(int(state.step), float(state.time), float(state.dt))
    schedule = Schedule.restored(
        planned, settings.stop, stored["schedule"], moment, settings.max_steps
    )
    for line in output.restore(checkpoint, stored_config(checkpoint), schedule.met(moment)):
        log.say(line)
    folder = simulation.config.output.directory
    simulation.cluster.together(lambda: _forget_after(folder, output, moment.step, journal, log))
    return schedule


def _forget_after(folder: Path, output: Output, step: int, journal: Journal, log: RunLog) -> None:
    """Removes the output later than the checkpoint at `step`; the continued run writes this output
    again.

    Later checkpoints, which exist only if they are damaged, are removed too: if one of them became
    readable again, a later start would continue from a state that this run no longer has."""
    removed = output.truncate(step)
    for name in ("snapshot", "checkpoint"):
        for saved in committed(folder / f"{name}s"):
            if int(saved.name) > step:
                journal.removing(saved, f"later than step {step}, from which the run continues")
                remove(saved)
                removed.append(f"{name} {saved.name}")
    write_time_index(folder / "snapshots")
    if removed:
        log.say(f"removed the output later than step {step}: {', '.join(removed)}")


def headline(simulation: Simulation) -> str:
    """The first line of a run: model, grid, precision, devices and transform."""
    config = simulation.config
    cluster = simulation.cluster
    transform = simulation.transform
    shape = " x ".join(map(str, config.grid.shape))
    devices = len(cluster.devices)
    kind = cluster.devices[0].device_kind
    threads = f" of {cluster.threads} threads" if cluster.threads > 1 else ""
    processes = f" in {cluster.num_processes} processes" if cluster.num_processes > 1 else ""
    if processes and cluster.platform == "cpu":
        processes += f" over {cluster.transport}"
    return (
        f"{config.name}: {model_name(config)}, {shape}, {config.precision} precision, "
        f"{counted(devices, f'{kind} device')}{threads}{processes}, {transform.name}, "
        f"kernels {described(transform.kernels, cluster.platform)}"
    )
