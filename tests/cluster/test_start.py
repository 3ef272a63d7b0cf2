"""`start` on real processes and virtual devices of this machine, and what a process that stays away
does to it."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from process_server import code_of
from run_support import ROOT, free_port

from simulator.cluster import Allocation, discover, meeting
from simulator.cluster import start as start_module
from simulator.cluster.allocation import COORDINATOR, NUM_PROCESSES, PROCESS_ID, SECRET
from simulator.cluster.hardware import GpuShare
from simulator.cluster.join import join
from simulator.cluster.start import choose_platform
from simulator.errors import UserError

PRELUDE = """
import json, os, sys
from pathlib import Path
import numpy as np
from simulator.cluster import discover
from simulator.cluster.start import Meeting, start
from simulator.errors import UserError, RunFailure
me = int(os.environ.get("SIMULATOR_PROCESS_ID", 0))
def answer(value):
    Path(os.environ["HERE"], f"{me}.json").write_text(json.dumps(value))
"""


@pytest.fixture
def answers(launched, tmp_path):
    """`answers(BODY, N)` has the answers of N processes that run BODY."""

    def answers(body: str, number: int) -> list:
        assert launched(body, number) == 0
        return [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(number)]

    return answers


@pytest.fixture
def answer(script, place, tmp_path):
    """`answer(BODY)` is the answer of one process that runs BODY."""

    def answer(body: str, **more: str) -> list:
        _, path = script(body)
        assert code_of(Path(path), os.environ | place | more) == 0
        return json.loads((tmp_path / "0.json").read_text())

    return answer


@pytest.mark.smoke
@pytest.mark.spmd
def test_processes_take_collective_decisions(answers, capfd):
    body = """
        cluster = start(discover(os.environ), platform="cpu", count=4)
        flags = cluster.any(np.array([me == 0, me == 1, False]))
        assert flags.dtype == bool
        numbers = cluster.any(np.array([[10 - me, me]]))
        cluster.barrier("here")
        gathered = cluster.gather({"me": me, "text": "x" * (me * 40)})
        try:
            cluster.barrier("one" if me else "other")
            met = True
        except RunFailure:
            met = False
        import jax
        answer([
            cluster.is_first, [d.process_index for d in cluster.devices], len(cluster.local_devices),
            flags.tolist(), numbers.tolist(), gathered, cluster.broadcast(me + 5), met,
            all(d.process_index == me for d in cluster.local_devices), jax.config.jax_enable_x64,
        ])
        cluster.close()
        cluster.close()
    """
    gathered = [{"me": i, "text": "x" * (i * 40)} for i in range(2)]
    expected = [[0, 0, 1, 1], 2, [True, True, False], [[10, 1]], gathered, 5, False, True, True]
    assert answers(body, 2) == [[True, *expected], [False, *expected]]
    assert capfd.readouterr().out == ""  # Gloo's own lines included


@pytest.mark.smoke
def test_one_process_decides_alone_and_counts_its_virtual_devices(answer):
    body = """
        cluster = start(discover({}), platform="cpu", count=3)
        cluster.barrier("alone")
        answer([
            len(cluster.devices), cluster.any(np.array([True, False])).tolist(), cluster.gather({"a": 1}),
            cluster.broadcast("b"), cluster.platform,
        ])
        cluster.close()
    """
    assert answer(body) == [3, [True, False], [{"a": 1}], "b", "cpu"]


@pytest.mark.spmd
def test_local_processes_have_a_device_each_with_their_share_of_the_cores(answers):
    body = """
        from simulator.cluster import cores as module
        module.usable_cores = lambda: 8
        cluster = start(discover(os.environ), platform="cpu")
        answer([len(cluster.devices), cluster.threads])
    """
    assert answers(body, 2) == [[2, 4]] * 2


@pytest.mark.spmd
def test_unequal_processes_use_equally_many_threads_and_refuse_an_odd_number_together(answers):
    """All processes run one program, which is compiled for a number of threads."""
    body = """
        from simulator.cluster import cores as module
        module.usable_cores = lambda: 4 + 4 * me
        try:
            start(discover(os.environ), platform="cpu", count=3)
        except UserError as error:
            said = str(error)
        cluster = start(discover(os.environ), platform="cpu")
        found = cluster.any(np.array([me])).tolist()
        answer([len(cluster.devices), cluster.threads, found, said])
    """
    said = "devices.count: 3 is not a multiple of the 2 processes; it is the total over the whole run, e.g. 2"
    assert answers(body, 2) == [[2, 2, [1], said]] * 2


@pytest.mark.parametrize(
    "devices, threads, expected",
    [
        ("count=1, threads=5", 5, 5),  # more than there are cores
        ("count=2, threads=3", 3, 6),
        ("count=1, threads=1", 1, 1),
        ("threads=4", 4, 4),
        ("count=9", 1, 9),
        ("members=2", 3, 6),  # of six cores
        ("", 6, 6),
    ],
)
def test_the_pool_has_the_threads_of_all_devices(answer, devices, threads: int, expected: int):
    body = f"""
        from simulator.cluster import cores as module
        module.usable_cores = lambda: 6
        cluster = start(discover({{}}), platform="cpu", {devices})
        names = [Path(task, "comm").read_text() for task in Path("/proc/self/task").iterdir()]
        answer([cluster.threads, sum("XLAEigen" in name for name in names), "NPROC" in os.environ])
    """
    assert answer(body) == [threads, expected, False]


def test_threads_are_not_for_gpus(monkeypatch):
    monkeypatch.setattr(start_module, "choose_platform", lambda *_: "gpu")
    monkeypatch.setattr(start_module, "gpu_ids", lambda _: [0])
    monkeypatch.setattr(start_module.environment, "apply", lambda *_, **__: None)
    monkeypatch.setattr(start_module, "_configure", lambda *_: None)
    monkeypatch.setattr(start_module.failure, "install", lambda _: None)
    with pytest.raises(UserError, match=r"devices.threads: 2 is for processors.*leave the key out"):
        start_module.start(discover({}), threads=2)


def test_a_notebooks_devices_are_taken_as_they_are_and_the_users_flag_counts(answer):
    body = """
        import jax
        jax.config.update("jax_num_cpu_devices", 2)
        before = jax.devices()
        first = start(discover({}), platform="cpu", count="auto")
        second = start(discover({}), platform="cpu", count=1)
        try:
            start(discover({}), platform="cpu", count=4)
        except UserError as error:
            answer([len(first.devices) <= 2, len(second.devices), str(error)])
    """
    small, one, message = answer(body)
    assert (small, one) == (True, 1)
    assert (
        "needs 4 CPU devices" in message
        and "has 2; JAX was started with these: restart Python" in message
    )
    flag = "--xla_force_host_platform_device_count=3"
    body = 'answer(len(start(discover({}), platform="cpu").devices))'
    assert answer(body, XLA_FLAGS=flag) == 3


@pytest.mark.smoke
def test_a_coordinators_port_in_use_is_refused():
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        allocation = discover({}, coordinator=f"localhost:{port}", num_processes=2, process_id=0)
        with pytest.raises(
            UserError, match="without a run folder need SIMULATOR_SECRET, the same for all"
        ):
            join(meeting.Attendee(allocation, 1, print), None, None)
        with pytest.raises(UserError, match=f"port {port} of this host is in use"):
            secret = replace(allocation, secret=16 * "s")
            join(meeting.Attendee(secret, 1, print), None, None)


GPUS = GpuShare(visible=("0", "1"))
IN_JOB = discover({"SLURM_JOB_ID": "7"})
LOCAL = Allocation()
NO_GPU = GpuShare(visible=())
SETUP = "./scripts/run --setup cuda12"


@pytest.mark.smoke
@pytest.mark.parametrize(
    "job, gpus, requested, plugin, expected",
    [
        (LOCAL, GPUS, "auto", True, "gpu"),
        (LOCAL, GPUS, "gpu", True, "gpu"),
        (LOCAL, GPUS, "cpu", True, "cpu"),
        (LOCAL, GPUS, "auto", False, "cpu"),
        (LOCAL, NO_GPU, "auto", True, "cpu"),
        (IN_JOB, GPUS, "auto", True, "gpu"),
        (IN_JOB, NO_GPU, "auto", False, "cpu"),
        (IN_JOB, GPUS, "cpu", False, "cpu"),
        (IN_JOB, GPUS, "auto", False, SETUP),
        (LOCAL, GPUS, "gpu", False, SETUP),
        (IN_JOB, NO_GPU, "gpu", True, "--gpus-per-node"),
        (LOCAL, NO_GPU, "gpu", True, "no GPU"),
        (IN_JOB, replace(GPUS, problem="use --this-flag"), "auto", True, "use --this-flag"),
    ],
)
def test_the_platform_or_the_cure(monkeypatch, job, gpus, requested, plugin, expected):
    """GPUs that are given and cannot be used are refused, in a job or if they are requested."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(start_module, "has_gpu_plugin", lambda: plugin)
    said: list[str] = []
    if expected not in ("cpu", "gpu"):
        with pytest.raises(UserError, match=expected):
            choose_platform(replace(job, gpus=gpus), requested, said.append)
        return
    assert choose_platform(replace(job, gpus=gpus), requested, said.append) == expected
    assert len(said) == (requested == "auto" and gpus is GPUS and not plugin)
    assert all(SETUP in line for line in said)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    if requested == "auto":
        assert choose_platform(replace(job, gpus=gpus), "auto", print) == "cpu"


