"""Runs in processes of their own, to be killed, frozen or starved; and what two equal runs have in
common."""

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from process_server import Forked, fork
from run_support import free_port

from simulator.archive.manifest import committed
from simulator.archive.open_run import open_run
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.snapshot_writer import Writer
from simulator.cli import main
from simulator.run import execute

CONFIG = """
name: fault
model: {kind: navier_stokes, viscosity: 1.0e-3}
grid: {shape: [16, 16, 16]}
initial: {kind: taylor_green}
time: {stop: 1000, cfl: 0.2, max_steps: 40, integrator: rk2}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: 1}
  spectra: {every_steps: 4}
  snapshots: {every_steps: 8}
  checkpoints: {every_steps: 4, keep_last: 3}
"""


@dataclass(frozen=True)
class Harm:
    """What is done to one process of a run. `stage`, `nth`: where in the protocol of a save it is
    killed, or `act` is done, the nth time that this process comes there. `largest`: RLIMIT_FSIZE in
    bytes from the beginning of the loop on. `tame`: root's privilege to write anywhere is given
    up."""

    stage: str | None = None
    nth: int = 1
    act: Callable[[], object] | None = None
    largest: int | None = None
    tame: bool = False


NONE = Harm()


def start(
    arguments: Sequence[object],
    place: Path,
    harm: Harm = NONE,
    name: str = "said",
    run: Callable[[list[str]], int] = main,
) -> Forked:
    """`simulator ARGUMENTS`, or `run` of these, in a process of its own."""
    said = place / f"{name}.{time.monotonic_ns()}"
    words = [str(argument) for argument in arguments]
    return fork(_harmed, harm, run, words, environ=os.environ, out=said, err=said)


def call(arguments: Sequence[object], place: Path, harm: Harm = NONE) -> tuple[int, str]:
    """Exit code and output of `simulator ARGUMENTS`."""
    return start(arguments, place, harm).ended()


def ran(place: Path, run: Path, *overrides: str, harm: Harm = NONE, code: int = 0) -> str:
    """What `simulator run` of the configuration in `place` says, which ends with this exit code."""
    found, said = call(["run", place / "run.yaml", "--output", run, *overrides], place, harm)
    assert found == code, said
    return said


def start_all(
    arguments: Sequence[object], place: Path, count: int, harm: Harm = NONE, victim: int = 0
) -> list[Forked]:
    """`count` processes that form one run; `harm` befalls the `victim`."""
    many = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", count, "--process-id"]
    return [
        start([*arguments, *many, i], place, harm if i == victim else NONE, f"said.{i}")
        for i in range(count)
    ]


def _harmed(harm: Harm, run: Callable[[list[str]], int], arguments: list[str]) -> int:
    if harm.tame:
        _give_up_root()
    _hook(harm)
    return run(arguments)


def _hook(harm: Harm) -> None:
    reached = 0

    def hook(stage: str) -> None:
        nonlocal reached
        reached += stage == harm.stage
        if stage == harm.stage and reached == harm.nth:
            harm.act() if harm.act else signal.raise_signal(signal.SIGKILL)

    def writer(*arguments, **options) -> Writer:  # made where the loop begins
        if harm.largest:
            Limit(harm.largest)()
        return Writer(*arguments, hook=hook, **options)

    execute.Writer = writer  # type: ignore[assignment]


@dataclass(frozen=True)
class Limit:
    """From here on no file of this process may grow beyond `largest` bytes."""

    largest: int

    def __call__(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.largest, self.largest))


@dataclass(frozen=True)
class ReadOnly:
    """From here on nobody may write into `folder`."""

    folder: Path

    def __call__(self) -> None:
        self.folder.chmod(0o555)


