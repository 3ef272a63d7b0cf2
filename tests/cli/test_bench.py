"""`simulator bench fft`: the real command on a small grid."""

import json
import os
import subprocess
import sys

import pytest

from simulator.cli import main
from simulator.cluster.hardware import usable_cores


def bench(*arguments, timeout=200):
    env = {k: v for k, v in os.environ.items() if k != "SIMULATOR_MPI4PY_FFT"}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "simulator",
            "bench",
            "fft",
            "--platform",
            "cpu",
            "--seconds",
            "0.2",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=env,
    )


@pytest.mark.spmd
def test_every_contender_is_measured(tmp_path):
    done = bench("--shape", "16,16,16", "--devices", "2", "--json", str(tmp_path / "fft.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "fft.json").read_text())
    rows = {row["name"]: row for row in found["transforms"]}
    assert next(iter(rows)) == "custom_partitioning z_xy on 2"
    assert {"custom_partitioning zx_y on 2", "jaxdecomp slab on 1 x 2", "complex recipe"} < set(rows)
    assert (
        f"scipy.fft rfftn, {max(2, usable_cores())} workers" in rows and "left out: mpi4py-fft" in done.stdout
    )
    recipe = rows["complex recipe"]["sent"]
    assert recipe == 2 * 3 * 16**3 // 2 * 8 // 2
    for row in rows.values():
        assert row["forward"] > 0 and row["inverse"] > 0 and len(row["rounds"]) >= 5
        assert row["name"] in done.stdout
    assert [row["name"] for row in found["term"]] == ["in blocks", "whole fields"]


@pytest.mark.slow
@pytest.mark.spmd
def test_several_processes():
    done = bench("--shape", "8,8,8", "--devices", "2", "--processes", "2")
    assert done.returncode == 0, done.stderr
    assert "2 devices (cpu) of 2 processes" in done.stdout
    assert done.stdout.count("custom_partitioning zx_y on 2") == 1  # printed by the first alone
    assert "scipy" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "16,16"], "'16,16' is no shape; write e.g. 256,256,256"),
        (
            ["--shape", "8,8,8", "--devices", "1000"],
            "devices.count: 1000 devices cannot share a 8 x 8 x 8 grid",
        ),
        (["--devices", "0"], "--devices: 0 is no number of devices"),
        (["--devices", "3", "--processes", "2"], "--devices: 3 is no multiple of 2 processes"),
        (["--processes", "0"], "--processes: 0 is no number of processes"),
    ],
)
def test_refusals(arguments, message, capsys):
    assert main(["bench", "fft", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
