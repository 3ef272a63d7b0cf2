"""The run's lock, contended for by real processes."""

import contextlib
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime

import pytest
from run_support import ROOT, tool

from simulator.archive.run_state import RunState, write_state
from simulator.cluster.queue import job_is_gone
from simulator.errors import RunFailure, UserError
from simulator.run.lock import RunLock
from simulator.run.run_status import Holder, is_written, look_at, read_holder
from simulator.study.study_status import MemberState, status_of

CONTENDER = """
import sys, time
from pathlib import Path
from simulator.errors import UserError
from simulator.run.lock import RunLock
folder, start, stale = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
time.sleep(max(0.0, start - time.time()))
try:
    lock = RunLock.acquire(folder, {}, renew_every=0.1, stale_after=stale)
except UserError as error:
    print("refused", error, flush=True)
    sys.exit(2)
print("held", lock.takeover, flush=True)
sys.stdin.readline()
print("mine" if lock.still_mine() else "lost", flush=True)
lock.release()
"""

OTHER_USER = """
import ctypes, os, sys
from pathlib import Path
from simulator.errors import UserError
from simulator.run.lock import RunLock
libc = ctypes.CDLL(None)
private = libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 0x44000, None) == 0
if not private or libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2") != 0:
    print("no /proc of its own")
    sys.exit()
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
try:
    RunLock.acquire(Path(sys.argv[1]), {}).release()
    print("taken over")
except UserError as error:
    print(error)
"""


def contend(folder, number=1, stale_after=60.0, delay=0.0):
    command = [
        sys.executable,
        "-c",
        CONTENDER,
        str(folder),
        str(time.time() + delay),
        str(stale_after),
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(number)]


def finish(process):
    answer, _ = process.communicate("go\n", timeout=30)
    return answer.strip()


def age(folder, seconds):
    then = time.time() - seconds
    os.utime(folder / "lock", (then, then))


@pytest.mark.parametrize("left_behind", [False, True], ids=["free", "stale"])
def test_of_many_starts_at_once_exactly_one_holds_the_lock(tmp_path, left_behind):
    if left_behind:
        (tmp_path / "lock").write_text("of an old version\n")
        age(tmp_path, 100.0)
    processes = contend(tmp_path, number=6, delay=0.6)
    first = [process.stdout.readline().split()[0] for process in processes]
    assert sorted(first) == ["held"] + ["refused"] * 5
    answers = [finish(process) for process in processes]
    assert answers.count("mine") == 1
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_live_lock_is_refused_and_its_holder_named(tmp_path):
    with RunLock.acquire(tmp_path, {"SLURM_JOB_ID": "77"}):
        (process,) = contend(tmp_path)
        answer = finish(process)
        assert process.returncode == 2
        assert f"pid {os.getpid()}, job 77" in answer
        assert answer.endswith(
            "its loop has not reported yet); wait for it, or end it with: scancel 77"
        )
        with pytest.raises(UserError, match="is writing this run"):
            RunLock.acquire(tmp_path, {})
    assert not (tmp_path / "lock").exists()


def test_the_refusal_names_the_cure_that_works(tmp_path):
    """The file `stop` where the loop moves, a signal where it stands still."""
    with RunLock.acquire(tmp_path, {}):
        state = tmp_path / "state.json"
        now = time.time()
        state.touch()
        with pytest.raises(
            UserError, match=rf"loop last reported \d s ago\); .* with: touch {tmp_path}/stop$"
        ):
            RunLock.acquire(tmp_path, {})
        os.utime(state, (now - 300, now - 300))
        with pytest.raises(
            UserError, match=rf"reported 30\d s ago\); .* with: kill {os.getpid()} \(on "
        ):
            RunLock.acquire(tmp_path, {})


def test_a_frozen_holder_loses_the_lock_and_notices(tmp_path):
    (process,) = contend(tmp_path)
    assert process.stdout.readline().startswith("held")
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    with RunLock.acquire(tmp_path, {}, stale_after=0.3, renew_every=0.05) as lock:
        assert lock.takeover and "not renewed" in lock.takeover
        process.send_signal(signal.SIGCONT)
        assert finish(process) == "lost"
        assert lock.still_mine(), "the old holder's release must not remove the new lock"


def test_renewal_keeps_a_lock_alive(tmp_path):
    with RunLock.acquire(tmp_path, {}, renew_every=0.05):
        age(tmp_path, 100.0)
        time.sleep(0.3)
        with pytest.raises(UserError):
            RunLock.acquire(tmp_path, {})


def held(folder, seconds_ago, **changes):
    """The lock of this process, but for the `changes`."""
    holder = dataclasses.replace(Holder.this_process({}), **changes)
    (folder / "lock").write_text(json.dumps(dataclasses.asdict(holder)))
    age(folder, seconds_ago)


def elsewhere(folder, seconds_ago, **changes):
    held(folder, seconds_ago, **{"host": "node7", "machine": "other", "token": "theirs", **changes})


BORN = Holder.this_process({}).started or 0.0


HERE = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"}


