"""The whole simulator on a real Slurm: what a run's folder holds after whatever happened to its
job."""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from run_support import ROOT, wait_until

from simulator.archive.open_run import open_run
from simulator.archive.run_state import RunState, read_state
from simulator.run.run_status import read_holder

pytestmark = pytest.mark.slurm

CONFIG = """\
name: box
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [16, 16, 16]}
initial: {kind: random, seed: 3}
time: {dt: 1.0e-3, stop: 0.005}
devices: {platform: cpu}
output: {diagnostics: {every_steps: 1}}
"""
SIMULATOR = (sys.executable, "-m", "simulator")
ENDLESS = ("time.stop=1e6", "output.diagnostics.every_steps=1000")
ONE = ("--nodes", "1", "--tasks-per-node", "1")
TWO = ("--nodes", "2", "--tasks-per-node", "1")
OFTEN = "output.checkpoints.every_steps=20"
PATIENCE = 240  # seconds until a busy machine must have done what takes an idle one a few


def same(run: Path, reference: Path, tolerance: float = 1e-12) -> None:
    """Same rows, and the same last snapshot, to round-off (0: to the last bit)."""
    one = open_run(run)
    other = open_run(reference)
    assert_array_equal(one.diagnostics["step"], other.diagnostics["step"])
    for name in ("time", "energy", "enstrophy"):
        found = one.diagnostics[name]
        expected = other.diagnostics[name]
        assert_allclose(found, expected, rtol=tolerance, atol=0, err_msg=name)
    last = one.snapshots[-1]["velocity"][...]
    expected = other.snapshots[-1]["velocity"][...]
    assert_allclose(last, expected, rtol=0, atol=tolerance * np.abs(expected).max())


class Job:
    """A run on the cluster, sent by `simulator submit`."""

    def __init__(self, slurm, folder: Path, *arguments: str) -> None:
        self.slurm = slurm
        self.folder = folder
        config = folder.with_suffix(".yaml")
        config.write_text(CONFIG)
        done = slurm.run(
            *SIMULATOR,
            "submit",
            str(config),
            "--output",
            str(folder),
            *arguments,
            XDG_CONFIG_HOME=str(folder.parent),
        )
        found = re.search(r"submitted job (\d+)", done.stdout)
        assert found, done.stdout + done.stderr
        self.id = found[1]

    def again(self) -> None:
        self.id = self.slurm.sbatch([], self.folder / "job.sbatch", cwd=self.folder)

    def until(self, condition, what: str) -> None:
        def met() -> bool:
            state = self.slurm.job(self.id)["JobState"]
            ended = state not in (
                "PENDING",
                "CONFIGURING",
                "RUNNING",
                "COMPLETING",
                "SIGNALING",
                "REQUEUED",
            )
            if found := condition():
                return found
            assert not ended, f"{state} before {what}\n{self.log}"
            return False

        wait_until(met, PATIENCE, what)

    def owns_the_folder(self, restarts: int) -> None:
        """Waits until this start listens to signals and has locked the folder."""

        def locked() -> bool:
            holder = read_holder(self.folder)
            return holder is not None and (holder.job_id, holder.restart_count) == (
                self.id,
                restarts,
            )

        self.until(locked, f"start number {restarts + 1}")

    def advances(self, restarts: int = 0, beyond: int = 0) -> None:
        """Waits until this start has taken a step beyond `beyond`."""

        def advanced() -> bool:
            state = self.state
            return (
                state is not None
                and (state.job_id, state.restart_count) == (self.id, restarts)
                and state.advanced
                and state.step > beyond
            )

        self.until(advanced, f"a step beyond {beyond}")

    def tell(self, *command: str) -> None:
        done = self.slurm.run(*command, self.id)
        assert done.returncode == 0, done.stderr

    def ends(self) -> dict[str, str]:
        return self.slurm.wait(self.id, PATIENCE)

    def stops(self) -> None:
        """Ends the run by its stop file."""
        (self.folder / "stop").touch()
        assert self.ends()["ExitCode"] == "3:0", self.log

    @property
    def state(self) -> RunState | None:
        return read_state(self.folder)

    @property
    def checkpoints(self) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / "checkpoints").glob("[0-9]*"))

    @property
    def log(self) -> str:
        return "".join(
            path.read_text() for path in sorted((self.folder / "logs").glob("slurm-*.out"))
        )

    def processes(self, command: bytes = b"simulator\0run\0", **variables: str) -> list[int]:
        """The pids of this job's processes on the machine, by the variables that Slurm sets for
        them."""
        # the cluster too: another one's jobs may have the same numbers
        variables |= {"SLURM_JOB_ID": self.id, "SLURM_CONF": str(self.slurm.folder / "daemon.conf")}
        marks = {f"{name}={value}".encode() for name, value in variables.items()}
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes()
                environ = set((process / "environ").read_bytes().split(b"\0"))
                if (
                    marks <= environ
                    and command in words
                    and not (command and words.startswith(b"srun\0"))
                ):
                    found.append(int(process.name))
        return found


