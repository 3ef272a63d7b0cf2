"""Lets one of several processes fail without blocking the others.

A Python exception in one process of a `jax.distributed` run makes all processes hang in the
shutdown barrier for minutes. Therefore a process with an uncaught exception reports it and exits at
once; the other processes notice the missing heartbeat, and Slurm or the launcher ends them."""

import contextlib
import ctypes
import faulthandler
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from simulator.cluster import meeting
from simulator.cluster.allocation import Allocation
from simulator.cluster.launcher import log_name
from simulator.files import ending
from simulator.words import say

HEARTBEAT = (
    45  # seconds after which a silent process counts as dead: a machine may stall for half a minute
)
_TOGETHER = 3.0  # seconds to wait for the others to fail in the same way
FIRST_WAITS = 10.0  # seconds for which process 0 waits for the others, which may still be starting
OTHERS_TRY = 3.0  # seconds in which the others try to reach process 0
_AFTER_FIRST = 0.3  # seconds by which the others let the reporting process exit first
# messages of CPU and GPU collectives and of JAX's coordination service when a process has
# disappeared
_LOST = re.compile(
    r"Gloo \w+ failed|(closed|reset) by peer|NCCL.*remote|CoordinationService|heartbeat"
)


@contextlib.contextmanager
def contained(allocation: Allocation) -> Iterator[None]:
    """Guards all the work of one of several processes.

    An error that `ending` knows ends the process with its exit code. If all processes raise the
    error, even before they have met, process 0 reports it and all exit together; otherwise the
    process exits alone within seconds. Any other exception is a bug: the process prints its
    traceback and exits at once with 1. Of a single process they propagate."""
    if allocation.num_processes == 1:
        yield
        return
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        _end(error, allocation)


def install(allocation: Allocation) -> None:
    """The same guard as `sys.excepthook`, for scripts that use the package; called by `start`."""
    if allocation.num_processes > 1:
        sys.excepthook = lambda _, error, __: _end(error, allocation)


def _end(error: BaseException, allocation: Allocation) -> NoReturn:
    ignore_requests()
    process_id = allocation.process_id
    name = describe(process_id, allocation.num_processes)
    if isinstance(error, KeyboardInterrupt):
        leave(130, f"simulator: {name} interrupted")
    if isinstance(error, SystemExit):
        _left_together()
        leave(error.code if isinstance(error.code, int) else int(error.code is not None))
    if lost_another(error):
        # not the cause: the process that failed first should print the last line on the console
        time.sleep(_AFTER_FIRST)
        line = f"simulator: {name} lost another process: {str(error).splitlines()[0]}"
        leave(1, line) if process_id == 0 else leave(1, log=line)
    if (known := ending(error)) is None:
        cause = traceback.format_exception_only(error)[-1].strip()
        leave(1, f"{''.join(traceback.format_exception(error))}simulator: {name} failed: {cause}")
    if isinstance(error, meeting.NotAllCame):
        leave(1, f"simulator: {error}" if error.speaks else "")
    code, line = known
    if not _joined():
        if process_id == 0:
            say(line)
            _told_all(allocation)
            leave(code)
        leave(code) if _told_by_first(allocation) else leave(code, f"simulator: {name}: {line}")
    if not _left_together():
        leave(code, f"simulator: {name}: {line}")
    if process_id > 0:
        time.sleep(_AFTER_FIRST)
        leave(code, log=line)
    leave(code, line)


def lost_another(error: BaseException) -> bool:
    """Whether an error of a collective says that another process has disappeared."""
    return _LOST.search(str(error)) is not None


def ignore_requests() -> None:
    """Ignores signals from here on, so that this process exits with its own code.

    When the first process exits, srun --kill-on-bad-exit sends SIGTERM to the others."""
    with contextlib.suppress(ValueError):  # not the main thread
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)


def _joined() -> bool:
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def _left_together() -> bool:
    """Disconnects. True if all processes disconnect within seconds, so that none of them reports a
    lost one."""
    if not _joined():
        return False
    disconnected = threading.Event()

    def shut_down() -> None:
        import jax

        jax.distributed.shutdown()
        disconnected.set()

    threading.Thread(target=shut_down, daemon=True).start()
    return disconnected.wait(_TOGETHER)


def describe(process_id: int, num_processes: int) -> str:
    """The name of a process in messages: `process 1 of 4 (node2, pid 123)`."""
    return f"process {process_id} of {num_processes} ({socket.gethostname()}, pid {os.getpid()})"


def leave(code: int, message: str = "", *, log: str = "") -> NoReturn:
    """Ends the process at once, without exit handlers or barriers.

    message goes to stderr, and also to the console if stderr is a log file; log goes to stderr
    only."""
    for text in filter(None, (log, message)):
        say(text)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if message and _console is not None:
        os.write(_console, f"{message}\n".encode())
    os._exit(code)


_console: int | None = None  # the original stderr, once to_log_file has redirected it


