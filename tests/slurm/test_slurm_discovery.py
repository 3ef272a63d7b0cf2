"""Discovery on a live Slurm: recorded environments made again, what `start` makes of them, and the
doctor."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.cluster import discover
from simulator.errors import UserError

pytestmark = pytest.mark.slurm

RECORDED = json.loads((Path(__file__).parents[1] / "cluster" / "environments.json").read_text())
SRUN = {
    case: found["command"].removeprefix("srun ")
    for case, found in RECORDED.items()
    if found["command"].startswith("srun -")
    and "pty" not in found["command"]
    and ":" not in found["command"]
}


def environment(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


@pytest.mark.parametrize("case", SRUN)
def test_live_tasks_are_discovered_like_recorded_ones(slurm, tmp_path, case):
    tasks = RECORDED[case]["tasks"]
    nodes = tasks[0]["SLURM_JOB_NODELIST"]  # which GPUs a task gets differs from node to node
    done = slurm.srun(f"-o {tmp_path}/%t.env -w {nodes} {SRUN[case]}", "env", "-0")
    assert done.returncode == 0, done.stderr
    live = [discover(environment(path.read_text())) for path in tmp_path.glob("*.env")]
    live.sort(key=lambda allocation: allocation.process_id)
    recorded = [discover(environ) for environ in tasks]
    # job ids and the port of srun differ, nothing else
    plain = {"rendezvous": None, "job": None}
    assert [replace(a, **plain) for a in live] == [replace(a, **plain) for a in recorded]
    assert {a.coordinator_host for a in live} == {a.nodes[0] for a in live}
    assert len({a.rendezvous for a in live}) == 1


def test_heterogeneous_jobs_are_refused_in_one_line(slurm):
    done = slurm.srun("-n1 : -n1", "env", "-0")
    tasks = [environment(text) for text in done.stdout.split("\0\0")]
    assert "SLURM_HET_SIZE" in tasks[0]
    with pytest.raises(UserError, match="heterogeneous"):
        discover(tasks[0])


def test_a_batch_scripts_shell_is_one_process(slurm, tmp_path):
    script = tmp_path / "job"
    script.write_text(f"#!/bin/bash\nenv -0 >{tmp_path}/shell.env\n")
    job = slurm.sbatch(
        ["-N2", "--ntasks-per-node=2", "-o", f"{tmp_path}/out"], script, cwd=tmp_path
    )
    slurm.wait(job)
    allocation = discover(environment((tmp_path / "shell.env").read_text()))
    assert allocation.num_processes == 1
    assert "not started by srun" in allocation.warnings[0]


START = """
import json, os, sys
from pathlib import Path
import jax, numpy as np
from simulator.cluster import discover, failure
from simulator.cluster.start import Meeting, start
allocation = discover(os.environ)
folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
with failure.contained(allocation):
    cluster = start(allocation, platform="cpu", count=int(sys.argv[1]), meet=Meeting(folder))
    me = [os.environ["SLURM_JOB_ID"], os.environ["SLURM_STEP_ID"], allocation.host, cluster.process_id]
    everyone = cluster.gather(me)
    if cluster.is_first:
        print(json.dumps([len(cluster.devices), everyone]), flush=True)
    cluster.close()
"""


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "start.py"
    path.write_text(START)
    return path


@pytest.mark.parametrize("shared", [True, False], ids=["run folder", "derived port"])
def test_two_steps_at_once_do_not_meet(slurm, script, tmp_path, shared):
    folder = f"{tmp_path}/run" if shared else ""
    step = f"srun -N2 -n2 --ntasks-per-node=1 --exact {sys.executable} {script} 2 {folder}"
    job_script = tmp_path / "job"
    job_script.write_text(
        f"#!/bin/bash\n{step} >one & a=$!\n{step} >two & b=$!\nwait $a && wait $b\n"
    )
    job = slurm.sbatch(["-N2", "--ntasks-per-node=2", "-o", "out"], job_script, cwd=tmp_path)
    ended = slurm.wait(job)
    assert ended["ExitCode"] == "0:0", (tmp_path / "out").read_text()
    steps = [json.loads((tmp_path / name).read_text())[1] for name in ("one", "two")]
    assert [len({entry[1] for entry in step}) for step in steps] == [
        1,
        1,
    ]  # nobody of the other step
    assert steps[0][0][1] != steps[1][0][1]
    assert not (tmp_path / "run").exists()  # the meeting place leaves nothing behind


DOCTOR = "import sys; from simulator.cli import main; sys.exit(main(['doctor', *sys.argv[1:]]))"


def examine(slurm, options: str, *arguments: str, **environ: str):
    done = slurm.srun(options, sys.executable, "-c", DOCTOR, *arguments, **environ)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.plugins("validation")
@pytest.mark.parametrize("arguments", [(), ("--folder",)], ids=["derived port", "shared folder"])
def test_a_right_set_up(slurm, tmp_path, arguments):
    if arguments:
        arguments = (*arguments, str(tmp_path / "meet"))
    code, out, err = examine(slurm, "-N2 --ntasks-per-node=1 --cpus-per-task=2", *arguments)
    assert code == 0, out + err
    for process in range(2):
        assert re.search(
            rf"process {process} of 2: host \S+, local rank 0 of 1, \d cores? of CPUs ", out
        )
    assert re.search(r"transform \S+ of 32\^3 points and back: correct", out)
    assert out.splitlines()[-1] == "no problems found"


@pytest.mark.plugins("validation")
@pytest.mark.parametrize(
    "options, environ, problem, cure",
    [
        (
            "-n2 --gpus-per-node=1",
            {},
            "2 tasks share 1 GPU",
            "--ntasks-per-node=1 or --gpus-per-node=2",
        ),
        (
            "-n1 --gpus-per-task=1",
            {},
            "the task has 1 GPU, but this JAX runs on the CPU only",
            "./scripts/run --setup",
        ),
        ("-n1", {"SLURM_CPUS_PER_TASK": "64"}, "may use", "srun its own --cpus-per-task"),
    ],
)
def test_a_wrong_set_up_is_named_with_its_cure(slurm, options, environ, problem, cure):
    code, out, err = examine(slurm, options, "--platform=cpu", **environ)
    assert code == 1, out + err
    assert any(problem in line and cure in line for line in out.splitlines()), out