@pytest.fixture
def submit(slurm, tmp_path) -> Iterator:
    jobs: list[Job] = []

    def send(*arguments: str) -> Job:
        jobs.append(Job(slurm, tmp_path / "run", *arguments))
        return jobs[-1]

    yield send
    for job in jobs:
        slurm.run("scancel", job.id)


def without_slurm(slurm, folder: Path, *arguments: str) -> Path:
    """The folder of a run that Slurm knows nothing of."""
    (folder / "c.yaml").write_text(CONFIG)
    done = slurm.run(
        *SIMULATOR, "run", "c.yaml", "--output", "run", *arguments, cwd=folder, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def alone(slurm, tmp_path_factory) -> Path:
    """Five steps in one process on one device."""
    return without_slurm(slurm, tmp_path_factory.mktemp("alone"), "devices.count=1")


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("nodes, tasks", [(1, 2), (2, 1), (2, 2), (4, 1)])
def test_any_layout_equals_one_process(
    slurm, tmp_path, alone, nodes: int, tasks: int, devices: int
):
    (tmp_path / "c.yaml").write_text(CONFIG)
    count = nodes * tasks * devices
    done = slurm.srun(
        f"-N{nodes} --ntasks-per-node={tasks} --kill-on-bad-exit=1",
        *SIMULATOR,
        "run",
        str(tmp_path / "c.yaml"),
        "--output",
        str(tmp_path / "run"),
        f"devices.count={count}",
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} cpu devices in {nodes * tasks} processes" in done.stdout
    assert (
        len(list((tmp_path / "run" / "snapshots" / "00000005" / "shards").iterdir()))
        == nodes * tasks
    )
    same(tmp_path / "run", alone)


# Ten seconds and more: a step takes 2.6 ms here, and a stop may be noticed seconds late.
LONGER = ("time.stop=4", "output.diagnostics.every_steps=20", "devices.count=2")


@pytest.fixture(scope="module")
def undisturbed(slurm, tmp_path_factory) -> Path:
    """Four thousand steps in two processes."""
    return without_slurm(slurm, tmp_path_factory.mktemp("undisturbed"), *LONGER, "--processes", "2")


def test_stopped_three_times_it_comes_back_and_equals_an_undisturbed_run(
    slurm, submit, undisturbed
):
    job = submit(*LONGER, *TWO)
    steps = [0]
    for start in range(3):
        job.owns_the_folder(start)
        job.tell("scancel", "-b", "-s", "USR2")
        job.until(
            lambda start=start: job.slurm.job(job.id)["Restarts"] == str(start + 1), "requeue"
        )
        assert job.state.state == "stopped" and job.state.reason == "SIGUSR2"
        assert job.checkpoints[-1] == job.state.step > steps[-1]  # each start gets on
        steps.append(job.state.step)
    ended = job.ends()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("COMPLETED", "0:0", "3"), (
        job.log
    )
    assert steps[-1] < job.state.step == 4000
    assert job.log.count("goes back into the queue") == 3
    assert job.log.count("continuing from") == 3
    same(job.folder, undisturbed, tolerance=0)


def test_preempted_it_comes_back_once_and_equals_an_undisturbed_run(
    slurm, submit, undisturbed, tmp_path
):
    job = submit(*LONGER, *TWO, "--partition", "scavenge", "--sbatch=--exclusive")
    job.advances()
    (tmp_path / "urgent").write_text("#!/bin/bash\nsleep 1\n")
    slurm.sbatch(["-N4", "--exclusive", "-o", "/dev/null"], tmp_path / "urgent", cwd=tmp_path)
    job.until(lambda: slurm.job(job.id)["Restarts"] == "1", "requeue")
    stopped = job.state
    assert (stopped.state, stopped.last_checkpoint) == ("stopped", stopped.step), job.log
    ended = job.ends()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("COMPLETED", "0:0", "1"), (
        job.log
    )
    assert job.log.count("continuing from") == 1
    same(job.folder, undisturbed, tolerance=0)


def test_a_second_job_is_refused_and_cancelled_the_first_leaves_a_checkpoint_that_verifies(
    slurm, submit
):
    job = submit(*ENDLESS, "devices.count=1", *ONE)
    job.advances(beyond=20)
    second = slurm.sbatch([], job.folder / "job.sbatch", cwd=job.folder)
    assert slurm.wait(second, PATIENCE)["ExitCode"] == "2:0"
    said = [line for line in (job.folder / "logs" / f"slurm-{second}.out").read_text().splitlines()]
    said = [line for line in said if not line.startswith("srun: ")]
    assert len(said) == 1 and re.search(rf"{job.folder}.*\b{job.id}\b", said[0]), said
    job.advances(beyond=job.state.step)

    job.tell("scancel")
    ended = job.ends()
    assert (ended["JobState"], ended["Restarts"]) == ("CANCELLED", "0"), job.log
    assert (
        job.state.state == "stopped"
        and job.state.last_checkpoint == job.state.step == job.checkpoints[-1]
    )
    verified = slurm.run(*SIMULATOR, "verify", str(job.folder), timeout=PATIENCE)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert slurm.job(job.id)["JobState"] == "CANCELLED"

    third = slurm.sbatch(["--begin=now+600"], job.folder / "job.sbatch", cwd=job.folder)
    status = slurm.run(*SIMULATOR, "status", str(job.folder), timeout=PATIENCE)
    assert f" {third} PENDING " in status.stdout
    job.slurm.run("scancel", third)


def test_failures_and_mistakes_tell_slurm_and_the_log(submit):
    """A time step that is far too large, then a configuration that somebody broke after
    `submit`."""
    job = submit(*ENDLESS, "devices.count=1", "time.dt=50", *ONE)
    ended = job.ends()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("FAILED", "1:0", "0"), (
        job.log
    )
    assert re.search(r"step \d+, t = \d+: .*not finite", "\n".join(job.log.splitlines()[-5:])), (
        job.log
    )
    assert job.state.state == "failed"

    config = job.folder / "config.yaml"
    config.write_text(config.read_text().replace("viscosity:", "viscocity:"))
    job.again()
    ended = job.ends()
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "2:0"), job.log
    assert re.search(r"config.yaml:\d+: model.viscocity: u.*viscosity", job.log), job.log


