"""Ways to ask a run to stop: real signals, files, Slurm's clock."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from process_server import fork
from run_support import CASE, ROOT, environment, wait_until, write_case

from simulator.cli import main
from simulator.cluster.jobscript import SlurmSettings
from simulator.cluster.launcher import Forwarding
from simulator.cluster.queue import slurm_seconds
from simulator.run.signals import (
    SECOND_INTERRUPT_AFTER,
    SIGNALS,
    End,
    Flag,
    SignalFlags,
    Watch,
    job_deadline,
    lead,
    stop_reason,
)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_sets_a_flag_and_nothing_else(number):
    before = signal.getsignal(number)
    with SignalFlags() as flags:
        assert Watch(flags).poll()[Flag.SIGNAL] == 0
        os.kill(os.getpid(), number)
        wait_until(lambda: flags.received)
        agreed = Watch(flags).poll()
        assert agreed[Flag.SIGNAL] == number and stop_reason(agreed) == number.name
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_in_another_thread_the_programs_own_handlers_stay():
    before = [signal.getsignal(number) for number in SIGNALS]
    seen = []

    def run():
        with SignalFlags() as flags:
            seen.append([signal.getsignal(number) for number in SIGNALS])
            seen.append(flags.received)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before, 0]


def test_two_interrupts_of_one_key_press_count_once_and_the_launcher_forwards_as_many(monkeypatch):
    now = [0.0]
    with SignalFlags(lambda: now[0]) as flags:
        for now[0] in (0.0, 0.1, 0.4):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        assert flags.received == signal.SIGINT
    now = [0.0]
    sent = []
    monkeypatch.setattr("simulator.cluster.launcher.time.monotonic", lambda: now[0])
    with Forwarding(sent.append):
        for now[0] in (0.0, 0.8 * SECOND_INTERRUPT_AFTER, SECOND_INTERRUPT_AFTER):
            os.kill(os.getpid(), signal.SIGINT)
    assert sent == [signal.SIGINT] * 2


def spawned(program: str) -> subprocess.Popen[str]:
    """A process that runs this program, once it has said that it is ready."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, **pipes)
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_second_interrupt_ends_a_process_that_is_busy_in_c():
    process = spawned("""
import hashlib
from simulator.run.signals import SignalFlags
with SignalFlags():
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
""")
    process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=5)
    assert process.returncode == 128 + signal.SIGINT and "the last checkpoint stands" in said


def test_a_signal_without_an_answer_ends_the_process_with_its_stacks():
    program = """
import time
import numpy as np
from simulator.run.signals import Flag, SignalFlags, Watch
with SignalFlags(within=0.2, name="process 1 of 2") as signals:
    watch = Watch(signals)
    print("ready", flush=True)
    while not signals.received:
        time.sleep(0.01)
    if ANSWERED:
        watch.agreed(watch.poll())
    time.sleep(1)
print("its own way", flush=True)
"""
    for answered, code in ((False, 1), (True, 0)):
        process = spawned(program.replace("ANSWERED", str(answered)))
        process.send_signal(signal.SIGUSR1)
        shown, said = process.communicate(timeout=30)
        assert process.returncode == code, said
        assert ("its own way" in shown) == answered
        if not answered:
            assert 'File "<string>", line 12 in <module>' in said
            assert "process 1 of 2 has not answered SIGUSR1 for 0.2 s (run.stop_within)" in said


def test_files_in_the_run_folder_ask_and_are_removed_when_obeyed(tmp_path):
    watch = Watch(SignalFlags(), tmp_path)
    assert not watch.poll().any()
    (tmp_path / "checkpoint").touch()
    flags = watch.poll()
    assert flags[Flag.CHECKPOINT_FILE] and stop_reason(flags) is None
    (tmp_path / "stop").touch()
    watch.obey(flags)
    assert [path.name for path in tmp_path.iterdir()] == ["stop"], (
        "what was asked later stays asked"
    )
    flags = watch.poll()
    assert "stop" in str(stop_reason(flags))
    watch.obey(flags)
    assert not watch.poll().any() and not list(tmp_path.iterdir())
    Watch(SignalFlags()).obey(flags)


def test_the_deadline_comes_with_its_lead_and_flags_reduce_by_their_maximum():
    now = 900.0
    ends = {Flag.DEADLINE: End(100.0, 60.0), Flag.WALL_TIME: End(200.0, 30.0)}
    watch = Watch(SignalFlags(), ends=ends, clock=lambda: now)
    assert not watch.poll().any()
    now = 945.5
    assert watch.poll()[Flag.DEADLINE] == 54
    assert stop_reason(watch.poll()) == "the job ends in 54 s"
    assert not watch.poll()[Flag.WALL_TIME]
    now = 2000.0
    assert watch.poll()[Flag.DEADLINE] == 1
    mine = Watch(SignalFlags()).poll(wall=(False, True))
    other = Watch(SignalFlags()).poll(failed=True, wall=(False, False))
    agreed = np.maximum(mine, other)
    assert agreed.dtype == np.int32 and list(agreed) == [0, 0, 0, 0, 1, 0, 0, 1]
    assert stop_reason(agreed) == "a process cannot go on" and stop_reason(mine) is None


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0:07", 7.0),
        ("29:59", 1799.0),
        ("2:00:01", 7201.0),
        ("10-23:59:59", 950399.0),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_what_squeue_calls_time_left(text, expected):
    assert slurm_seconds(text) == expected


def test_the_job_end_and_limit_from_slurm():
    times = {"SLURM_JOB_END_TIME": "1700000000", "SLURM_JOB_ID": "12"}
    assert job_deadline(times | {"SLURM_JOB_START_TIME": "1699999940"}, 5.0) == (1.7e9, 60.0)
    assert job_deadline(times, 1.7e9 - 45) == (1.7e9, 45.0)
    assert job_deadline({"SLURM_JOB_ID": "12"}, 5.0) is None
    assert job_deadline(times | {"SLURM_JOB_END_TIME": "Unknown"}, 5.0) is None


def jumping(begun: Path, arguments: list[str]) -> int:
    """`simulator ARGUMENTS` in a process whose time of day jumps by a day when `begun` exists."""
    real = time.time
    time.time = lambda: real() + (86400 if begun.exists() else 0)
    return main(arguments)


def test_a_clock_that_is_set_during_a_job_does_not_end_it(tmp_path):
    """The time of day jumps by a day when state.json says that the loop has begun; the job has an
    hour."""
    config = write_case(tmp_path, CASE.replace("count: 2", "count: 1"))
    run = tmp_path / "run"
    words = ["run", str(config), "--output", str(run), "time.max_steps=3"]
    now = time.time()
    job = {"SLURM_JOB_START_TIME": f"{now:.0f}", "SLURM_JOB_END_TIME": f"{now + 3600:.0f}"}
    process = fork(jumping, run / "state.json", words, environ=environment(**job))
    said = process.communicate()
    assert process.returncode == 0, said


@pytest.mark.parametrize("minutes", [1, 2, 5, 8, 60, 2880])
def test_a_short_job_has_time_to_work_before_it_is_told_to_stop(minutes):
    """The script's warning and the run's own limit, in this order, leave three quarters of the job
    at least."""
    limit = 60.0 * minutes
    warned = SlurmSettings(time=str(minutes)).lead
    assert warned <= limit / 4
    assert 0 < lead(limit) <= warned / 2
    assert (warned, lead(limit)) == (120, 60) or minutes < 8