def to_log_file(folder: Path, process_id: int, num_processes: int) -> None:
    """Redirects this process's stderr, including JAX's C++ messages, and on all processes but the
    first stdout, to its file in `folder`.

    Appends, because a run may be continued. Failures are still printed on the original stderr too:
    from here on also the failure that JAX's runtime answers with a C++ stack and SIGABRT."""
    global _console
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    _console = os.dup(2) if _console is None else _console
    log = os.open(folder / log_name(process_id), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    if process_id > 0:
        os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _explain_aborts(process_id, num_processes)


def console() -> int:
    """The descriptor of the original stderr."""
    return _STDERR if _console is None else _console


_SILENT = re.compile(r"stopped sending heartbeats\):\n((?:.*\d\n)+)")
_FIRST_SILENT = "/xla.coordination.CoordinationService/Heartbeat"
_FIRST_LOST = "/xla.coordination.CoordinationService/PollForError"
_TAIL = 8192  # Bytes at the end of the log in which the runtime has said why it aborts.
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


def lost_processes(text: str, seconds: float) -> tuple[set[int], str] | None:
    """The processes that JAX's runtime has lost according to its last messages `text`, and a line
    about them, where `seconds` is the time after which a silent process counts as lost; None if the
    messages are about something else."""
    quiet = f"has not responded for {seconds:.0f} s: it was suspended, or its host or network has failed"
    if silent := _SILENT.findall(text):
        ids = {int(re.findall(r"\d+", name)[-1]) for name in silent[-1].split("\n") if name}
        names = ", ".join(map(str, sorted(ids)))
        return ids, f"{'process' if len(ids) == 1 else 'processes'} {names} {quiet}"
    if _FIRST_SILENT in text:
        return {0}, f"process 0 {quiet}"
    return ({0}, "process 0 has ended") if _FIRST_LOST in text else None


def _explain_aborts(process_id: int, num_processes: int) -> None:
    """Makes this process end with one line and exit code 1 if JAX's runtime aborts it because it
    has lost another process.

    Python's own handlers run only after the function that aborts has returned, which it never
    does; a handler of C's runs at once, in the thread that aborts."""

    def aborting(number: int) -> None:
        end = os.fstat(_STDERR).st_size
        text = os.pread(_STDERR, _TAIL, max(end - _TAIL, 0)).decode(errors="replace")
        if (lost := lost_processes(text, HEARTBEAT)) is None:
            libc.signal(number, None)  # the default: the process is killed by SIGABRT
            return
        ids, problem = lost
        line = f"simulator: {describe(process_id, num_processes)} ends: {problem}"
        if process_id == min(set(range(num_processes)) - ids):
            leave(1, line)
        time.sleep(_AFTER_FIRST)
        leave(1, log=line)

    global _aborting
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    _aborting = _HANDLER(aborting)
    libc.signal(signal.SIGABRT, ctypes.cast(_aborting, ctypes.c_void_p))


_aborting: object = None  # The handler of SIGABRT, which C does not keep alive.


# When all processes of a step raise before they have met, as for a mistake in the configuration,
# the error is printed once: process 0 prints it and listens at the port derived from the step. A
# process that reaches process 0 there exits silently; a process that does not prints its own error.
# Process 0 exits last, so that `srun --kill-on-bad-exit` does not kill the others.


def _told_all(allocation: Allocation) -> None:
    """Called by process 0 after it has printed the error: tells the others so, for at most
    `FIRST_WAITS` seconds."""
    if allocation.port is None or allocation.coordinator is not None:
        return
    end = time.monotonic() + FIRST_WAITS
    with contextlib.suppress(OSError), socket.create_server(("", allocation.port)) as server:
        for _ in range(allocation.num_processes - 1):
            server.settimeout(max(end - time.monotonic(), 0.01))
            with server.accept()[0] as other:
                other.sendall(_token(allocation))


def _told_by_first(allocation: Allocation) -> bool:
    """Called by every other process: whether process 0 has printed the error."""
    if allocation.port is None or allocation.coordinator is not None:
        return False
    end = time.monotonic() + OTHERS_TRY
    token = _token(allocation)
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            address = (allocation.coordinator_host or "localhost", allocation.port)
            with socket.create_connection(address, timeout=OTHERS_TRY) as first:
                first.settimeout(OTHERS_TRY)
                with first.makefile("rb") as answer:
                    if answer.read(len(token)) == token:
                        return True
        time.sleep(0.05)
    return False


def _token(allocation: Allocation) -> bytes:
    return f"simulator refuses {allocation.rendezvous}\n".encode()


_STDERR = 2  # the descriptor, which follows a redirection to a log file
_WAITING = 2.0
SECOND_LINE = 5.0  # extra seconds after which faulthandler's timer acts if the thread could not


class Watchdog:
    """Writes the stack of every thread to stderr and exits with 1 if `feed` is not called for
    `seconds`.

    name: the name of this process in the last line. The watchdog is a context manager around the
    loop that it guards.

    The watching thread needs Python's interpreter lock. If a stuck extension never releases the
    lock, the timer of faulthandler, which needs no lock, writes the stacks and exits 5 s later,
    without the last line."""

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
        faulthandler.dump_traceback_later(self._seconds + SECOND_LINE, exit=True, file=_STDERR)

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
        # processes that wait for a stuck process are as late as that process, which should be
        # reported first
        if self._stop.wait(_WAITING if waits else 0.0):
            return
        faulthandler.dump_traceback(_STDERR)
        idle = f"no progress for {self._seconds:.0f} s (run.watchdog) since {self._doing}"
        leave(1, f"simulator: {self._name} is stuck in {where}: {idle}; its stacks are in its log")


def _main_thread() -> tuple[str, bool]:
    """The main thread's position, and whether the thread seems to wait for devices or other
    processes there."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return "its end", False
    path = Path(frame.f_code.co_filename)
    waits = "jax" in path.parts or path == Path(__file__).with_name("start.py")
    return f"{frame.f_code.co_name} ({path.name}:{frame.f_lineno})", waits
