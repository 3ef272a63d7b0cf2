"""Small runs through the command line, in this process or in their own, and what they left."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugin_parts import need_plugins_of
from process_server import ROOT, Forked, can_fork, fork, simulator_command

from simulator import Simulation, load_config, open_run
from simulator.archive.manifest import committed
from simulator.archive.snapshot_reader import open_snapshot
from simulator.cli import main

CASE = """\
name: case
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [16, 12, 10], box: [2*pi, 5, 4]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
time: {stop: 1.0, cfl: 0.3}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, spectra: {every: 0.2}, snapshots: {every: 0.4}}
"""


def write_case(folder: Path, text: str = CASE, name: str = "case.yaml") -> Path:
    """The file of a small turbulent flow. Skips the rest of a test where a plugin of its parts is
    absent."""
    need_plugins_of(text)
    (folder / name).write_text(text)
    return folder / name


def simulate(config: Path, folder: Path, *arguments: str) -> int:
    """`simulator run CONFIG --output FOLDER ...` in this process; its exit code."""
    return main(["run", str(config), "--output", str(folder), *arguments])


def copied(run: Path, folder: Path) -> Path:
    """A copy of a run that a test may ruin, `folder/run`."""
    return Path(shutil.copytree(run, folder / "run"))


def drawn(run: str | Path) -> set[str]:
    """The names of the files that `plot` makes of a run. Skips the rest of a test where nothing can
    be drawn."""
    runs = pytest.importorskip("simulator.plugins.pictures.runs")
    return {path.name for path in runs.plot_run(run).files}


def simulation(config: Path, *overrides: str, **options: Any) -> Simulation:
    """The simulation of a configuration's file, which says nothing."""
    return Simulation(load_config(config, overrides), report=lambda line: None, **options)


def command(*arguments: str | Path) -> list[str]:
    """The command line of `simulator` in a process of its own."""
    return [sys.executable, "-m", "simulator", *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """This environment without what would place a process among others, with this checkout
    first."""
    own = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("SLURM_", "SIMULATOR_P", "SIMULATOR_N"))
    }
    return own | {"PYTHONPATH": str(ROOT)} | variables


def forked(*arguments: str | Path, **variables: str) -> Forked | subprocess.Popen[str]:
    """`simulator ...` in a process of its own, forked from the server if it cannot tell."""
    environ = environment(**variables)
    if can_fork(environ):
        return fork(simulator_command, [str(word) for word in arguments], environ=environ)
    return spawned(*arguments, **variables)


def spawned(*arguments: str | Path, **variables: str) -> subprocess.Popen[str]:
    """`simulator ...` in a process of its own, with pipes."""
    return subprocess.Popen(
        command(*arguments),
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def call(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `simulator ...` in a process of its own, to its end."""
    process = forked(*arguments, **variables)
    output = process.communicate(timeout=120)
    assert process.returncode is not None
    return subprocess.CompletedProcess(arguments, process.returncode, *output)


def fresh(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in an interpreter whose malloc, flags and JAX nothing has touched, to its
    end."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=kept | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def install(folder: Path, name: str, entry_points: str) -> None:
    """Make `folder`, once it is on the path, hold an installed package with these entry points."""
    (info := folder / f"{name}-1.0.dist-info").mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def tool(folder: Path, name: str, script: str) -> Path:
    """A program of the system, such as squeue, that is a shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def started(
    *arguments: str | Path, begin: Callable[..., Any] = forked, **variables: str
) -> Iterator[Any]:
    """`simulator ...` in a process of its own, which is killed at the end if it still runs."""
    process = begin(*arguments, **variables)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "this") -> None:
    """Returns when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true in {seconds} s"
        time.sleep(0.002)


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def rows(folder: Path) -> int:
    """Rows of diagnostics.csv written so far."""
    path = folder / "diagnostics.csv"
    return max(path.read_bytes().count(b"\n") - 1, 0) if path.exists() else 0


def table(folder: Path) -> dict[str, np.ndarray]:
    """The columns of diagnostics.csv."""
    return open_run(folder).diagnostics


def contents(saved: Path) -> dict[str, np.ndarray]:
    """All data sets of one snapshot or checkpoint."""
    snapshot = open_snapshot(saved)
    return {name: np.asarray(snapshot[name][...]) for name in snapshot}


def assert_same_end(run: Path, other: Path) -> None:
    """The last checkpoints of two runs agree bit for bit; the others may be of other steps."""
    mine, theirs = (contents(committed(folder / "checkpoints")[-1]) for folder in (run, other))
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        assert np.array_equal(mine[name], array), name


def largest_difference(one: Path, other: Path) -> float:
    """Of the last snapshots' velocities, relative to the largest speed component."""
    a, b = (contents(committed(folder / "snapshots")[-1])["velocity"] for folder in (one, other))
    assert a.shape == b.shape
    return float(abs(a - b).max() / abs(b).max())
