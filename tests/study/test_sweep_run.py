"""Real runs of real sweeps: to the end, interrupted and continued, failed and retried; and what is
submitted."""

import signal
from pathlib import Path

import pytest
from run_support import ROOT, started, wait_until
from sweep_support import BASE
from tiers import slow

from simulator.archive.open_run import open_run
from simulator.archive.run_state import RunState, write_state
from simulator.cli import main
from simulator.cluster.hostlist import ranges
from simulator.cluster.jobscript import shared_lines
from simulator.run.folder import FolderContent, RunFolder
from simulator.study.execution import MISSING, UNFINISHED, in_stages, plan_submission
from simulator.study.study_status import MemberState, MemberStatus, statuses_of
from simulator.study.sweep import Sweep

STUDY = "base: base.yaml\nsweep: {grid: {model.viscosity: [0.1, 0.2, 0.3]}}\n"


@pytest.fixture(autouse=True)
def _package_in_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def stages(sweep: Sweep) -> list[str]:
    return [str(status.stage) for status in statuses_of([run.folder for run in sweep.runs])]


FAILING = "base: base.yaml\nsweep: {grid: {initial.amplitude: [1e49]}}\n"
"""It fails: its energy is not finite."""


@pytest.mark.long
@pytest.mark.spmd
def test_a_sweep_runs_and_then_does_nothing_and_runs_what_is_added(study, capsys):
    sweep = study(FAILING)
    assert main(["sweep", "run", "study.yaml"]) == 1
    shown = capsys.readouterr().out
    assert stages(sweep) == ["failed"]
    assert "is not finite" in shown and "1 failed" in shown

    files = {path: path.stat().st_mtime_ns for run in sweep.runs for path in run.folder.rglob("*")}
    assert main(["sweep", "run", "study.yaml"]) == 1
    assert "nothing to do" in capsys.readouterr().out
    assert {
        path: path.stat().st_mtime_ns for run in sweep.runs for path in run.folder.rglob("*")
    } == files

    added = study(FAILING.replace("1e49]", "1e49, 2]"))
    assert main(["sweep", "run", "study.yaml"]) == 1
    assert "1 of 2 runs" in capsys.readouterr().out
    assert stages(added) == ["failed", "done"] and added.runs[0].hash == sweep.runs[0].hash
    assert open_run(added.runs[1].folder).state.time == pytest.approx(0.1)


LONG = "base: base.yaml\nsweep: {grid: {model.viscosity: [0.1, 0.2]}, list: [{time.stop: 1e6}]}\n"


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize("how", ["ctrl-c", slow("file")])
def test_a_sweep_is_stopped_cleanly(study, capsys, how: str):
    sweep = study(LONG)
    with started("sweep", "run", "study.yaml", "--jobs", "2") as process:
        wait_until(lambda: all(_step(run.folder) > 0 for run in sweep.runs), 90)
        assert stages(sweep) == ["running", "running"]
        assert main(["sweep", "run", "study.yaml", "--jobs", "2"]) == 0
        assert "2 running; nothing to do" in capsys.readouterr().out
        process.send_signal(signal.SIGINT) if how == "ctrl-c" else (sweep.folder / "stop").touch()
        shown, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert stages(sweep) == ["interrupted", "interrupted"]
    assert "2 interrupted" in shown
    assert all(list((run.folder / "checkpoints").glob("0*")) for run in sweep.runs)


def _step(folder: Path) -> int:
    state = open_run(folder).state if (folder / "state.json").exists() else None
    return state.step if state else 0


def test_one_run_in_this_process(study, capsys):
    """A task of an array does this: the run's own exit codes; by file, and by the sweep's folder
    alone."""
    sweep = study(STUDY)
    assert main(["sweep", "status", "study.yaml", "--folder-of", "1"]) == 0
    assert capsys.readouterr().out == f"{sweep.runs[1].folder}\n"
    assert main(["sweep", "run", "study.yaml", "--index", "1"]) == 0
    assert stages(sweep) == ["waiting", "done", "waiting"]
    Path("study.yaml").write_text("base: nowhere.yaml\n")
    (sweep.runs[2].folder / "lock").mkdir()
    assert main(["sweep", "run", str(sweep.folder), "--index", "1"]) == 0
    assert main(["sweep", "run", str(sweep.folder), "--index", "9"]) == 2


