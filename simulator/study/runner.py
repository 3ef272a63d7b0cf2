"""Executes the runs of a sweep on this machine, each in its own process, one after another or
several at once.

Each process is a `simulator run HASH/config.yaml`, which handles signals, the lock, restart and
exit codes. Runs that are stepped together share a process (`simulator.study.ensemble`)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from simulator.archive.run_state import CONFIG
from simulator.cluster.allocation import LAUNCHER
from simulator.cluster.hardware import has_gpu_plugin, present_gpus, visible_gpus
from simulator.cluster.launcher import Forwarding
from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.study import study_status
from simulator.study.runs import Group, SweepRun
from simulator.study.study_status import (
    LOG,
    MemberState,
    MemberStatus,
    last_line,
    read_record,
    status_of,
)
from simulator.study.sweep import Sweep
from simulator.study.sweep_progress import Display

CANNOT = 4  # Exit code of a batch that cannot be compiled: its runs have to run alone.
_POLL = 0.05
_LOOK = 1.0  # Interval in seconds at which stop files and the progress of the runs are polled.


@dataclass
class _Child:
    job: Group
    slot: "Slot"
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    log: Path
    began: float


def run_all(
    sweep: Sweep, jobs: Sequence[Group], *, at_once: int = 1, environ: Mapping[str, str]
) -> int:
    """Executes `jobs`, several at once. Returns 0 if all runs are done, 1 if a run failed, 3 if the
    runs were interrupted by a signal, which is forwarded to every run, or by the file
    OUTPUT/NAME/stop.

    The sweep must be prepared and locked."""
    runs = [run for job in jobs for run in job.runs]
    free = slots(min(at_once, max(len(jobs), 1)), [run.config for run in runs], environ)
    with Display(sweep, len(runs)) as display:
        running = _Running(sweep, jobs, free, environ, display)
        with Forwarding(running.stop):
            return running.to_the_end()


class _Running:
    """The waiting jobs of a sweep, its running processes, and the states of the ended runs."""

    def __init__(
        self,
        sweep: Sweep,
        jobs: Sequence[Group],
        free: Sequence["Slot"],
        environ: Mapping[str, str],
        display: Display,
    ):
        self._sweep = sweep
        self._environ = environ
        self._display = display
        self._waiting = deque(jobs)
        self._free = deque(free)
        self._children: list[_Child] = []
        self._results: list[MemberState] = []
        self._stopping = False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Sends the signal `number` to every run, so that it stops; SIGTERM for SIGHUP, which runs
        ignore."""
        self._stopping = True
        number = signal.SIGTERM if number == signal.SIGHUP else number
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.process.pid, number)

    def to_the_end(self) -> int:
        """Starts each job when a slot is free, until all jobs have ended; returns the exit code."""
        looked = float("-inf")
        try:
            while self._children or (self._waiting and not self._stopping):
                self._start_waiting()
                time.sleep(_POLL)
                for child in [
                    child for child in self._children if child.process.poll() is not None
                ]:
                    self._ended(child)
                if time.monotonic() - looked > _LOOK:
                    looked = time.monotonic()
                    stop = self._sweep.folder / "stop"
                    if not self._stopping and stop.exists():
                        stop.unlink(missing_ok=True)
                        self.stop()
                    for run in (run for child in self._children for run in child.job.runs):
                        self._display.update(run, status_of(run.folder))
        finally:
            for child in self._children:  # children are left only if this process fails
                child.process.kill()
                child.process.wait()
        if self._stopping:
            return 3
        return (
            1
            if MemberState.FAILED in self._results
            else 3 * (MemberState.INTERRUPTED in self._results)
        )

    def _start_waiting(self) -> None:
        while self._waiting and self._free and not self._stopping:
            job = _untaken(self._waiting.popleft(), self._display)
            if not job.runs:
                continue
            self._children.append(_start(self._sweep, job, self._free.popleft(), self._environ))
            for run in job.runs:
                self._display.begin(run)
            if self._stopping:  # a signal came while the process was being started
                self.stop()

    def _ended(self, child: _Child) -> None:
        self._children.remove(child)
        self._free.append(child.slot)
        child.output.close()
        runs = child.job.runs
        if child.job.together and child.process.returncode == CANNOT:
            self._display.say(
                f"{len(runs)} runs cannot be batched ({last_line(child.log)}): one by one"
            )
            self._waiting.extendleft(Group((run,)) for run in reversed(runs))
            return
        for run in runs:
            status, seconds = _finish(child, run, stopping=self._stopping)
            self._results.append(status.stage)
            self._display.end(run, f"{status.stage}: {status.detail}", seconds)


