"""Progress, the log and the summary, on a terminal and off it."""

import io
import os
import pty
import subprocess
import sys
import tempfile
from datetime import datetime
from types import SimpleNamespace

import pytest
from rich.console import Console

from simulator.run.events import Moment
from simulator.run.log import RunLog
from simulator.run.progress import Progress, step_cost, summary
from simulator.words import duration, say

WHEN = datetime(2026, 1, 2, 3, 4, 5)


def log(terminal=False):
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=terminal, width=120, highlight=False, markup=False
    )
    return RunLog(console, now=lambda: WHEN), stream


def test_off_a_terminal_a_line_every_half_minute_with_all_that_matters():
    run_log, stream = log()
    now = [0.0]
    with Progress(run_log, 0.0, 10.0, clock=lambda: now[0]) as progress:
        for second in range(0, 91, 5):
            now[0] = float(second)
            progress.update(Moment(step=10 * second, time=second * 0.1, dt=1e-2))
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["30", "60", "90"]
    assert lines[1] == " 60 %  step 600  t = 6 of 10  dt = 1.00e-02  10 steps/s  40 s left"
    assert progress.steps_per_second == pytest.approx(10.0)
    assert progress.seconds_left == pytest.approx(10.0)


@pytest.mark.parametrize("stderr, bar", [("terminal", True), ("pipe", False)])
def test_a_bar_needs_a_terminal_for_both_streams_and_is_drawn_by_one_process(stderr, bar):
    """mpirun gives each process a pseudo-terminal as stdout, whatever its own stdout is, and a pipe
    as stderr."""
    ours, theirs = pty.openpty()
    code = (
        "from simulator.run.log import RunLog\nfrom simulator.run.progress import Progress\n"
        "bars = [Progress(RunLog(quiet=q), 0.0, 1.0)._bar is not None for q in (False, True)]\n"
        "open('/dev/fd/0', 'w').write(f'{bars}')"
    )
    with tempfile.TemporaryFile("w+") as answer:
        other = theirs if stderr == "terminal" else subprocess.DEVNULL
        subprocess.run([sys.executable, "-c", code], stdin=answer, stdout=theirs, stderr=other)
        answer.seek(0)
        assert answer.read() == f"[{bar}, False]"
    os.close(ours)
    os.close(theirs)


def test_a_line_on_stderr_is_one_write(monkeypatch):
    """Two would let a line of another process in between."""
    written = []
    stream = SimpleNamespace(write=written.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", stream)
    say("two\nlines")
    assert written == ["two\nlines\n"]


def test_in_a_notebook_one_display_that_is_replaced(monkeypatch):
    """The first line is a display of its own, the others take its place; nothing else is said."""
    shown = []

    class Handle:
        display_id = "one"

    def display(data, **options):
        shown.append((data["text/plain"], options.get("display_id")))
        return Handle()

    ipython = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=object()),
        display=SimpleNamespace(display=display, update_display=display),
    )
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    run_log, stream = log(terminal=True)
    with Progress(run_log, 0.0, 10.0) as progress:
        progress.update(Moment(1, 5.0, 0.1))
        progress.update(Moment(2, 10.0, 0.1))
    assert [line[:18] for line, _ in shown] == [" 50 %  step 1  t =", "100 %  step 2  t ="]
    assert [name for _, name in shown] == [True, "one"] and stream.getvalue() == ""


def test_the_speed_forgets_the_compilation_and_a_number_of_steps_shows_their_share():
    run_log, _ = log()
    now = [0.0]
    progress = Progress(run_log, 0.0, 1e6, clock=lambda: now[0])
    assert progress.steps_per_second == 0.0 and progress.seconds_left is None
    progress.update(Moment(0, 0.0, 1.0))
    for second in range(100, 161):  # the first step took 100 s
        now[0] = float(second)
        progress.update(Moment(second - 99, float(second - 99), 1.0))
    assert progress.steps_per_second == pytest.approx(1.0)
    run_log, _ = log()
    progress = Progress(run_log, 0.0, 100.0, max_steps=10)
    progress.update(Moment(5, 0.0, 0.1))
    assert progress.fraction(Moment(10, 0.5, 0.1)) == 0.5
    assert Progress(run_log, 1.0, 1.0).fraction(Moment(0, 1.0, 0.1)) == 1.0


