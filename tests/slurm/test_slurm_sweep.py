"""Sweeps as arrays on a real Slurm."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
from run_support import ROOT, wait_until

from simulator.archive.run_state import read_state
from simulator.study.sweep import Sweep, open_sweep

pytestmark = pytest.mark.slurm

# Fails while a file is there: the cause of a failure that can be removed.
FIELDS = """
from pathlib import Path
import jax.numpy as jnp

def build(x, y, z, number, trouble):
    if number == 3 and Path(trouble).exists():
        raise RuntimeError("the third is not well")
    return {"velocity": [jnp.sin(y), jnp.sin(z), number * jnp.sin(x)]}
"""
BASE = """\
model: {{kind: navier_stokes, viscosity: 0.01}}
grid: {{shape: [8, 8, 8]}}
initial: {{kind: python, path: fields.py, function: build, parameters: {{number: 0, trouble: {trouble}}}}}
time: {{stop: {stop}, dt: 0.02}}
devices: {{platform: cpu, count: 1}}
output: {{directory: {folder}/out, diagnostics: {{every_steps: 10}}, snapshots: {{every: {stop}}}}}
"""
STUDY = """\
base: base.yaml
sweep: {{grid: {{initial.parameters.number: {numbers}}}}}
collect: [final.energy]
slurm: {{throttle: 2, time: "5", tasks_per_node: 1, cpus_per_task: 1}}
"""


class Study:
    """A sweep on the cluster's shared folder, and its commands."""

    def __init__(self, slurm, folder: Path, numbers: list[int], stop: float = 0.1) -> None:
        self.slurm = slurm
        self.folder = folder
        self.trouble = folder / "trouble"
        (folder / "fields.py").write_text(FIELDS)
        (folder / "base.yaml").write_text(
            BASE.format(trouble=self.trouble, stop=stop, folder=folder)
        )
        (folder / "study.yaml").write_text(STUDY.format(numbers=numbers))

    @property
    def sweep(self) -> Sweep:
        return open_sweep(self.folder / "study.yaml")

    def command(self, *words: str) -> str:
        done = self.slurm.run(sys.executable, "-m", "simulator", "sweep", *words, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *options: str) -> str:
        """The array's id."""
        shown = self.command("submit", "study.yaml", *options)
        found = re.search(r"array (\d+)", shown)
        assert found, shown
        return found[1]

    def tasks(self, array: str) -> list[str]:
        """The states of the tasks that have not ended."""
        return self.slurm.run("squeue", "-h", "-r", "-j", array, "-o", "%T").stdout.split()

    def table(self) -> list[dict]:
        self.command("table", "study.yaml", "--json", "table.json")
        return json.loads((self.folder / "table.json").read_text())

    def wait(self, array: str, timeout: float = 400) -> int:
        """Until no task is left; the most that ran at once."""
        most = 0
        end = time.monotonic() + timeout
        while tasks := self.tasks(array):
            most = max(
                most, sum(state in ("RUNNING", "COMPLETING", "CONFIGURING") for state in tasks)
            )
            assert time.monotonic() < end, f"{tasks} after {timeout} s"
            time.sleep(0.3)
        return most


def test_an_array_of_eight_with_one_that_fails_and_is_retried(slurm, tmp_path: Path):
    study = Study(slurm, tmp_path, list(range(1, 9)))
    array = study.submit()  # builds every initial condition first; the trouble comes after
    study.trouble.touch()
    assert "8 queued" in study.command("status", "study.yaml") or study.tasks(array)
    assert study.wait(array) == 2  # the throttle
    assert [row["state"] for row in study.table()] == ["done", "done", "failed", *["done"] * 5]
    assert "RuntimeError: the third is not well" in study.command("status", "study.yaml")
    # energy of a sum of unit shear waves, and one of amplitude n, decayed by exp(-2 nu t)
    for row in study.table():
        if row["state"] == "done":
            n = row["initial.parameters.number"]
            assert row["final.energy"] == pytest.approx((2 + n**2) / 4, rel=0.01)

    assert "nothing to submit" in study.command("submit", "study.yaml")
    study.trouble.unlink()
    again = study.submit("--failed")
    dataset = sys.executable, "-m", "simulator", "dataset", "study.yaml"
    assert "1 run queued or running elsewhere" in slurm.run(*dataset, cwd=tmp_path).stdout
    study.wait(again)
    assert [row["state"] for row in study.table()] == ["done"] * 8
    written = slurm.run(*dataset, cwd=tmp_path)
    assert written.returncode == 0 and "8 done; nothing to do" in written.stdout, (
        written.stdout + written.stderr
    )


