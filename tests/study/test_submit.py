"""What is submitted, without a cluster."""

from pathlib import Path

import pytest
from sweep_support import BASE

from simulator.archive.state import RunState, write_state
from simulator.cli import main
from simulator.cluster.hostlist import ranges
from simulator.cluster.jobscript import RUN_AND_REQUEUE
from simulator.study.execution import plan_submission, to_submit
from simulator.study.study_status import MemberState, MemberStatus

STUDY = """\
base: base.yaml
sweep: {grid: {model.viscosity: [0.1, 0.2, 0.3, 0.4, 0.5]}}
slurm: {throttle: 2, time: "00:30:00", nodes: 2}
"""


@pytest.fixture(autouse=True)
def _no_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("numbers", "text"), [([0], "0"), ([0, 1, 2, 3], "0-3"), ([7, 0, 1, 9, 10], "0-1,7,9-10"), ([2, 4], "2,4")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_the_script_asks_for_what_the_file_says(study, capsys) -> None:
    sweep = study(STUDY, BASE + 'slurm: {time: "9", partition: long}\n')
    assert main(["sweep", "submit", "study.yaml", "--dry-run"]) == 0
    script = capsys.readouterr().out
    flags = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert flags[:5] == ["--job-name=study", "--nodes=2", "--time=00:30:00", "--partition=long", "--array=0-4%2"]
    assert f'set -- {sweep.folder} --index "$SLURM_ARRAY_TASK_ID"' in script.splitlines()
    assert script.endswith(RUN_AND_REQUEUE)
    assert not Path("out").exists()


def test_only_what_is_missing_is_submitted(study) -> None:
    sweep = study(STUDY)
    statuses = [MemberStatus(MemberState(s)) for s in ("done", "interrupted", "running", "failed", "queued")]
    assert [run.index for run in to_submit(sweep, statuses)] == [1]
    assert [run.index for run in to_submit(sweep, statuses, failed=True)] == [1, 3]


def test_nothing_to_submit(study, capsys) -> None:
    sweep = study(STUDY)
    sweep.prepare()
    for run in sweep.runs:
        write_state(run.folder, RunState("finished", 1, 1.0, 1.0, 100.0, 1.0, 0.1))
    assert main(["sweep", "submit", "study.yaml"]) == 0
    assert capsys.readouterr().out == "study: 5 done; nothing to submit\n"


def test_large_numbers_go_into_chunks_of_their_own(study) -> None:
    """No task has a number beyond the site's limit; a run's number is the task's and the chunk's offset."""
    sweep = study(STUDY)
    chunks = plan_submission(sweep, [run for run in sweep.runs if run.index != 3], largest=2)
    assert [(chunk.offset, chunk.tasks()) for chunk in chunks] == [(0, [0, 1]), (2, [0]), (4, [0])]
    assert "#SBATCH --array=0%2" in chunks[1].script.splitlines()
    assert "--index $((SLURM_ARRAY_TASK_ID + 2))" in chunks[1].script


def test_without_slurm_it_says_where(study, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    study(STUDY)
    monkeypatch.setenv("PATH", "")
    assert main(["sweep", "submit", "study.yaml"]) == 2
    assert "sbatch is not installed here" in capsys.readouterr().err
    assert not Path("out").exists()
