"""One run on any number of devices and processes; what its compiled step sends and how often it is
compiled."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from fault_support import CONFIG, assert_clean, assert_near, ran, start_all, steps
from numpy.testing import assert_allclose
from peers.collectives import collectives
from run_support import (
    CASE,
    call,
    children,
    free_port,
    is_gone,
    largest_difference,
    rows,
    simulate,
    spawned,
    started,
    table,
    wait_until,
    write_case,
)
from tiers import slow

from simulator import Simulation, load_config, open_run
from simulator.archive.manifest import committed
from simulator.archive.snapshot_reader import open_snapshot
from simulator.cluster import rendezvous
from simulator.cluster.rendezvous import Place
from simulator.run.run_status import read_holder
from simulator.simulation.advance import Until

pytestmark = pytest.mark.spmd

TOLERANCE = (
    1e-12  # issue 2; sums in another order differ by some eps, which 15 steps hardly amplify
)

# 18 planes in y and 6 of kz: 4 and 8 devices pad both, and eight of them form pencils.
CASE = CASE.replace("[16, 12, 10]", "[16, 18, 16]").replace("cfl: 0.3", "dt: 0.05, max_steps: 12")
CASE = CASE.replace("snapshots: {every: 0.4}", "snapshots: {every: 0.25}")


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    assert simulate(write_case(folder, CASE), folder / "run", "devices.count=1") == 0
    return folder / "run"


def assert_alike(run, reference):
    assert largest_difference(run, reference) < TOLERANCE
    found = table(run)
    expected = table(reference)
    assert found.keys() == expected.keys()
    # What is a small difference of large numbers is as exact as those: of u . omega, of k u, of
    # energies over dt.
    scales = {
        "helicity": 1.0,
        "max_divergence": 1.0,
        "budget_residual": expected["energy"][0] / 0.05,
    }
    for name, values in expected.items():
        scale = scales.get(name, abs(values).max())
        assert_allclose(found[name], values, rtol=0, atol=TOLERANCE * scale, err_msg=name)
    spectra = open_run(run).spectra["kinetic_energy"]
    assert_allclose(spectra, open_run(reference).spectra["kinetic_energy"], rtol=0, atol=TOLERANCE)


@pytest.mark.long
def test_the_same_run_on_many_devices(one_device, tmp_path):
    run = tmp_path / "run"
    assert simulate(one_device.parent / "case.yaml", run, "devices.count=8") == 0
    assert open_run(run).provenance["devices"]["count"] == 8
    assert_alike(run, one_device)


@pytest.mark.long
def test_the_same_bits_on_any_number_of_threads(one_device, tmp_path):
    """Fields, diagnostics and spectra of a whole run on one device."""
    for threads in (1, 5):
        run = tmp_path / f"{threads}"
        case = one_device.parent / "case.yaml"
        assert simulate(case, run, "devices.count=1", f"devices.threads={threads}") == 0
        devices = open_run(run).provenance["devices"]
        assert (devices["count"], devices["threads"]) == (1, threads)
        assert largest_difference(run, one_device) == 0
        for name, values in table(run).items():
            assert values.tobytes() == table(one_device)[name].tobytes(), name
        spectra = open_run(run).spectra["kinetic_energy"]
        assert np.array_equal(spectra, open_run(one_device).spectra["kinetic_energy"])


@pytest.fixture(scope="module")
def two_processes(one_device):
    """Two processes with two devices each, through the command line."""
    run = one_device.parent / "two"
    config = one_device.parent / "case.yaml"
    ended = call("run", config, "--output", run, "--processes", "2", "devices.count=4")
    assert ended.returncode == 0, ended.stderr
    return run, ended.stdout


@pytest.mark.slow
def test_every_process_loads_what_the_first_one_compiled(one_device, two_processes, tmp_path):
    arguments = "--output", tmp_path / "run", "--processes", "2", "devices.count=4"
    ended = call("run", one_device.parent / "case.yaml", *arguments, JAX_LOGGING_LEVEL="DEBUG")
    assert ended.returncode == 0, ended.stderr
    for name in ("p00000.log", "p00001.log"):
        log = (tmp_path / "run/logs" / name).read_text()
        assert "cache hit for 'jit_advance" in log and "MISS for 'jit_advance" not in log


@pytest.mark.long
def test_the_same_run_on_two_processes(one_device, two_processes):
    run, shown = two_processes
    assert_alike(run, one_device)
    # The first process speaks, the second has its log; each has its shard of every save.
    assert shown.count("finished at t = ") == 1 and "4 cpu devices in 2 processes" in shown
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["p00000.log", "p00001.log"]
    for folder in [*committed(run / "snapshots"), *committed(run / "checkpoints")]:
        assert [path.name for path in sorted((folder / "shards").iterdir())] == [
            "p00000.h5",
            "p00001.h5",
        ]
    assert open_run(run).provenance["devices"] | {"kind": ""} == {
        "platform": "cpu",
        "kind": "",
        "count": 4,
        "threads": 1,
        "processes": 2,
        "source": "explicit",
    }


@pytest.mark.slow
def test_started_by_hand_on_two_processes(one_device, tmp_path):
    """Two shells and an address; the second by environment variables."""
    address = f"127.0.0.1:{free_port()}"
    config = one_device.parent / "case.yaml"
    arguments = ["run", config, "--output", tmp_path / "run", "devices.count=4"]
    flags = ["--coordinator", address, "--num-processes", "2", "--process-id", "0"]
    by_environment = {
        "SIMULATOR_COORDINATOR": address,
        "SIMULATOR_NUM_PROCESSES": "2",
        "SIMULATOR_PROCESS_ID": "1",
    }
    left = Place("127.0.0.1:1", "of a start that was killed")
    rendezvous.publish(tmp_path / "run", "by-hand", left)
    with started(*arguments, **by_environment) as second, started(*arguments, *flags) as first:
        shown = first.communicate(timeout=120), second.communicate(timeout=30)
    assert (first.returncode, second.returncode) == (0, 0), shown
    assert "finished at" in shown[0][0] and shown[1][0] == ""
    assert not list((tmp_path / "run").glob(".coordinator*")), "the secret is gone"
    assert_alike(tmp_path / "run", one_device)


PALS = {"PALS_RANKID": "{i}", "PALS_LOCAL_RANKID": "{i}", "PMI_SIZE": "2", "PMI_LOCAL_SIZE": "2"}
FLUX = {"FLUX_TASK_RANK": "{i}", "FLUX_JOB_SIZE": "2", "FLUX_TASK_LOCAL_ID": "{i}"}


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param(PALS, id="PALS"),
        slow(FLUX | {"FLUX_JOB_NNODES": "1"}, id="Flux"),
        slow({"PMI_RANK": "{i}", "PMI_SIZE": "2"}, id="PMI"),
    ],
)
def test_two_processes_of_another_launcher_are_one_run(one_device, tmp_path, variables):
    arguments = ["run", one_device.parent / "case.yaml", "--output", tmp_path / "run"]
    first, second = ({name: text.format(i=i) for name, text in variables.items()} for i in (0, 1))
    with started(*arguments, **second) as other, started(*arguments, **first) as process:
        shown = process.communicate(timeout=120), other.communicate(timeout=30)
    assert (process.returncode, other.returncode) == (0, 0), shown
    assert "in 2 processes" in shown[0][0] and "finished at" in shown[0][0]
    assert shown[1][0] == ""
    assert_alike(tmp_path / "run", one_device)


@pytest.mark.plugins("validation")
def test_processes_on_several_hosts_without_a_run_folder_meet_on_the_first_host_of_pbs(tmp_path):
    """Each is the only one of its host; the hosts are this one."""
    (tmp_path / "nodes").write_text("localhost\nlocalhost\n")
    job = {"PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": f"{os.getpid()}.{tmp_path.name}"}
    alone = {"PALS_LOCAL_RANKID": "0", "PMI_LOCAL_SIZE": "1", "PMI_SIZE": "2"}
    with (
        started("doctor", **job, **alone, PALS_RANKID="1") as other,
        started("doctor", **job, **alone, PALS_RANKID="0") as process,
    ):
        shown = process.communicate(timeout=120), other.communicate(timeout=30)
    assert (process.returncode, other.returncode) == (0, 0), shown
    assert "coordinator localhost:" in shown[0][0] and "all processes joined" in shown[0][0]


@pytest.fixture(scope="module")
def simulation(one_device):
    return Simulation(
        load_config(one_device.parent / "case.yaml", ["devices.count=4", "fft.kernels=xla"])
    )


def test_a_step_sends_two_all_to_alls_for_each_right_hand_side(simulation):
    """Four right-hand sides in RK4, the first of a step too: fields there and products back. No
    field is gathered."""
    until = Until(np.float64(1), np.float64(1), np.int64(5))
    found = collectives(simulation.advance.lower(simulation.state, until).compile())
    assert found["all-to-all"].count == 8
    assert (
        found["all-gather"].count
        == found["collective-permute"].count
        == found["reduce-scatter"].count
        == 0
    )
    # What is left is the maximum that dt is chosen from: a few numbers.
    assert found["all-reduce"].bytes < 1000 < simulation.state.fields["velocity"].nbytes / 4 / 10
    # Per right-hand side, a device sends 3/4 of its part of 3 fields and of 5 products; in (kz, y,
    # x) layout 6 kz (8 with padding) by 18 y (20) by 11 kx complex numbers at the exchange, which
    # is of (x, y, kz) with 16 x.
    per_side = 8 * (8 * 20 * 16) * 16 / 4 * 3 / 4
    assert found["all-to-all"].bytes == pytest.approx(4 * per_side)


@pytest.mark.slow
def test_four_processes_to_one_two_three_and_back(tmp_path: Path):
    (tmp_path / "run.yaml").write_text(CONFIG.replace("max_steps: 40", "max_steps: 100"))
    fixed = ("time.cfl=null", "time.dt=0.05")
    undisturbed = tmp_path / "undisturbed"
    run = tmp_path / "run"
    ran(tmp_path, undisturbed, *fixed)
    for leg, count in enumerate((4, 1, 2, 3, 4), start=1):
        more = [*fixed, f"devices.count={count if count > 1 else 4}", f"time.max_steps={20 * leg}"]
        if count == 1:
            ran(tmp_path, run, *more)
        else:
            for process in start_all(
                ["run", tmp_path / "run.yaml", "--output", run, *more], tmp_path, count
            ):
                code, said = process.ended()
                assert code == 0, said
        assert steps("checkpoints", run)[-1] == 20 * leg
        newest = open_snapshot(committed(run / "checkpoints")[-1])
        # Six kz planes over four processes are 2 + 2 + 2 + none: what has only padding writes no
        # shard.
        assert len(newest.manifest.shards) == min(count, 3)
    assert_near(run, undisturbed)
    assert_clean(run)
    assert open_run(run).diagnostics["step"].tolist() == list(range(101))
    ends = {20, 40, 60, 80, 100}  # each leg's last state is a snapshot
    assert set(open_run(run).snapshots.steps) == {*open_run(undisturbed).snapshots.steps, *ends}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stuck_run_ends_with_its_launcher(tmp_path: Path, number: int):
    """One of two processes is frozen: neither a signal to the launcher nor its death leaves a
    process behind."""
    run = tmp_path / "run"
    config = write_case(tmp_path)
    endless = (
        "time.stop=1e6",
        "time.cfl=null",
        "time.dt=1e-3",
        "run.stop_within=2",
        "--processes",
        "2",
    )
    with started("run", config, "--output", run, *endless, begin=spawned) as launcher:
        wait_until(lambda: rows(run) > 5, 240)
        first = read_holder(run).pid
        (frozen,) = {*children(launcher.pid)} - {first}
        said = ""
        try:
            os.kill(frozen, signal.SIGSTOP)
            launcher.send_signal(number)
            wait_until(lambda: is_gone(first), 60)
            said = launcher.stderr.read() if number == signal.SIGTERM else ""
            os.kill(frozen, signal.SIGCONT)
        except ProcessLookupError:
            pass  # the launcher has ended it
        wait_until(lambda: is_gone(frozen), 60)
        if number == signal.SIGTERM:
            assert "has not answered SIGTERM for 2 s (run.stop_within)" in said
            assert "Thread 0x" in (run / "logs/p00000.log").read_text()
            assert "Thread 0x" not in said and launcher.wait(20) == 1
