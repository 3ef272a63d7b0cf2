"""Job scripts as text. What they do is tested on a real Slurm
(tests/slurm/test_slurm_jobscript.py)."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from simulator.cluster.jobscript import JobScript, SlurmSettings, shared_lines
from simulator.errors import UserError

pytestmark = pytest.mark.smoke

SLURM = Path(__file__).parents[2] / "slurm"
SHIPPED = sorted(SLURM.glob("*.sbatch"))
COMMAND = ["/opt/my env/bin/simulator"]


def text_of(*arguments: Any, **options: Any) -> str:
    return JobScript(*arguments, **options).text()


def bash_accepts(script: str) -> bool:
    return subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


def flags(script: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)


def listens_before_it_does_anything(script: str) -> bool:
    return not [
        line
        for line in script[: script.index(shared_lines("begin"))].splitlines()
        if line and line[0] != "#"
    ]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_script_ends_like_all_others(path):
    text = path.read_text()
    assert text.endswith(shared_lines("end"))
    assert listens_before_it_does_anything(text)
    assert bash_accepts(text)
    given = flags(text)
    assert {"--requeue", "--open-mode=append", "--signal=B:USR2@120"} <= set(given)
    assert not [flag for flag in given if re.match(r"--(partition|account|mem|qos)", flag)]
    assert len(SHIPPED) == 3


def test_a_script_asks_for_what_is_given_and_nothing_else():
    script = text_of(
        "tg", Path("/scratch/my runs/tg"), COMMAND, SlurmSettings(nodes=2, time="1-00:00:00")
    )
    assert bash_accepts(script)
    assert flags(script) == [
        "--job-name=tg",
        "--nodes=2",
        "--time=1-00:00:00",
        "--output='/scratch/my runs/tg/logs/slurm-%j.out'",
        "--open-mode=append",
        "--requeue",
        "--signal=B:USR2@120",
    ]
    assert "\nsimulator=('/opt/my env/bin/simulator')\n" in script
    assert "\nrun='/scratch/my runs/tg'\nset -- \"$run/config.yaml\"\n" in script
    assert script.endswith(shared_lines("end"))
    assert listens_before_it_does_anything(script)


def test_all_resources_and_other_flags():
    resources = SlurmSettings(
        nodes=1,
        tasks_per_node=4,
        gpus_per_node=4,
        cpus_per_task=8,
        time="30",
        partition="gpu",
        account="a b",
        qos="high",
        constraint="a100&80gb",
        sbatch="--mem=64G --exclusive -x 'node[1-2]' --comment=\"my run\" --no-requeue",
    )
    asked = flags(text_of("tg", Path("/r"), COMMAND, resources))
    assert {"--account='a b'", "--constraint='a100&80gb'", "--gpus-per-node=4"} <= set(asked)
    assert asked[-1] == resources.sbatch, "the user's flags come after ours"
    assert SlurmSettings(gpus_per_node=0).flags() == []


@pytest.mark.parametrize("given", ["--signal=USR1@600", "--exclusive --signal USR1@600"])
def test_the_users_own_warning_replaces_ours(given):
    script = text_of("tg", Path("/r"), COMMAND, SlurmSettings(sbatch=given))
    assert [flag for flag in flags(script) if "signal" in flag] == [given]


@pytest.mark.parametrize(
    "time, other, lead",
    [
        (None, None, 120),
        ("2:00:00", "--time=UNLIMITED", 120),
        ("0", None, 120),
        ("1", None, 15),
        ("0:30", None, 15),  # Slurm counts whole minutes
        ("2", None, 30),
        ("00:07:00", None, 105),
        ("8", None, 120),
        ("1-0", None, 120),
        ("0-00:02", None, 30),
        ("2:00:00", "--time=00:04:00", 60),
        ("2:00:00", "--mem=1G -t 4", 60),
        ("2:00:00", "--time-min=1", 120),
    ],
)
def test_a_short_job_is_warned_when_three_quarters_of_it_are_over(time, other, lead):
    script = text_of("tg", Path("/r"), COMMAND, SlurmSettings(time=time, sbatch=other))
    assert f"--signal=B:USR2@{lead}" in flags(script)


def test_a_percent_sign_in_the_folders_name_is_no_pattern_of_sbatch():
    script = text_of("tg", Path("/r/50%j"), COMMAND, SlurmSettings())
    assert "--output=/r/50%%j/logs/slurm-%j.out" in flags(script)
    assert "\nrun=/r/50%j\n" in script


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\\b", "a\x1bb"])
def test_a_folder_that_sbatch_cannot_name_is_refused(name):
    with pytest.raises(
        UserError, match=r"output.directory: '.*another name with --output$"
    ) as refusal:
        text_of("tg", Path("/r") / name, COMMAND, SlurmSettings())
    assert "\n" not in str(refusal.value)


def test_an_array_of_runs_sets_up_its_own_folder():
    setup = ['run=$(sed -n "${SLURM_ARRAY_TASK_ID}p" runs.txt)', 'set -- "$run/config.yaml"']
    script = text_of("sweep", Path("/s"), COMMAND, SlurmSettings(), setup=setup, array="1-8%4")
    assert bash_accepts(script)
    assert "--array=1-8%4" in flags(script)
    assert "--output=/s/logs/slurm-%A_%a.out" in flags(script)
    assert "\n".join(setup) in script


def test_arguments_site_and_comments():
    script = text_of(
        "tg",
        Path("/r"),
        COMMAND,
        SlurmSettings(),
        arguments=["$run/config.yaml", "time.stop=2", 'name="a b"'],
        site="module load cuda\nexport NCCL_SOCKET_IFNAME=ib0\n",
        max_restarts=3,
        about=["A run."],
    )
    assert bash_accepts(script)
    assert 'set -- "$run/config.yaml" time.stop=2 \'name="a b"\'' in script
    assert "\nmax_restarts=3\n" in script
    assert re.search(
        r"# ---- your site -+\nmodule load cuda\nexport NCCL_SOCKET_IFNAME=ib0\n# -+\n", script
    )
    assert script.splitlines()[:3] == ["#!/bin/bash", "# A run.", ""]
