"""The doctor's findings for set-ups right and wrong, most of which no test machine has."""

from dataclasses import replace

import pytest
from run_support import tool

from simulator.cluster import Allocation, discover
from simulator.cluster.doctor import Facts, collect, own_findings, shared_findings

pytestmark = pytest.mark.smoke


def facts(process: int = 0, **changes) -> Facts:
    """One of four tasks on two nodes with two GPUs each, all as it should be."""
    right = Facts(
        process_id=process, num_processes=4, host=f"node{1 + process // 2}", node=f"node{1 + process // 2}",
        local_rank=process % 2, local_processes=2, cpus=(4 * (process % 2), 4 * (process % 2) + 1), cores=2,
        gpus_seen=("GPU-a", "GPU-b"), gpus_taken=(("GPU-a", "GPU-b")[process % 2],), gpus_on_node=2,
        coordinator="node1:20000", versions=("jax 0.10.2",),
    )  # fmt: skip
    return replace(right, **changes)


def test_nothing_is_found_where_nothing_is_wrong():
    assert not list(shared_findings([facts(i) for i in range(4)]))
    own = replace(facts(), host="localhost")
    assert own_findings(Allocation(), own, {}, gpu_plugin=True) == []
    hyperthreads = {"SLURM_CPUS_PER_TASK": "4"}  # these are 2 cores
    assert own_findings(Allocation(source="slurm"), own, hyperthreads, gpu_plugin=True) == []


OTHER_JAX = {"gpus_on_node": None, "versions": ("jax 0.11.2",)}


@pytest.mark.parametrize(
    ("processes", "problem", "cure"),
    [
        ([facts(2), facts(3, gpus_taken=("GPU-a",))], "2 and 3 use the same GPU GPU-a of node2", "--gpus-per-task=1"),
        ([facts(0), facts(3, **OTHER_JAX)], "node2 has jax 0.11.2", "one environment"),
        ([facts(0), facts(2, gpus_taken=("GPU-a", "GPU-b"))], "take 1 to 2 GPUs", ""),
        ([facts(0, cpus=(0,)), facts(1, cpus=(0,))], "2 processes of node1 share 1 CPUs", "--cpus-per-task"),
    ],
)
def test_what_is_wrong_between_processes_is_named_with_its_cure(processes, problem, cure):
    found = shared_findings(processes)
    assert any(problem in finding.problem and cure in finding.cure for finding in found)


def test_idle_gpus_are_named_and_numbers_of_control_groups_are_not_one_gpu():
    four = [replace(facts(i), gpus_on_node=4) for i in range(4)]
    found = list(shared_findings(four))
    assert [finding.problem for finding in found] == [f"2 of 4 GPUs of node{i} are idle" for i in (1, 2)]
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
        ({}, {"gpus_seen": ("0", "1", "2", "3")}, True, "4 GPUs are visible, but Slurm gave 2", "--gpus-per-task"),
        ({"SLURM_CPUS_PER_TASK": "8"}, {}, True, "may use 2 cores", "srun its own --cpus-per-task"),
        ({"XLA_CLIENT_MEM_FRACTION": ".5", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}, {}, True, "both set", "unset"),
        ({}, {"cores": 1}, True, "one core for a process with GPUs", "--cpus-per-task"),
        ({}, {"host": "no-such-host.invalid"}, True, "has no address", "/etc/hosts"),
    ],
)  # fmt: skip
def test_what_a_process_sees_itself(environ, changes, plugin, problem, cure):
    own = replace(facts(), **({"host": "localhost"} | changes))
    found = own_findings(Allocation(source="slurm"), own, environ, gpu_plugin=plugin)
    assert len(found) == 1
    assert problem in found[0].problem and cure in found[0].cure


def test_facts_of_this_process_and_gpus_by_their_uuid(tmp_path, monkeypatch):
    found = collect(discover({}), {})
    assert found.cores >= 1
    assert found.line.startswith(f"process 0 of 1: host {found.host}, local rank 0 of 1, ")
    assert any(version.startswith("jaxlib ") for version in found.versions)
    tool(tmp_path, "nvidia-smi", "printf 'GPU-111\\nGPU-222\\n'")
    monkeypatch.setenv("PATH", str(tmp_path))
    environ = {"CUDA_VISIBLE_DEVICES": "1"}
    assert collect(discover(environ), environ).gpus_taken == ("GPU-222",)
    assert collect(discover({}), {}).gpus_seen == ("GPU-111", "GPU-222")
