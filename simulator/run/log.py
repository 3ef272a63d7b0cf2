"""Lines for people: to the console, and with their time to `RUN/run.log`."""

import contextlib
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TextIO

from rich.console import Console

from simulator.files import UNRECORDED, AppendedFile, Journal


class LastingConsole(Console):
    """stdout, for lines of plain text. Where its reader has left (`| head`, a lost connection) or its disk is full,
    the rest is dropped and the run goes on: RUN/run.log has it."""

    def __init__(self, file: TextIO | None = None, **options: Any) -> None:
        # Plain lines in a notebook, too, where rich would make a display of each.
        options = {"highlight": False, "soft_wrap": True, "markup": False, "force_jupyter": False} | options
        super().__init__(file=file or sys.stdout, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # What is still buffered, and whatever else writes there, must not raise again.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())
            os.close(nowhere)


class RunLog:
    """What the first process says. Lines said before `open` are written to the file by it.

    The file is for the process that holds the run's lock. A disk that takes no more lines does not end a run:
    the console still gets them, and whatever has to be written for good raises by itself.
    """

    def __init__(
        self, console: Console | None = None, now: Callable[[], datetime] = datetime.now, quiet: bool = False
    ) -> None:
        self.console = console or LastingConsole()
        self._now = now
        self._quiet = quiet
        self._pending: list[str] = []
        self._file: AppendedFile | None = None

    def open(self, path: Path, journal: Journal = UNRECORDED) -> Self:
        """Go on in `path`, appending."""
        self._file = journal.appending(path)
        for line in self._pending:
            self._write(line)
        self._pending.clear()
        return self

    def say(self, text: str) -> None:
        """One line, or several, to console and file."""
        for line in text.splitlines():
            if not self._quiet:
                self.console.print(line)
            stamped = f"{self._now().isoformat(sep=' ', timespec='seconds')} {line}\n"
            if self._file is None:
                self._pending.append(stamped)
            else:
                self._write(stamped)

    def note(self, text: str) -> None:
        """Lines for the file alone."""
        quiet, self._quiet = self._quiet, True
        self.say(text)
        self._quiet = quiet

    def warn(self, text: str) -> None:
        """A line that begins with `warning:`."""
        self.say(f"warning: {text}")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, stamped: str) -> None:
        assert self._file is not None
        try:
            self._file.append(stamped.encode(errors="backslashreplace"))
        except OSError as error:
            self.console.print(f"warning: run.log: {error.strerror or error}")
