"""The doctor under srun, on right set-ups and on deliberately wrong ones."""

import re
import sys

import pytest

pytestmark = pytest.mark.slurm

DOCTOR = "import sys; from simulator.cli import main; sys.exit(main(['doctor', *sys.argv[1:]]))"


def examine(slurm, options: str, *arguments: str, **environ: str):
    done = slurm.srun(options, sys.executable, "-c", DOCTOR, *arguments, **environ)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", [(), ("--folder",)], ids=["derived port", "shared folder"])
def test_a_right_set_up(slurm, tmp_path, arguments):
    if arguments:
        arguments = (*arguments, str(tmp_path / "meet"))
    code, out, err = examine(slurm, "-N2 --ntasks-per-node=1 --cpus-per-task=2", *arguments)
    assert code == 0, out + err
    for process in range(2):
        assert re.search(rf"process {process} of 2: host \S+, local rank 0 of 1, \d cores? of CPUs ", out)
    assert re.search(r"all-to-all of \S+ MiB over \d+ devices: correct", out)
    assert re.search(r"transform \S+ of 32\^3 points and back: correct", out)
    assert out.splitlines()[-1] == "no problems found"


@pytest.mark.parametrize(
    ("options", "environ", "problem", "cure"),
    [
        ("-n2 --gpus-per-node=1", {}, "2 tasks share 1 GPU", "--ntasks-per-node=1 or --gpus-per-node=2"),
        (
            "-n1 --gpus-per-task=1", {}, "1 GPUs are given, but this JAX runs on the CPU only",
            "./scripts/run --setup",
        ),
        ("-n1", {"SLURM_CPUS_PER_TASK": "64"}, "may use", "srun its own --cpus-per-task"),
    ],
)  # fmt: skip
def test_a_wrong_set_up_is_named_with_its_cure(slurm, options, environ, problem, cure):
    code, out, err = examine(slurm, options, "--platform=cpu", **environ)
    assert code == 1, out + err
    assert any(problem in line and cure in line for line in out.splitlines()), out
