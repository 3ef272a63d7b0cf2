"""What a run reads is part of the run: files of every kind that change between two starts."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fault_support import flip
from input_cases import OTHER, begun_in, continued, edited, every_input, put_back
from run_support import command, environment, simulate, table, write_case

from simulator import open_run, open_sweep
from simulator.cli import main


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return every_input(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def begun(original, tmp_path_factory) -> Path:
    return begun_in(tmp_path_factory.mktemp("begun") / "there", original)


@pytest.fixture
def place(begun, tmp_path, monkeypatch) -> Iterator[Path]:
    """`begun`, where it was, to be changed."""
    monkeypatch.chdir(begun)
    with put_back(begun, tmp_path / "kept") as folder:
        yield folder


COPIED = ("closure.py", "inside.py", "E/force.py", "E/helpers.py", "E/parts/sign.py", "start.py")


@pytest.mark.spmd
def test_edited_copies_are_not_used_and_a_line_says_so(place: Path, tmp_path: Path, capsys):
    """Neither of the user's files nor of what they import, which may even be deleted."""
    shutil.copytree(place / "run", tmp_path / "untouched")
    assert main(["resume", str(tmp_path / "untouched"), "time.stop=0.4"]) == 0
    for name in COPIED:
        edited(place / name)
    (place / "weights.npz").unlink()
    (place / "E/parts/late.py").unlink()
    said = continued(place, capsys)
    for name in COPIED:
        copy = rf"{place / name}: differs from the run's copy .*, which is used; to use the new one, begin again"
        assert len(re.findall(copy, said)) == 1, said
    energies = [table(run)["energy"] for run in (place / "run", tmp_path / "untouched")]
    np.testing.assert_array_equal(*energies)


@pytest.mark.spmd
def test_an_edited_function_of_an_output_is_used_from_there_on(place: Path, capsys):
    (place / "scale.py").write_text("SCALE = 3.0")
    said = continued(place, capsys)
    assert f"{place / 'scale.py'}: has changed and is used from here on (output.python)" in said
    series = open_run(place / "run").series("mean")
    energy = table(place / "run")["energy"]
    np.testing.assert_allclose(series["mean"] / energy, [1, 1, 1, 3, 3], rtol=1e-12)
    assert main(["verify", str(place / "run"), "--quiet"]) == 0


def test_a_flipped_bit_in_the_snapshot_of_a_start_is_refused(
    original: Path, tmp_path: Path, capsys
):
    folder = tmp_path / "there"
    shutil.copytree(original, folder)
    flip(folder / "other/snapshots/00000000/shards/p00000.h5", 0.9)
    text = OTHER.replace(
        "{kind: random, peak: 2, energy: 0.5, seed: 1}",
        "{kind: snapshot, path: other/snapshots/00000000}",
    )
    (folder / "run.yaml").write_text(text)
    assert simulate(folder / "run.yaml", folder / "run") == 1
    assert "shards/p00000.h5: altered (its checksum does not match)" in capsys.readouterr().err
    assert not (folder / "run").exists()


def test_each_file_has_its_own_neighbours(tmp_path: Path):
    """Two files import modules of one name; and the program's module of that name stays."""
    for name, amplitude in (("A", 1.0), ("B", 3.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helpers.py").write_text(f"AMPLITUDE = {amplitude}")
        (tmp_path / name / "own.py").write_text(
            "import jax.numpy as jnp\nimport random\nimport helpers as h\n"
            "def start(x, y):\n    return {'velocity': (h.AMPLITUDE * jnp.sin(y) + 0 * x, 0 * x * y)}\n"
            "def push(x, y, t):\n    import helpers\n"
            "    return {'velocity': (helpers.AMPLITUDE * jnp.sin(y), 0 * y)}\n"
        )
        (tmp_path / name / "random.py").write_text("raise SystemError('not this one')")
    text = OTHER.replace(
        "initial: {kind: random, peak: 2, energy: 0.5, seed: 1}",
        "initial: {kind: python, path: A/own.py, function: start}\n"
        "forcing: {kind: python, path: B/own.py, function: push}",
    )
    (tmp_path / "run.yaml").write_text(text)
    assert simulate(tmp_path / "run.yaml", tmp_path / "run", "model.viscosity=0") == 0
    energy = table(tmp_path / "run")["energy"]
    np.testing.assert_allclose(energy, [1 / 4, (1 + 3) ** 2 / 4], rtol=1e-12)


def test_a_sweep_runs_again_after_a_change_of_a_neighbour(original: Path, tmp_path: Path):
    folder = tmp_path / "there"
    shutil.copytree(original, folder)
    (folder / "sweep.yaml").write_text("base: run.yaml\nsweep: {grid: {model.viscosity: [1, 2]}}\n")

    def hashes() -> list[str]:
        return [run.hash for run in open_sweep(folder / "sweep.yaml").runs]

    before = hashes()
    assert hashes() == before
    edited(folder / "E/parts/sign.py")
    assert not set(hashes()) & set(before)


def test_a_function_that_hangs_ends_the_command_and_is_named(tmp_path: Path):
    """A start that never returns, as it would hang a study; the command has written nothing."""
    (tmp_path / "start.py").write_text("import time\ndef start(x, y, z):\n    time.sleep(1000)\n")
    start = "initial={kind: python, path: start.py, function: start}"
    config = write_case(tmp_path)
    result = subprocess.run(
        command("run", config, start, "run.watchdog=1", f"output.directory={tmp_path / 'run'}"),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1 and "is stuck in start (start.py:3)" in result.stderr
    assert not (tmp_path / "run").exists()
