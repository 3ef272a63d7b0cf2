"""A training of `scripts` learns from a data set, and continues after `kill -9` with the same numbers."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_support import ROOT

pytest.importorskip("optax")
pytestmark = pytest.mark.slow

CLOSURES = ROOT / "configs" / "closures"
COARSE = ["grid.shape=[16,16]", "time.stop=0.4"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    for name in ("coarse_2d.yaml", "sweep_reference_2d.yaml", "ring.py"):
        (folder / name).write_text(
            (CLOSURES / name).read_text().replace("128, 128", "32, 32").replace("n: 40", "n: 5")
        )
    (folder / "coarse_2d.yaml").write_text((folder / "coarse_2d.yaml").read_text().replace("9.6", "0.4"))
    command = [sys.executable, "-m", "simulator", "dataset", "sweep_reference_2d.yaml"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "outputs" / "coarse_2d" / "reference_2d" / "dataset"


def training(dataset: Path, output: Path) -> list[str]:
    config = str(dataset.parents[3] / "coarse_2d.yaml")
    options = ["--frames", "1", "--updates", "40", "--batch", "4"]
    return [
        sys.executable,
        str(ROOT / "scripts" / "train_corrector.py"),
        config,
        str(dataset),
        str(output),
        *options,
        *COARSE,
    ]


def test_a_corrector_learns_and_a_killed_training_continues(dataset: Path, tmp_path: Path) -> None:
    whole = subprocess.run(training(dataset, tmp_path / "whole"), capture_output=True, text=True, check=True).stdout
    assert float(whole.split("reduced by ")[1].split()[0]) > 1.05
    assert (tmp_path / "whole" / "corrector.png").stat().st_size > 10_000
    killed = subprocess.Popen(training(dataset, tmp_path / "killed"), stdout=subprocess.PIPE, text=True)
    for line in killed.stdout or ():
        if line.startswith("update 20"):
            break
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    subprocess.run(training(dataset, tmp_path / "killed"), check=True, capture_output=True)
    arrays = [np.load(tmp_path / name / "arrays.npz") for name in ("whole", "killed")]
    assert all(np.array_equal(arrays[0][k], arrays[1][k]) for k in arrays[0].files) and len(arrays[0].files) == 10
