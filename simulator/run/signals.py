"""The requests to stop or to checkpoint: signals, files in the run folder, the end of the job.

The functions of this module only collect requests in one small vector of flags. The processes agree
on the maximum of this vector (`Cluster.any`), so that all of them act at the same step."""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from simulator.cluster import failure
from simulator.cluster.launcher import SECOND_INTERRUPT_AFTER

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class Flag(IntEnum):
    """The positions in the vector of flags. The value 0 means no, a positive value yes."""

    SIGNAL = 0  # The signal's number.
    STOP_FILE = 1
    CHECKPOINT_FILE = 2
    DEADLINE = 3  # Seconds left to the job's end, at least 1.
    FAILURE = 4  # This process cannot continue (a full disk, a lost lock).
    WALL_TIME = 5  # Seconds left of `run.wall_time`, at least 1.


class SignalFlags:
    """SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 set a flag; a second SIGINT ends the process at once.

    Enter the context after `jax.distributed.initialize`, which replaces handlers, in the main
    thread only. The interpreter's C handler writes each signal to a pipe that a thread of this
    class reads, so that a second SIGINT also ends a process whose main thread is inside a long
    compilation. If `answered` is not called `within` so many seconds after the first signal, the
    process writes the stacks of all threads and ends (None: no limit)."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        within: float | None = None,
        name: str = "the run",
    ) -> None:
        self.received = 0
        self._within = within
        self._name = name
        self._limit: threading.Timer | None = None
        self._clock = clock
        self._interrupted_at: float | None = None
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_wakeup = -1

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        # The handlers do nothing, because the thread reads the signals from the pipe.
        self._previous = {
            number: signal.signal(number, lambda number, frame: None) for number in SIGNALS
        }
        self._previous_wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._previous:
            return
        self.answered()
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(self._write_end)
        self._thread.join()
        os.close(self._read_end)
        self._previous = {}

    def _listen(self) -> None:
        while numbers := os.read(self._read_end, 64):
            for number in numbers:
                if number in SIGNALS:
                    self._note(number)

    def answered(self) -> None:
        """Cancel the limit `within`, because the processes have agreed to stop."""
        if self._limit is not None:
            self._limit.cancel()

    def _unanswered(self) -> None:
        faulthandler.dump_traceback(2)  # the descriptor, which follows a redirection to a log file
        name = signal.Signals(self.received).name
        failure.leave(
            1,
            f"simulator: {self._name} has not answered {name} for {self._within:g} s (run.stop_within): it ends at "
            "once, and the last checkpoint stands; its stacks are in its log",
        )

    def _note(self, number: int) -> None:
        if not self.received and self._within is not None:
            self._limit = threading.Timer(self._within, self._unanswered)
            self._limit.daemon = True
            self._limit.start()
        self.received = self.received or number
        if number != signal.SIGINT:
            return
        now = self._clock()
        if self._interrupted_at is None:
            self._interrupted_at = now
        elif now - self._interrupted_at >= SECOND_INTERRUPT_AFTER:
            os.write(
                failure.console(),
                b"interrupted a second time: ending at once; the last checkpoint stands\n",
            )
            # the code that a shell reports for an interrupted program
            os._exit(128 + signal.SIGINT)


class End(NamedTuple):
    """A time at which a run has to have ended."""

    left: float  # Seconds from now.
    lead: float  # Seconds before that at which the run stops.


class Watch:
    """The requests to this process, polled between two calls of the device loop.

    `folder` is None, and `ends` are empty, on all processes but the first; `ends` are those of the
    flags DEADLINE and WALL_TIME. `clock` counts seconds; it is not the time of day, which may be set
    while the job runs."""

    def __init__(
        self,
        signals: SignalFlags,
        folder: Path | None = None,
        ends: Mapping[Flag, End] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._signals = signals
        self._folder = folder
        self._ends = {flag: (clock() + end.left, end.lead) for flag, end in ends.items()}
        self._clock = clock

    def poll(self, *, failed: bool = False, wall: Sequence[bool] = ()) -> np.ndarray:
        """The flags of this process, int32, in the order of `Flag`, followed by `wall`
        (`WallTimer.due`). The caller takes the maximum over all processes."""
        flags = np.zeros(len(Flag), np.int32)
        flags[Flag.SIGNAL] = self._signals.received
        flags[Flag.STOP_FILE] = self._asked("stop")
        flags[Flag.CHECKPOINT_FILE] = self._asked("checkpoint")
        flags[Flag.FAILURE] = failed
        for flag, (end, lead) in self._ends.items():
            left = end - self._clock()
            flags[flag] = max(int(left), 1) if left <= lead else 0
        return np.array([*flags, *wall], np.int32)

    def agreed(self, flags: np.ndarray) -> None:
        """Take note of the `flags` on which the processes have agreed."""
        if stop_reason(flags) is not None:
            self._signals.answered()

    def obey(self, flags: np.ndarray) -> None:
        """On the first process, remove the request files that the processes obey."""
        for flag, name in ((Flag.STOP_FILE, "stop"), (Flag.CHECKPOINT_FILE, "checkpoint")):
            if flags[flag] and self._folder is not None:
                with suppress(OSError):
                    (self._folder / name).unlink()

    def _asked(self, name: str) -> int:
        return int(self._folder is not None and (self._folder / name).exists())


def stop_reason(flags: np.ndarray) -> str | None:
    """Why the agreed flags end the run early, in words; None if they do not."""
    if flags[Flag.FAILURE]:
        return "a process cannot go on"
    if flags[Flag.SIGNAL]:
        return signal.Signals(int(flags[Flag.SIGNAL])).name
    if flags[Flag.STOP_FILE]:
        return "the file stop in the run folder"
    if flags[Flag.DEADLINE]:
        return f"the job ends in {int(flags[Flag.DEADLINE])} s"
    if flags[Flag.WALL_TIME]:
        return f"run.wall_time ends in {int(flags[Flag.WALL_TIME])} s"
    return None


def job_deadline(environ: Mapping[str, str], now: float) -> tuple[float, float] | None:
    """The end of this Slurm job, in seconds since the epoch, and its time limit in seconds; None
    outside of a job, without a limit, and before version 23 of Slurm, where only the job script's
    signal warns a run."""
    with suppress(KeyError, ValueError):
        end = float(environ["SLURM_JOB_END_TIME"])
        return end, end - float(environ.get("SLURM_JOB_START_TIME", now))
    return None


def lead(limit: float, within: float = 60.0) -> float:
    """Seconds before the end of a time limit at which the run stops, at most `within`. For a job in
    which no signal came earlier: half of the 120 s, or quarter of the limit, at which the job script
    requests its signal (`SlurmSettings.lead`)."""
    return min(within, limit / 8)
