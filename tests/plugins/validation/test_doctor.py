"""The command `doctor`: what it prints, and the findings of set-ups that no test machine has."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from run_support import tool

from simulator.cli import main
from simulator.cluster import Allocation, discover
from simulator.cluster.hardware import usable_cores
from simulator.plan import machines
from simulator.plugins.validation.set_up import Facts, own_findings, process_facts, shared_findings

CONFIG = str(Path(__file__).parents[3] / "configs" / "taylor_green.yaml")


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.mark.spmd
def test_who_holds_what_in_a_slab(capsys):
    assert (
        main(["doctor", CONFIG, "devices.platform=cpu", "devices.count=4", "grid.shape=32,30,32"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert "devices    4, 4 per process" in lines and "mesh       slab: 4" in lines
    assert "grid       32 x 30 x 32, two_thirds, float64" in lines
    # 30 planes in y are padded to 32, 11 of kz to 12: the last device holds fewer of both.
    assert [line.split() for line in lines if re.match(r" *\d  ", line)] == [
        ["0", "0", "0..7", "0..2", "65.5", "kB", "19.2", "kB"],
        ["1", "0", "8..15", "3..5", "65.5", "kB", "19.2", "kB"],
        ["2", "0", "16..23", "6..8", "65.5", "kB", "19.2", "kB"],
        ["3", "0", "24..29", "9..10", "65.5", "kB", "19.2", "kB"],
    ]


@pytest.mark.spmd
def test_a_pencil_has_two_ranges_on_each_side(capsys):
    arguments = [
        "devices.platform=cpu",
        "devices.count=4",
        "fft.decomposition=pencil",
        "precision=single",
    ]
    assert main(["doctor", CONFIG, *arguments]) == 0
    shown = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("device  process"))
    assert len(shown[at].split()) == 8
    # A quarter of 64^3 numbers of 4 bytes each.
    assert sum("262 kB" in row for row in shown[at + 1 : at + 5]) == 4


def test_without_a_file_and_inside_a_job_and_refused(capsys, monkeypatch):
    """Only variables that are known to hold no secret are printed."""
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "blue")
    monkeypatch.setenv("SLURM_JWT", "planted-secret")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "SLURM_CLUSTER_NAME=blue" in shown and "64 x 64 x 64" in shown
    assert "SLURM_JWT" not in shown and "planted-secret" not in shown
    first, *_, transformed, last = shown.splitlines()
    assert first.startswith("process 0 of 1: host ") and last == "no problems found"
    assert "^3 points and back: correct" in transformed
    assert main(["doctor", CONFIG, "grid.shape=4,4,4", "devices.count=100"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith(
        "command line: devices.count: 100 devices cannot share"
    )


def test_a_measured_node_is_planned_with_its_rates(tmp_path, capsys, monkeypatch):
    assert main(["doctor", "--measure"]) == 0
    shown = capsys.readouterr().out
    measured = re.search(r"copy (\S+) GB/s", shown)
    block = shown[shown.index("this-node:") : shown.index("no problems found")]
    table = tmp_path / "devices.yaml"
    table.write_text(machines.DEVICES.read_text() + block)
    monkeypatch.setattr(machines, "DEVICES", table)
    machines.known_machines.cache_clear()
    try:
        node = machines.machine("this-node")  # as `plan --device` looks it up
    finally:
        monkeypatch.undo()
        machines.known_machines.cache_clear()
    assert node.per_node == 1 and node.threads == usable_cores()
    # The block has one decimal place.
    assert measured and node.bandwidth / 1e9 == pytest.approx(float(measured[1]), abs=0.05)


def facts(process: int = 0, **changes) -> Facts:
    """One of four tasks on two nodes with two GPUs each, all as it should be."""
    right = Facts(
        process_id=process,
        num_processes=4,
        host=f"node{1 + process // 2}",
        node=f"node{1 + process // 2}",
        local_rank=process % 2,
        local_processes=2,
        cpus=(4 * (process % 2), 4 * (process % 2) + 1),
        cores=2,
        gpus_seen=("GPU-a", "GPU-b"),
        gpus_taken=(("GPU-a", "GPU-b")[process % 2],),
        gpus_on_node=2,
        coordinator="node1:20000",
        versions=("jax 0.10.2",),
    )
    return replace(right, **changes)


def test_nothing_is_found_where_nothing_is_wrong():
    assert not list(shared_findings([facts(i) for i in range(4)]))
    own = replace(facts(), host="localhost")
    assert list(own_findings(Allocation(), own, {}, gpu_plugin=True)) == []
    hyperthreads = {"SLURM_CPUS_PER_TASK": "4"}  # these are 2 cores
    assert list(own_findings(Allocation(source="slurm"), own, hyperthreads, gpu_plugin=True)) == []


OTHER_JAX = {"gpus_on_node": None, "versions": ("jax 0.11.2",)}


@pytest.mark.parametrize(
    ("processes", "problem", "cure"),
    [
        (
            [facts(2), facts(3, gpus_taken=("GPU-a",))],
            "2 and 3 use the same GPU GPU-a of node2",
            "--gpus-per-task=1",
        ),
        ([facts(0), facts(3, **OTHER_JAX)], "node2 has jax 0.11.2", "one environment"),
        ([facts(0), facts(2, gpus_taken=("GPU-a", "GPU-b"))], "take 1 to 2 GPUs", ""),
        (
            [facts(0, cpus=(0,)), facts(1, cpus=(0,))],
            "2 processes of node1 share 1 CPUs",
            "--cpus-per-task",
        ),
    ],
)
def test_what_is_wrong_between_processes_is_named_with_its_cure(processes, problem, cure):
    found = shared_findings(processes)
    assert any(problem in finding.problem and cure in finding.cure for finding in found)


def test_idle_gpus_are_named_and_numbers_of_control_groups_are_not_one_gpu():
    four = [replace(facts(i), gpus_on_node=4) for i in range(4)]
    found = list(shared_findings(four))
    assert [finding.problem for finding in found] == [
        f"2 of 4 GPUs of node{i} are idle" for i in (1, 2)
    ]
    assert found[0].cure == "ask for --gpus-per-node=2, or start --ntasks-per-node=4"
    bound = [replace(facts(i), gpus_seen=("0",), gpus_taken=("0",)) for i in range(4)]
    assert not list(shared_findings(bound))
    shared = [replace(facts(i), gpus_seen=("0", "1"), gpus_taken=("0",)) for i in range(2)]
    assert any("same GPU 0" in finding.problem for finding in shared_findings(shared))


@pytest.mark.parametrize(
    ("environ", "changes", "plugin", "problem", "cure"),
    [
        ({}, {}, False, "this JAX runs on the CPU only", "./scripts/run --setup"),
        ({"JAX_PLATFORMS": "cpu"}, {}, True, "hides the GPUs", "unset"),
        (
            {},
            {"gpus_seen": ("0", "1", "2", "3")},
            True,
            "the task sees 4 GPUs, but Slurm gave 2",
            "--gpus-per-task",
        ),
        ({"SLURM_CPUS_PER_TASK": "8"}, {}, True, "may use 2 cores", "srun its own --cpus-per-task"),
        (
            {"XLA_CLIENT_MEM_FRACTION": ".5", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"},
            {},
            True,
            "both set",
            "unset",
        ),
        ({}, {"cores": 1}, True, "a process with GPUs has one core", "--cpus-per-task"),
        ({}, {"host": "no-such-host.invalid"}, True, "has no address", "/etc/hosts"),
    ],
)
def test_what_a_process_sees_itself(environ, changes, plugin, problem, cure):
    own = replace(facts(), **({"host": "localhost"} | changes))
    found = list(own_findings(Allocation(source="slurm"), own, environ, gpu_plugin=plugin))
    assert len(found) == 1
    assert problem in found[0].problem and cure in found[0].cure


def test_facts_of_this_process_and_gpus_by_their_uuid(tmp_path, monkeypatch):
    found = process_facts(discover({}), {})
    assert found.cores >= 1
    assert found.line.startswith(f"process 0 of 1: host {found.host}, local rank 0 of 1, ")
    assert any(version.startswith("jaxlib ") for version in found.versions)
    tool(
        tmp_path,
        "nvidia-smi",
        "printf 'GPU 0: H100 (UUID: GPU-111)\\nGPU 1: H100 (UUID: GPU-222)\\n'",
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    environ = {"CUDA_VISIBLE_DEVICES": "1"}
    assert process_facts(discover(environ), environ).gpus_taken == ("GPU-222",)
    assert process_facts(discover({}), {}).gpus_seen == ("GPU-111", "GPU-222")
