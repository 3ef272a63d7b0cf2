"""What terms read is part of the run: arrays and snapshots that change between two starts, or that
two processes of a run see differently."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from fault_support import HERE, both
from input_cases import OTHER, begun_in, continued, put_back
from run_support import simulate

from simulator import load_config
from simulator.errors import UserError
from simulator.run.refusals import check_configuration

CASE = """\
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8]}
initial: {kind: taylor_green}
terms:
- {name: near, kind: relax, target: {velocity: {snapshot: other/snapshots/00000000}}, relaxation_time: 1,
   mask: {kind: array, path: mask.npy}}
- {name: late, kind: relax, target: {velocity: {series: other}}, relaxation_time: 1,
   mask: {kind: array, path: mask.h5, dataset: chi}}
time: {stop: 0.2, dt: 0.1, integrator: rk2}
devices: {platform: cpu}
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "other.yaml").write_text(OTHER)
    (folder / "run.yaml").write_text(CASE)
    assert simulate(folder / "other.yaml", folder / "other") == 0
    mask = np.full((8, 8), 0.5)
    np.save(folder / "mask.npy", mask)
    with h5py.File(folder / "mask.h5", "w") as file:
        file["chi"] = mask
    return folder


@pytest.fixture(scope="module")
def begun(original, tmp_path_factory) -> Path:
    return begun_in(tmp_path_factory.mktemp("begun") / "there", original)


@pytest.fixture
def place(begun, tmp_path, monkeypatch) -> Iterator[Path]:
    """`begun`, where it was, to be changed."""
    monkeypatch.chdir(begun)
    with put_back(begun, tmp_path / "kept") as folder:
        yield folder


def another_mask(place: Path) -> str:
    np.save(place / "mask.npy", np.full((8, 8), 0.4))
    return "mask.npy: has changed since this run began; put it back, or begin again"


def another_data_set(place: Path) -> str:
    with h5py.File(place / "mask.h5", "a") as file:
        file["chi"][...] = 0.4
    return "mask.h5: has changed since this run began"


def another_snapshot(place: Path) -> str:
    shutil.rmtree(place / "other")
    simulate(place / "other.yaml", place / "other", "initial.seed=2")
    return "other/snapshots/00000000/manifest.json: has changed since this run began"


def one_more_snapshot(place: Path) -> str:
    shutil.rmtree(place / "other")
    simulate(place / "other.yaml", place / "other", "output.snapshots.every=0.25")
    return "other: has other snapshots than when this run began"


def no_mask(place: Path) -> str:
    (place / "mask.npy").unlink()
    return "mask.npy"


@pytest.mark.parametrize(
    "change", [another_mask, another_data_set, another_snapshot, one_more_snapshot, no_mask]
)
def test_a_change_of_what_is_not_copied_is_refused(place: Path, capsys, change):
    said = change(place)
    before = (place / "run/state.json").read_bytes()
    assert said in continued(place, capsys, code=2)
    assert (place / "run/state.json").read_bytes() == before


def virtual(file: h5py.File, place: Path) -> None:
    layout = h5py.VirtualLayout((8, 8), float)
    layout[:] = h5py.VirtualSource("missing.h5", "chi", (8, 8))
    file.create_virtual_dataset("chi", layout)


def external(file: h5py.File, place: Path) -> None:
    file.create_dataset("chi", (8, 8), float, external=[(str(place / "mask.npy"), 0, 512)])


def linked(file: h5py.File, place: Path) -> None:
    file["chi"] = h5py.ExternalLink(str(place / "mask.h5"), "chi")


@pytest.mark.parametrize("make", [virtual, external, linked])
def test_values_that_lie_in_other_files_are_refused(original: Path, tmp_path, make):
    with h5py.File(tmp_path / "mask.h5", "w") as file:
        make(file, original)
    text = f"terms.1.mask.path={tmp_path / 'mask.h5'}"
    with pytest.raises(UserError, match=r"mask.h5: chi: lies in other files") as refusal:
        check_configuration(load_config(original / "run.yaml", [text]))
    assert len(str(refusal.value).splitlines()) == 1


def no_snapshot(place: Path) -> str:
    shutil.rmtree(place / "other/snapshots/00000005")
    return "other"


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.parametrize("change", [another_mask, another_data_set, no_snapshot])
def test_another_file_of_one_process_ends_both(
    original: Path, tmp_path: Path, change: Callable[[Path], str]
):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        shutil.copytree(original, folder)
    what = change(folders[1]).partition(":")[0]
    words = ["run", f"{HERE}/run.yaml", "--output", tmp_path / "run"]
    codes, texts = both(tmp_path, *([folder, *words] for folder in folders))
    assert codes == [2, 2], texts
    assert all("the processes of this run " in text and what in text for text in texts)
    assert not (tmp_path / "run").exists()
