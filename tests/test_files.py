"""What lies below all rooms: files that are whole or not there, and where the wall time of a run
goes."""

import errno
import os
import re
import stat
import threading
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest
from run_support import simulate, write_case

from simulator.errors import RunFailure
from simulator.files import ending, reason, remove_tree, write_durably
from simulator.simulation import compiling
from simulator.simulation.compiling import Compilable, Compiling
from simulator.stopwatch import Stopwatch


def test_pieces_become_one_file_and_leave_nothing_else(tmp_path):
    write_durably(tmp_path / "a", [b"one", memoryview(b"two"), b""])
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert os.listdir(tmp_path) == ["a"]


def test_what_was_there_stays_when_the_pieces_fail(tmp_path):
    write_durably(tmp_path / "a", [b"old"])

    def pieces():
        yield b"new"
        raise RunFailure("no more")

    with pytest.raises(RunFailure, match="no more"):
        write_durably(tmp_path / "a", pieces())
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_modes_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_durably(tmp_path / "a", [b"x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~mask


def test_errors_name_the_file(tmp_path):
    with pytest.raises(OSError) as caught:
        write_durably(tmp_path / "absent" / "a", [b"x"])
    assert caught.value.errno == errno.ENOENT
    assert reason(caught.value) == f"No such file or directory: {tmp_path / 'absent' / 'a'}"
    assert reason(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == "No space left on device"


def test_removing_what_is_gone_is_no_error(tmp_path):
    remove_tree(tmp_path / "absent")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    remove_tree(tmp_path / "folder")
    assert not os.listdir(tmp_path)


def test_every_moment_belongs_to_one_name():
    now = [1.0]
    spent = Stopwatch(clock=lambda: now[0])
    now[0] += 2
    with spent.on("snapshots"):
        now[0] += 4
        with spent.on("waiting for files"):
            now[0] += 8
        now[0] += 16
    spent.started()
    now[0] += 32
    assert spent.parts == {"start": 2, "snapshots": 20, "waiting for files": 8, "the rest": 32}
    with pytest.raises(ZeroDivisionError), spent.on("steps"):
        now[0] += 64
        _ = 1 / 0
    now[0] += 1
    assert spent.parts["steps"] == 64 and sum(spent.parts.values()) == now[0] - 1


def test_the_summary_of_a_run_adds_up_and_names_compilation(tmp_path, capsys):
    config = write_case(tmp_path)
    small = (
        "time.stop=0.02",
        "grid.shape=8,8,8",
        "initial={kind: abc}",
        "output.spectra=null",
        "devices.count=1",
    )
    assert simulate(config, tmp_path / "run", *small) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if " s in all: " in x]
    whole, *parts = map(float, re.findall(r"(\d+\.\d) s", line))
    assert sum(parts) == pytest.approx(whole, abs=1e-9)
    assert all(a >= b for a, b in pairwise(parts))
    for name in ("start", "compilation", "initial condition"):
        assert f"{name} " in line


def test_programs_are_compiled_as_they_would_be_when_called(monkeypatch):
    x = jnp.arange(3.0)
    given = {
        name: Compilable(jax.jit(lambda a, n=n: n * a), (x,))
        for n, name in enumerate(("none", "one"))
    }
    given["shared"] = Compilable(
        partial(given["one"].function), (x,)
    )  # as the functions of a batch of runs
    said = []
    told = threading.Event()
    compiles = jax.stages.Lowered.compile

    def compile_when_told(lowered, options):
        assert told.wait(20)
        return compiles(lowered, options)

    def say(line: str) -> None:
        said.append(line)
        told.set()

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_when_told)
    monkeypatch.setattr(compiling, "PATIENCE", 0.0)
    ready = Compiling(together=True).finish(given, say)
    assert (ready["none"](x) == 0).all() and (ready["one"](x) == x).all()
    assert ready["shared"] is given["shared"].function
    assert said == ["compiling none, one"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 76515104 bytes.\nbacktrace"),
        RuntimeError("can't start new thread"),
        ImportError("libjax_common.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
)
def test_too_little_memory_ends_a_program_in_a_line(error):
    ended = ending(error)
    assert ended is not None and ended[0] == 1
    assert ended[1].startswith("out of memory (") and "\n" not in ended[1]


def test_other_errors_of_these_types_keep_their_traceback():
    assert ending(RuntimeError("a bug")) is None and ending(ImportError("no module x")) is None
