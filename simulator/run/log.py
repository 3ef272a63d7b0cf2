"""Prints the messages of a run on the console and, with the time, into `RUN/run.log`."""

import contextlib
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from simulator.files import UNRECORDED, AppendedFile, Journal


def on_terminal() -> bool:
    """Whether a bar on stdout reaches a terminal. mpirun gives every process a pseudo-terminal as
    stdout even if its own output goes to a pipe, but its stderr is a pipe."""
    return sys.stdout.isatty() and sys.stderr.isatty()


class LastingConsole(Console):
    """A console for lines of plain text on stdout. If the reader of stdout has gone (`| head`, a
    lost connection) or its disk is full, further lines are dropped and the run goes on; RUN/run.log
    has all lines."""

    def __init__(self, **options: Any) -> None:
        # In a notebook rich would otherwise make a display of each line.
        options = {
            "highlight": False,
            "soft_wrap": True,
            "markup": False,
            "force_jupyter": False,
            "force_terminal": on_terminal(),
        } | options
        super().__init__(file=sys.stdout, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Buffered text, and other writers to this descriptor, must not raise again.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())
            os.close(nowhere)


class RunLog:
    """The messages of a run. `open` first writes the lines that were printed before the file was
    opened.

    Only the process that holds the run's lock opens the file. If the disk is full, the log still
    prints to the console and the run goes on; the writers of results raise their own errors."""

    def __init__(
        self,
        console: Console | None = None,
        now: Callable[[], datetime] = datetime.now,
        quiet: bool = False,
    ) -> None:
        self.console = console or LastingConsole()
        self._now = now
        self.quiet = quiet
        self._pending: list[str] = []
        self._file: AppendedFile | None = None

    def open(self, path: Path, journal: Journal = UNRECORDED) -> None:
        """Append to `path` from now on."""
        self._file = journal.appending(path)
        for line in self._pending:
            self._write(line)
        self._pending.clear()

    def say(self, text: str, *, shown: bool = True) -> None:
        """Prints the lines of `text` on the console, if they are to be `shown`, and writes them to
        the file."""
        for line in text.splitlines():
            if shown and not self.quiet:
                self.console.print(line)
            stamped = f"{self._now().isoformat(sep=' ', timespec='seconds')} {line}\n"
            if self._file is None:
                self._pending.append(stamped)
            else:
                self._write(stamped)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, stamped: str) -> None:
        assert self._file is not None
        try:
            self._file.append(stamped.encode(errors="backslashreplace"))
        except OSError as error:
            self.console.print(f"warning: run.log: {error.strerror or error}")
