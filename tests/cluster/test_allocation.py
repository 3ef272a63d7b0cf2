"""Discovery, against environments recorded on a real Slurm (22.05.8, 2 nodes with 4 GPUs each);
lists of hosts."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cluster import discover
from simulator.cluster.hardware import visible_gpus
from simulator.cluster.hostlist import host_names, tasks_per_node
from simulator.errors import UserError

pytestmark = pytest.mark.smoke

RECORDED = json.loads((Path(__file__).parent / "environments.json").read_text())


def environment(case: str, task: int = 0, **changes: str) -> dict[str, str]:
    merged = RECORDED[case]["tasks"][task] | changes
    return {name: value for name, value in merged.items() if value != "unset"}


def taken(allocation, present: int = 4) -> str:
    """The GPUs that a process takes, by the names in CUDA_VISIBLE_DEVICES."""
    visible = allocation.gpus.visible
    names = visible if visible is not None else [str(i) for i in range(present)]
    return ",".join(names[i] for i in allocation.gpus.take(len(names)))


def place_of(allocation) -> tuple[str, int, int]:
    return allocation.source, allocation.process_id, allocation.num_processes


# (node, local rank, processes on the node, GPUs taken) by process
STEPS = {
    "gpus-per-task": [(0, 0, 2, "0"), (0, 1, 2, "1"), (1, 0, 2, "0"), (1, 1, 2, "1")],
    "gpus-per-node": [(0, 0, 2, "0,1"), (0, 1, 2, "2,3"), (1, 0, 2, "0,1"), (1, 1, 2, "2,3")],
    "gpu-bind single": [(0, 0, 2, "0"), (0, 1, 2, "1")],
    "gpu-bind map": [(0, 0, 2, "2"), (0, 1, 2, "3")],
    "gpu-bind mask": [(0, 0, 2, "0,1"), (0, 1, 2, "2,3")],
    "gpu-bind closest": [(0, 0, 4, "0"), (0, 1, 4, "1"), (0, 2, 4, "2"), (0, 3, 4, "3")],
    "gpu-bind none": [(0, 0, 2, "0,1"), (0, 1, 2, "2,3")],
    "one task per node": [(0, 0, 1, "0,1,2,3"), (1, 0, 1, "0,1,2,3")],
    "uneven gpus": [(0, 0, 3, "0"), (0, 1, 3, "1"), (0, 2, 3, "2"), (1, 0, 1, "0")],
    "two gpus per task": [(0, 0, 2, "0,1"), (0, 1, 2, "2,3")],
}


@pytest.mark.parametrize("case", STEPS)
def test_each_task_takes_its_own_gpus(case):
    found = [discover(environment(case, i)) for i in range(len(STEPS[case]))]
    assert [(a.node, a.local_rank, a.local_processes, taken(a)) for a in found] == STEPS[case]
    assert [a.process_id for a in found] == list(range(len(found)))
    assert {a.num_processes for a in found} == {len(found)}
    assert {(a.source, a.coordinator_host, a.gpus.problem) for a in found} == {
        ("slurm", "node1", None)
    }
    assert len({a.rendezvous for a in found}) == len({a.port for a in found}) == 1


def test_tasks_that_would_meet_on_a_gpu_are_told_the_flag():
    told = {
        "tasks share a gpu": "--ntasks-per-node=1 or --gpus-per-node=2",
        "single shared": "--gpus-per-task=1",
    }
    for case, tells in told.items():
        problems = {
            discover(environment(case, i)).gpus.problem for i in range(len(RECORDED[case]["tasks"]))
        }
        assert len(problems) == 1 and tells in (problems.pop() or "")
    # 4 GPUs at 2 sockets, 4 tasks: each sees the 2 of its socket; and the prefix of newer Slurms
    for overlapping in (
        environment("gpu-bind closest", CUDA_VISIBLE_DEVICES="0,1"),
        environment("gpus-per-node", SLURMD_TRES_BIND="gres/gpu:verbose,single:1"),
    ):
        assert "some share one" in (discover(overlapping).gpus.problem or "")


def test_gpus_that_do_not_divide_are_named_idle_and_mig_devices_go_one_to_a_task():
    allocation = discover(
        environment("gpus-per-node", CUDA_VISIBLE_DEVICES="0,1,2", SLURM_GPUS_ON_NODE="3")
    )
    assert taken(allocation) == "0" and "1 of them idle" in allocation.warnings[0]
    names = ["MIG-61c3a5b0-4a53-5a4a-8a1b-000000000001", "MIG-GPU-61c3a5b0-4a53/7/0"]
    changes = {"CUDA_VISIBLE_DEVICES": ",".join(names), "SLURM_GPUS_ON_NODE": "2"}
    found = [discover(environment("gpus-per-node", i, **changes)) for i in range(2)]
    assert [taken(a) for a in found] == names and found[0].warnings == ()
    alone = discover(environment("one task per node", **changes))
    assert "one MIG device only" in alone.warnings[0]


def test_cpu_tasks_have_no_gpus_and_know_their_cores_and_slurms_numbers():
    found = [discover(environment("cpu", i)) for i in range(3)]
    ranks = [(a.node, a.local_rank, a.local_processes) for a in found]
    assert ranks == [(0, 0, 2), (0, 1, 2), (1, 0, 1)]
    assert all(a.gpus.visible is None and a.cores == 1 for a in found)
    assert [discover(environment("cpus-per-task", i)).cores for i in range(2)] == [2, 2]
    found = [discover(environment("cyclic", i)) for i in range(4)]
    ranks = [(a.process_id, a.node, a.local_rank) for a in found]
    assert ranks == [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 0, 2)]


def test_steps_at_once_array_tasks_and_requeued_jobs_never_meet():
    for case in ("two steps at once", "array"):
        first, second = (discover(environment(case, i)) for i in range(2))
        assert (first.source, first.num_processes) == ("slurm", 1)
        assert first.rendezvous != second.rendezvous
        assert first.port != second.port
    before, after = (
        discover(environment("cpu", **changes)) for changes in ({}, {"SLURM_RESTART_COUNT": "1"})
    )
    assert before.rendezvous != after.rendezvous and after.job.restarts == 1


# salloc with LaunchParameters=use_interactive_step: a step whose SLURM_NTASKS is the allocation's
INTERACTIVE = {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    "case, changes", [("batch script", {}), ("salloc", {}), ("pty", {}), ("cpu", INTERACTIVE)]
)
def test_a_jobs_shell_is_one_process_with_a_warning(case, changes):
    assert discover(environment("batch script", SLURM_NTASKS="1")).warnings == ()
    allocation = discover(environment(case, **changes))
    assert place_of(allocation) == ("local", 0, 1) and allocation.coordinator is None
    assert "not started by srun" in allocation.warnings[0]


@pytest.mark.parametrize(
    "name, value",
    [
        *(
            (f"SLURM_{name}", "unset")
            for name in ("PROCID", "LOCALID", "NODEID", "STEP_NUM_TASKS", "STEP_NODELIST")
        ),
        ("SLURM_STEP_NODELIST", "node[1-"),
        ("SLURM_STEP_TASKS_PER_NODE", "7"),
        ("SLURM_PROCID", "3"),
        ("SLURM_NODEID", "2"),
        ("SLURM_LOCALID", "2"),
    ],
)
def test_a_half_set_or_contradictory_step_is_one_process_with_a_warning(name, value):
    allocation = discover(environment("cpu", **{name: value}))
    assert place_of(allocation) == ("local", 0, 1)
    assert (name if value == "unset" else "contradict") in allocation.warnings[0]


def test_nothing_set_is_one_local_process_and_heterogeneous_jobs_are_refused():
    allocation = discover({})
    assert place_of(allocation) == ("local", 0, 1)
    assert allocation.warnings == () and allocation.rendezvous is None and allocation.cores is None
    # without a job they are not believed
    allocation = discover({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"})
    assert allocation.num_processes == 1 and allocation.job is None
    assert "SLURM_PROCID" in allocation.warnings[0]
    for task in range(2):
        with pytest.raises(UserError, match="heterogeneous"):
            discover(environment("heterogeneous", task))


BY_HAND = {
    "SIMULATOR_COORDINATOR": "head:4000",
    "SIMULATOR_NUM_PROCESSES": "4",
    "SIMULATOR_PROCESS_ID": "3",
}


def test_by_hand_wins_over_slurm_but_for_the_steps_binding_and_flags_over_both():
    environ = environment("cpu") | BY_HAND
    allocation = discover(environ)
    assert (*place_of(allocation), allocation.coordinator) == ("explicit", 3, 4, "head:4000")
    allocation = discover(environ, coordinator="[fe80::1]:5000", num_processes=2, process_id=1)
    assert (*place_of(allocation)[1:], allocation.coordinator) == (1, 2, "[fe80::1]:5000")
    assert discover(environ, process_id=2).process_id == 2
    assert discover({}, num_processes=1, process_id=0).num_processes == 1  # needs no coordinator
    # alone, it joins the step
    allocation = discover(environment("cpu", 2), coordinator="node1:7000")
    assert (*place_of(allocation)[:2], allocation.coordinator) == ("slurm", 2, "node1:7000")
    allocation = discover(BY_HAND | {"SIMULATOR_SECRET": "known to few people"})
    assert allocation.secret == "known to few people" and "few" not in repr(allocation)
    environ = environment("gpus-per-node", 1) | BY_HAND
    allocation = discover(environ, num_processes=4, process_id=1)
    assert (allocation.coordinator, taken(allocation)) == ("head:4000", "2,3")


@pytest.mark.parametrize(
    "environ, flags, message",
    [
        ({}, {"coordinator": "head:1"}, "--num-processes N --process-id I"),
        ({}, {"num_processes": 2, "process_id": 0}, "missing: --coordinator"),
        (BY_HAND | {"SIMULATOR_PROCESS_ID": ""}, {}, "missing: --process-id"),
        (BY_HAND, {"process_id": 4}, "from 0 to 3"),
        (BY_HAND, {"num_processes": 0}, "at least 1"),
        (BY_HAND, {"coordinator": "head"}, "--coordinator: 'head' is not an address"),
        *(
            (BY_HAND | {"SIMULATOR_COORDINATOR": text}, {}, "SIMULATOR_COORDINATOR: ")
            for text in ("http://head:1", "x", "²", "9" * 30, "h:99999", "h:0")
        ),
        *(
            (BY_HAND | {name: text}, {}, name)
            for text in ("x", "²", "9" * 30, "h:0")
            for name in ("SIMULATOR_NUM_PROCESSES", "SIMULATOR_PROCESS_ID")
        ),
        (
            BY_HAND | {"SIMULATOR_SECRET": "short"},
            {},
            "SIMULATOR_SECRET: must have 16 to 256 characters",
        ),
        (
            environment("cpu", 2) | {"SIMULATOR_SECRET": 257 * "x"},
            {},
            "SIMULATOR_SECRET: must have 16 to 256",
        ),
    ],
)
def test_half_or_wrong_descriptions_by_hand_are_refused(environ, flags, message):
    with pytest.raises(UserError) as refusal:
        discover(environ, **flags)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_local_processes_of_the_launcher_divide_gpus_and_cores():
    environ = BY_HAND | {
        "SIMULATOR_NUM_PROCESSES": "2",
        "SIMULATOR_PROCESS_ID": "1",
        "SIMULATOR_LOCAL_RANK": "1",
        "SIMULATOR_LOCAL_PROCESSES": "2",
        "SLURM_CPUS_ON_NODE": "8",
        "CUDA_VISIBLE_DEVICES": "0,1,5,7",
    }
    allocation = discover(environ)
    assert (taken(allocation), allocation.cores) == ("5,7", 4)
    assert "start fewer" in (discover(environ | {"CUDA_VISIBLE_DEVICES": "3"}).gpus.problem or "")


@pytest.mark.parametrize(
    "text, names",
    [
        ("0,1", ("0", "1")),
        (" 2 , 0", ("2", "0")),
        ("", ()),
        ("NoDevFiles", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("GPU-8932f937-d72c,MIG-1b", ("GPU-8932f937-d72c", "MIG-1b")),
    ],
)
def test_visible_devices_are_read_as_cuda_does(text, names):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": text}) == names
    assert visible_gpus({"ROCR_VISIBLE_DEVICES": text}) == names  # AMD's driver does likewise


STEP = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURMD_TRES_BIND": "gpu:map_gpu:0,1",
    "SLURM_CPUS_PER_TASK": "2",
    "SLURM_CPUS_ON_NODE": "4",
    "SLURM_RESTART_COUNT": "0",
    "SLURM_HET_SIZE": "1",
    "SIMULATOR_LOCAL_RANK": "0",
    "SIMULATOR_LOCAL_PROCESSES": "1",
}
GARBAGE = (
    "x",
    "²",
    "-1",
    "1e3",
    "9" * 30,
    "\udcff",
    "n[1-1000000000]",
    "gpu:mask_gpu:zz",
    "gpu:map_gpu:1*x",
    "1,,2",
)


@pytest.mark.parametrize("name", STEP)
def test_garbage_in_a_variable_is_refused_or_not_believed(name: str):
    for text in GARBAGE:
        try:
            found = discover(STEP | {name: text})
        except UserError as error:
            assert name in str(error)
        else:
            assert found.num_processes in (1, 2)


@pytest.mark.parametrize(
    "hostlist, names",
    [
        ("node1", "node1"),
        ("node[1-3]", "node1 node2 node3"),
        ("gpu-[1-2]-ib", "gpu-1-ib gpu-2-ib"),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"),
        ("tux[01-02].cluster.org", "tux01.cluster.org tux02.cluster.org"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[1,3-4,07]", "n1 n3 n4 n07"),
        ("a1,b[2-3],c", "a1 b2 b3 c"),
        ("a[1,2],a[5-6]x,login", "a1 a2 a5x a6x login"),
        ("[1-2]", "1 2"),
        ("", ""),
    ],
)
def test_every_bracket_form(hostlist, names):
    assert host_names(hostlist) == names.split()


@pytest.mark.parametrize(
    "hostlist",
    [
        "a[1-2",
        "a1]",
        "a[2-1]",
        "a[]",
        "a[x-y]",
        "a[[1]]",
        "n[²]",
        "n[1-1000000000]",
        "n[0-9999][0-9999]",
    ],
)
def test_what_is_no_host_list_or_too_long_to_write_out_is_refused(hostlist):
    with pytest.raises(ValueError, match=r"host list|names more than 1048576 nodes"):
        host_names(hostlist)


prefix = st.text("abc-.", min_size=1, max_size=4)


@given(
    st.lists(
        st.tuples(prefix, st.integers(0, 999), st.integers(0, 5), st.integers(1, 4), prefix),
        min_size=1,
    )
)
def test_ranges_expand_to_what_they_were_made_of(parts):
    text = ",".join(f"{a}[{lo:0{w}d}-{lo + n:0{w}d}]{b}" for a, lo, n, w, b in parts)
    assert host_names(text) == [
        f"{a}{lo + i:0{w}d}{b}" for a, lo, n, w, b in parts for i in range(n + 1)
    ]


def test_tasks_per_node():
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert tasks_per_node("4") == [4]
    for text in ("", "2x", "(x2)", "²", "1(x1000000000)", "1(x99999999999999999999999)"):
        with pytest.raises(ValueError, match=r"tasks per node|names more than 1048576 nodes"):
            tasks_per_node(text)


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-vm-12@1",
    "PMIX_RANK": "3",
}
HYDRA = {
    "PMI_FD": "8",
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "2",
}


def test_mpirun_starts_the_processes_of_a_run():
    """The variables of Open MPI, and those of Hydra, which MPICH and Intel MPI have in common."""
    allocation = discover(OPEN_MPI)
    assert place_of(allocation) == ("mpi", 3, 4) and allocation.mpi
    assert (allocation.local_rank, allocation.local_processes) == (1, 2)
    assert allocation.rendezvous == "mpirun.prterun-vm-12-1"
    assert allocation.coordinator_host is None
    allocation = discover(HYDRA)
    assert place_of(allocation) == ("mpi", 1, 2) and allocation.mpi
    assert allocation.coordinator_host == "localhost"
    one = HYDRA | {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    assert discover(one).num_processes == 1
    by_hand = discover(HYDRA, coordinator="node1:1234")
    assert (by_hand.coordinator, by_hand.process_id) == ("node1:1234", 1)


def test_mpirun_inside_a_job_is_not_the_step_that_it_starts_its_helpers_with():
    inside = environment("gpus-per-task", 2, SLURM_NTASKS="4") | OPEN_MPI
    allocation = discover(inside)
    assert place_of(allocation) == ("mpi", 3, 4)
    assert allocation.job is not None
    assert allocation.coordinator_host == "node1"
    assert allocation.job.id in (allocation.rendezvous or "")


def test_a_step_has_mpi_if_a_pmi_gives_its_tasks_their_ranks():
    assert not discover(environment("gpus-per-task", 1)).mpi
    assert discover(environment("gpus-per-task", 1, PMIX_RANK="1")).mpi
    assert discover(environment("gpus-per-task", 1, PMI_RANK="1")).mpi
    # the rank of another launch, around this one
    assert not discover(environment("gpus-per-task", 1, PMIX_RANK="0")).mpi


PMI = {"PMI_RANK": "3", "PMI_SIZE": "4"}
PALS = {
    "PALS_RANKID": "3",
    "PALS_LOCAL_RANKID": "1",
    "PALS_NODEID": "1",
    "PALS_APID": "2e4b-11",
    "PMI_LOCAL_RANK": "1",
    "PMI_LOCAL_SIZE": "2",
}
FLUX = {
    "FLUX_TASK_RANK": "3",
    "FLUX_JOB_SIZE": "4",
    "FLUX_TASK_LOCAL_ID": "1",
    "FLUX_JOB_NNODES": "2",
    "FLUX_JOB_ID": "\u01922oLk/TLb",
}


@pytest.mark.parametrize(
    "environ, place, rendezvous, mpi",
    [
        (PMI | PALS, (3, 4, 1, 2), "mpirun.2e4b-11", True),
        (FLUX, (3, 4, 1, 2), "mpirun.-2oLk-TLb", False),
        (FLUX | PMI, (3, 4, 1, 2), "mpirun.-2oLk-TLb", True),
        (PMI | {"PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}, (3, 4, 1, 2), "mpirun", True),
        (PMI, (3, 4, 0, 1), "mpirun", True),
        # five tasks, four of them on the first host
        (FLUX | {"FLUX_JOB_SIZE": "5", "FLUX_TASK_LOCAL_ID": "3"}, (3, 5, 3, 4), None, False),
    ],
)
def test_other_launchers_start_the_processes_of_a_run(environ, place, rendezvous, mpi):
    """PALS of Cray, Flux, and process managers that set nothing but PMI's variables."""
    found = discover(environ)
    numbers = (found.process_id, found.num_processes, found.local_rank, found.local_processes)
    assert (numbers, found.coordinator_host, found.mpi) == (place, None, mpi)
    assert rendezvous in (None, found.rendezvous)
    alone = environ == PMI
    assert [("how many processes share a host" in line) for line in found.warnings] == alone * [1]