def test_a_killed_task_ends_the_job_and_both_requeue_and_the_next_start_continue(submit):
    job = submit(*ENDLESS, "devices.count=2", OFTEN, *TWO)
    job.until(lambda: job.checkpoints, "a checkpoint")
    first = job.checkpoints[-1]
    job.tell("scontrol", "requeue")
    job.advances(restarts=1, beyond=first)
    assert re.search(r"continuing from .*checkpoints/\d+", job.log), job.log

    (pid,) = job.processes(SLURM_PROCID="1")
    os.kill(pid, signal.SIGKILL)
    ended = job.slurm.wait(job.id, 60)  # a few seconds on an idle machine
    assert ended["JobState"] in ("FAILED", "NODE_FAIL") and ended["ExitCode"] != "0:0", job.log
    assert re.search(r"task 1: Killed", job.log)
    assert not job.processes()
    last = job.checkpoints[-1]

    job.again()
    job.advances(beyond=last)
    job.stops()
    assert job.state.reason == "the file stop in the run folder"


def test_a_frozen_process_ends_the_job_and_the_next_start_continues(submit):
    """The heartbeat notices it; a shorter `run.watchdog` would end starts that have to compile on a
    busy machine."""
    job = submit(*ENDLESS, "devices.count=2", OFTEN, "--nodes", "1", "--tasks-per-node", "2")
    job.until(lambda: job.checkpoints, "a checkpoint")
    (pid,) = job.processes(SLURM_PROCID="1")
    os.kill(pid, signal.SIGSTOP)
    ended = job.slurm.wait(job.id, 110)  # the heartbeat's 45 s, detection, and KillWait, 5 s
    assert ended["JobState"] in ("FAILED", "NODE_FAIL") and ended["ExitCode"] != "0:0", job.log
    assert "process 1 has not responded for 45 s" in job.log, job.log
    assert not job.processes()
    last = job.checkpoints[-1]

    job.again()
    job.advances(beyond=last)
    job.stops()


