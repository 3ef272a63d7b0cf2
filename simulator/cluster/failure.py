"""Lets one of several processes fail without blocking the others.

A Python exception in one process of a `jax.distributed` run makes all of them hang in the shutdown barrier for
minutes. Therefore an escaping exception is reported and flushed, and the process exits at once; the others notice by
the missing heartbeat, and Slurm or the launcher ends them.
"""

import contextlib
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

from simulator.cluster import meeting, shared_refusal
from simulator.cluster.allocation import Allocation
from simulator.cluster.launcher import log_name
from simulator.errors import RunFailure, UserError

_TOGETHER = 3.0  # seconds to wait for the others to fail in the same way
_AFTER_FIRST = 0.3  # seconds by which the others let the reporting process exit first
# messages of CPU and GPU collectives and of JAX's coordination service when a process has disappeared
_LOST = re.compile(r"Gloo \w+ failed|(closed|reset) by peer|NCCL.*remote|CoordinationService|heartbeat")


@contextlib.contextmanager
def contained(allocation: Allocation) -> Iterator[None]:
    """Guards all the work of one of several processes.

    A UserError or RunFailure ends the process with 2 or 1: together with the others if all of them raise it, even
    before they have met (then process 0 reports it), otherwise alone within seconds. Any other exception is a bug and
    ends the process at once with 1, its traceback and the name of the process. A single process needs no guard:
    exceptions propagate.
    """
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
    if isinstance(error, SystemExit):
        _left_together()
        leave(error.code if isinstance(error.code, int) else int(error.code is not None))
    if isinstance(error, KeyboardInterrupt):
        leave(130, f"simulator: {name} interrupted")
    if _LOST.search(str(error)):
        # not the cause: the process that failed first should print the last line on the console
        time.sleep(_AFTER_FIRST)
        line = f"simulator: {name} lost another process: {str(error).splitlines()[0]}"
        leave(1, line) if process_id == 0 else leave(1, log=line)
    if not isinstance(error, UserError | RunFailure):
        cause = traceback.format_exception_only(error)[-1].strip()
        leave(1, f"{''.join(traceback.format_exception(error))}simulator: {name} failed: {cause}")
    if isinstance(error, meeting.NotAllCame):
        leave(1, f"simulator: {error}" if error.speaks else "")
    code = 2 if isinstance(error, UserError) else 1
    if not _joined():
        if process_id == 0:
            print(error, file=sys.stderr, flush=True)
            shared_refusal.told_all(allocation)
            leave(code)
        leave(code) if shared_refusal.told_by_first(allocation) else leave(
            code, f"simulator: {name}: {error}"
        )
    if not _left_together():
        leave(code, f"simulator: {name}: {error}")
    if process_id > 0:
        time.sleep(_AFTER_FIRST)
        leave(code, log=str(error))
    leave(code, str(error))


def ignore_requests() -> None:
    """Ignores signals from here on, so that this process exits with its own code.

    When the first process exits, srun --kill-on-bad-exit sends SIGTERM to the others.
    """
    with contextlib.suppress(ValueError):  # not the main thread
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)


def _joined() -> bool:
    """Whether this process is connected to the others."""
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def _left_together() -> bool:
    """Whether all processes get here within seconds, so that none of them reports a lost process."""
    if not _joined():
        return False
    done = threading.Event()

    def shut_down() -> None:
        import jax

        jax.distributed.shutdown()
        done.set()

    threading.Thread(target=shut_down, daemon=True).start()
    return done.wait(_TOGETHER)


def describe(process_id: int, num_processes: int) -> str:
    """The name of a process in messages: `process 1 of 4 (node2, pid 123)`."""
    return f"process {process_id} of {num_processes} ({socket.gethostname()}, pid {os.getpid()})"


def leave(code: int, message: str = "", *, log: str = "") -> NoReturn:
    """Ends the process at once, without exit handlers or barriers.

    message goes to stderr, and also to the console if stderr is a log file; log goes to stderr only.
    """
    for text in filter(None, (log, message)):
        print(text, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if message and _console is not None:
        os.write(_console, f"{message}\n".encode())
    os._exit(code)


_console: int | None = None  # the original stderr, once to_log_file has redirected it


def to_log_file(folder: Path, process_id: int) -> Path:
    """Redirects this process's stdout and stderr, including JAX's C++ messages, to its file in `folder`.

    Appends, because a run may be continued. Failures are still printed on the original stderr too.
    """
    global _console
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / log_name(process_id)
    sys.stdout.flush()
    sys.stderr.flush()
    _console = os.dup(2) if _console is None else _console
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return path
