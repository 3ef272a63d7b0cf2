"""Four processes, then one, two, three, and four again: one run on whatever it gets. And processes that get stuck."""

import os
import signal
from pathlib import Path

import pytest
from fault_support import CONFIG, assert_clean, assert_near, call, start_all, steps
from run_support import children, is_gone, rows, started, wait_until, write_case

from simulator.archive.manifest import committed
from simulator.archive.open_run import open_run
from simulator.archive.reader import open_snapshot
from simulator.run.run_status import read_holder


@pytest.mark.slow
@pytest.mark.spmd
def test_four_processes_to_one_two_three_and_back(tmp_path: Path):
    (tmp_path / "run.yaml").write_text(CONFIG.replace("max_steps: 40", "max_steps: 100"))
    arguments = ["run", tmp_path / "run.yaml", "time.cfl=null", "time.dt=0.05", "--output"]
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    code, said = call([*arguments, undisturbed], tmp_path)
    assert code == 0, said
    for leg, count in enumerate((4, 1, 2, 3, 4), start=1):
        more = [f"devices.count={count if count > 1 else 4}", f"time.max_steps={20 * leg}"]
        if count == 1:
            assert call([*arguments, run, *more], tmp_path)[0] == 0
        else:
            for process in start_all([*arguments, run, *more], tmp_path, count):
                code, said = process.ended()
                assert code == 0, said
        assert steps("checkpoints", run)[-1] == 20 * leg
        newest = open_snapshot(committed(run / "checkpoints")[-1])
        # Six kz planes over four processes are 2 + 2 + 2 + none: what has only padding writes no shard.
        assert len(newest.manifest.shards) == min(count, 3)
    assert_near(run, undisturbed)
    assert_clean(run)
    assert open_run(run).diagnostics["step"].tolist() == list(range(101))
    ends = {20, 40, 60, 80, 100}  # each leg's last state is a snapshot
    assert set(open_run(run).snapshots.steps) == {*open_run(undisturbed).snapshots.steps, *ends}


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_stuck_run_ends_with_its_launcher(tmp_path: Path, number: int):
    """One of two processes is frozen: neither a signal to the launcher nor its death leaves a process behind."""
    run, config = tmp_path / "run", write_case(tmp_path)
    endless = ("time.stop=1e6", "time.cfl=null", "time.dt=1e-3", "run.stop_within=2", "--processes", "2")
    with started("run", config, "--output", run, *endless) as launcher:
        wait_until(lambda: rows(run) > 5, 240)
        first = read_holder(run).pid  # type: ignore[union-attr]
        (frozen,) = {*children(launcher.pid)} - {first}
        try:
            os.kill(frozen, signal.SIGSTOP)
            launcher.send_signal(number)
            wait_until(lambda: is_gone(first), 60)
            said = launcher.stderr.read() if number == signal.SIGTERM else ""  # type: ignore[union-attr]
            os.kill(frozen, signal.SIGCONT)
        except ProcessLookupError:
            pass  # the launcher has ended it
        wait_until(lambda: is_gone(frozen), 60)
        if number == signal.SIGTERM:
            assert "has not answered SIGTERM for 2 s (run.stop_within)" in said
            assert "Thread 0x" in said and launcher.wait(20) == 1
