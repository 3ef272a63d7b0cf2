"""Ways to end: an exception, a stuck process, a process whose output went to a file; and
`--processes N`."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from run_support import fresh, is_gone, wait_until

pytestmark = pytest.mark.smoke


def test_an_exception_ends_one_of_several_processes_at_once_with_its_name():
    done = fresh("""
        import atexit, threading, time
        from simulator.cluster import Allocation, failure
        atexit.register(time.sleep, 60)  # as JAX's shutdown barrier would
        threading.Thread(target=time.sleep, args=(60,)).start()
        with failure.contained(Allocation(process_id=2, num_processes=4)):
            print("before")
            raise OSError("no space left")
    """)
    assert (done.returncode, done.stdout) == (1, "before\n") and "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("simulator: process 2 of 4 (")
    assert done.stderr.splitlines()[-1].endswith("failed: OSError: no space left")


def test_a_script_of_the_users_gets_the_same_by_the_interpreters_hook():
    done = fresh("""
        import atexit, time
        from simulator.cluster import Allocation, failure
        from simulator.errors import UserError
        atexit.register(time.sleep, 60)
        failure.install(Allocation(process_id=1, num_processes=2))
        raise UserError("no such file")
    """)
    assert done.returncode == 2
    assert done.stderr.startswith("simulator: process 1 of 2 (") and done.stderr.endswith(
        ": no such file\n"
    )


MISTAKE = """
    import sys
    from simulator.cluster import Allocation, failure
    from simulator.errors import UserError
    step = {"coordinator_host": "localhost", "rendezvous": sys.argv[2]} if len(sys.argv) > 2 else {}
    with failure.contained(Allocation(process_id=int(sys.argv[1]), num_processes=3, **step)):
        raise UserError("c.yaml:3: no such key")
"""


def test_a_mistake_that_all_find_before_they_meet_is_said_once(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda i: fresh(MISTAKE, str(i), f"step of {tmp_path}"), (2, 1, 0)))
    assert [process.returncode for process in done] == [2, 2, 2]
    assert [process.stderr for process in done] == ["", "", "c.yaml:3: no such key\n"]


def test_a_mistake_that_one_process_finds_is_said_with_its_name(tmp_path):
    for step in ((), (f"step of {tmp_path}",)):  # by hand, and where the first one has not met it
        done = fresh(MISTAKE, "1", *step)
        assert done.returncode == 2
        assert re.fullmatch(
            r"simulator: process 1 of 3 \(.*\): c.yaml:3: no such key\n", done.stderr
        )


@pytest.mark.parametrize("code, expected", [("", 0), ("3", 3), ("'why'", 1)])
def test_an_exit_of_one_process_waits_for_nobody(code, expected):
    done = fresh(f"""
        import atexit, sys, time
        from simulator.cluster import Allocation, failure
        atexit.register(time.sleep, 60)
        with failure.contained(Allocation(process_id=0, num_processes=2)):
            sys.exit({code})
    """)
    assert done.returncode == expected


def test_a_single_process_keeps_pythons_own_way():
    done = fresh("""
        import atexit
        from simulator.cluster import Allocation, failure
        atexit.register(print, "exit handlers run")
        with failure.contained(Allocation(process_id=0, num_processes=1)):
            raise ValueError("plain")
    """)
    assert (done.returncode, done.stdout) == (1, "exit handlers run\n")


def test_a_failure_is_told_in_the_log_file_and_on_the_console(tmp_path):
    done = fresh(
        """
        import os, pathlib, sys
        from simulator.cluster import Allocation, failure
        with failure.contained(Allocation(process_id=1, num_processes=2)):
            print("early")
            failure.to_log_file(pathlib.Path(sys.argv[1]), 1, 2)
            os.write(1, b"from C++\\n")
            print("late")
            raise RuntimeError("boom")
        """,
        str(tmp_path / "logs"),
    )
    log = (tmp_path / "logs" / "p00001.log").read_text()
    assert done.stdout == "early\n"
    assert "from C++" in log and "late" in log and "boom" in log
    assert "late" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith("failed: RuntimeError: boom")


STUCK = """
    import sys, time
    from simulator.cluster import failure as module
    from simulator.cluster.failure import Watchdog
    module.SECOND_LINE = 1.0
    def spin_in_here():
        {stuck}
    with Watchdog(0.4, "process 3 of 4") as watchdog:
        for step in range(5):
            watchdog.feed(f"step {{step}}")
            time.sleep(0.2)
        spin_in_here()
    print("left")
