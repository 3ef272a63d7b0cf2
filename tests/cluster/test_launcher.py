"""`--processes N` with scripts of a few lines in the place of the simulation."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from run_support import ROOT, is_gone, wait_until

from simulator.cluster import launcher
from simulator.cluster.launcher import launch

pytestmark = pytest.mark.smoke

PRELUDE = """
import os, pathlib, signal, sys, time
me = int(os.environ["SIMULATOR_PROCESS_ID"])
here = pathlib.Path(os.environ["HERE"])
def wait_for(name):
    while not (here / name).exists():
        time.sleep(0.01)
"""


@pytest.fixture
def script(tmp_path):
    """Makes the command of a child from its body; `here` is the test's folder."""

    def make(body: str) -> list[str]:
        path = tmp_path / "child.py"
        path.write_text(PRELUDE + textwrap.dedent(body))
        return [sys.executable, str(path)]

    return make


def environ(tmp_path):
    return os.environ | {"HERE": str(tmp_path), "PYTHONPATH": str(ROOT)}


def run(command, n, tmp_path, **options):
    return launch(command, n, environ=environ(tmp_path), **options)


@pytest.fixture(autouse=True)
def little_grace(monkeypatch):
    monkeypatch.setattr(launcher, "GRACE", 1.0)


def test_each_process_is_told_its_place_and_a_secret_of_this_launch(script, tmp_path, monkeypatch):
    monkeypatch.setenv("SIMULATOR_SECRET", "of the shell around the launcher")
    command = script("""
        names = ["COORDINATOR", "NUM_PROCESSES", "PROCESS_ID", "LOCAL_RANK", "LOCAL_PROCESSES", "SECRET"]
        (here / f"{me}.txt").write_text(" ".join(os.environ["SIMULATOR_" + name] for name in names))
        assert os.getsid(0) == os.getpid()
    """)
    secrets = set()
    for _ in range(2):
        assert run(command, 3, tmp_path) == 0
        places = [(tmp_path / f"{i}.txt").read_text().split() for i in range(3)]
        ((coordinator, secret),) = {(place[0], place[5]) for place in places}
        assert coordinator.startswith("127.0.0.1:") and len(secret) == 32
        assert [place[1:5] for place in places] == [["3", str(i), str(i), "3"] for i in range(3)]
        secrets.add(secret)
    assert len(secrets) == 2


def test_only_the_first_ones_output_is_shown(script, tmp_path, capfd):
    assert run(script('print(f"output of {me}"); print(f"error of {me}", file=sys.stderr)'), 2, tmp_path) == 0
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("output of 0\n", "error of 0\n")


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((3, 0), 3), ((0, 3), 3), ((3, 3), 3), ((0, 2), 2), ((2, 3), 2), ((0, 5), 5)]
)
def test_exit_code_of_the_whole(script, tmp_path, codes, expected):
    assert run(script(f"sys.exit({codes}[me])"), 2, tmp_path) == expected


def test_the_first_failure_decides_and_ends_the_others(script, tmp_path, capfd):
    command = script("""
        (here / f"{me}.pid").write_text(str(os.getpid()))
        for i in range(3):
            wait_for(f"{i}.pid")
        if me == 1:
            print("disk is full of cats", file=sys.stderr)
            sys.exit(2)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    """)
    began = time.monotonic()
    assert run(command, 3, tmp_path) == 2
    assert time.monotonic() - began < 15
    assert all(is_gone(int((tmp_path / f"{i}.pid").read_text())) for i in range(3))
    assert capfd.readouterr().err.splitlines()[-2:] == [
        "disk is full of cats",
        "simulator: process 1 of 3 failed with exit code 2",
    ]


def test_a_first_process_that_has_said_why_is_told_of_once(script, tmp_path, capfd):
    assert run(script('if me == 0: sys.exit("no such file")\ntime.sleep(60)'), 2, tmp_path) == 1
    assert capfd.readouterr().err == "no such file\n"


def test_a_neighbour_that_aborts_later_is_not_the_cause(script, tmp_path):
    command = script("""
        if me == 1:
            (here / "failing").write_text("")
            sys.exit(7)
        wait_for("failing")
        time.sleep(0.3)
        os.abort()
    """)
    assert run(command, 2, tmp_path) == 7


def test_a_killed_process_gives_code_1_and_its_logs_end(script, tmp_path, capfd):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "p00002.log").write_text("yesterday\\n")
    os.utime(logs / "p00002.log", (1, 1))
    command = script("""
        if me == 1:
            (here / "logs" / "p00001.log").write_text("step 7\\n")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    """)
    assert run(command, 3, tmp_path, logs=logs) == 1
    shown = capfd.readouterr().err
    assert "process 1 of 3 was killed by SIGKILL" in shown and "step 7" in shown and "yesterday" not in shown


LAUNCH = """
import sys
from simulator.cluster.launcher import launch
sys.exit(launch(sys.argv[2:], int(sys.argv[1])))
"""
COUNTING = """
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: got.append(signal.Signals(number).name))
(here / f"{me}.ready").write_text(str(os.getpid()))
wait_for("stop")
(here / f"{me}.got").write_text(" ".join(got))
sys.exit(3)
"""


@contextlib.contextmanager
def launched(command, tmp_path):
    """The launcher in a process of its own, once its two children are ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, "2", *command], env=environ(tmp_path), start_new_session=True
    )
    try:
        wait_until(lambda: all((tmp_path / f"{i}.ready").exists() for i in range(2)), 30)
        time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_signal_reaches_each_child_once(script, tmp_path):
    with launched(script(COUNTING), tmp_path) as parent:
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
        os.kill(parent.pid, signal.SIGINT)  # within half a second: the same one
        time.sleep(0.7)
        os.kill(parent.pid, signal.SIGINT)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            time.sleep(0.1)
            os.kill(parent.pid, number)
        time.sleep(0.2)
        (tmp_path / "stop").write_text("")
        assert parent.wait(20) == 3
    for i in range(2):
        assert (tmp_path / f"{i}.got").read_text() == "SIGINT SIGINT SIGTERM SIGUSR1 SIGUSR2"


FOLLOWING = """
from simulator.cluster import discover
from simulator.cluster.start import follow_launcher
signal.signal(signal.SIGTERM, lambda *_: ((here / f"{me}.term").write_text(""), sys.exit(3)))
follow_launcher()
(here / f"{me}.ready").write_text("")
time.sleep(60)
"""


def test_children_stop_when_the_launcher_is_killed(script, tmp_path):
    with launched(script(FOLLOWING), tmp_path) as parent:
        parent.kill()
        parent.wait()
        wait_until(lambda: all((tmp_path / f"{i}.term").exists() for i in range(2)), 10)
