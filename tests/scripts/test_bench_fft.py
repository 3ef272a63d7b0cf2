"""`scripts/bench_fft.py` on a small grid."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cluster.hardware import usable_cores

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.spmd
def test_peers_are_measured_with_this_program(tmp_path):
    pytest.importorskip("scipy")
    environ = {k: v for k, v in os.environ.items() if k != "SIMULATOR_MPI4PY_FFT"}
    file = tmp_path / "fft.json"
    command = [sys.executable, str(ROOT / "scripts/bench_fft.py"), "--shape", "8,8,8", "--seconds", "0.1"]
    done = subprocess.run(
        [*command, "--json", str(file)], capture_output=True, text=True, timeout=200,
        env=environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(file.read_text())["transforms"]}
    assert next(iter(rows)).startswith("custom_partitioning")
    assert f"scipy.fft rfftn, {max(2, usable_cores())} workers" in rows
    assert "left out: mpi4py-fft" in done.stderr
    # There and back: half of each device's half of the complex grid (8 bytes a value) leaves it twice.
    assert rows["published for JAX, complex"]["sent"] == 2 * (3 * 8**3 // 2 * 8) // 2
    for name, row in rows.items():
        assert row["forward"] > 0 and row["inverse"] > 0 and len(row["rounds"]) >= 5 and name in done.stdout
