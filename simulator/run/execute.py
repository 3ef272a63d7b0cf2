"""Executes one start of a run: claims the folder, starts or continues, takes the steps, completes
the files."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax

from simulator.archive import provenance
from simulator.archive.ledger import Ledger
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.run_state import RunState, StateName, percent, read_state, write_state
from simulator.archive.run_writer import Output
from simulator.archive.series_recorder import measured_series
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.snapshot_writer import Writer
from simulator.cluster.failure import Watchdog, describe, to_log_file
from simulator.cluster.start import Cluster
from simulator.cluster.variables import whole_number
from simulator.config import dump_config
from simulator.errors import RunFailure
from simulator.files import UNRECORDED, Journal, checksum, out_of_memory, pieces_of, reason
from simulator.physics.models.split_equation import background_of
from simulator.run.folder import USUAL, Action, Choices, Decision, RunFolder, claim, stored_config
from simulator.run.lock import RunLock
from simulator.run.log import RunLog
from simulator.run.loop import Loop, Outcome
from simulator.run.prepare import (
    find_start,
    forget_after,
    headline,
    moment_of,
    prepare_folder,
    take_up,
)
from simulator.run.progress import Progress, redshift_of, summary, typed
from simulator.run.refusals import check_memory, check_messages, decision_of
from simulator.run.run_status import job_of, waiting_job
from simulator.run.schedule import Moment, Schedule
from simulator.run.signals import SignalFlags, Watch, job_deadline, lead
from simulator.simulation.advance import NO_STEPS
from simulator.simulation.compiling import Compilable, Compiling
from simulator.simulation.simulation import Simulation
from simulator.stopwatch import Stopwatch
from simulator.words import short

STEPS = "the loop over steps"


def execute(
    simulation: Simulation,
    choices: Choices = USUAL,
    log: RunLog | None = None,
    signals: SignalFlags | None = None,
    spent: Stopwatch | None = None,
    logs: bool = False,
) -> int:
    """Runs `simulation` in its output directory. Returns the exit code: 0 finished, 3 stopped
    early.

    `signals`: the caller's signal flags; by default this function installs flags while the run goes
    on. `spent` has counted the time since the program began, for the summary at the end. `logs`: of
    several processes each writes its messages to a file of its own in RUN/logs.

    Every process calls this; process 0 holds the folder and decides. Raises UserError if the folder
    is refused, before anything is written, and RunFailure if the run fails."""
    cluster = simulation.cluster
    log = log or RunLog(quiet=not cluster.is_first)
    run = _Run(simulation, choices, log, signals, spent or Stopwatch())
    return run.all_agree(logs and cluster.num_processes > 1)


class _Run:
    """One start of a run on one process."""

    def __init__(
        self,
        simulation: Simulation,
        choices: Choices,
        log: RunLog,
        signals: SignalFlags | None,
        spent: Stopwatch,
    ):
        self.simulation = simulation
        self.choices = choices
        self.log = log
        self.signals = signals
        self.config = simulation.config
        self.cluster = simulation.cluster
        self.name = describe(self.cluster.process_id, self.cluster.num_processes)
        self.folder = Path(self.config.output.directory)
        self.lock: RunLock | None = None
        self.ledger: Ledger | None = None
        self.state_file = StateFile(self.folder, self.config.time.stop)
        self.spent = spent
        self.compiling = Compiling(together=self.cluster.num_processes == 1)

    def all_agree(self, logs: bool) -> int:
        decision = self._decision(self._look)
        decision.raise_if_refused()
        changes: list[str] = []
        if decision.action is not Action.FINISHED:
            check_memory(self.simulation)
            check_messages(self.simulation)
            measured_series(self.simulation)
            # The shapes of particles are known only after their start, and several processes
            # compile in one order.
            if self.cluster.num_processes == 1 and not self.simulation.populations:
                with self.spent.on("compilation"):
                    self.compiling.begin(self._largest())
            # Before the folder is claimed, because a refused initial condition must write nothing.
            if decision.action is Action.START:
                self._check_start()
            else:
                inputs = self.simulation.inputs
                changes = self.cluster.together(lambda: inputs.compare(self.folder / "inputs"))
            decision = self._decision(self._claim)
        for line in (*decision.lines, *changes):
            self.log.say(line)
        if decision.action is Action.FINISHED:
            return 0
        if decision.action is Action.CONTINUE:
            self.state_file.continues()
        try:
            if logs:
                cluster = self.cluster
                to_log_file(self.folder / "logs", cluster.process_id, cluster.num_processes)
            return self._locked(decision)
        except (RunFailure, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:
            memory = out_of_memory(error)
            if isinstance(error, jax.errors.JaxRuntimeError) and memory is None:
                self._failed(f"{type(error).__name__}: {error}")
                raise
            # Raises another error if another start has taken the run over and removed files.
            with contextlib.suppress(OSError):
                self._check()
            line = f"{memory}; all earlier output is intact" if memory else reason(error)
            self._failed(line)
            raise RunFailure(line) from error
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.compiling.close()
            if self.lock is not None:
                self.lock.release()
            self.log.close()

    @property
    def journal(self) -> Journal:
        """The ledger on process 0; on the other processes a journal that ignores changes."""
        return self.ledger or UNRECORDED

    def _decision(self, action: Callable[[], Decision]) -> Decision:
        return shared_decision(self.cluster, action)

    def _look(self) -> Decision:
        return decision_of(self.config, self.choices)

    def _claim(self) -> Decision:
        self.lock, decision = claim(
            RunFolder(self.folder), os.environ, self._look, say=self.log.say
        )
        if self.lock is not None and self.lock.takeover:
            self.log.say(self.lock.takeover)
        if self.lock is not None and (job := waiting_job(self.folder, os.environ)):
            self.log.say(
                f"warning: job {job} of this run waits in Slurm's queue and continues it when it "
                f"starts; scancel {job} leaves the run to this process"
            )
        return decision

    def _locked(self, decision: Decision) -> int:
        chosen = self._checkpoint() if decision.action is Action.CONTINUE else None
        self.cluster.together(self._prepare)
        schedule = take_up(self.simulation, chosen)
        writer = Writer(
            self.cluster, check=lambda: self._before_commit(output), announce=self._announce_save
        )
        output = Output(
            self.simulation,
            self.folder,
            writer,
            self._check,
            self._inside(),
            self.journal,
        )
        if chosen is not None:
            moment = moment_of(self.simulation.state)
            for line in output.restore(chosen, stored_config(chosen), schedule.met(moment)):
                self.log.say(line)
            step = int(self.simulation.state.step)
            self.cluster.together(
                lambda: forget_after(self.folder, output, step, self.journal, self.log)
            )
        with contextlib.closing(writer), contextlib.closing(output):
            outcome = self._take_steps(schedule, output, writer, continued=chosen is not None)
        return self._ended(outcome)

    def _take_steps(
        self, schedule: Schedule, output: Output, writer: Writer, continued: bool
    ) -> Outcome:
        """Takes the steps, watched over by signals, watchdog and progress."""
        first = float(schedule.start_time)
        settings = self.config.time
        box = background_of(self.simulation.model)
        flags = self.signals or SignalFlags(within=self.config.run.stop_within, name=self.name)
        with (
            contextlib.nullcontext(flags) if self.signals else flags as signals,
            self._watchdog() as watchdog,
            Progress(self.log, first, settings.stop, settings.max_steps, box) as progress,
        ):
            self.log.say(headline(self.simulation))
            watch = Watch(signals, *self._deadline())

            def wake(moment: Moment) -> None:
                # The write checks the lock: after a takeover the log belongs to another start, too.
                output.write(lambda: self.state_file.running(moment))
                if output.trouble is None:
                    progress.update(moment)

            def committed(folder: Path) -> None:
                output.write(partial(self.state_file.committed, folder))

            with self.spent.on("compilation"):
                ready = self.compiling.finish(self._largest() | output.programs(), self.log.say)
            output.use(ready)
            loop = Loop(
                self.simulation,
                schedule,
                output,
                writer,
                watch,
                watchdog,
                ready[STEPS],
                self.spent,
                wake,
                committed,
            )
            self.spent.started()
            self.state_file.begin(first, int(self.simulation.state.step), continued=continued)
            outcome = loop.run(continued=continued)
            with self.spent.on("waiting for files"):
                writer.close()
        return outcome

    def _checkpoint(self) -> Path | None:
        """The checkpoint from which the run continues; None if it begins anew."""
        checkpoint = self.cluster.together(lambda: find_start(self.config, self.choices, self.log))
        if checkpoint:
            return Path(checkpoint)
        self._check_start()
        return None

    def _check_start(self) -> None:
        with self.spent.on("initial condition"), self._watchdog():
            self.simulation.check_start()

    def _watchdog(self) -> Watchdog:
        return Watchdog(self.config.run.watchdog, self.name)

    def _prepare(self) -> None:
        self.ledger = prepare_folder(self.simulation, self.choices, self.log, self._check)
        self.state_file.ledger = self.ledger

    def _largest(self) -> dict[str, Compilable]:
        """The programs whose compilation takes longest."""
        simulation = self.simulation
        state = simulation.placed_template
        loop = Compilable(simulation.advance, (state, NO_STEPS), often=True)
        return {STEPS: loop, "diagnostics": Compilable(simulation.diagnostics, (state,))}

    def _deadline(self) -> tuple[Path | None, float | None, float]:
        if not self.cluster.is_first:
            return None, None, 0.0
        now = time.time()
        end = job_deadline(os.environ, now)
        return (
            (self.folder, None, 0.0) if end is None else (self.folder, end[0] - now, lead(end[1]))
        )

    def _inside(self) -> dict[str, Any]:
        """Attributes of every snapshot that describe the run."""
        recorded = provenance.read(self.folder) if self.cluster.is_first else {}
        recorded.pop("earlier", None)
        return {
            "configuration": dump_config(self.config),
            "provenance": self.cluster.broadcast(recorded),
        }

    def _check(self) -> None:
        """Raises RunFailure if another start has taken over the folder, where this process must not
        write then."""
        if self.lock is not None:
            self.lock.check()

    def _before_commit(self, output: Output) -> None:
        self._check()
        if self.config.run.sync:
            output.sync()
        if self.ledger is not None:
            self.ledger.mark(now=True)

    def _announce_save(self, temporary: Path, target: Path) -> None:
        size, digest = checksum(pieces_of(temporary / MANIFEST))
        self.journal.writing(target / MANIFEST, size, digest)

    def _failed(self, reason: str) -> None:
        with contextlib.suppress(OSError):
            if self.lock is None or not self.lock.still_mine():
                return
            self.log.say(reason, shown=False)
            with contextlib.suppress(OSError, RunFailure):  # the state file is written in any case
                if self.ledger is not None:
                    self.ledger.mark(ended="failed")
            self.state_file.failed(reason)

    def _ended(self, outcome: Outcome) -> int:
        if self.cluster.is_first:
            self.state_file.write(outcome.ended, outcome.moment, outcome.reason)
            self._say_summary(outcome)
            if self.ledger is not None:
                # The last time in this start; only the state file, which counts the versions, is
                # written afterwards.
                self.ledger.mark(ended=outcome.ended)
            self.state_file.write(outcome.ended, outcome.moment, outcome.reason)
        return 0 if outcome.ended == "finished" else 3

    def _say_summary(self, outcome: Outcome) -> None:
        finished = outcome.ended == "finished"
        z = redshift_of(background_of(self.simulation.model), outcome.moment.time)
        words = f"t = {outcome.moment.time:g}{z}, step {outcome.moment.step}"
        text = f"finished at {words}" if finished else f"stopped at {words}: {outcome.reason}"
        commands = ("plot", "report", "verify") if finished else ("resume", "plot", "report")
        for line in summary(
            short(self.folder),
            outcome=text,
            steps=outcome.steps,
            stepping=outcome.seconds,
            points=self.simulation.grid.points,
            devices=len(self.cluster.devices),
            spent=self.spent.parts,
            next_commands=[[*typed(), name, str(short(self.folder))] for name in commands],
        ):
            self.log.say(line)


def shared_decision(cluster: Cluster, action: Callable[[], Decision]) -> Decision:
    """The decision of process 0, on every process."""
    decided = cluster.together(lambda: asdict(action()))
    return Decision(Action(decided["action"]), tuple(decided["lines"]), decided["clear"])


EVERY = 2.0  # Seconds between two writes of the state file while the run goes on.


class StateFile:
    """Writes `state.json` for one start of a run, on process 0."""

    def __init__(self, folder: Path, stop: float):
        """`stop` is the simulation time at which the run ends."""
        restarts = whole_number(os.environ.get("SLURM_RESTART_COUNT")) or 0
        self._state = RunState("running", 0, 0.0, stop, 0.0, 0.0, 0.0, job_of(os.environ), restarts)
        self._folder = folder
        self._began = time.monotonic()
        self._last = 0.0
        self._before = 0.0
        self._first_time = 0.0
        self._first_step = 0
        self.ledger: Ledger | None = None
        """The run's ledger, once it is open; the state file records how often the ledger was
        written."""

    def continues(self) -> None:
        """Take over the position, the checkpoint and the wall time of earlier starts from the
        existing file."""
        if (state := read_state(self._folder)) is not None:
            self._before = state.seconds
            fields = ("step", "time", "dt", "last_checkpoint", "last_checkpoint_time")
            self._state = replace(self._state, **{name: getattr(state, name) for name in fields})

    def begin(self, first_time: float, first_step: int, *, continued: bool) -> None:
        """The run began at `first_time`; this start takes its steps from `first_step` on."""
        self._first_time = first_time
        self._first_step = first_step
        if not continued:
            self._state = replace(self._state, last_checkpoint=None, last_checkpoint_time=None)

    def committed(self, folder: Path) -> None:
        """Record a committed checkpoint; `folder` may also be a snapshot."""
        if folder.parent.name == "checkpoints":
            at = open_snapshot(folder).time
            self._state = replace(
                self._state, last_checkpoint=int(folder.name), last_checkpoint_time=at
            )
            self._last = 0.0

    def running(self, moment: Moment) -> None:
        """Write the state of a run that goes on, at most every two seconds."""
        if time.monotonic() - self._last < EVERY:
            return
        if self.ledger is not None:
            self.ledger.mark()
        self.write("running", moment)

    def write(self, how: StateName, moment: Moment, reason: str | None = None) -> None:
        self._last = now = time.monotonic()
        self._state = replace(
            self._state,
            **moment._asdict(),
            state=how,
            reason=reason,
            percent=percent(self._first_time, moment.time, self._state.stop),
            advanced=moment.step > self._first_step,
            seconds=round(self._before + now - self._began, 3),
            ledger=self.ledger.saves if self.ledger is not None else 0,
        )
        write_state(self._folder, self._state)
        if self.ledger is not None:
            self.ledger.state_written()

    def failed(self, reason: str) -> None:
        """Write the state of a run that has failed, with its last known position."""
        self.write("failed", Moment(self._state.step, self._state.time, self._state.dt), reason)
