"""Processes forked from a server that has imported JAX and the program and has started no device,
so that each saves the seconds of these imports."""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from simulator.cli import main

ROOT = Path(__file__).parents[1]
# The variables that JAX, its libraries, Python or the linker read before a program's first line.
_EARLY = ("JAX_", "XLA_", "TF_", "LD_", "GLIBC_", "MALLOC_", "OMP_", "OPENBLAS_", "PYTHON")
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["simulator.cli.run", "simulator.run.runnable", "storage_support", "fault_support"]
)


@dataclass
class Forked:
    """A process of the server, used as a `subprocess.Popen`, whose output lies in files."""

    process: BaseProcess
    out: Path
    err: Path
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        assert self.process.pid is not None
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float = 120.0) -> int:
        """The exit code; -9 of a process that was killed."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.kill()
            raise TimeoutError(
                f"did not end; it said:\n{self.out.read_text()}{self.err.read_text()}"
            )
        return self.process.exitcode

    def communicate(self, timeout: float = 120.0) -> tuple[str, str]:
        """The output, once the process has ended."""
        self.wait(timeout)
        return self.out.read_text(), self.err.read_text()

    def ended(self, timeout: float = 120.0) -> tuple[int, str]:
        """The exit code and the output."""
        return self.wait(timeout), self.out.read_text()

    def send_signal(self, number: int) -> None:
        if self.process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.process.join()


def _early(environ: Mapping[str, str]) -> dict[str, str]:
    early = {name: value for name, value in environ.items() if name.startswith(_EARLY)}
    return early | {"PYTHONPATH": early.get("PYTHONPATH", str(ROOT))}


_SERVER = _early(os.environ)


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a program of this environment would not see that it was forked."""
    return _early(environ) == _SERVER


def fork(
    function: Callable[..., int | None],
    *arguments: object,
    environ: Mapping[str, str],
    out: Path | None = None,
    err: Path | None = None,
) -> Forked:
    """`function(*arguments)` in a process of its own, whose exit code it returns. `out` and `err`
    may be one file."""
    if out is None or err is None:
        folder = Path(tempfile.mkdtemp(dir=os.environ["SIMULATOR_CACHE"]))  # ends with the session
        out, err = folder / "out", folder / "err"
    out.touch()
    err.touch()
    place = (dict(environ), os.getcwd(), out, err)
    process = _context.Process(target=_child, args=(place, function, arguments))
    process.start()
    return Forked(process, out, err)


def _child(
    place: tuple[dict[str, str], str, Path, Path],
    function: Callable[..., int | None],
    arguments: Sequence[object],
) -> None:
    environ, folder, *files = place
    os.setsid()
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    for descriptor, file in enumerate(files, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.exit(function(*arguments))


def code_of(program: Path, environ: Mapping[str, str], timeout: float = 60.0) -> int:
    """The exit code of a Python file."""
    if can_fork(environ):
        return fork(_executed, program, environ=environ).wait(timeout)
    return subprocess.run([sys.executable, program], env=environ, timeout=timeout).returncode


def _executed(program: Path) -> int:
    runpy.run_path(str(program), run_name="__main__")
    return 0


def simulator_command(arguments: Sequence[str]) -> int:
    """`python -m simulator ARGUMENTS`."""
    sys.argv[1:] = arguments
    return main(list(arguments))
