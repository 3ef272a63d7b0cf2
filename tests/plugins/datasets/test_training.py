"""A training of `scripts` learns from a data set, and continues after a signal or `kill -9` with the
same numbers."""

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
SCRIPT = str(ROOT / "scripts" / "train_corrector.py")


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command without its output folder: five runs on 32^2 points for 16^2 points."""
    folder = tmp_path_factory.mktemp("training")
    for name in ("coarse_2d.yaml", "sweep_reference_2d.yaml", "ring.py"):
        text = (CLOSURES / name).read_text()
        for old, new in (
            ("[32, 32]", "[16, 16]"),
            ("128, 128", "32, 32"),
            ("n: 40", "n: 5"),
            ("9.6", "0.4"),
        ):
            text = text.replace(old, new)
        (folder / name).write_text(text)
    subprocess.run(
        [sys.executable, "-m", "simulator", "dataset", "sweep_reference_2d.yaml"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    options = ["--frames", "1", "--updates", "40", "--batch", "4", str(folder / "coarse_2d.yaml")]
    return [
        sys.executable,
        SCRIPT,
        *options,
        str(folder / "outputs/coarse_2d/reference_2d/dataset"),
    ]


def test_a_corrector_learns_and_a_killed_training_continues(training: list[str], tmp_path: Path):
    done, stopped = ([*training, str(tmp_path / name)] for name in ("whole", "killed"))
    whole = subprocess.run(done, capture_output=True, text=True, check=True).stdout
    assert float(whole.split("reduced by ")[1].split()[0]) > 1.05
    assert (tmp_path / "whole" / "corrector.png").stat().st_size > 10_000
    killed = subprocess.Popen(stopped, stdout=subprocess.PIPE, text=True)
    assert any(line.startswith("update 20") for line in killed.stdout or ())
    killed.kill()
    killed.wait()
    # What a kill may leave: a file that is being written, and the weights of an earlier update.
    (tmp_path / "killed" / ".tmp-checkpoint.npz-1234").write_bytes(b"half")
    subprocess.run(stopped, check=True, capture_output=True)
    (tmp_path / "killed" / "arrays.npz").write_bytes(b"of an earlier update")
    subprocess.run(stopped, check=True, capture_output=True)
    left = sorted(path.name for path in (tmp_path / "killed").iterdir())
    assert left == ["arrays.npz", "checkpoint.npz", "corrector.png"]
    arrays = [np.load(tmp_path / name / "arrays.npz") for name in ("whole", "killed")]
    assert (
        all(np.array_equal(arrays[0][k], arrays[1][k]) for k in arrays[0].files)
        and len(arrays[0].files) == 10
    )


def test_a_signal_ends_a_training_after_its_update(training: list[str], tmp_path: Path) -> None:
    """With exit code 3 and a checkpoint of all updates; the same command continues."""
    updates = training.index("--updates") + 1
    command = [*training[:updates], "20000", *training[updates + 1 :], str(tmp_path / "stopped")]
    losses = [np.zeros(0)]
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("update")
            process.send_signal(number)
            said, wrong = process.communicate(timeout=300)
        assert (process.returncode, wrong) == (3, "")
        assert said.endswith("stopped; the same command continues\n")
        with np.load(tmp_path / "stopped" / "checkpoint.npz") as stored:
            losses.append(stored["losses"])
        before = losses[-2]
        np.testing.assert_array_equal(losses[-1][: len(before)], before)
        assert len(losses[-1]) > len(before), said


def test_a_mistake_before_the_updates_is_said_in_a_line(
    training: list[str], tmp_path: Path
) -> None:
    command = [*training, str(tmp_path / "out"), "time.dt=null", "time.cfl=0.5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith("time.dt: missing;")
