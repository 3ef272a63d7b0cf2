"""Where the wall time of a run goes: the parts are the whole."""

import re
import threading
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest
from run_support import simulate, write_case

from simulator.simulation import compiling
from simulator.simulation.compiling import Compilable, Compiling
from simulator.stopwatch import Stopwatch


def test_every_moment_belongs_to_one_name() -> None:
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


def test_the_summary_of_a_run_adds_up_and_names_compilation(tmp_path, capsys) -> None:
    config = write_case(tmp_path)
    small = (
        "time.stop=0.02", "grid.shape=8,8,8", "initial={kind: abc}", "output.spectra=null",
        "devices.count=1",
    )  # fmt: skip
    assert simulate(config, tmp_path / "run", *small) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if " s in all: " in x]
    whole, *parts = map(float, re.findall(r"(\d+\.\d) s", line))
    assert sum(parts) == pytest.approx(whole, abs=1e-9)
    assert all(a >= b for a, b in pairwise(parts))
    for name in ("start", "compilation", "initial condition"):
        assert f"{name} " in line


def test_programs_are_compiled_as_they_would_be_when_called(monkeypatch) -> None:
    x = jnp.arange(3.0)
    given = {name: Compilable(jax.jit(lambda a, n=n: n * a), (x,)) for n, name in enumerate(("none", "one"))}
    given["shared"] = Compilable(partial(given["one"].function), (x,))  # as the functions of a batch of runs
    said, told, compiles = [], threading.Event(), jax.stages.Lowered.compile

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
