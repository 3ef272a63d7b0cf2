"""Starts several local processes of one command, for `--processes N`.

The children find each other on loopback. Each child runs in its own session, so that a terminal's
Ctrl-C reaches only the launcher, which forwards every signal to each child once. The output of the
first child is the output of the command. The other children write to log files; the launcher
captures earlier output, and shows it if a child fails."""

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from simulator.cluster import allocation
from simulator.cluster.rendezvous import claim_port
from simulator.words import say

GRACE = 5.0  # seconds that the others get to exit by themselves after one has failed
SECOND_INTERRUPT_AFTER = 0.5  # Seconds: an earlier second SIGINT comes from the same key press.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_TAIL = 15  # lines


def launch(
    command: Sequence[str],
    n: int,
    *,
    logs: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Runs `command` in `n` processes that form one run; returns the exit code of the run: the code
    of the process that failed first (1 if a signal killed it), else 3 if any process stopped early,
    else 0.

    Within 15 s of a failure all processes have ended, and the launcher shows the last lines of the
    failed process. logs: the folder with the logs of the processes above 0 (`log_name`), which hold
    these lines. The caller must have validated the input, because this function starts processes at
    once."""
    claim = claim_port(host="127.0.0.1")
    shared = dict(os.environ if environ is None else environ) | {
        allocation.COORDINATOR: f"127.0.0.1:{claim.port}",
        allocation.NUM_PROCESSES: str(n),
        allocation.LOCAL_PROCESSES: str(n),
        allocation.LAUNCHER: str(os.getpid()),
        allocation.SECRET: secrets.token_hex(16),
    }
    children: list[_Child] = []

    def send(number: int) -> None:
        for child in children:
            if child.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.process.pid, number)

    began = time.time()
    try:
        with Forwarding(send):
            for process in range(n):
                rank = dict.fromkeys((allocation.PROCESS_ID, allocation.LOCAL_RANK), str(process))
                children.append(_Child.start(process, command, shared | rank))
            failed = _first_failure(children)
            if failed is None:
                return 3 if any(child.process.returncode == 3 for child in children) else 0
            _end(children, GRACE)
            code = failed.process.returncode
            if failed.number > 0 or code < 0:  # otherwise the message is already on the console
                say(failed.story(n, logs, began))
            return code if code > 0 else 1
    finally:
        _end(children, 0.0)
        claim.release()


def without_processes(arguments: Sequence[str]) -> list[str]:
    """The command line of a child: that of the launcher without `--processes N`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--processes")
    return parser.parse_known_args(arguments)[1]


def log_name(process: int) -> str:
    """The name of a process's log file in RUN/logs."""
    return f"p{process:05d}.log"


@dataclass
class _Child:
    number: int
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None  # None: shared with the launcher

    @staticmethod
    def start(number: int, command: Sequence[str], env: Mapping[str, str]) -> "_Child":
        output = tempfile.TemporaryFile() if number else None  # noqa: SIM115
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        return _Child(number, process, output)

    def send(self, number: int) -> None:
        """Sends a signal to the child's whole session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def story(self, n: int, logs: Path | None, began: float) -> str:
        """The message about the failed child, after the last lines of its output that were not
        shown yet."""
        code = self.process.returncode
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"failed with exit code {code}"
        )
        lines = [f"simulator: process {self.number} of {n} {how}"]
        if self.output is not None:
            self.output.seek(0)
            text = self.output.read().decode(errors="replace")
            log = logs / log_name(self.number) if logs else None
            with contextlib.suppress(OSError):
                if log and not text.strip() and log.stat().st_mtime >= began:
                    lines[0] += f"; the end of {log}:"
                    text = log.read_text(errors="replace")
            lines = [*text.rstrip().splitlines()[-_TAIL:], *lines] if text.strip() else lines
        return "\n".join(lines)


def _first_failure(children: Sequence[_Child]) -> _Child | None:
    """Waits until a child fails, and returns that child; returns None when all children have ended
    with 0 or 3.

    If several children have failed since the last poll, a child with an exit code comes before
    those killed by a signal, because a process that loses another process aborts."""
    while True:
        codes = [child.process.poll() for child in children]
        failed = [child for child in children if child.process.returncode not in (None, 0, 3)]
        if failed:
            return max(failed, key=lambda child: child.process.returncode > 0)
        if None not in codes:
            return None
        time.sleep(0.02)


def _end(children: Sequence[_Child], grace: float) -> None:
    """Kills the children that have not exited by themselves after `grace` seconds."""
    end = time.monotonic() + grace
    while time.monotonic() < end and any(child.process.poll() is None for child in children):
        time.sleep(0.02)
    for child in children:
        if child.process.poll() is None:
            child.send(signal.SIGKILL)
            child.process.wait()


class Forwarding:
    """Calls `send` with each signal that this process receives while the context is open, to pass
    it on to children."""

    def __init__(self, send: Callable[[int], None]) -> None:
        self._send = send
        self._last_interrupt = float("-inf")
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in _FORWARDED:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                self._before[number] = signal.signal(number, self._forward)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _forward(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            now = time.monotonic()
            if now - self._last_interrupt < SECOND_INTERRUPT_AFTER:
                return
            self._last_interrupt = now
        self._send(number)