@pytest.mark.smoke
def test_gpu_ordinals_and_a_mig_device_is_made_the_first_one(monkeypatch):
    def ids(share: GpuShare, present: int = 4) -> list[int]:
        monkeypatch.setattr(start_module, "present_gpus", lambda: present)
        return start_module.gpu_ids(replace(LOCAL, gpus=share))

    assert ids(GpuShare(("4", "5", "6", "7"), rank=1, sharers=2)) == [2, 3]
    assert ids(GpuShare(None, rank=1, sharers=2)) == [2, 3]
    with pytest.raises(UserError, match="start fewer"):
        ids(GpuShare(None, rank=1, sharers=8))
    with pytest.raises(UserError, match="Slurm gave 2 GPUs of this node, but 4 are visible"):
        ids(GpuShare(None, rank=1, sharers=2, expected=2))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    assert start_module.gpu_ids(replace(LOCAL, gpus=GpuShare(("MIG-a", "MIG-b"), 1, 2))) == [0]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-b"


CONTAINED = """
    from simulator.cluster.failure import contained
    with contained(discover(os.environ)):
        cluster = start(discover(os.environ), platform="cpu", count=2)
        if {who}:
            raise {error}
        import time
        time.sleep(60)
"""


@pytest.mark.spmd
@pytest.mark.parametrize(
    "who, error, code",
    [("True", 'UserError("11 planes")', 2), ("me == 1", 'RunFailure("disk")', 1)],
)
def test_an_error_of_all_is_said_once_and_one_of_one_process_with_its_name(
    launched, capfd, who, error, code
):
    began = time.monotonic()
    assert launched(CONTAINED.format(who=who, error=error), 2) == code
    assert time.monotonic() - began < 20
    said = capfd.readouterr().err
    if who == "True":
        assert said == "11 planes\n"
    else:
        *_, why, ended = said.splitlines()
        assert why.startswith("simulator: process 1 of 2 (") and why.endswith("disk")
        assert ended == "simulator: process 1 of 2 failed with exit code 1"