def test_launchers_whose_processes_share_one_host_need_no_coordinator():
    one_host = {
        "PALS_RANKID": "1",
        "PALS_LOCAL_RANKID": "1",
        "PMI_SIZE": "2",
        "PMI_LOCAL_SIZE": "2",
    }
    assert discover(one_host).coordinator_host == "localhost"
    assert discover(FLUX | {"FLUX_JOB_NNODES": "1", "FLUX_TASK_LOCAL_ID": "3"}).coordinator_host


def test_pbs_names_the_first_host_and_the_launch(tmp_path):
    nodes = tmp_path / "nodes"
    job = {"PBS_NODEFILE": str(nodes), "PBS_JOBID": "12[3].server"}
    assert discover(PMI | PALS | job).coordinator_host is None
    nodes.write_text("x1000c0s0b0n0\nx1000c0s0b0n1\n")
    found = discover(PMI | PALS | job)
    assert (found.coordinator_host, found.rendezvous) == ("x1000c0s0b0n0", "mpirun.2e4b-11")
    assert discover(HYDRA | job).rendezvous == "mpirun.12-3-.server"


def test_a_process_that_sees_fewer_gpus_than_its_host_has_processes_uses_them_all():
    """A script that sets CUDA_VISIBLE_DEVICES for each rank, or the launcher's affinity."""
    launch = PMI | PALS
    assert discover(launch | {"CUDA_VISIBLE_DEVICES": "3"}).gpus.take(1) == (0,)
    assert discover(launch | {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}).gpus.take(4) == (2, 3)