def test_the_base_itself_can_be_run_beside_its_sweeps(study):
    """The sweep's folder lies in that of the base's own run, which may be there and may be
    overwritten."""
    sweep = study(STUDY)
    sweep.prepare()
    out = RunFolder(Path.cwd() / "out")
    assert out.content() is FolderContent.EMPTY
    (out.path / "config.yaml").write_text("")
    write_state(out.path, RunState("finished", 1, 1.0, 1.0, 100.0, 1.0, 0.1))
    assert out.content() is FolderContent.FINISHED
    out.clear()
    assert out.content() is FolderContent.EMPTY and stages(sweep) == ["waiting"] * 3
    (sweep.folder / "plan.json").write_text("{}")
    assert out.content() is FolderContent.FOREIGN


@pytest.mark.parametrize(
    "line, message",
    [
        ("run study.yaml --jobs 0", "--jobs: must be at least 1, not 0"),
        ("run study.yaml --index 5", "--index: {folder}/study.yaml has no run 5; it has 0 to 2"),
        (
            "retry study.yaml --index 1 --failed",
            "simulator sweep retry: --index names runs; leave --failed out",
        ),
        (
            "retry study.yaml --index x",
            "simulator sweep retry: argument --index: numbers of runs are needed, e.g. 3,7, not 'x'; see simulator "
            "sweep retry --help",
        ),
        ("plan nowhere.yaml", "nowhere.yaml: no such file"),
        ("table study.yaml --csv no/where.csv", "no/where.csv: No such file or directory"),
    ],
)
def test_a_wrong_command_line(study, capsys, tmp_path: Path, line: str, message: str):
    study(STUDY)
    assert main(["sweep", *line.split()]) == 2
    assert capsys.readouterr().err == message.format(folder=tmp_path) + "\n"
    assert not Path("out").exists()


THROTTLED = """\
base: base.yaml
sweep: {grid: {model.viscosity: [0.1, 0.2, 0.3, 0.4, 0.5]}}
slurm: {throttle: 2, time: "00:30:00", nodes: 2}
"""


@pytest.fixture(autouse=True)
def _no_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    "numbers, text",
    [([0], "0"), ([0, 1, 2, 3], "0-3"), ([7, 0, 1, 9, 10], "0-1,7,9-10"), ([2, 4], "2,4")],
)
def test_ranges(numbers: list[int], text: str):
    assert ranges(numbers) == text


def test_the_script_asks_for_what_the_file_says(study, capsys):
    sweep = study(THROTTLED, BASE + 'slurm: {time: "9", partition: long}\n')
    assert main(["sweep", "submit", "study.yaml", "--dry-run"]) == 0
    script = capsys.readouterr().out
    flags = [
        line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")
    ]
    assert flags[:5] == [
        "--job-name=study",
        "--nodes=2",
        "--time=00:30:00",
        "--partition=long",
        "--array=0-4%2",
    ]
    assert f'set -- {sweep.folder} --index "$SLURM_ARRAY_TASK_ID"' in script.splitlines()
    assert script.endswith(shared_lines("end"))
    assert not Path("out").exists()


def test_only_what_is_missing_is_submitted(study, capsys):
    sweep = study(THROTTLED)
    statuses = [
        MemberStatus(MemberState(s)) for s in ("done", "interrupted", "running", "failed", "queued")
    ]
    assert [run.index for run in in_stages(sweep, statuses, MISSING)] == [1]
    assert [run.index for run in in_stages(sweep, statuses, UNFINISHED)] == [1, 3]
    sweep = study(THROTTLED)
    sweep.prepare()
    for run in sweep.runs:
        write_state(run.folder, RunState("finished", 1, 1.0, 1.0, 100.0, 1.0, 0.1))
    assert main(["sweep", "submit", "study.yaml"]) == 0
    assert capsys.readouterr().out == "study: 5 done; nothing to submit\n"


def test_large_numbers_go_into_chunks_of_their_own(study):
    """No task has a number beyond the site's limit; a run's number is the task's and the chunk's
    offset."""
    sweep = study(THROTTLED)
    chunks = plan_submission(sweep, [run for run in sweep.runs if run.index != 3], largest=2)
    assert [(chunk.offset, chunk.tasks()) for chunk in chunks] == [(0, [0, 1]), (2, [0]), (4, [0])]
    assert "#SBATCH --array=0%2" in chunks[1].script.splitlines()
    assert "--index $((SLURM_ARRAY_TASK_ID + 2))" in chunks[1].script


def test_without_slurm_it_says_where(study, monkeypatch: pytest.MonkeyPatch, refused_command):
    study(THROTTLED)
    monkeypatch.setenv("PATH", "")
    assert "sbatch is not installed here" in refused_command("sweep", "submit", "study.yaml")
    assert not Path("out").exists()
