"""Ways to end: an exception, a stuck process, a process whose output went to a file."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from run_support import fresh

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
    assert done.stderr.startswith("simulator: process 1 of 2 (") and done.stderr.endswith(": no such file\n")


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
        assert re.fullmatch(r"simulator: process 1 of 3 \(.*\): c.yaml:3: no such key\n", done.stderr)


@pytest.mark.parametrize(("code", "expected"), [("", 0), ("3", 3), ("'why'", 1)])
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
            failure.to_log_file(pathlib.Path(sys.argv[1]), 1)
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
        assert last.startswith("simulator: process 3 of 4 is stuck in spin_in_here (") and "since step 4" in last


def test_a_fed_watchdog_lets_go():
    done = fresh(STUCK.format(stuck="watchdog.feed('end')") + "\n    time.sleep(0.8)\n    print('still here')")
    assert (done.returncode, done.stdout) == (0, "left\nstill here\n")
