"""kill -9, in every stage of a save and at random times: the run continues and ends equal to the undisturbed one."""

import re
import signal
from pathlib import Path

import pytest
from fault_support import (
    CONFIG,
    Harm,
    assert_blameless,
    assert_clean,
    assert_equal,
    assert_near,
    ran,
    start_all,
    steps,
)
from storage_support import STAGES

REACHED = [stage for stage in STAGES if stage != "moved aside"]
"""A run never saves the same step twice: it removes what is later than its checkpoint (storage tests replace)."""
DIFFERENT = ["copied", "shard written", "before rename", "renamed", "index written"]
"""Stages that leave different things for the next start of a run; tests/archive kills savers in all stages."""
BEFORE_COMMIT = STAGES[1 : STAGES.index("renamed")]
"""Stages in which a temporary folder is there."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    (folder / "run.yaml").write_text(CONFIG.replace("max_steps: 40", "max_steps: 72"))
    return folder


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Path:
    ran(place, run := place / "undisturbed")
    assert steps("checkpoints", run) == [64, 68, 72]
    return run


@pytest.mark.parametrize("stages", [DIFFERENT, pytest.param(REACHED, marks=pytest.mark.slow)], ids=["some", "all"])
def test_killed_in_stages_of_a_save(place: Path, undisturbed: Path, stages: list[str]):
    """Several starts of one run, each killed in the next stage of the third save it comes to; then it ends."""
    run, killed_at = place / f"{len(stages)} stages", None
    for stage in (*stages, None):
        # Three saves hold a checkpoint at least, so that every start gets further; every other save has an index.
        harm = Harm(stage, nth=2 if stage == "index written" else 3)
        said = ran(place, run, harm=harm, code=-signal.SIGKILL if stage else 0)
        # The main thread goes on meanwhile: a half-written series may be left too.
        left = re.search(r"/\.tmp-\d{8}-\w+: left by a run that was killed", said)
        assert bool(left) == (killed_at in BEFORE_COMMIT), (killed_at, said)
        assert (f"took over {run}/lock" in said) == (killed_at is not None), said
        assert_blameless(run)
        killed_at = stage
    assert_equal(run, undisturbed)


@pytest.mark.slow
def test_killed_between_a_snapshot_and_its_index(place: Path, undisturbed: Path):
    """The snapshot stands; the next start makes its index."""
    run = place / "index"
    ran(place, run, harm=Harm("committed", nth=4), code=-signal.SIGKILL)
    assert steps("snapshots", run) == [0, 8] and steps("checkpoints", run) == [4, 8]
    (run / "snapshots" / "00000008.h5").unlink()
    (run / "snapshots" / "00000000.vtkhdf").unlink()
    assert f"{run}/snapshots/00000008.h5: was missing, made again" in ran(place, run)
    assert_equal(run, undisturbed)


def _kill_in_two_processes(place: Path, run: Path, stage: str, victim: int) -> None:
    """A lost node: one process dies in a stage of a save, and whoever started them ends the other."""
    arguments = ["run", place / "run.yaml", "--output", run]
    started = start_all(arguments, place, 2, Harm(stage, nth=3), victim)
    code, said = started[victim].ended()
    for process in started:
        process.kill()
    assert code == -signal.SIGKILL, said
    assert_blameless(run)


@pytest.mark.spmd
def test_one_of_two_processes_is_killed(place: Path, undisturbed: Path):
    """Continued by one process on as many devices, to the same end."""
    run = place / "two"
    _kill_in_two_processes(place, run, "shard written", 1)
    assert steps("checkpoints", run) == [4]
    said = ran(place, run)
    assert f"continuing from {run}/checkpoints/00000004" in said
    # If the other process saw the loss before it was killed, it ended the run and left nothing to remove.
    assert f"removed {run}/snapshots/.tmp-00000008-" in said or "continuing a run that failed" in said
    assert_near(run, undisturbed)
    assert_clean(run)


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.parametrize("victim", [0, 1])
def test_two_processes_killed_at_every_stage(place: Path, victim: int):
    """Continued by two processes each time; equal, bit for bit, to two that were not disturbed."""
    arguments = ["run", place / "run.yaml", "--output"]
    undisturbed, run = place / f"undisturbed two {victim}", place / f"stages two {victim}"
    for process in start_all([*arguments, undisturbed], place, 2):
        assert process.ended()[0] == 0
    only_first = ("manifest written", "before rename", "renamed", "committed", "index written")
    for stage in REACHED:
        if stage not in only_first or (victim == 0 and stage != "index written"):
            _kill_in_two_processes(place, run, stage, victim)
    for process in start_all([*arguments, run], place, 2):
        assert process.ended()[0] == 0
    assert_equal(run, undisturbed)