def _untaken(job: Group, display: Display) -> Group:
    """The job without runs that another process has started meanwhile. Finished runs keep their
    places among runs that are stepped together, and take no steps."""
    stages = {run.hash: status_of(run.folder).stage for run in job.runs}
    taken = {
        run.hash for run in job.runs if stages[run.hash] in (MemberState.RUNNING, MemberState.DONE)
    }
    if len(taken) < len(job.runs):
        taken = {hash_ for hash_ in taken if stages[hash_] is MemberState.RUNNING}
    for run in job.runs:
        if run.hash in taken:
            display.end(run, "started by another process", 0.0)
    return replace(job, runs=tuple(run for run in job.runs if run.hash not in taken))


def _start(sweep: Sweep, job: Group, slot: "Slot", environ: Mapping[str, str]) -> _Child:
    first = job.runs[0]
    if job.together:
        log = sweep.folder / "logs" / f"batch_{first.hash}.log"
        content = {"folders": [str(run.folder) for run in job.runs], "keys": job.keys}
        command = ["simulator.study.ensemble", json.dumps(content)]
    else:
        log = first.folder / "logs" / LOG
        command = ["simulator", "run", str(first.folder / CONFIG)]
    log.parent.mkdir(parents=True, exist_ok=True)
    output = log.open("wb")
    # With this process id in its environment, the run stops if this process dies.
    env = {**environ, **slot.environ, LAUNCHER: str(os.getpid())}
    # In a session of its own the run gets a terminal's Ctrl-C only by forwarding.
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    if slot.cores:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.sched_setaffinity(process.pid, slot.cores)
    for run in job.runs:
        study_status.begun(run.folder, process.pid, log, {})
    return _Child(job, slot, process, output, log, time.monotonic())


def _finish(child: _Child, run: SweepRun, *, stopping: bool) -> tuple[MemberStatus, float]:
    code = child.process.returncode
    seconds = time.monotonic() - child.began
    record = read_record(run.folder)
    if record is not None and record.code is None:  # a batch records the ends of its runs itself
        said = last_line(child.log)
        if code < 0:
            said = f"killed by {signal.Signals(-code).name}" + (f"; {said}" if said else "")
        if stopping and code not in (0, 1, 2, 3):
            code = 3  # the signal came before the run could handle it
        study_status.ended(run.folder, record, code, said)
    return status_of(run.folder), seconds


@dataclass(frozen=True)
class Slot:
    """A share of the machine: the cores to bind to (empty: no binding), and environment variables
    for GPUs."""

    cores: frozenset[int] = frozenset()
    environ: Mapping[str, str] = field(default_factory=dict)


def slots(jobs: int, configs: Sequence[RunConfig], environ: Mapping[str, str]) -> list[Slot]:
    """`jobs` shares of the machine. With `devices.count: auto` a run uses all devices of its share.

    Raises UserError if there are fewer GPUs than concurrent runs."""
    if jobs == 1:
        return [Slot()]
    cores = sorted(os.sched_getaffinity(0))
    gpus = list[str]()
    if has_gpu_plugin() and any(c.devices.platform != "cpu" for c in configs):
        visible = visible_gpus(environ)
        gpus = [str(i) for i in range(present_gpus())] if visible is None else list(visible)
    if gpus and jobs > len(gpus):
        raise UserError(
            f"--jobs: {jobs} runs at a time need a GPU each, and there are {len(gpus)}; use --jobs {len(gpus)}"
        )
    variables = [
        {"CUDA_VISIBLE_DEVICES": ",".join(_share(gpus, i, jobs))} if gpus else {}
        for i in range(jobs)
    ]
    return [Slot(frozenset(_share(cores, i, jobs)), environ) for i, environ in enumerate(variables)]


def _share(items: Sequence[Any], i: int, parts: int) -> Sequence[Any]:
    share = items[i * len(items) // parts : (i + 1) * len(items) // parts]
    return share or [items[i % len(items)]]
