"""Ends a process that is alive but stuck, after printing the stacks of its threads.

JAX detects a dead process by its missing heartbeat, but the heartbeat of a stuck process goes on.
"""

import faulthandler
import sys
import threading
import time
from pathlib import Path

from simulator.cluster import failure, start

_STDERR = 2  # the descriptor, which follows a redirection to a log file
_WAITING = 2.0
_SECOND_LINE = 5.0  # extra seconds after which faulthandler's timer acts if the thread could not


class Watchdog:
    """If it is not fed for `seconds`, writes the stack of every thread to stderr and exits with 1.

    name: the name of this process in the last line. Use it as a context manager around the loop that it guards.

    The watching thread needs Python's interpreter lock. If a stuck extension never releases it, faulthandler's timer,
    which does not need it, does the same 5 s later, without the last line.
    """

    def __init__(self, seconds: float, name: str) -> None:
        self._seconds = seconds
        self._name = name
        self._fed = time.monotonic()
        self._doing = "start"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def feed(self, doing: str) -> None:
        """Restarts the timer. `doing` names the activity that begins now, e.g. `step 120`."""
        self._doing = doing
        self._fed = time.monotonic()
        faulthandler.dump_traceback_later(self._seconds + _SECOND_LINE, exit=True, file=_STDERR)

    def __enter__(self) -> "Watchdog":
        self.feed(self._doing)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        faulthandler.cancel_dump_traceback_later()
        self._thread.join()

    def _watch(self) -> None:
        while (left := self._fed + self._seconds - time.monotonic()) > 0:
            if self._stop.wait(left):
                return
        where, waits = _main_thread()
        # processes that wait for a stuck one are as late as it is; it should be reported first
        if self._stop.wait(_WAITING if waits else 0.0):
            return
        faulthandler.dump_traceback(_STDERR)
        failure.leave(
            1,
            f"simulator: {self._name} is stuck in {where}: no progress for {self._seconds:.0f} s "
            f"(run.watchdog) since {self._doing}; its stacks are in its log",
        )


def _main_thread() -> tuple[str, bool]:
    """The main thread's position, and whether it seems to wait for devices or other processes there."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "its end", False
    path = Path(frame.f_code.co_filename)
    waits = "jax" in path.parts or path == Path(start.__file__)
    return f"{frame.f_code.co_name} ({path.name}:{frame.f_lineno})", waits
