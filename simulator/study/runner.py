"""Runs the runs of a sweep on this machine, each in its own process, one after another or several at once.

Each process is a `simulator run HASH/config.yaml`, which handles signals, the lock, restart and exit codes. Runs
that are stepped together share a process (`simulator.study.ensemble`).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Self

from simulator.archive.state import CONFIG
from simulator.cluster.allocation import LAUNCHER
from simulator.study.display import Display
from simulator.study.record import LOG, begun, ended, last_line, read_record
from simulator.study.resources import Slot, slots
from simulator.study.study_status import MemberState, MemberStatus, status_of
from simulator.study.sweep import Sweep, SweepRun

CANNOT = 4
"""Exit code of a batch that cannot be compiled: nothing was written, and its runs must run alone."""
_POLL = 0.05
_LOOK = 1.0
"""Interval in seconds at which stop files and the progress of the runs are polled."""
_DOUBLE = 0.5
"""Seconds within which a second SIGINT is the same key press."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


@dataclass(frozen=True)
class SweepProcess:
    """The runs of one process: one, or several that are stepped together with the batched `keys`. `members`: the
    number of them that are stepped side by side, each on devices of its own; None: as many as the GPUs allow."""

    runs: tuple[SweepRun, ...]
    keys: tuple[str, ...] = ()
    members: int | None = None

    @property
    def together(self) -> bool:
        return len(self.runs) > 1


@dataclass
class _Child:
    job: SweepProcess
    slot: Slot
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    log: Path
    began: float


def run_all(
    sweep: Sweep,
    jobs: Sequence[SweepProcess],
    *,
    at_once: int = 1,
    fail_fast: bool = False,
    environ: Mapping[str, str],
    say: Callable[[str], None] = print,
) -> int:
    """Runs all of `jobs`, several at once. Returns 0 if all are done, 1 if one failed, 3 if they were interrupted by
    a signal, which is forwarded to every run, or by the file OUTPUT/NAME/stop.

    With `fail_fast`, the first failure stops the others. The sweep must be prepared and locked.
    """
    runs = [run for job in jobs for run in job.runs]
    free = deque(slots(min(at_once, max(len(jobs), 1)), [run.config for run in runs], environ))
    waiting = deque(jobs)
    children: list[_Child] = []
    results: list[MemberState] = []
    failed_fast = False
    polled = float("-inf")
    with _Stop(children) as stop, Display(sweep, len(runs), say) as display:
        try:
            while children or (waiting and not stop.asked):
                while waiting and free and not stop.asked:
                    job = _untaken(waiting.popleft(), display)
                    if not job.runs:
                        continue
                    children.append(_start(sweep, job, free.popleft(), environ))
                    for run in job.runs:
                        display.begin(run)
                    if stop.asked:  # while it was being started
                        stop.ask(signal.SIGTERM)
                time.sleep(_POLL)
                for child in [child for child in children if child.process.poll() is not None]:
                    children.remove(child)
                    free.append(child.slot)
                    child.output.close()
                    if child.job.together and child.process.returncode == CANNOT:
                        say(
                            f"{len(child.job.runs)} runs cannot be batched ({last_line(child.log)}): one by one"
                        )
                        waiting.extendleft(SweepProcess((run,)) for run in reversed(child.job.runs))
                        continue
                    for run in child.job.runs:
                        status, seconds = _finish(child, run, stopping=stop.asked)
                        results.append(status.stage)
                        display.end(run, f"{status.stage}: {status.detail}", seconds)
                    if fail_fast and MemberState.FAILED in results and not stop.asked:
                        failed_fast = True
                        say("a run failed: stopping the others (--fail-fast)")
                        stop.ask(signal.SIGTERM)
                if time.monotonic() - polled > _LOOK:
                    polled = time.monotonic()
                    if not stop.asked and _stop_file(sweep.folder):
                        stop.ask(signal.SIGTERM)
                    for run in (run for child in children for run in child.job.runs):
                        display.update(run, status_of(run.folder))
        finally:
            for child in children:  # left only if this process fails
                child.process.kill()
                child.process.wait()
    if failed_fast:
        return 1
    if stop.asked:
        return 3
    return 1 if MemberState.FAILED in results else 3 if MemberState.INTERRUPTED in results else 0


def _stop_file(folder: Path) -> bool:
    """Whether there is a file `stop`, which is removed."""
    path = folder / "stop"
    exists = path.exists()
    path.unlink(missing_ok=True)
    return exists


def _untaken(job: SweepProcess, display: Display) -> SweepProcess:
    """The job without runs that another process has started meanwhile."""
    remaining: list[SweepRun] = []
    for run in job.runs:
        if status_of(run.folder).stage in (MemberState.RUNNING, MemberState.DONE):
            display.end(run, "started by another process", 0.0)
        else:
            remaining.append(run)
    return replace(job, runs=tuple(remaining))


def _start(sweep: Sweep, job: SweepProcess, slot: Slot, environ: Mapping[str, str]) -> _Child:
    first = job.runs[0]
    if job.together:
        log = sweep.folder / "logs" / f"batch_{first.hash}.log"
        content = {"folders": [str(run.folder) for run in job.runs], "keys": job.keys, "members": job.members}
        command = ["simulator.study.ensemble", json.dumps(content)]
    else:
        log = first.folder / "logs" / LOG
        command = ["simulator", "run", str(first.folder / CONFIG)]
    log.parent.mkdir(parents=True, exist_ok=True)
    output = log.open("wb")
    # With this process id in its environment, the run stops if this process dies.
    env = {**environ, **slot.environ, LAUNCHER: str(os.getpid())}
    with _bound_to(slot.cores):
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that a terminal's Ctrl-C reaches it only once, forwarded
        )
    for run in job.runs:
        begun(run.folder, process.pid, log, {})
    return _Child(job, slot, process, output, log, time.monotonic())


@contextlib.contextmanager
def _bound_to(cores: frozenset[int]):
    """Binds processes that are started inside the context to `cores`, by inheritance."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _finish(child: _Child, run: SweepRun, *, stopping: bool) -> tuple[MemberStatus, float]:
    """Records the end of a run; returns its status and its duration in seconds."""
    code, seconds = child.process.returncode, time.monotonic() - child.began
    record = read_record(run.folder)
    if record is not None and record.code is None:  # a batch has recorded the ends of its runs itself
        said = last_line(child.log)
        if code < 0:
            said = f"killed by {signal.Signals(-code).name}" + (f"; {said}" if said else "")
        if stopping and code not in (0, 1, 2, 3):
            code = 3  # the signal came before the run could handle it
        ended(run.folder, record, code, said)
    return status_of(run.folder), seconds


class _Stop:
    """Forwards signals to the children while the context is open; `asked` becomes true with the first one."""

    def __init__(self, children: list[_Child]):
        self._children = children
        self._last_interrupt = float("-inf")
        self._before: dict[int, object] = {}
        self.asked = False

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _received(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            now = time.monotonic()
            if now - self._last_interrupt < _DOUBLE:
                return
            self._last_interrupt = now
        self.ask(number)

    def ask(self, number: int) -> None:
        """Makes every run stop. Instead of SIGHUP they get SIGTERM, because a run ignores SIGHUP."""
        self.asked = True
        number = signal.SIGTERM if number == signal.SIGHUP else number
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.process.pid, number)
