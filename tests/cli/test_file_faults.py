"""Commands on files that cannot be read or written end in one line that names the file, with the
right exit code, and never in a traceback."""

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fault_support import Harm, start
from run_support import CASE, write_case
from tiers import slow_but

from simulator import cli
from simulator.cli import main

COMMANDS = {
    "status": ["status", "run"],
    "plot": ["plot", "run"],
    "movie": ["movie", "run", "--field", "speed"],
    "report": ["report", "run"],
    "report elsewhere": ["report", "run", "--output", "../report.html"],
    "analyze": ["analyze", "run"],
    "verify": ["verify", "run", "--quiet"],
    "resume": ["resume", "run", "time.max_steps=5"],
    "run": ["run", "case.yaml", "--output", "new"],
    "check": ["check", "case.yaml"],
    "init": ["init", "taylor_green"],
    "cite": ["cite", "run"],
    "sweep run": ["sweep", "run", "sweep.yaml"],
    "sweep table": ["sweep", "table", "sweep.yaml", "--csv", "table.csv"],
}
"""The commands, in a folder with the finished run `run`; those of plugins only where they are."""
COMMANDS = {name: words for name, words in COMMANDS.items() if words[0] in cli.COMMANDS}


def read_only(place: Path) -> None:
    for path in [place, *place.rglob("*")]:
        path.chmod(path.stat().st_mode & 0o555)


def another_users(place: Path) -> None:
    place.chmod(0o755)  # others may look into it
    for path in [place, *place.rglob("*")]:
        os.chown(path, 54321, 54321)


def unreadable_files(place: Path) -> None:
    for path in place.rglob("*"):
        if path.is_file():
            path.chmod(0)


def unreadable_folder(place: Path) -> None:
    (place / "run").chmod(0)


def _replace_all(place: Path, content: bytes) -> None:
    for path in (place / "run").rglob("*"):
        if path.is_file():
            path.write_bytes(content)


def garbage(place: Path) -> None:
    _replace_all(place, b"\x00garbage\xff\n1,2\n")


def empty(place: Path) -> None:
    _replace_all(place, b"")


def folders(place: Path) -> None:
    for path in [path for path in (place / "run").rglob("*") if path.is_file()]:
        path.unlink()
        path.mkdir()


def no_space(place: Path) -> None:
    """No file of this process may grow; Python ignores the signal that Linux sends at once."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@dataclass(frozen=True)
class Fault:
    """`harm` is done to the folder; `codes` are the exit codes of the commands that are tried."""

    harm: Callable[[Path], object]
    codes: dict[str, int]
    stdout: str | None = None


READERS = ("plot", "movie", "report", "analyze")
WRITERS = (*READERS, "resume", "run", "init", "sweep run", "sweep table")
PRINTERS = ("status", "verify", "plot", "check", "cite", "init", "sweep table")
READABLE = dict.fromkeys(("status", "verify", "check", "report elsewhere"), 0)
READABLE |= dict.fromkeys(WRITERS, 2)
DAMAGED = dict.fromkeys(("plot", "analyze", "verify"), 1)
DAMAGED |= {"status": 0} | dict.fromkeys(("movie", "report", "cite", "resume"), 2)
"""The first file that `movie`, `report`, `cite` and `resume` read is config.yaml, which is refused as
a user's file is."""
FAULTS = {
    "read-only": Fault(read_only, READABLE),
    "another user's": Fault(another_users, READABLE),
    "unreadable files": Fault(
        unreadable_files,
        dict.fromkeys(("check", "run", "resume", "cite", "sweep table", *READERS), 2)
        | {"status": 0, "verify": 1},
    ),
    "unreadable folder": Fault(
        unreadable_folder, dict.fromkeys(("status", "verify", "resume", "cite", *READERS), 2)
    ),
    "garbage": Fault(garbage, DAMAGED),
    "empty": Fault(empty, DAMAGED),
    "folders": Fault(
        folders, dict.fromkeys(("status", "cite", "resume", *READERS), 2) | {"verify": 1}
    ),
    "no space": Fault(no_space, {"status": 0, "check": 0} | dict.fromkeys(WRITERS, 1)),
    "full stdout": Fault(lambda place: None, dict.fromkeys(PRINTERS, 1), "/dev/full"),
}
"""A run goes on if its console fails, because run.log has all lines."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("faults")
    text = CASE.replace("count: 2", "count: 1").replace(
        "output: {", "output: {slices: {every: 0.2}, "
    )
    case = write_case(place, text)
    (place / "sweep.yaml").write_text(
        "base: case.yaml\nname: study\nsweep: {grid: {model.viscosity: [0.02, 0.03]}}\n"
    )
    assert main(["run", str(case), "--output", str(place / "run"), "time.max_steps=3"]) == 0
    return place


def _each_command(arguments: list[str]) -> int:
    """Runs the commands of a fault in the folder; writes exit codes and what stderr said as
    JSON."""
    place = Path(arguments[0])
    fault = FAULTS[arguments[1]]
    answers = {}
    result = os.open(arguments[2], os.O_WRONLY)
    os.chdir(place)
    fault.harm(place)
    for name in fault.codes.keys() & COMMANDS:
        said, err = os.pipe()
        os.dup2(os.open(fault.stdout or os.devnull, os.O_WRONLY), 1)
        os.dup2(err, 2)
        os.close(err)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        code = main(COMMANDS[name])
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # closes the last end of the pipe for writing
        with open(said, errors="replace") as text:
            answers[name] = code, text.read()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.write(result, json.dumps(answers).encode())
    return 0


QUICK = ("read-only", "full stdout")


@pytest.mark.long
@pytest.mark.parametrize("name", slow_but(FAULTS, QUICK))
def test_every_command_ends_in_a_line(name: str, finished: Path, tmp_path: Path):
    if name == "another user's" and os.geteuid() != 0:
        pytest.skip("only root gives files to another user")
    place = tmp_path / "place"
    result = tmp_path / "result"
    shutil.copytree(finished, place)
    result.touch()
    child = start([place, name, result], tmp_path, Harm(tame=True), run=_each_command)
    ended, said = child.ended()
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755)
    assert ended == 0, said
    for command, (code, text) in json.loads(result.read_text()).items():
        quiet = code == 0 or (command == "verify" and code == 1 and FAULTS[name].stdout is None)
        lines = [
            line
            for line in text.splitlines()
            if line and "warning: " not in line and not line.startswith("next: ")
        ]
        assert code == FAULTS[name].codes[command], (command, code, text)
        assert len(lines) == (0 if quiet else 1), (command, text)
        assert all(":" in line and "Errno" not in line for line in lines), (command, text)
