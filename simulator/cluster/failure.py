"""How one of several processes fails without leaving the others behind.

A Python exception that ends one process of a `jax.distributed` run hangs in the shutdown barrier for
minutes, and the others with it. So whatever escapes is reported, flushed, and the process leaves at once;
the others notice within the heartbeat, and Slurm or the launcher ends them.
"""

import faulthandler
import os
import socket
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from simulator.cluster.launcher import log_name


def install(process_id: int, num_processes: int) -> None:
    """Makes an uncaught exception of this process end it within moments, with exit code 1.

    Does nothing for a single process: there the interpreter's own way is the right one.
    """
    if num_processes == 1:
        return
    faulthandler.enable()
    name = describe(process_id, num_processes)

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, where))
        cause = traceback.format_exception_only(kind, error)[-1].strip()
        leave(1, f"{text}simulator: {name} failed: {cause}")

    sys.excepthook = hook


def describe(process_id: int, num_processes: int) -> str:
    """`process 1 of 4 (node2, pid 123)`, as failures name it."""
    return f"process {process_id} of {num_processes} ({socket.gethostname()}, pid {os.getpid()})"


def leave(code: int, message: str = "") -> NoReturn:
    """Ends the process now: no exit handlers, no barrier. The message goes to the log and the console."""
    if message:
        print(message, file=sys.stderr)
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