BY_HAND = """
    from simulator.cluster import failure, join
    join.CONNECTION = 4.0
    allocation = discover(os.environ)
    with failure.contained(allocation):
        start(allocation, platform="cpu", count=2, meet=Meeting(wait=60)).close()
    print("joined")
"""


def connected(port: int) -> socket.socket:
    for _ in range(600):
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        time.sleep(0.1)
    raise AssertionError("nobody listens")


@pytest.mark.long
@pytest.mark.spmd
def test_process_0_does_not_wait_for_one_that_leaves_after_go(script, place):
    """Process 0 of two, in a terminal of its own."""
    port = free_port()
    secret = 16 * "s"
    by_hand = {
        COORDINATOR: f"127.0.0.1:{port}",
        NUM_PROCESSES: "2",
        PROCESS_ID: "0",
        SECRET: secret,
    }
    hello = {
        "secret": secret,
        "process": 1,
        "processes": 2,
        "node": "n2",
        "host": "n2",
        "pid": 1,
        "transport": "gloo",
        "record": meeting.checksum_of({}),
    }
    pipes = {"stdout": -1, "stderr": -1, "text": True}
    with subprocess.Popen(script(BY_HAND), env=os.environ | place | by_hand, **pipes) as first:
        with connected(port) as leaving, leaving.makefile("rb") as answer:
            leaving.sendall(json.dumps(hello).encode() + b"\n")
            assert json.loads(answer.readline()) == {"go": port}
        out, err = first.communicate(timeout=30)
    assert (first.returncode, out) == (1, "")
    told = f"the processes met, but not all connected to 127.0.0.1:{port} within 4 s: one has ended since"
    assert re.fullmatch(
        rf"simulator: process 0 of 2 \(.*\): {told}, or cannot reach that port\n", err
    ), err


