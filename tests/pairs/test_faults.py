"""Faults of runs of many processes, of ensembles and of sweeps: each ends equal to the undisturbed
one, or in a line.

python tests/pairs/test_faults.py 20        # twenty kills of each subject"""

import contextlib
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pair_runs import bits, difference
from run_support import children, command, environment

pytestmark = [pytest.mark.slow, pytest.mark.spmd]

OUTPUT = """
time: {stop: 1000, dt: 0.001, max_steps: 400}
devices: {platform: cpu, count: COUNT}
output:
  diagnostics: {every_steps: 5}
  spectra: {every_steps: 40}
  snapshots: {every_steps: 100}
  checkpoints: {every_steps: 20, keep_last: 3}
"""
MATTER = """
model: {kind: composite, components: [{kind: particles, name: dark, count: 1000}]}
grid: {shape: [16, 16, 16]}
initial: {kind: composite, components: {dark: {kind: zeldovich_wave, amplitude: 0.3}}}
"""
TRACERS = """
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [16, 16, 16]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
particles:
  - {name: tracers, kind: tracer, count: 200}
  - {name: drops, kind: inertial, count: 200, relaxation_time: 0.1}
"""
STUDY = "base: run.yaml\nname: study\nsweep: {grid: {model.viscosity: [0.02, 0.03, 0.04]}}\n"
SUBJECTS = {
    "matter": (MATTER, 2, ["run", "run.yaml", "--output", "study", "--processes", "2"]),
    "tracers": (TRACERS, 2, ["run", "run.yaml", "--output", "study", "--processes", "2"]),
    "ensemble": (
        TRACERS.partition("particles")[0],
        1,
        ["sweep", "run", "sweep.yaml", "--batch", "auto"],
    ),
    "sweep": (TRACERS, 1, ["sweep", "run", "sweep.yaml", "--jobs", "2"]),
}
LIMIT = 400.0
"""Seconds until a process that was asked to end, or lost another one, has to be gone."""


@dataclass
class Subject:
    """A command that may be started again and again in `place`, until its study is complete."""

    place: Path
    arguments: list[str]

    @classmethod
    def made(cls, name: str, place: Path) -> "Subject":
        text, count, arguments = SUBJECTS[name]
        place.mkdir()
        (place / "run.yaml").write_text(f"name: run\n{text}{OUTPUT}".replace("COUNT", str(count)))
        (place / "sweep.yaml").write_text(STUDY)
        return cls(place, arguments)

    @contextlib.contextmanager
    def started(
        self, before: list[str] | None = None, **variables: str
    ) -> Iterator[subprocess.Popen[str]]:
        """The command in a session of its own; whatever is left of it at the end is killed."""
        variables = {"OUTPUTS": str(self.place)} | variables
        with (self.place / "said").open("w") as said:
            process = subprocess.Popen(
                [*(before or []), *command(*self.arguments)],
                env=environment(**variables),
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            kill(process)

    def ended(self, before: list[str] | None = None, **variables: str) -> int:
        """The exit code of a start to its end."""
        with self.started(before, **variables) as process:
            return process.wait(LIMIT)

    def said(self) -> str:
        return (self.place / "said").read_text()

    def finished(self) -> None:
        """Starts the command until it says that it is done."""
        codes = []
        while not codes or codes[-1] != 0:
            assert len(codes) < 5, (codes, self.said()[-1000:])
            codes.append(self.ended())

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.place.rglob("diagnostics.csv"))


def last_state(run: dict[str, dict[str, bytes]]) -> dict[str, dict[str, bytes]]:
    """All but the earlier checkpoints: a run that was asked to stop has written some at other
    steps."""
    last = max(name for name in run if name.startswith("checkpoints/"))
    return {
        name: found
        for name, found in run.items()
        if not name.startswith("checkpoints/") or name == last
    }


