"""The decision table of INTERFACES, row by row, and what is removed from a run folder."""

import dataclasses
import threading
from pathlib import Path

import pytest

from simulator.archive.run_state import RunState, percent, read_state, write_state
from simulator.config import Change, Difference
from simulator.errors import UserError
from simulator.run.folder import (
    USUAL,
    Action,
    Choices,
    Decision,
    FolderContent,
    RunFolder,
    claim,
    decide,
)

pytestmark = pytest.mark.smoke

FINISHED = RunState("finished", 100, 1.0, 1.0, 100.0, 50.0, 0.01, last_checkpoint_time=1.0)
STOPPED = dataclasses.replace(
    FINISHED, state="stopped", step=40, time=0.4, last_checkpoint_time=0.3, reason="SIGTERM"
)
LATER_STOP = Difference("time.stop", 1.0, 2.0, Change.CHANGEABLE)
OTHER_VISCOSITY = Difference("model.viscosity", 1e-3, 2e-3, Change.FROZEN)
MORE_DEVICES = Difference("devices.count", 1, 4, Change.FREE)
PATH = Path("outputs/run")


@pytest.mark.parametrize(
    "found, state, differences, action, says",
    [
        ("absent", None, [], "start", ""),
        ("empty", None, [], "start", ""),
        ("prepared", None, [], "start", ""),
        ("prepared", None, [LATER_STOP], "start", "time.stop: 1.0 -> 2.0"),
        ("prepared", None, [OTHER_VISCOSITY], "start", "model.viscosity: 0.001 -> 0.002"),
        ("unfinished", STOPPED, [], "continue", "was stopped at t = 0.4, step 40 (SIGTERM)"),
        ("unfinished", None, [], "continue", "continuing an unfinished run"),
        ("unfinished", STOPPED, [MORE_DEVICES], "continue", "continuing"),
        ("finished", FINISHED, [], "finished", "already finished at t = 1, step 100"),
        ("finished", FINISHED, [MORE_DEVICES], "finished", "already finished"),
        ("finished", FINISHED, [LATER_STOP], "continue", "time.stop: 1.0 -> 2.0"),
        ("unfinished", STOPPED, [LATER_STOP, MORE_DEVICES], "continue", "time.stop: 1.0 -> 2.0"),
        ("finished", FINISHED, [OTHER_VISCOSITY], "refuse", "viscosity (there 0.001, now 0.002)"),
        ("unfinished", STOPPED, [LATER_STOP, OTHER_VISCOSITY], "refuse", "--output DIR"),
        ("foreign", None, [], "refuse", "not a run of this program"),
    ],
)
def test_the_table(found, state, differences, action, says):
    decision = decide(PATH, FolderContent(found), state, differences, stop=2.0)
    assert decision.action == action and says in "\n".join(decision.lines)
    assert not decision.clear and "devices" not in "\n".join(decision.lines)
    if action == "refuse":
        with pytest.raises(UserError, match="outputs/run"):
            decision.raise_if_refused()


@pytest.mark.parametrize("found", list(FolderContent))
def test_overwrite_replaces_runs_and_nothing_else(found: FolderContent):
    decision = decide(PATH, found, FINISHED, [OTHER_VISCOSITY], choices=Choices(overwrite=True))
    assert decision.clear is (found in ("prepared", "unfinished", "finished"))
    assert decision.action == ("refuse" if found == "foreign" else "start")


def test_a_frozen_key_may_change_where_it_is_allowed():
    def choose(allow: str) -> Decision:
        differences = [OTHER_VISCOSITY]
        choices = Choices(allow=[allow])
        return decide(PATH, FolderContent.UNFINISHED, STOPPED, differences, choices=choices)

    for allow in ("model.viscosity", "model"):
        assert choose(allow).action is Action.CONTINUE
        assert "model.viscosity: 0.001 -> 0.002" in choose(allow).lines
    assert choose("model.visc").action is Action.REFUSE


@pytest.mark.parametrize(
    "found, state, stop, action",
    [
        ("finished", FINISHED, 0.5, "refuse"),
        ("unfinished", STOPPED, 0.2, "refuse"),
        ("unfinished", STOPPED, 0.35, "continue"),  # beyond the checkpoint it restarts from
    ],
)
def test_an_end_before_what_is_reached_is_refused(found, state, stop, action):
    later = [LATER_STOP._replace(new=stop)]
    assert decide(PATH, FolderContent(found), state, later, stop=stop).action == action


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.mark.parametrize(
    "names, state, found",
    [
        ([], None, "empty"),
        (
            ["lock", "logs/a.log", ".coordinator-1", ".tmp-config.yaml-1", "slurm-7.out"],
            None,
            "empty",
        ),
        (["config.yaml"], None, "prepared"),
        (["config.yaml", ".job", "job.sbatch", "logs"], None, "prepared"),  # by `submit`
        (["config.yaml", "job.sbatch", "logs/a", "inputs/fields.py", "lock"], None, "prepared"),
        (["config.yaml", "diagnostics.csv"], None, "unfinished"),
        (["config.yaml", "snapshots/00000000.h5"], None, "unfinished"),
        (["config.yaml", "diagnostics.csv", "notes.txt"], STOPPED, "unfinished"),
        (["config.yaml"], dataclasses.replace(STOPPED, state="running"), "unfinished"),
        (["config.yaml"], dataclasses.replace(STOPPED, state="failed"), "unfinished"),
        (["config.yaml", "diagnostics.csv"], FINISHED, "finished"),
        (["thesis.tex"], None, "foreign"),
        (["diagnostics.csv"], None, "foreign"),
        (["config.yaml", "main.py"], None, "foreign"),
        (["config.yaml", "state.json"], None, "foreign"),
        (["state.json"], None, "foreign"),
    ],
)
def test_what_lies_in_a_folder(tmp_path, names, state, found):
    make(tmp_path, *names)
    if state is not None:
        write_state(tmp_path, state)
    assert RunFolder(tmp_path).content() == found