def _give_up_root() -> None:
    """Clears CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of this process, so that modes of files mean
    something to root too."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0] &= ~6
    assert libc.capset(header, sets) == 0


def steps(kind: str, run: Path) -> list[int]:
    return [int(folder.name) for folder in committed(run / kind)]


def stored(kind: str, run: Path) -> dict[str, dict]:
    """Every bit of every field by folder and name, and what the next start reads beside them."""
    found = {}
    for folder in committed(run / kind):
        snapshot = open_snapshot(folder)
        known = {k: v for k, v in snapshot.attributes.items() if k in ("time", "dt", "schedule")}
        found[folder.name] = {name: snapshot[name][...].tobytes() for name in snapshot} | known
    return found


def assert_equal(run: Path, undisturbed: Path) -> None:
    """Bit for bit: every snapshot, checkpoint and row; and nothing else is left."""
    for kind in ("snapshots", "checkpoints"):
        mine = stored(kind, run)
        other = stored(kind, undisturbed)
        assert list(mine) == list(other)
        assert [name for name in mine if mine[name] != other[name]] == []
    assert (run / "diagnostics.csv").read_text() == (undisturbed / "diagnostics.csv").read_text()
    for name in ("spectra", "slices"):
        mine = open_run(run).series(name)
        other = open_run(undisturbed).series(name)
        assert (
            mine.step.tolist() == other.step.tolist() and mine.time.tolist() == other.time.tolist()
        )
        for variable in other:
            np.testing.assert_array_equal(mine[variable], other[variable])
    assert_clean(run)


def assert_near(run: Path, other: Path, tolerance: float = 1e-12) -> None:
    """The fields and clocks of the last checkpoints of two layouts agree, relative to each field's
    maximum."""
    mine, theirs = (open_snapshot(committed(r / "checkpoints")[-1]) for r in (run, other))
    assert mine.step == theirs.step
    for name in (n for n in theirs if theirs.manifest.fields[n].is_mesh or n in ("time", "dt")):
        values = theirs[name][...]
        assert np.abs(mine[name][...] - values).max() <= tolerance * np.abs(values).max(), name


def assert_clean(run: Path) -> None:
    """Nothing is left of what a killed run was writing, and everything verifies."""
    assert not [path for path in run.rglob(".tmp-*")]
    assert main(["verify", str(run), "--quiet"]) == 0


def assert_blameless(run: Path) -> None:
    """A kill is no damage: whatever was committed verifies."""
    assert (
        not run.exists()
        or not (run / "config.yaml").exists()
        or main(["verify", str(run), "--quiet"]) == 0
    )


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    where = int(place * (len(content) - 1))
    content[where] ^= 1 << (where % 8)
    path.write_bytes(content)


def cut(path: Path, place: float) -> None:
    os.truncate(path, int(place * path.stat().st_size))


def everything(run: Path) -> dict[str, bytes]:
    """Every file of a run but the lock, by name."""
    files = (p for p in run.rglob("*") if p.is_file() and p.name != "lock")
    return {str(p.relative_to(run)): p.read_bytes() for p in files}


def freeze() -> None:
    """Stops this process until somebody continues it."""
    signal.raise_signal(signal.SIGSTOP)


def is_frozen(process: Forked) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


HERE = "/proc/self/cwd"  # Other files for each process, under one name.


def inside(arguments: list[str]) -> int:
    """`simulator ARGUMENTS` in the folder that is named first."""
    os.chdir(arguments[0])
    return main(arguments[1:])


def both(place: Path, one: list[object], other: list[object]) -> tuple[list[int], list[str]]:
    """Exit codes and output of two processes of a run, each with its folder and arguments."""
    by_hand = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--process-id"]
    commands = ([*one, *by_hand, 0], [*other, *by_hand, 1])
    began = time.monotonic()
    started = [
        start(words, place, name=f"said.{i}", run=inside) for i, words in enumerate(commands)
    ]
    ended = [process.ended() for process in started]
    assert time.monotonic() - began < 40, "they waited for one another"
    return [code for code, _ in ended], [said for _, said in ended]