def assert_same(subject: Subject, undisturbed: Subject, tolerance: float = 0.0) -> None:
    mine = subject.runs()
    theirs = undisturbed.runs()
    names = [run.name for run in mine], [run.name for run in theirs]
    assert names[0] == names[1] and mine, (names, subject.said()[-2000:])
    for one, two in zip(mine, theirs, strict=True):
        if tolerance == 0:
            found = last_state(bits(one))
            expected = last_state(bits(two))
            different = [
                name
                for name in found.keys() | expected.keys()
                if found.get(name) != expected.get(name)
            ]
            assert not different, (one, different[:5])
        else:
            assert not [(n, d) for n, d in difference(one, two) if d > tolerance]


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, the deepest last."""
    found = []
    with contextlib.suppress(OSError):
        for child in children(pid):
            found += [child, *descendants(child)]
    return found


def kill(process: subprocess.Popen[Any]) -> None:
    """Ends what is left of a command."""
    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def killed(subject: Subject, seconds: float, chance: random.Random) -> bool:
    """Starts the command and kills one of its processes after so long; whether that ended it before
    its time. The others end by themselves, unless the starter was killed: then they are ended as
    Slurm does."""
    with subject.started() as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert process.wait(seconds) == 0, subject.said()
            return False
        victim = chance.choice([process.pid, *descendants(process.pid)])
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        return process.wait(LIMIT) != 0


def killed_often(name: str, place: Path, kills: int, seed: int) -> int:
    """The number of kills of a subject that ended equal to the undisturbed one; prints what it
    meets."""
    undisturbed = Subject.made(name, place / "undisturbed")
    began = time.monotonic()
    undisturbed.finished()
    whole = time.monotonic() - began
    chance = random.Random(seed)
    done = 0
    number = 0
    while done < kills:
        subject = Subject.made(name, place / f"study{number}")
        number += 1
        interrupted = True
        while done < kills and (
            interrupted := killed(subject, chance.uniform(0.2, 1.2) * whole, chance)
        ):
            done += 1
        if interrupted:
            subject.finished()
        assert_same(subject, undisturbed)
        print(f"{name}: {done} kills, {number} studies equal", flush=True)
    return done


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Callable[[str], Subject]:
    """Each subject, undisturbed; made once."""
    made: dict[str, Subject] = {}

    def find(name: str) -> Subject:
        if name not in made:
            made[name] = Subject.made(name, tmp_path_factory.mktemp(name) / "undisturbed")
            made[name].finished()
        return made[name]

    return find


@pytest.fixture(params=SUBJECTS)
def name(request) -> str:
    return request.param


@pytest.fixture
def subject(name: str, tmp_path: Path) -> Subject:
    return Subject.made(name, tmp_path / "study")


def test_killed_at_random_times(name: str, tmp_path: Path):
    assert killed_often(name, tmp_path, 3, int(os.environ.get("SIMULATOR_TESTS_DAY", "0"))) == 3


def _begun(subject: Subject, process: subprocess.Popen[Any], terminal: int | None = None) -> None:
    """Waits until some run has rows; reads what it writes to a `terminal`, which would block it
    once it is full."""
    end = time.monotonic() + LIMIT
    while process.poll() is None and not any(
        run.read_text().count("\n") > 3 for run in subject.place.rglob("diagnostics.csv")
    ):
        assert time.monotonic() < end
        time.sleep(0.02)
        if terminal is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(terminal, 1 << 16)


def _one_line_or_nothing(subject: Subject) -> None:
    assert "Traceback" not in subject.said(), subject.said()[-2000:]


def test_one_process_frozen_for_half_a_minute(name: str, subject: Subject, undisturbed):
    with subject.started() as process:
        _begun(subject, process)
        victim = (descendants(process.pid) or [process.pid])[-1]
        os.kill(victim, signal.SIGSTOP)
        time.sleep(30)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
        assert process.wait(LIMIT) == 0, subject.said()
    assert_same(subject, undisturbed(name))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interrupted_twice_or_hung_up(
    name: str, number: signal.Signals, subject: Subject, undisturbed
):
    """Ctrl-C twice, and a closed terminal, reach the whole group."""
    with subject.started() as process:
        _begun(subject, process)
        for _ in range(2 if number == signal.SIGINT else 1):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            time.sleep(0.7)
        code = process.wait(LIMIT)
        left = descendants(process.pid)
    assert code in (0, 3, 128 + number, -number, 1) and not left, (code, left, subject.said())
    _one_line_or_nothing(subject)
    subject.finished()
    assert_same(subject, undisturbed(name))


def test_a_closed_terminal(name: str, subject: Subject, undisturbed):
    """The terminal goes away: whatever is written to it fails, and its group gets SIGHUP."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command(*subject.arguments)],
        env=environment(OUTPUTS=str(subject.place)),
        cwd=subject.place,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    os.set_blocking(leader, False)
    try:
        _begun(subject, process, leader)
        os.close(leader)
        process.wait(LIMIT)
    finally:
        kill(process)
    subject.finished()
    assert_same(subject, undisturbed(name))


def test_a_full_disk(name: str, subject: Subject, undisturbed):
    """No file may grow beyond 64 kB, which checkpoints do: one line, and with room the run
    continues."""
    assert subject.ended(["bash", "-c", 'ulimit -f 64; exec "$@"', "bash"]) == 1, subject.said()
    _one_line_or_nothing(subject)
    if subject.arguments[0] == "sweep":  # failed runs are tried again only if one asks for it
        subject.arguments = ["sweep", "retry", *subject.arguments[2:], "--failed"]
    subject.finished()
    assert_same(subject, undisturbed(name))


def test_no_compiler_no_home_and_no_cache(name: str, tmp_path: Path, undisturbed):
    """Each with a warning at most. XLA's kernels, used where no others can be built, round in
    another way."""
    (tmp_path / "file").touch()
    surroundings = {
        "compiler": {"PATH": str(tmp_path), "SIMULATOR_CACHE": str(tmp_path / "fresh")},
        "cache": {"SIMULATOR_CACHE": str(tmp_path / "file")},
    }
    for kind, variables in surroundings.items():
        subject = Subject.made(name, tmp_path / kind)
        assert subject.ended(None, **variables) == 0, subject.said()
        _one_line_or_nothing(subject)
        assert_same(subject, undisturbed(name), 1e-12)
    subject = Subject.made(name, tmp_path / "home")
    assert (
        subject.ended(["env", "-u", "HOME", "-u", "SIMULATOR_CACHE", "-u", "XDG_CACHE_HOME"]) == 0
    ), subject.said()
    _one_line_or_nothing(subject)


if __name__ == "__main__":
    for subject_name in sys.argv[2:] or SUBJECTS:
        with tempfile.TemporaryDirectory() as folder:
            killed_often(subject_name, Path(folder), int(sys.argv[1]), 1)
