"""Executes one start of a run: claims the folder, starts or continues, takes the steps, completes
the files."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from simulator.archive import provenance
from simulator.archive.ledger import Ledger
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.run_state import StateName
from simulator.archive.run_writer import Output
from simulator.archive.series_recorder import measured_series
from simulator.archive.snapshot_writer import Writer
from simulator.cluster import energy
from simulator.cluster.failure import Watchdog, describe, lost_another, to_log_file
from simulator.config import dump_config
from simulator.errors import RunFailure
from simulator.files import UNRECORDED, Journal, checksum, out_of_memory, pieces_of, reason
from simulator.physics.models.split_equation import background_of
from simulator.run.folder import USUAL, Action, Choices, Decision, RunFolder, claim, shared_decision
from simulator.run.lock import RunLock
from simulator.run.log import RunLog
from simulator.run.loop import Loop, Outcome
from simulator.run.prepare import find_start, headline, prepare_folder, take_up
from simulator.run.progress import Progress, ending_lines
from simulator.run.refusals import check_memory, check_messages, decision_of
from simulator.run.run_status import job_of, remember_job, waiting_job
from simulator.run.signals import End, Flag, SignalFlags, Watch, job_deadline, lead
from simulator.run.state_file import StateFile
from simulator.simulation.advance import NO_STEPS
from simulator.simulation.compiling import Compilable, Compiling
from simulator.simulation.initial_state import outlook_of_start, outlook_of_terms
from simulator.simulation.simulation import Simulation
from simulator.stopwatch import Stopwatch

STEPS = "the loop over steps"


def execute(
    simulation: Simulation,
    choices: Choices = USUAL,
    log: RunLog | None = None,
    signals: SignalFlags | None = None,
    spent: Stopwatch | None = None,
    decision: Decision | None = None,
    logs: bool = False,
) -> int:
    """Runs `simulation` in its output directory. Returns the exit code: 0 finished, 3 stopped
    early.

    `signals`: the caller's signal flags; by default this function installs flags while the run goes
    on. `spent` has counted the time since the program began, for the summary at the end.
    `decision`: on what the processes have decided from the contents of the folder, if they have.
    `logs`: of several processes each writes its messages to a file of its own in RUN/logs.

    Every process calls this; process 0 holds the folder and decides. Raises UserError if the folder
    is refused, before anything is written, and RunFailure if the run fails."""
    cluster = simulation.cluster
    log = log or RunLog(quiet=not cluster.is_first)
    run = _Run(simulation, choices, log, signals, spent or Stopwatch())
    with contextlib.closing(run):
        decision = run.claim(decision or shared_decision(cluster, run.look))
        if decision.action is Action.FINISHED:
            return 0
        with run.failures_recorded():
            if logs and cluster.num_processes > 1:
                to_log_file(run.folder / "logs", cluster.process_id, cluster.num_processes)
            checkpoint = run.checkpoint() if decision.action is Action.CONTINUE else None
            outcome = run.take_steps(checkpoint)
            return run.complete(outcome)


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
        self.output: Output | None = None
        self.state_file = StateFile(self.folder, self.config.time.stop)
        self.spent = spent
        self.compiling = Compiling(together=self.cluster.num_processes == 1)
        self.meter = energy.meter_of(self.cluster)

    def close(self) -> None:
        self.meter.close()
        self.compiling.close()
        if self.lock is not None:
            self.lock.release()
        self.log.close()

    def look(self) -> Decision:
        return decision_of(self.config, self.choices)

    def claim(self, decision: Decision) -> Decision:
        """The decision under the lock of the folder, which process 0 holds from then on. Raises
        UserError, before anything is written, for a run that cannot begin."""
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
            decision = shared_decision(self.cluster, self._lock)
        for line in (*decision.lines, *changes):
            self.log.say(line)
        if decision.action is Action.CONTINUE:
            self.state_file.continues()
        return decision

    def _lock(self) -> Decision:
        lock, decision = claim(RunFolder(self.folder), os.environ, self.look, say=self.log.say)
        self.lock = lock
        if lock is not None and lock.takeover:
            self.log.say(lock.takeover)
        if lock is not None and (job := waiting_job(self.folder, os.environ)):
            self.log.say(
                f"warning: job {job} of this run waits in Slurm's queue and continues it when it "
                f"starts; scancel {job} leaves the run to this process"
            )
        if lock is not None and (job := job_of(os.environ)):
            remember_job(self.folder, job)
        return decision

    @contextlib.contextmanager
    def failures_recorded(self) -> Iterator[None]:
        """Records an error of the run in its state file; an error of the machine becomes a
        RunFailure."""
        try:
            yield
        except (RunFailure, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:
            memory = out_of_memory(error)
            if isinstance(error, jax.errors.JaxRuntimeError) and memory is None:
                self._ended(*self._lost(error))
                raise
            # Raises another error if another start has taken the run over and removed files.
            with contextlib.suppress(OSError):
                self._check()
            line = f"{memory}; all earlier output is intact" if memory else reason(error)
            self._ended("failed", line)
            raise RunFailure(line) from error
        except Exception as error:
            self._ended("failed", f"{type(error).__name__}: {error}")
            raise

    def _lost(self, error: Exception) -> tuple[StateName, str]:
        """The state and the reason of a run that an error of the runtime ends. Processes that are
        asked to stop while they compile may be killed at different times."""
        if not lost_another(error):
            return "failed", f"{type(error).__name__}: {error}"
        if self.signals is None or not self.signals.received:
            return "failed", "another process has disappeared"
        name = signal.Signals(self.signals.received).name
        return "stopped", f"{name}; another process ended before all could stop"

    def checkpoint(self) -> Path | None:
        """The checkpoint from which the run continues; None if it begins anew."""
        checkpoint = self.cluster.together(lambda: find_start(self.config, self.choices, self.log))
        if checkpoint:
            return Path(checkpoint)
        self._check_start()
        return None

    def take_steps(self, checkpoint: Path | None) -> Outcome:
        """Takes the steps from the checkpoint, or from the start, and writes the output."""
        simulation = self.simulation
        self.cluster.together(self._prepare)
        writer = Writer(self.cluster, check=self._before_commit, announce=self._announce_save)
        output = Output(simulation, self.folder, writer, self._check, self._inside(), self._journal)
        self.output = output
        schedule = take_up(simulation, checkpoint, output, self._journal, self.log)
        flags = self.signals or SignalFlags(within=self.config.run.stop_within, name=self.name)
        progress = Progress(
            self.log,
            float(schedule.start_time),
            schedule.stop_time,
            schedule.max_steps,
            background_of(simulation.model),
        )
        with (
            contextlib.closing(writer),
            contextlib.closing(output),
            contextlib.nullcontext(flags) if self.signals else flags as signals,
            self._watchdog() as watchdog,
            progress,
        ):
            for line in (headline(simulation), *outlook_of_terms(simulation.model)):
                self.log.say(line)
            watch = self._watch(signals)
            with self.spent.on("compilation"):
                ready = self.compiling.finish(self._largest() | output.programs(), self.log.say)
            output.use(ready)
            self.spent.started()
            continued = checkpoint is not None
            first_step = int(simulation.state.step)
            self.state_file.begin(float(schedule.start_time), first_step, continued=continued)
            loop = Loop(
                simulation,
                schedule,
                output,
                writer,
                watch,
                advance=ready[STEPS],
                watchdog=watchdog,
                progress=progress,
                state_file=self.state_file,
                spent=self.spent,
            )
            outcome = loop.run(continued=continued)
            with self.spent.on("waiting for files"):
                writer.close()
        return outcome

    def complete(self, outcome: Outcome) -> int:
        """Records the end of the run, and says it. Returns the exit code."""
        joules = energy.by_source(self.cluster.gather(self.meter.joules()))
        if self.cluster.is_first:
            joules |= energy.of_step(os.environ)
            self.state_file.took(joules)
            self.state_file.write(outcome.ended, outcome.moment, outcome.reason)
            for line in ending_lines(self.simulation, outcome, self.spent.parts, joules):
                self.log.say(line)
            if self.ledger is not None:
                # The last time in this start; only the state file, which counts the versions, is
                # written afterwards.
                self.ledger.mark(ended=outcome.ended)
            self.state_file.write(outcome.ended, outcome.moment, outcome.reason)
        return 0 if outcome.ended == "finished" else 3

    @property
    def _journal(self) -> Journal:
        """The ledger on process 0; on the other processes a journal that ignores changes."""
        return self.ledger or UNRECORDED

    def _check_start(self) -> None:
        with self.spent.on("initial condition"), self._watchdog():
            self.simulation.check_start()
        if self.cluster.is_first:
            simulation = self.simulation
            lines = outlook_of_start(self.config, simulation.model, simulation.inputs)
            self.log.say("\n".join(line for line in lines if line.startswith("warning")))

    def _watchdog(self) -> Watchdog:
        return Watchdog(self.config.run.watchdog, self.name)

    def _watch(self, signals: SignalFlags) -> Watch:
        if not self.cluster.is_first:
            return Watch(signals)
        ends: dict[Flag, End] = {}
        now = time.time()
        if (job := job_deadline(os.environ, now)) is not None:
            end, limit = job
            ends[Flag.DEADLINE] = End(end - now, lead(limit))
        if (limit := self.config.run.wall_time) is not None:
            left = limit - sum(self.spent.parts.values())
            ends[Flag.WALL_TIME] = End(left, lead(limit, self.config.run.stop_within))
        return Watch(signals, self.folder, ends)

    def _prepare(self) -> None:
        self.ledger = prepare_folder(self.simulation, self.choices, self.log, self._check)
        self.state_file.ledger = self.ledger

    def _largest(self) -> dict[str, Compilable]:
        """The programs whose compilation takes longest."""
        simulation = self.simulation
        state = simulation.placed_template
        loop = Compilable(simulation.advance, (state, NO_STEPS), often=True)
        return {STEPS: loop, "diagnostics": Compilable(simulation.diagnostics, (state,))}

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

    def _before_commit(self) -> None:
        self._check()
        if self.config.run.sync and self.output is not None:
            self.output.sync()
        if self.ledger is not None:
            self.ledger.mark(now=True)

    def _announce_save(self, temporary: Path, target: Path) -> None:
        size, digest = checksum(pieces_of(temporary / MANIFEST))
        self._journal.writing(target / MANIFEST, size, digest)

    def _ended(self, how: StateName, reason: str) -> None:
        with contextlib.suppress(OSError):
            if self.lock is None or not self.lock.still_mine():
                return
            self.log.say(reason, shown=False)
            with contextlib.suppress(OSError, RunFailure):  # the state file is written in any case
                if self.ledger is not None:
                    self.ledger.mark(ended=how)
            self.state_file.ended(how, reason)
