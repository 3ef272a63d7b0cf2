"""Small runs through the command line, in this process or in their own, and what they left."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simulator.archive.manifest import committed
from simulator.archive.reader import open_snapshot
from simulator.cli import main

ROOT = Path(__file__).parents[1]

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
    """The file of a small turbulent flow."""
    (folder / name).write_text(text)
    return folder / name


def simulate(config: Path, folder: Path, *arguments: str) -> int:
    """`simulator run CONFIG --output FOLDER ...` in this process; its exit code."""
    return main(["run", str(config), "--output", str(folder), *arguments])


def command(*arguments: str | Path) -> list[str]:
    """The command line of `simulator` in a process of its own."""
    return [sys.executable, "-m", "simulator", *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    """This environment without what would place a process among others, with this checkout first."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SIMULATOR_P", "SIMULATOR_N"))}
    return own | {"PYTHONPATH": str(ROOT)} | variables


def call(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `simulator ...` in a process of its own, to its end."""
    return subprocess.run(
        command(*arguments), env=environment(**variables), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


@contextlib.contextmanager
def started(*arguments: str | Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """`simulator ...` in a process of its own, which is killed at the end if it still runs."""
    process = subprocess.Popen(
        command(*arguments), env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Returns when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.002)


def rows(folder: Path) -> int:
    """Rows of diagnostics.csv written so far."""
    path = folder / "diagnostics.csv"
    return max(path.read_bytes().count(b"\n") - 1, 0) if path.exists() else 0


def table(folder: Path) -> dict[str, np.ndarray]:
    """The columns of diagnostics.csv."""
    from simulator import open_run

    return open_run(folder).diagnostics


def contents(saved: Path) -> dict[str, np.ndarray]:
    """All data sets of one snapshot or checkpoint."""
    snapshot = open_snapshot(saved)
    return {name: np.asarray(snapshot[name][...]) for name in snapshot}


def largest_difference(one: Path, other: Path) -> float:
    """Of the last snapshots' velocities, relative to the largest speed component."""
    a, b = (contents(committed(folder / "snapshots")[-1])["velocity"] for folder in (one, other))
    assert a.shape == b.shape
    return float(abs(a - b).max() / abs(b).max())
