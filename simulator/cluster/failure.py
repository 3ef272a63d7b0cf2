"""How one of several processes fails without leaving the others behind.

A Python exception that ends one process of a `jax.distributed` run hangs in the shutdown barrier for
minutes, and the others with it. So whatever escapes is reported, flushed, and the process leaves at once;
the others notice within the heartbeat, and Slurm or the launcher ends them.
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

from simulator.cluster import refusal
from simulator.cluster.allocation import Allocation
from simulator.cluster.launcher import log_name
from simulator.errors import RunFailure, UserError

_TOGETHER = 3.0  # seconds to wait for the others to fail likewise
_AFTER_FIRST = 0.3  # seconds by which processes let the one go first whose message is to be told
# how collectives on the CPU and on GPUs, and JAX's coordination, say that a process has gone
_LOST = re.compile(r"Gloo \w+ failed|(closed|reset) by peer|NCCL.*remote|CoordinationService|heartbeat")


@contextlib.contextmanager
def contained(allocation: Allocation) -> Iterator[None]:
    """Guards everything that one of several processes does from its start to its end.

    A UserError or RunFailure ends it with 2 or 1: together with the others where all of them raise it, also before
    they have met (process 0 says so), else alone within seconds. Anything else is a bug: its traceback, this
    process's name, 1, at once. For a single process it does nothing: there the interpreter's own way is the right
    one.
    """
    if allocation.num_processes == 1:
        yield
        return
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        _end(error, allocation)


def install(allocation: Allocation) -> None:
    """The same for whatever comes to `sys.excepthook`: `start` calls it, for scripts that use the package."""
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
        # not the cause: whoever failed first is to have the last word on the console
        time.sleep(_AFTER_FIRST)
        line = f"simulator: {name} lost another process: {str(error).splitlines()[0]}"
        leave(1, line) if process_id == 0 else leave(1, log=line)
    if not isinstance(error, UserError | RunFailure):
        cause = traceback.format_exception_only(error)[-1].strip()
        leave(1, f"{''.join(traceback.format_exception(error))}simulator: {name} failed: {cause}")
    code = 2 if isinstance(error, UserError) else 1
    if not _joined():
        if process_id == 0:
            print(error, file=sys.stderr, flush=True)
            refusal.told_all(allocation)
            leave(code)
        leave(code) if refusal.told_by_first(allocation) else leave(code, f"simulator: {name}: {error}")
    if not _left_together():
        leave(code, f"simulator: {name}: {error}")
    if process_id > 0:
        time.sleep(_AFTER_FIRST)
        leave(code, log=str(error))
    leave(code, str(error))


def ignore_requests() -> None:
    """From here on this process leaves by itself, with its own exit code.

    The first one out makes srun --kill-on-bad-exit send the others a SIGTERM.
    """
    with contextlib.suppress(ValueError):  # not the main thread
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)


def _joined() -> bool:
    """Whether this process has met the others."""
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def _left_together() -> bool:
    """Whether all processes came here within seconds, so that none of them sees a lost neighbour."""
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
    """`process 1 of 4 (node2, pid 123)`, as failures name it."""
    return f"process {process_id} of {num_processes} ({socket.gethostname()}, pid {os.getpid()})"


def leave(code: int, message: str = "", *, log: str = "") -> NoReturn:
    """Ends the process now: no exit handlers, no barrier.

    message goes to this process's stderr, and to the console where that is another place; log to stderr alone.
    """
    for text in filter(None, (log, message)):
        print(text, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if message and _console is not None:
        os.write(_console, f"{message}\n".encode())
    os._exit(code)


_console: int | None = None  # the stderr that to_log_file turned away


def to_log_file(folder: Path, process_id: int) -> Path:
    """Sends this process's stdout and stderr, JAX's C++ messages included, to its file in `folder`.

    Appends, because a run continues. A failure is still told on the former stderr too.
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
