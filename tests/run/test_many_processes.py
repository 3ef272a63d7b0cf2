"""Sixteen local processes, on however few cores there are."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from run_support import started, wait_until, write_case

from simulator.archive.manifest import committed
from simulator.archive.state import read_state

CASE = """\
name: many
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [16, 16, 16]}
initial: {kind: taylor_green}
time: {stop: 1.0e6, dt: 0.01}
devices: {platform: cpu, count: 16}
output: {diagnostics: {every_steps: 1000}, checkpoints: {every_steps: 5}}
"""
PATIENCE = 500.0  # two idle cores take about 80 s to start and compile


def children(parent: int) -> dict[int, int]:
    """The launcher's processes: {number: pid}."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            variables = (folder / "environ").read_bytes().split(b"\0")
            number = next(v for v in variables if v.startswith(b"SIMULATOR_PROCESS_ID="))
            found[int(number.partition(b"=")[2])] = int(folder.name)
    return found


@pytest.mark.slow
@pytest.mark.spmd
def test_sixteen_processes_start_run_lose_one_and_stop(tmp_path: Path):
    case, run = write_case(tmp_path, CASE), tmp_path / "run"
    arguments = ("run", case, "--output", run, "--processes", "16")

    def step() -> int:
        state = read_state(run)
        return state.step if state is not None else 0

    with started(*arguments) as launcher:
        wait_until(lambda: launcher.poll() is not None or committed(run / "checkpoints"), PATIENCE)
        pids = children(launcher.pid)
        assert sorted(pids) == list(range(16))
        os.kill(pids[7], signal.SIGKILL)
        _, said = launcher.communicate(timeout=60)
        assert launcher.returncode == 1
        assert said.splitlines()[-1] == "simulator: process 7 of 16 was killed by SIGKILL"
        assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]

    first = int(committed(run / "checkpoints")[-1].name)
    with started(*arguments) as launcher:
        wait_until(lambda: launcher.poll() is not None or step() > first + 5, PATIENCE)
        launcher.send_signal(signal.SIGTERM)
        out, said = launcher.communicate(timeout=PATIENCE)
        assert launcher.returncode == 3, said
        assert "16 cpu devices in 16 processes" in out and "SIGTERM" in out
    state = read_state(run)
    assert state is not None and state.state == "stopped" and state.last_checkpoint == state.step > first