def test_on_a_terminal_a_bar_that_leaves_nothing_behind():
    run_log, stream = log(terminal=True)
    now = [0.0]
    with Progress(run_log, 0.0, 1.0, clock=lambda: now[0]) as progress:
        for now[0] in (0.0, 1.0, 40.0):
            progress.update(Moment(step=int(now[0]), time=now[0] / 80, dt=0.0125))
        run_log.say("snapshot at t = 0.5")
    text = stream.getvalue()
    assert "step 40" in text and " 50 %" in text and "snapshot at t = 0.5" in text
    assert text.endswith("\x1b[2K"), "the bar's line is erased at the end"


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.04, "0.0 s"),
        (7, "7 s"),
        (7.25, "7.2 s"),
        (59.4, "59 s"),
        (200, "3 min 20 s"),
        (3599.9, "1 h 00 min"),
        (18180, "5 h 03 min"),
        (190000, "2 d 4 h"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_the_log_keeps_what_was_said_before_it_had_a_file_and_appends(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("an earlier start\n")
    run_log, stream = log()
    run_log.say("8 devices")
    run_log.open(path)
    run_log.say("warning: slow disk\nvery slow")
    run_log.say("for the file alone", shown=False)
    assert path.read_text().count("\n") == 5, "every line is there as soon as it is said"
    first, *later = path.read_text().splitlines()
    said = ["8 devices", "warning: slow disk", "very slow", "for the file alone"]
    assert first == "an earlier start" and later == [f"2026-01-02 03:04:05 {line}" for line in said]
    assert stream.getvalue() == "8 devices\nwarning: slow disk\nvery slow\n"


def test_the_summary_lists_what_is_there_and_commands_that_can_be_typed(tmp_path):
    folder = tmp_path / "my run"
    for step in (0, 10):
        shards = folder / "snapshots" / f"{step:08d}" / "shards"
        shards.mkdir(parents=True)
        (shards / "p00000.h5").write_bytes(bytes(1500))
    (folder / "snapshots" / "00000010.h5").write_bytes(bytes(500))
    (folder / "diagnostics.csv").write_text("step,time\n0,0.0\n1,0.1\n")
    spent = {"start": 1.26, "steps": 10.0, "compilation": 1.26, "spectra": 0.04}
    lines = summary(folder, spent, [["simulator", "plot", str(folder)]])
    assert lines[0] == "12.6 s in all: steps 10.0 s, start 1.3 s, compilation 1.3 s"
    cost = "100 steps: 100 ms per step, 763 ns per point and step on each of 2 devices"
    assert step_cost(100, 10.0, points=64**3, devices=2) == cost
    text = "\n".join(lines)
    assert "snapshots/         2 x 1.5 kB, 3.5 kB in all" in text and "2 rows" in text
    assert lines[-1] == f"  simulator plot '{folder}'" and "checkpoints" not in text


def test_the_summary_says_how_well_a_flow_was_resolved(tmp_path):
    """Of all rows, those of earlier starts too; nan, as of a flow at rest, is no row."""
    table = tmp_path / "diagnostics.csv"
    table.write_text(
        "step,time,k_max_eta,edge_enstrophy\n0,0.0,nan,0\n1,0.1,0.79,0.01\n2,0.2,1.25,0\n"
    )
    line = "k_max eta: minimum 0.79 (t = 0.1), last row 1.25; a resolved cascade has 1"
    assert line in summary(tmp_path, {}, [])
    flow, field = "k_max_eta,edge_enstrophy", "k_max_resistive,edge_magnetic_enstrophy"
    table.write_text(f"step,time,{flow},{field}\n0,0.0,3.0,0.1,2.0,0.1\n")
    found = summary(tmp_path, {}, [])
    assert "k_max eta: minimum 3 (t = 0), last row 3" in found
    assert "k_max resistive scale: minimum 2 (t = 0), last row 2" in found
    table.write_text("step,time,dye_k_max_batchelor,dye_edge_gradient\n0,0.0,0.03,0.4\n")
    line = (
        "dye: k_max Batchelor scale: minimum 0.03 (t = 0), last row 0.03; a resolved cascade has 1"
    )
    assert line in summary(tmp_path, {}, [])
    table.write_text("step,time,waves_edge_mass\n0,0.0,0.0\n1,1.0,0.196\n")
    line = (
        "waves: mass near the largest velocity of the grid: maximum 19.6% (t = 1), last row 19.6%"
    )
    assert f"{line}; a resolved field has at most 0.1%" in summary(tmp_path, {}, [])
    table.write_text("step,time,energy\n0,0.0,1.0\n")
    assert not any(line.startswith("k_max") for line in summary(tmp_path, {}, []))
