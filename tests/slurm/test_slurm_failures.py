"""Processes that raise, are killed, freeze or get stuck: the step ends soon, and says who and
why."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from run_support import is_gone, wait_until

pytestmark = pytest.mark.slurm

# Takes turns in a collective until its folder says what goes wrong on which process.
LOOP = """
import os, sys, time
from pathlib import Path
import numpy as np
from simulator.cluster import discover, failure
from simulator.cluster.start import Meeting, start
from simulator.cluster.failure import Watchdog
from simulator.errors import RunFailure
here = Path(sys.argv[1])
allocation = discover(os.environ)
me = allocation.process_id
with failure.contained(allocation):
    failure.to_log_file(here / "logs", me, allocation.num_processes) if me else None
    cluster = start(allocation, platform="cpu", count=allocation.num_processes, meet=Meeting(here))
    with Watchdog(float(sys.argv[2]), failure.describe(me, allocation.num_processes)) as watchdog:
        (here / f"{me}.pid").write_text(str(os.getpid()))
        while not cluster.any(np.array([False])).any():
            watchdog.feed("another turn")
            time.sleep(0.05)
            if (here / f"raise.{me}").exists():
                raise KeyError("no such mode")
            if (here / f"stick.{me}").exists():
                time.sleep(600)
"""


class Loop:
    """The loop on two nodes with two tasks each, once every process turns."""

    def __init__(self, slurm, folder: Path, watchdog: float = 600) -> None:
        self.folder = folder
        self.output = folder / "out"
        script = folder / "loop.py"
        script.write_text(LOOP)
        command = [
            "srun",
            "-N2",
            "--ntasks-per-node=2",
            "--kill-on-bad-exit=1",
            sys.executable,
            str(script),
        ]
        self.step = slurm.popen(*command, str(folder), str(watchdog), output=self.output)
        wait_until(
            lambda: all((folder / f"{i}.pid").exists() for i in range(4)),
            60,
            "start of four processes",
        )
        time.sleep(0.5)

    def pid(self, process: int) -> int:
        return int((self.folder / f"{process}.pid").read_text())

    def ends_within(self, seconds: float) -> int:
        """The step's exit code; afterwards none of its processes is left."""
        try:
            code = self.step.wait(seconds)
        finally:
            if self.step.poll() is None:
                self.step.kill()
        assert all(is_gone(self.pid(i)) for i in range(4))
        return code

    def last_lines(self, number: int = 12) -> str:
        return "\n".join(self.output.read_text().splitlines()[-number:])


@pytest.fixture
def loop(slurm, tmp_path):
    loops = []

    def start(**options) -> Loop:
        loops.append(Loop(slurm, tmp_path, **options))
        return loops[-1]

    yield start
    for made in loops:
        if made.step.poll() is None:
            made.step.kill()
        for i in range(4):
            if (made.folder / f"{i}.pid").exists() and not is_gone(made.pid(i)):
                os.kill(made.pid(i), signal.SIGKILL)


def test_an_exception_on_one_rank_ends_the_step_with_its_reason(loop):
    turning = loop()
    (turning.folder / "raise.2").write_text("")
    assert turning.ends_within(30) != 0
    assert re.search(
        r"process 2 of 4 \(\S+, pid \d+\) failed: KeyError: 'no such mode'", turning.last_lines()
    )
    assert "KeyError" in (turning.folder / "logs" / "p00002.log").read_text()


def test_a_killed_first_rank_ends_the_step_too(loop):
    turning = loop()
    os.kill(turning.pid(0), signal.SIGKILL)
    assert turning.ends_within(30) != 0
    assert re.search(r"task 0: Killed", turning.last_lines())


def test_a_stuck_rank_is_ended_by_the_watchdog_with_its_stacks(loop):
    turning = loop(watchdog=4)
    (turning.folder / "stick.2").write_text("")
    assert turning.ends_within(30) != 0
    log = (turning.folder / "logs" / "p00002.log").read_text()
    assert "loop.py" in log and re.search(
        r"process 2 of 4 .* is stuck in .*: no progress for 4 s", log
    )
    assert re.search(
        r"process 2 of 4 .* is stuck in <module> \(loop.py:\d+\)", turning.last_lines()
    )


LATE = """
import os, signal, sys, time
from pathlib import Path
from simulator.cluster import discover, failure
from simulator.cluster.start import Meeting, start
allocation = discover(os.environ)
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as in job scripts; srun sends it when the first one gives up
if allocation.process_id == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    time.sleep(60)
with failure.contained(allocation):
    start(allocation, platform="cpu", count=4, meet=Meeting(Path(sys.argv[1]), 12)).close()
"""


def test_a_first_process_that_never_comes_is_named_with_its_host(slurm, tmp_path):
    (script := tmp_path / "late.py").write_text(LATE)
    (tmp_path / "run").mkdir()
    nodes = sorted({*slurm.run("sinfo", "-h", "-N", "-p", "test", "-o", "%N").stdout.split()})[:2]
    step = f"-N2 -w {','.join(nodes)} --ntasks-per-node=2 --kill-on-bad-exit=1"
    done = slurm.srun(step, sys.executable, str(script), str(tmp_path / "run"))
    assert done.returncode == 1 and "Check failure" not in done.stderr, "no stack of C++"
    said = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("simulator: ") and "did not join" in line
    ]
    assert 1 <= len(said) <= 2, "process 1, and at most the first one of the other node"
    assert re.match(
        rf"simulator: process 0 of 4 \({re.escape(nodes[0])}\) did not join within 12 s", said[0]
    )
    assert "published no address" in said[0]
