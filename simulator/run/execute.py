"""A run from its folder's claim to its last line: decide, start or continue, loop, and leave things whole."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from simulator.cluster.failure import describe
from simulator.cluster.watchdog import Watchdog
from simulator.config import diff_configs, dump_config, load_config
from simulator.errors import RunFailure, UserError
from simulator.files import reason
from simulator.models import own_transforms
from simulator.run import checkpoint, provenance
from simulator.run.folder import Action, Decision, RunFolder, choose_checkpoint, claim
from simulator.run.lock import RunLock
from simulator.run.log import RunLog
from simulator.run.loop import Loop, Moment, Outcome
from simulator.run.measuring import check_kinds
from simulator.run.output import Output, events
from simulator.run.progress import Progress, summary, typed
from simulator.run.schedule import Schedule
from simulator.run.signals import SignalFlags, Watch, job_deadline
from simulator.run.simulation import Simulation
from simulator.run.state import RunState, percent, read_state, write_state
from simulator.storage import (
    Writer,
    clean_leftovers,
    committed,
    open_snapshot,
    rebuild_index,
    remove,
    verify,
)
from simulator.storage.manifest import NAME as MANIFEST

LEAD = 60.0
"""Seconds before a job's end at which the run stops, where the job script's signal has not come before."""


@dataclass(frozen=True)
class Choices:
    """How `run` treats an existing folder."""

    overwrite: bool = False
    allow: tuple[str, ...] = ()
    """Frozen keys that may differ all the same."""
    command: Sequence[str] = ()


def look(config: Any, choices: Choices) -> Decision:
    """What `run` would do with the folder as it is now. Writes nothing."""
    return RunFolder(Path(config.output.directory)).decide(
        config,
        lambda path: load_config(path, check_files=False),
        diff_configs,
        stop=config.time.stop,
        overwrite=choices.overwrite,
        allow=choices.allow,
    )


def execute(
    simulation: Simulation,
    choices: Choices = Choices(),
    log: RunLog | None = None,
    signals: SignalFlags | None = None,
    claimed: Callable[[], object] = lambda: None,
) -> int:
    """Runs `simulation` in its output directory. Returns the exit code: 0 finished, 3 stopped early.

    `signals`: the flags of one who listens already; else this listens, while the run goes on. `claimed` is called
    when the folder is this run's, so that more may be written there.

    Called by every process; process 0 holds the folder and decides. Raises UserError where the folder refuses
    (nothing was written) and RunFailure where the run failed.
    """
    cluster = simulation.cluster
    log = log or RunLog(quiet=not cluster.is_first)
    run = _Run(simulation, choices, log, signals)
    return run.all_agree(claimed)


class _Run:
    """One start of a run on one process."""

    def __init__(self, simulation: Simulation, choices: Choices, log: RunLog, signals: SignalFlags | None):
        self.simulation, self.choices, self.log, self.signals = simulation, choices, log, signals
        self.config, self.cluster = simulation.config, simulation.cluster
        self.folder = Path(self.config.output.directory)
        self.lock: RunLock | None = None
        self.began = time.monotonic()
        self.last_state = 0.0
        self.seconds_before = 0.0

    def all_agree(self, claimed: Callable[[], object]) -> int:
        decision = self._decision(lambda: look(self.config, self.choices))
        decision.raise_if_refused()
        if decision.action is Action.START:
            # Before the folder is touched: a refused initial condition writes nothing.
            self.simulation.check_start()
            check_kinds(self.simulation)
        decision = self._decision(self._claim)
        for line in decision.lines:
            self.log.say(line)
        if decision.action is Action.FINISHED:
            return 0
        if decision.action is Action.CONTINUE and (state := read_state(self.folder)) is not None:
            self.seconds_before = state.seconds
        try:
            claimed()
            return self._locked(decision)
        except (RunFailure, OSError) as error:
            self._check()  # what an orphan misses was removed by who took the run over: say that
            self._failed(reason(error))
            raise RunFailure(reason(error)) from error
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")
            raise
        finally:
            if self.lock is not None:
                self.lock.release()
            self.log.close()

    def _together(self, action: Callable[[], Any]) -> Any:
        """The JSON value that process 0 finds, or the error that it meets, on every process."""
        answer: dict[str, Any] = {}
        if self.cluster.is_first:
            try:
                answer = {"found": action()}
            except UserError as error:
                answer = {"refused": str(error)}
            except (RunFailure, OSError) as error:
                answer = {"failed": reason(error)}
        answer = self.cluster.broadcast(answer)
        if "refused" in answer:
            raise UserError(answer["refused"])
        if "failed" in answer:
            raise RunFailure(answer["failed"])
        return answer["found"]

    def _decision(self, action: Callable[[], Decision]) -> Decision:
        found = self._together(lambda: asdict(action()))
        return Decision(Action(found["action"]), tuple(found["lines"]), found["clear"])

    def _claim(self) -> Decision:
        self.lock, decision = claim(
            RunFolder(self.folder), os.environ, lambda: look(self.config, self.choices)
        )
        if self.lock is not None and self.lock.takeover:
            self.log.say(self.lock.takeover)
        return decision

    def _locked(self, decision: Decision) -> int:
        chosen: Path | None = None
        if decision.action is Action.CONTINUE:
            name = self._together(self._choose)
            chosen = Path(name) if name else None
            if chosen is None:
                self.simulation.check_start()
        self._together(self._prepare)
        schedule = self._schedule(chosen)
        writer = Writer(self.cluster, check=lambda: self._before_commit(output))
        output = Output(self.simulation, self.folder, writer, self._check, self._inside())
        if chosen is not None:
            step = int(self.simulation.state.step)
            self._together(lambda: self._forget_after(output, step))
        first = float(schedule.start_time)
        log = self.log
        with (
            contextlib.closing(writer),
            contextlib.closing(output),
            contextlib.nullcontext(self.signals) if self.signals else SignalFlags() as signals,
            Watchdog(self.config.run.watchdog, self._name()) as watchdog,
            Progress(log, first, self.config.time.stop, max_steps=self.config.time.max_steps) as progress,
        ):
            self._announce()
            watch = Watch(signals, *self._deadline())

            def wake(moment: Moment) -> None:
                progress.update(moment.step, moment.time, moment.dt)
                advanced = moment.step > self.first_step
                output.write(lambda: self._tell("running", moment, first, advanced=advanced))

            loop = Loop(
                self.simulation,
                schedule,
                output,
                writer,
                watch,
                progress=wake,
                committed=lambda folder: output.write(lambda: self._committed(folder)),
                alive=lambda: watchdog.feed("the last wake of the loop"),
            )
            self.first_step = int(self.simulation.state.step)
            outcome = loop.run(continued=chosen is not None)
        return self._ended(outcome, first, output.cost)

    # ---- before the loop ---------------------------------------------------------------------------------

    def _choose(self) -> str | None:
        """The newest checkpoint that verifies; says which ones were skipped."""
        for name in ("snapshots", "checkpoints"):
            for line in clean_leftovers(self.folder / name):
                self.log.say(line)
        chosen, lines = choose_checkpoint(self.folder, committed(self.folder / "checkpoints"), _problem)
        for line in lines:
            self.log.say(line)
        if chosen is None:
            RunFolder(self.folder).clear()
        return str(chosen) if chosen else None

    def _prepare(self) -> None:
        folder = RunFolder(self.folder)
        self.log.open(self.folder / "run.log")
        for line in (*folder.remove_leftovers(), *_indices_made(self.folder / "snapshots")):
            self.log.say(line)
        self.simulation.inputs.keep(self.folder / "inputs")
        folder.write_config(dump_config(self.config))
        self._record()

    def _record(self) -> None:
        cluster, transform = self.cluster, self.simulation.transform
        provenance.record(
            self.folder,
            provenance.collect(
                self.choices.command or sys.argv,
                os.environ,
                devices={
                    "platform": cluster.platform,
                    "kind": cluster.devices[0].device_kind,
                    "count": len(cluster.devices),
                    "processes": cluster.num_processes,
                    "source": cluster.allocation.source,
                },
                mesh={
                    "axes": dict(transform.layout.mesh.shape),
                    "transform": transform.name,
                    "physical": str(transform.physical.spec),
                    "spectral": str(transform.layout.spec),
                    "order": transform.layout.order,
                    "choice": self.simulation.choice,
                },
                environment_set=cluster.environment.made,
            ),
        )

    def _schedule(self, chosen: Path | None) -> Schedule:
        """The schedule, after loading the checkpoint that the run continues from."""
        settings, simulation = self.config.time, self.simulation
        found = events(self.config.output)
        if chosen is None:
            return Schedule(found, settings.stop, max_steps=settings.max_steps)
        state = checkpoint.load(
            chosen, simulation.template, simulation.transform, own_transforms(simulation.model)
        )
        stored = open_snapshot(chosen).attributes
        if stored["fixed_dt"] != (simulation.time_step.fixed or 0.0):
            # With a fixed dt the time is origin + since * dt: another dt counts from here.
            state = replace(state, origin=state.time + 0, since=state.since * 0)
        simulation.state = state
        time, dt = float(state.time), float(state.dt)
        return Schedule.restored(found, settings.stop, stored["schedule"], time, dt, settings.max_steps)

    def _forget_after(self, output: Output, step: int) -> None:
        """Removes what the interrupted run wrote after the checkpoint: the continued one writes it again.

        Later checkpoints are damaged, else the run would continue from them. Should their disk come to its senses,
        a later start must not return to what is no longer this run's past.
        """
        removed = output.truncate(step)
        for name in ("snapshot", "checkpoint"):
            for folder in committed(self.folder / f"{name}s"):
                if int(folder.name) > step:
                    remove(folder)
                    removed.append(f"{name} {folder.name}")
        if removed:
            self.log.say(f"removed what is later than step {step}: {', '.join(removed)}")

    def _deadline(self) -> tuple[Path | None, float | None, float]:
        if not self.cluster.is_first:
            return None, None, 0.0
        return self.folder, job_deadline(os.environ, time.time()), LEAD

    def _announce(self) -> None:
        simulation, cluster = self.simulation, self.cluster
        shape = " x ".join(map(str, simulation.grid.shape))
        devices, kind = len(cluster.devices), cluster.devices[0].device_kind
        processes = f" in {cluster.num_processes} processes" if cluster.num_processes > 1 else ""
        self.log.say(
            f"{self.config.name}: {self.config.model.kind}, {shape}, {self.config.precision} precision, "
            f"{devices} {kind} device{'s' if devices > 1 else ''}{processes}, {simulation.transform.name}"
        )

    def _inside(self) -> dict[str, Any]:
        """What every snapshot says about the run that wrote it."""
        found = provenance.read(self.folder) if self.cluster.is_first else {}
        found.pop("earlier", None)
        return {"configuration": dump_config(self.config), "provenance": self.cluster.broadcast(found)}

    # ---- during and after the loop -----------------------------------------------------------------------

    def _committed(self, folder: Path) -> None:
        if folder.parent.name == "checkpoints":
            self.last_checkpoint = (
                int(folder.name),
                open_snapshot(folder).time,
            )
            self.last_state = 0.0

    last_checkpoint: tuple[int, float] | None = None
    first_step = 0

    def _tell(
        self, state: Any, moment: Moment, first: float, *, advanced: bool, reason: str | None = None
    ) -> None:
        """Writes state.json, at most once in two seconds while the run goes on."""
        now = time.monotonic()
        if not self.cluster.is_first or (state == "running" and now - self.last_state < 2):
            return
        self.last_state = now
        before = read_state(self.folder)
        known = (before.last_checkpoint, before.last_checkpoint_time) if before else (None, None)
        step, at = self.last_checkpoint or known
        array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
        job = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")
        write_state(
            self.folder,
            RunState(
                state=state,
                step=moment.step,
                time=moment.time,
                stop=self.config.time.stop,
                percent=percent(first, moment.time, self.config.time.stop),
                steps_per_second=moment.steps_per_second,
                dt=moment.dt,
                job_id=job,
                restart_count=int(os.environ.get("SLURM_RESTART_COUNT", "0") or 0),
                last_checkpoint=step,
                last_checkpoint_time=at,
                advanced=advanced,
                seconds=round(self.seconds_before + now - self.began, 3),
                reason=reason,
            ),
        )

    def _check(self) -> None:
        """Raises RunFailure where another start has taken the folder over: an orphan writes nothing more."""
        if self.lock is not None:
            self.lock.check()

    def _before_commit(self, output: Output) -> None:
        self._check()
        output.sync()

    def _failed(self, reason: str) -> None:
        if self.lock is None or not self.lock.still_mine():
            return
        with contextlib.suppress(OSError):
            state = read_state(self.folder)
            moment = Moment(state.step, state.time, state.dt, 0.0) if state else Moment(0, 0.0, 0.0, 0.0)
            self._tell("failed", moment, 0.0, advanced=moment.step > self.first_step, reason=reason)
            self.log.note(reason)

    def _ended(self, outcome: Outcome, first: float, cost: Mapping[str, float]) -> int:
        finished = outcome.ended == "finished"
        self._tell(outcome.ended, outcome.moment, first, advanced=outcome.steps > 0, reason=outcome.reason)
        words = f"t = {outcome.moment.time:g}, step {outcome.moment.step}"
        text = f"finished at {words}" if finished else f"stopped at {words}: {outcome.reason}"
        again, more, check = (
            [*typed(), command, str(_short(self.folder))] for command in ("plot", "resume", "verify")
        )
        if self.cluster.is_first:
            for line in summary(
                _short(self.folder),
                outcome=text,
                steps=outcome.steps,
                wall=time.monotonic() - self.began,
                stepping=outcome.seconds,
                points=self.simulation.grid.points,
                devices=len(self.cluster.devices),
                output=cost,
                next_commands=[again, check] if finished else [more, again],
            ):
                self.log.say(line)
        return 0 if finished else 3

    def _name(self) -> str:
        return describe(self.cluster.process_id, self.cluster.num_processes)


def _problem(checkpoint: Path) -> str | None:
    """Why a checkpoint cannot be restored."""
    try:
        found = [file for file in verify(checkpoint).problems if not file.derived]
    except UserError as error:  # another program's, or another version's
        return str(error).removeprefix(f"{checkpoint / MANIFEST}: ")
    return f"{found[0].file.relative_to(checkpoint)}: {found[0].problem}" if found else None


def _indices_made(parent: Path) -> list[str]:
    """Makes the indices that a killed run did not come to make; a line for each."""
    lines: list[str] = []
    for folder in committed(parent):
        with contextlib.suppress(UserError, RunFailure):  # a damaged snapshot is verify's to report
            made = rebuild_index(folder, open_snapshot(folder).manifest)
            lines += [f"{path}: was missing, made again" for path in made]
    return lines


def _short(path: Path) -> Path:
    """Relative to the current folder where it lies below it."""
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path