LATE = """
    from simulator.cluster import failure
    if me == 1:
        import time
        time.sleep(60)
    with failure.contained(discover(os.environ)):
        start(discover(os.environ), platform="cpu", count=2, meet=Meeting(wait=2)).close()
"""


@pytest.mark.long
@pytest.mark.spmd
def test_a_process_that_jax_waits_for_in_vain_is_named_without_a_stack_of_c(launched, capfd):
    assert launched(LATE, 2) == 1
    *waiting, last = capfd.readouterr().err.splitlines()
    here = socket.gethostname()
    assert (
        last == f"simulator: 1 of 2 processes did not join within 2 s (run.rendezvous): 1 ({here})"
    )
    assert waiting[0].startswith("simulator: waiting for 1 of 2 processes")
    assert all(f"left: 1 ({here})" in line for line in waiting)


THREADS = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import h5py
from simulator import Simulation, load_config
from simulator.cluster.hardware import usable_cores
given = ["grid.shape=8,8,8", "devices.platform=cpu"]
simulation = Simulation(load_config(sys.argv[2], given), report=lambda line: None)
simulation.diagnostics(simulation.state)
tasks = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(len(tasks), tasks.count("tf_XLAEigen"), usable_cores())
"""


@pytest.mark.long
@pytest.mark.spmd
def test_the_threads_of_a_process_follow_the_cores_that_it_is_bound_to():
    """XLA's pool has a thread for each core. Its compiler, JAX's client and numpy's BLAS (idle in
    steps) have pools of no more each, so that the threads are at most a few for each core and those
    of a process on one core, whatever cores the host has."""
    processors = len(os.sched_getaffinity(0))
    clean = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC")}
    alone = 0
    for number in (1, processors):
        path = ROOT / "configs" / "taylor_green.yaml"
        command = [sys.executable, "-c", THREADS, str(number), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=clean)
        assert done.returncode == 0, done.stderr
        threads, pool, cores = map(int, done.stdout.split())
        assert pool == cores
        alone = alone or threads
        assert threads <= alone + 8 * (number - 1)