"""


@pytest.mark.parametrize(
    "stuck",
    ["time.sleep(60)", "import ctypes; ctypes.PyDLL(None).sleep(60)"],
    ids=["in Python", "with the interpreter's lock, as a stuck extension"],
)
def test_a_stuck_process_shows_its_stacks_and_ends(stuck):
    began = time.monotonic()
    done = fresh(STUCK.format(stuck=stuck))
    assert time.monotonic() - began < 20
    assert (done.returncode, done.stdout) == (1, "")
    assert "in spin_in_here" in done.stderr
    last = done.stderr.splitlines()[-1]
    if "ctypes" not in stuck:
        assert (
            last.startswith("simulator: process 3 of 4 is stuck in spin_in_here (")
            and "since step 4" in last
        )


def test_a_fed_watchdog_lets_go():
    done = fresh(
        STUCK.format(stuck="watchdog.feed('end')")
        + "\n    time.sleep(0.8)\n    print('still here')"
    )
    assert (done.returncode, done.stdout) == (0, "left\nstill here\n")


PRELUDE = """
import os, pathlib, signal, sys, time
me = int(os.environ["SIMULATOR_PROCESS_ID"])
here = pathlib.Path(os.environ["HERE"])
def wait_for(name):
    while not (here / name).exists():
        time.sleep(0.01)
"""


def test_each_process_is_told_its_place_and_a_secret_of_this_launch(
    launched, tmp_path, monkeypatch
):
    monkeypatch.setenv("SIMULATOR_SECRET", "of the shell around the launcher")
    body = """
        names = ["COORDINATOR", "NUM_PROCESSES", "PROCESS_ID", "LOCAL_RANK", "LOCAL_PROCESSES", "SECRET"]
        (here / f"{me}.txt").write_text(" ".join(os.environ["SIMULATOR_" + name] for name in names))
        assert os.getsid(0) == os.getpid()
    """
    secrets = set()
    for _ in range(2):
        assert launched(body, 3) == 0
        places = [(tmp_path / f"{i}.txt").read_text().split() for i in range(3)]
        ((coordinator, secret),) = {(place[0], place[5]) for place in places}
        assert coordinator.startswith("127.0.0.1:") and len(secret) == 32
        assert [place[1:5] for place in places] == [["3", str(i), str(i), "3"] for i in range(3)]
        secrets.add(secret)
    assert len(secrets) == 2


def test_only_the_first_ones_output_is_shown_and_its_failure_once(launched, capfd):
    assert launched('print(f"output of {me}"); print(f"error of {me}", file=sys.stderr)', 2) == 0
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("output of 0\n", "error of 0\n")
    assert launched('if me == 0: sys.exit("no such file")\ntime.sleep(60)', 2) == 1
    assert capfd.readouterr().err == "no such file\n"


@pytest.mark.parametrize(
    "codes, expected",
    [((0, 0), 0), ((3, 0), 3), ((0, 3), 3), ((3, 3), 3), ((0, 2), 2), ((2, 3), 2), ((0, 5), 5)],
)
def test_exit_code_of_the_whole(launched, codes, expected):
    assert launched(f"sys.exit({codes}[me])", 2) == expected


def test_the_first_failure_decides_and_ends_the_others(launched, tmp_path, capfd):
    body = """
        (here / f"{me}.pid").write_text(str(os.getpid()))
        for i in range(3):
            wait_for(f"{i}.pid")
        if me == 1:
            print("disk is full of cats", file=sys.stderr)
            sys.exit(2)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    """
    began = time.monotonic()
    assert launched(body, 3) == 2
    assert time.monotonic() - began < 15
    assert all(is_gone(int((tmp_path / f"{i}.pid").read_text())) for i in range(3))
    end = "disk is full of cats\nsimulator: process 1 of 3 failed with exit code 2\n"
    assert capfd.readouterr().err.endswith(end)


def test_a_neighbour_that_aborts_later_is_not_the_cause(launched):
    body = """
        if me == 1:
            (here / "failing").write_text("")
            sys.exit(7)
        wait_for("failing")
        time.sleep(0.3)
        os.abort()
    """
    assert launched(body, 2) == 7


def test_a_killed_process_gives_code_1_and_its_logs_end(launched, tmp_path, capfd):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "p00002.log").write_text("yesterday\\n")
    os.utime(logs / "p00002.log", (1, 1))
    body = """
        if me == 1:
            (here / "logs" / "p00001.log").write_text("step 7\\n")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    """
    assert launched(body, 3, logs=logs) == 1
    shown = capfd.readouterr().err
    assert (
        "process 1 of 3 was killed by SIGKILL" in shown
        and "step 7" in shown
        and "yesterday" not in shown
    )


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
def launching(command, place, tmp_path):
    """The launcher in a process of its own, once its two children are ready."""
    arguments = [sys.executable, "-c", LAUNCH, "2", *command]
    process = subprocess.Popen(arguments, env=os.environ | place, start_new_session=True)
    try:
        wait_until(lambda: all((tmp_path / f"{i}.ready").exists() for i in range(2)), 30)
        time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_signal_reaches_each_child_once(script, place, tmp_path):
    with launching(script(COUNTING), place, tmp_path) as parent:
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


def test_children_stop_when_the_launcher_is_killed(script, place, tmp_path):
    with launching(script(FOLLOWING), place, tmp_path) as parent:
        parent.kill()
        parent.wait()
        wait_until(lambda: all((tmp_path / f"{i}.term").exists() for i in range(2)), 10)