def test_a_task_that_is_warned_goes_back_into_the_queue_and_continues(slurm, tmp_path: Path):
    study = Study(slurm, tmp_path, [1, 2], stop=1e6)
    array = study.submit()
    first, second = (run.folder for run in study.sweep.runs)

    def step(folder: Path) -> int:
        state = read_state(folder)
        return state.step if state else 0

    wait_until(lambda: step(first) > 0 and step(second) > 0, 120, "both runs")
    slurm.run("scancel", "-b", "-s", "USR2", f"{array}_0")
    wait_until(lambda: slurm.job(f"{array}_0").get("Restarts") == "1", 60, "requeue")
    stopped = step(first)
    wait_until(lambda: step(first) > stopped, 120, "continuation")
    assert "continuing from" in (first / "run.log").read_text()
    assert slurm.job(f"{array}_1")["Restarts"] == "0"
    for folder in (first, second):
        (folder / "stop").touch()  # not requeued: somebody asked for it
    study.wait(array)
    assert [row["state"] for row in study.table()] == ["interrupted"] * 2


def test_chunks_where_arrays_may_not_be_large(
    slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With arrays of at most three tasks, five runs are two arrays, the second waiting for the
    first."""
    from simulator.study.execution import plan_submission, submit_sweep

    study = Study(slurm, tmp_path, [1, 2, 4, 5, 6])
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    sweep = study.sweep
    arrays = submit_sweep(sweep, plan_submission(sweep, sweep.runs, largest=3))
    assert len(arrays) == 2
    assert slurm.job(f"{arrays[1]}_0")["Dependency"].startswith("afterany:")
    for array in arrays:
        study.wait(array)
    assert [row["state"] for row in study.table()] == ["done"] * 5


def test_the_script_for_hands(slurm, tmp_path: Path, checkout: Path):
    """slurm/sweep_array.sbatch without `submit`, from a checkout with an environment."""
    study = Study(slurm, tmp_path, [1, 2])
    script = ROOT / "slurm" / "sweep_array.sbatch"
    array = slurm.sbatch(
        ["--array=0-1", "--cpus-per-task=1"],
        script,
        "../study.yaml",
        cwd=checkout,
        SIMULATOR_VENV=str(checkout),
    )
    study.wait(array)
    said = "".join(path.read_text() for path in checkout.glob("slurm-*.out"))
    assert [row["state"] for row in study.table()] == ["done", "done"], said


BESIDE = """
from pathlib import Path
from simulator import stream

step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1"]
samples = stream("study.yaml", batch=2).beside(reservoir=2, repeat=False, launcher=step)
drawn = {sample["run"]: sample["velocity"] for sample in samples}
assert sorted(drawn) == [0, 1], drawn
assert abs(abs(drawn[1][0, 2]).max() - 2) < 0.1  # number * sin x
Path("drawn").touch()
"""


def test_a_step_of_the_job_computes_beside_the_training(slurm, tmp_path):
    """The training is the job's script, its trajectories come from a Slurm step."""
    Study(slurm, tmp_path, [1, 2])
    (tmp_path / "train.py").write_text(BESIDE)
    (tmp_path / "train.sh").write_text(f"#!/bin/sh\nexec {sys.executable} train.py\n")
    job = slurm.sbatch(["--ntasks=2", "--time=5", "--output=log"], "train.sh", cwd=tmp_path)
    assert slurm.wait(job)["ExitCode"] == "0:0", (tmp_path / "log").read_text()
    assert (tmp_path / "drawn").exists()