@pytest.mark.parametrize(
    "seconds_ago, holder, environ, gone, takeover",
    [
        (55, {"pid": 2**22 + 1}, {}, False, None),
        (65, {}, {}, False, "node7"),
        (5, {"job_id": "12", "restart_count": 1}, HERE, False, None),
        (5, {"job_id": "12", "restart_count": 1}, {"SLURM_JOB_ID": "13"}, False, None),
        (5, {"job_id": "12", "restart_count": 0}, HERE, False, "later start of the same job"),
        (30, {"job_id": "12"}, {}, True, "job 12 has ended"),
        (30, {"job_id": "12"}, {}, False, None),
        (
            5,
            {"job_id": "12"},
            {},
            True,
            None,
        ),  # the scheduler is asked only where renewals were missed
    ],
)
def test_a_holder_elsewhere_is_believed_or_taken_over(
    tmp_path, seconds_ago, holder, environ, gone, takeover
):
    elsewhere(tmp_path, seconds_ago, **holder)
    asked = {"job_is_gone": lambda job: gone and job == "12"}
    if takeover is None:
        with pytest.raises(UserError, match="node7"):
            RunLock.acquire(tmp_path, environ, **asked)
    else:
        with RunLock.acquire(tmp_path, environ, renew_every=0.1, **asked) as lock:
            assert takeover in lock.takeover


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_clock_that_jumps_takes_no_lock_from_the_living(tmp_path, jump):
    """A jump of the file system's clock is, to it, a lock that was renewed that long ago, or will be.
    The holder renews it ten times a second; of one elsewhere that is dead nothing is heard."""
    with RunLock.acquire(tmp_path, {}, renew_every=0.1):
        age(tmp_path, jump)
        with pytest.raises(UserError, match="is writing this run"):
            RunLock.acquire(tmp_path, {}, renew_every=0.5)
    elsewhere(tmp_path, jump)
    with RunLock.acquire(tmp_path, {}, renew_every=0.2) as lock:
        assert lock.takeover is not None and "not renewed for" in lock.takeover


def test_a_holder_that_is_known_to_be_dead_is_not_watched(tmp_path):
    held(tmp_path, 3600.0, started=BORN - 1)
    began = time.monotonic()
    with RunLock.acquire(tmp_path, {}) as lock:
        assert lock.takeover.endswith("that process is dead")
    assert time.monotonic() - began < 5


@contextlib.contextmanager
def no_more_files():
    """This process can open no file, as one with too many open files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_lock_that_cannot_be_read_once_is_read_again(tmp_path):
    said = []
    with RunLock.acquire(tmp_path, {}, say=said.append) as lock:
        with no_more_files():
            limits = (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            room = threading.Timer(0.3, resource.setrlimit, (resource.RLIMIT_NOFILE, limits))
            room.start()
            lock.check()
            room.join()
        assert said[0] == (
            f"warning: Too many open files: {tmp_path}/lock; reading the lock again in 0.1 s"
        )
        assert 1 <= len(said) <= 3
        lock.check()
    assert not (tmp_path / "lock").exists()


def test_a_lock_that_stays_unreadable_is_an_error_of_reading(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.run.lock._PAUSES", (0.01, 0.02))
    lock = RunLock.acquire(tmp_path, {})
    with no_more_files():
        with pytest.raises(OSError, match="Too many open files"):
            lock.check()
        lock.release()
    assert read_holder(tmp_path) == lock.holder


@pytest.mark.parametrize("started, alive", [(0, True), (-1, False)])
def test_status_and_sweeps_see_what_a_takeover_sees(tmp_path, started, alive):
    """The lock of a process that was killed on this machine is nobody's at once, for everybody who
    asks."""
    held(tmp_path, 0.0, started=BORN + started)
    write_state(tmp_path, RunState("running", 7, 0.4, 1.0, 40.0, 5.0, 0.1))
    assert is_written(tmp_path) is alive
    assert look_at(tmp_path, datetime.now().astimezone()).writing is alive
    assert (status_of(tmp_path).stage is MemberState.RUNNING) is alive
    assert status_of(tmp_path).detail == ("step 7, 40 %" if alive else "step 7, 40 %: cut off")
    if alive:
        with pytest.raises(UserError, match="is writing this run"):
            RunLock.acquire(tmp_path, {})
    else:
        RunLock.acquire(tmp_path, {}).release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process_that_proc_hides_is_alive(tmp_path):
    """Clusters mount /proc with hidepid, where nobody sees the processes of others."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    for path in (tmp_path, *tmp_path.parents):
        mode = path.stat().st_mode
        if mode & 0o005 != 0o005:  # else it is left as it is: /tmp belongs to all
            path.chmod(mode | 0o055)

    def asked() -> str:
        command = [sys.executable, "-c", OTHER_USER, str(folder)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout

    with RunLock.acquire(folder, {}):
        answer = asked()
        if "no /proc" in answer:
            pytest.skip("no mounts here")
        assert "is writing this run" in answer
    (killed,) = contend(folder)
    assert killed.stdout.readline().startswith("held")
    killed.kill()
    killed.wait()
    assert asked() == "taken over\n"


@pytest.mark.parametrize(
    "script, gone",
    [
        ("echo RUNNING", False),
        ("echo COMPLETED", True),
        ("exit 0", True),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", True),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", False),
    ],
)
def test_what_squeue_says(tmp_path, monkeypatch, script, gone):
    tool(tmp_path, "squeue", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert job_is_gone("12") is gone
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not job_is_gone("12"), "without squeue nothing is known"


def test_a_lost_lock_ends_the_run(tmp_path):
    lock = RunLock.acquire(tmp_path, {})
    lock.check()
    (tmp_path / "lock").unlink()
    with pytest.raises(RunFailure, match="belongs to nobody"):
        lock.check()
    elsewhere(tmp_path, 0.0)
    with pytest.raises(RunFailure, match="node7"):
        lock.check()
    lock.release()
    assert read_holder(tmp_path) is not None, "another holder's lock stays"
    assert not lock.still_mine()


def test_the_lock_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with RunLock.acquire(tmp_path, {}):
            assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