def test_a_step_wins_over_the_variables_that_slurm_sets_for_an_mpi_but_not_over_flux():
    for mpi in (PMI | PALS, {"PMIX_RANK": "1"}):
        found = discover(environment("gpus-per-task", 1) | mpi)
        assert (found.source, found.process_id) == ("slurm", 1)
        shell = discover(environment("pty") | mpi)
        assert (shell.source, shell.num_processes) == ("local", 1)
    assert discover(environment("gpus-per-task", 1) | FLUX).process_id == 3


def test_a_launcher_that_does_not_tell_the_number_of_processes_is_named():
    for name in ("PMIX_RANK", "PALS_RANKID", "PMI_RANK", "FLUX_TASK_RANK"):
        with pytest.raises(UserError) as refusal:
            discover({name: "0"})
        for part in (f"{name}='0'", "SIMULATOR_COORDINATOR=HOST:PORT", "srun or mpirun"):
            assert part in str(refusal.value)
    assert discover({"PMIX_RANK": "1"} | BY_HAND).process_id == 3


def test_ranks_that_contradict_each_other_are_refused():
    with pytest.raises(UserError, match="PMI_RANK=5, PMI_SIZE=2"):
        discover(HYDRA | {"PMI_RANK": "5"})
    with pytest.raises(UserError, match="FLUX_TASK_RANK=4, FLUX_JOB_SIZE=4"):
        discover(FLUX | {"FLUX_TASK_RANK": "4"})