def test_a_path_that_is_absent_or_a_file(tmp_path):
    assert RunFolder(tmp_path / "run").content() is FolderContent.ABSENT
    make(tmp_path, "run")
    assert RunFolder(tmp_path / "run").content() is FolderContent.FOREIGN
    with pytest.raises(UserError, match=r"output\.directory"):
        RunFolder(tmp_path / "run" / "deeper").create()


def test_clear_removes_only_what_a_run_wrote(tmp_path):
    ours = [
        "config.yaml",
        "provenance.json",
        "run.log",
        "diagnostics.csv",
        "spectra.h5",
        "slices.h5",
        "spectra.parts/00000000.h5",
        "snapshots/00000010/shards/p00000.h5",
        "snapshots/00000010.h5",
        "snapshots/00000010.vtkhdf",
        "snapshots/.tmp-00000020/x",
        "checkpoints/00000010/manifest.json",
        ".tmp-state.json-9",
    ]
    theirs = [
        "notes.txt",
        "mine.h5",
        "snapshots/best/a.h5",
        "inputs/fields.py",
        "plots/mine.png",
        "job.sbatch",
    ]
    make(tmp_path, *ours, *theirs)
    write_state(tmp_path, FINISHED)
    RunFolder(tmp_path).clear()
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == sorted(theirs)
    assert not (tmp_path / "checkpoints").exists()


def test_a_removal_that_is_cut_short_is_still_a_run_that_can_be_removed(tmp_path, monkeypatch):
    make(
        tmp_path, "config.yaml", "diagnostics.csv", "spectra.h5", "snapshots/00000010/manifest.json"
    )
    write_state(tmp_path, FINISHED)

    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.run.folder.remove_tree", cut)
    with pytest.raises(KeyboardInterrupt):
        RunFolder(tmp_path).clear()
    assert RunFolder(tmp_path).content() is FolderContent.UNFINISHED


def decided(folder: RunFolder, config: dict[str, str], choices: Choices = USUAL) -> Decision:
    """The decision on the folder of a configuration of words."""
    old = {}
    if (folder.path / "config.yaml").exists() and not choices.overwrite:
        old = dict(
            line.split(": ") for line in (folder.path / "config.yaml").read_text().splitlines()
        )
    changed = [key for key in old if old[key] != config[key]]
    differences = [Difference(key, old[key], config[key], Change.FROZEN) for key in changed]
    return decide(
        folder.path, folder.content(), read_state(folder.path), differences, choices=choices
    )


def test_claim_decides_under_the_lock_and_a_refusal_writes_nothing(tmp_path):
    folder = RunFolder(tmp_path / "run")
    lock, decision = claim(folder, {}, lambda: decided(folder, {"grid": "64"}))
    assert lock is not None and decision.action is Action.START
    with lock:
        (folder.path / "config.yaml").write_text("grid: 64\n")
        write_state(folder.path, STOPPED)
        with pytest.raises(UserError, match="is writing this run"):
            claim(folder, {}, lambda: decided(folder, {"grid": "64"}))
    before = sorted(folder.path.iterdir())
    with pytest.raises(UserError, match="another grid"):
        claim(folder, {}, lambda: decided(folder, {"grid": "32"}))
    assert sorted(folder.path.iterdir()) == before
    lock, decision = claim(folder, {}, lambda: decided(folder, {"grid": "64"}))
    assert lock is not None and decision.action is Action.CONTINUE
    lock.release()
    lock, decision = claim(
        folder, {}, lambda: decided(folder, {"grid": "32"}, Choices(overwrite=True))
    )
    assert not (folder.path / "config.yaml").exists() and lock.still_mine()
    lock.release()


def test_state_is_replaced_whole_while_it_is_read(tmp_path):
    write_state(tmp_path, STOPPED)
    stop = threading.Event()
    seen = []

    def look():
        while not stop.is_set():
            seen.append(read_state(tmp_path))

    reader = threading.Thread(target=look)
    reader.start()
    for step in range(100):
        write_state(tmp_path, dataclasses.replace(STOPPED, step=step, reason="x" * (step * 50)))
    stop.set()
    reader.join()
    assert seen and all(
        state is not None and len(state.reason) in (7, state.step * 50) for state in seen
    )
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_state_of_another_version_or_program(tmp_path):
    (tmp_path / "state.json").write_text('{"program": "other"}')
    assert read_state(tmp_path) is None
    write_state(tmp_path, STOPPED)
    text = (tmp_path / "state.json").read_text().replace('"step"', '"new_key": 1, "step"')
    (tmp_path / "state.json").write_text(text)
    state = read_state(tmp_path)
    assert state.updated.endswith("+00:00")
    assert dataclasses.replace(state, updated="") == STOPPED
    assert (percent(0.0, 0.5, 2.0), percent(1.0, 1.0, 1.0), percent(0.0, 3.0, 2.0)) == (
        25.0,
        100.0,
        100.0,
    )