def test_an_array_of_the_shipped_script_has_an_output_for_each_task(slurm, checkout: Path, alone):
    (checkout / "c.yaml").write_text(CONFIG)
    array = slurm.sbatch(
        ["--array=0-3", "--nodes=1", "--ntasks-per-node=1"],
        ROOT / "slurm" / "run_cpu.sbatch",
        *("c.yaml", "devices.count=1", "output.directory=runs/$SLURM_ARRAY_TASK_ID"),
        cwd=checkout,
        SIMULATOR_VENV=str(checkout),
    )
    ended = [slurm.wait(f"{array}_{task}", PATIENCE) for task in range(4)]
    said = "".join(path.read_text() for path in checkout.glob("slurm-*.out"))
    assert [job["ExitCode"] for job in ended] == ["0:0"] * 4, said
    for task in range(4):
        run = checkout / "runs" / str(task)
        assert read_state(run).job_id == f"{array}_{task}"
        same(run, alone, tolerance=0)


@pytest.mark.slow
def test_cut_twice_by_a_real_limit_of_two_minutes_it_comes_back_and_gets_on(submit):
    """As short as the warning of a long job; each start works until it is warned, which takes many
    steps."""
    job = submit(*ENDLESS, "devices.count=1", *ONE, "--time", "2")
    before = 0
    for start in range(2):
        job.until(
            lambda start=start: job.slurm.job(job.id)["Restarts"] == str(start + 1), "requeue"
        )
        stopped = job.state
        assert (stopped.state, stopped.restart_count) == ("stopped", start), job.log
        assert stopped.last_checkpoint == stopped.step > before + 20, job.log
        before = stopped.step
    assert len(re.findall(r"stopped at .*: (?:SIGUSR2|the job ends in \d+ s)", job.log)) == 2, (
        job.log
    )
    job.advances(restarts=2, beyond=before)
    job.stops()


DEAF = """
import os
import time
from pathlib import Path
def build(x, y, z, mark):
    if "SLURM_JOB_ID" in os.environ:  # `submit` calls this too
        Path(mark).touch()
        time.sleep(600)
    return {"velocity": [x + y + z] * 3}
"""


def test_a_percent_sign_in_a_folders_name_and_a_job_cancelled_before_its_first_step(
    slurm, tmp_path
):
    (tmp_path / "deaf.py").write_text(DEAF)
    start = (f"initial.path={tmp_path}/deaf.py", "initial.function=build", "initial.kind=python")
    job = Job(
        slurm,
        tmp_path / "50%j of it",
        *start,
        f"initial.parameters.mark={tmp_path}/mark",
        "devices.count=1",
        "--tasks-per-node",
        "1",
    )
    job.until((tmp_path / "mark").exists, "start of the run")
    job.tell("scancel")
    assert job.ends()["JobState"] == "CANCELLED"
    assert "CANCELLED" in job.log, "the log lies in the folder"
    told = slurm.run(*SIMULATOR, "status", str(job.folder)).stdout
    assert "cancelled before its first step" in told, told


def daemon(slurm, node: str) -> int:
    return int((slurm.folder / "pid" / node).read_text())


def everything_of(job: Job) -> list[int]:
    """The job's script, step and tasks, and Slurm's daemons of them, their parents."""
    found = set()
    for pid in job.processes(command=b""):
        found.add(pid)
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if b"slurmstepd" in Path(f"/proc/{parent}/cmdline").read_bytes():
                found.add(parent)
    return sorted(found)


@pytest.fixture
def lost_nodes_return(slurm) -> Iterator[None]:
    yield
    done = slurm.run(str(ROOT / "scripts" / "slurm-cluster"), "up", timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("orphan", [False, True], ids=["daemons and tasks", "slurmd alone"])
def test_a_lost_node_brings_the_job_back_on_another(slurm, submit, lost_nodes_return, orphan: bool):
    job = submit(*ENDLESS, "devices.count=1", OFTEN, *ONE)
    job.advances(beyond=40)
    node = slurm.job(job.id)["NodeList"]
    (pid,) = job.processes(SLURM_PROCID="0")
    for one in [daemon(slurm, node)] + ([] if orphan else everything_of(job)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    last = job.checkpoints[-1]
    job.advances(restarts=1, beyond=last)
    assert slurm.job(job.id)["NodeList"] != node
    assert "took over" in job.log
    job.until(lambda: not Path(f"/proc/{pid}").exists(), "end of the orphan")
    job.stops()
    verified = slurm.run(*SIMULATOR, "verify", str(job.folder), timeout=PATIENCE)
    assert verified.returncode == 0, verified.stdout + verified.stderr
