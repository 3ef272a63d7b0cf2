"""Real processes, joined by jax.distributed on loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from process_child import MODES, VELOCITY
from storage_support import XYZ, grid, on_devices

from simulator.archive.manifest import Axis, clean_leftovers
from simulator.archive.reader import open_snapshot
from simulator.archive.shard import Dataset
from simulator.archive.verify import newest_good, verify
from simulator.archive.writer import STAGES, save

pytestmark = pytest.mark.spmd
HERE = Path(__file__).parent


def start(scene: str, folder: Path, count: int) -> list[subprocess.Popen]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = str(HERE.parent.parent)
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    env |= {"PYTHONPATH": os.pathsep.join([root, str(HERE), env.get("PYTHONPATH", "")])}
    arguments = [sys.executable, str(HERE / "process_child.py"), scene, str(folder), str(port), str(count)]
    return [
        subprocess.Popen(
            [*arguments, str(i)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for i in range(count)
    ]


def run(scene: str, folder: Path, count: int) -> None:
    children = start(scene, folder, count)
    try:
        for child in children:
            output, _ = child.communicate(timeout=120)
            assert child.returncode == 0, output[-4000:]
    finally:
        for child in children:
            child.kill()
            child.wait()


def save_alone(folder: Path, step: int, devices: int) -> Path:
    datasets = [
        Dataset(
            "velocity", on_devices(VELOCITY + step, (devices,), (None, None, None, 0)), grid(6, 8, 7), XYZ
        ),
        Dataset(
            "modes",
            on_devices(MODES * step, (devices,), (None, 0)),
            (Axis.modes("kx", [0, 1, 2, -2, -1]), Axis.modes("ky", [0, 1, 2, 3])),
        ),
        Dataset("table", np.arange(4.0)),
        Dataset("step", step),
    ]
    return save(folder, step, datasets, {"time": 0.0})


@pytest.mark.parametrize(
    "count", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_saved_and_restored_by_other_numbers_of_processes(devices, tmp_path, count):
    for step, n in ((1, 1), (2, 8)):
        save_alone(tmp_path, step, n)
    run("saved_and_restored", tmp_path, count)
    folder = tmp_path / "00000003"
    snapshot = open_snapshot(folder)
    assert {s.file for s in snapshot.manifest.shards} == {f"shards/p0000{i}.h5" for i in range(count)}
    assert verify(folder).ok
    np.testing.assert_array_equal(np.asarray(snapshot["velocity"]), VELOCITY + 3)
    np.testing.assert_array_equal(np.asarray(snapshot["modes"]), MODES * 3)


def test_written_in_the_background_while_both_compute(tmp_path):
    run("in_the_background", tmp_path, 2)


def test_a_full_disk_on_one_process_is_agreed_on_by_all(tmp_path):
    run("one_disk_is_full", tmp_path, 2)


STAGES_OF = {
    0: [s for s in STAGES if s != "moved aside"],
    1: ["copied", "folder made", "shard written", "gathered"],
}
KILLS = [(victim, stage) for victim, stages in STAGES_OF.items() for stage in stages]


@pytest.mark.parametrize(
    ("victim", "stage"),
    [
        pytest.param(*kill, marks=[] if kill in ((1, "shard written"), (0, "renamed")) else pytest.mark.slow)
        for kill in KILLS
    ],
)
def test_one_of_two_processes_killed(devices, tmp_path, victim, stage):
    good = save_alone(tmp_path, 1, 2)
    (tmp_path / "kill.json").write_text(json.dumps([victim, stage]))
    children = start("killed", tmp_path, 2)
    try:
        assert children[victim].wait(60) == -signal.SIGKILL
        if victim == 1:
            time.sleep(1)  # process 0 may go as far as it can
    finally:
        for child in children:
            child.kill()
            child.wait()
            child.stdout.close()
    # process 0 commits what was gathered, whatever becomes of the others
    certain = victim == 0 or stage != "gathered"
    expected = STAGES.index(stage) >= STAGES.index("renamed")
    clean_leftovers(tmp_path)
    newest, skipped = newest_good(tmp_path)
    assert skipped == []
    if certain:
        assert newest == (tmp_path / "00000002" if expected else good)
    for folder in {newest, good}:
        assert verify(folder).restorable
        step = int(folder.name)
        np.testing.assert_array_equal(np.asarray(open_snapshot(folder)["velocity"]), VELOCITY + step)
