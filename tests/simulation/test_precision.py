"""One precision: the text of every program that a run compiles, from its start to its last row, is read."""

import re
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from cover import read_cases, write
from table import Case, named

from simulator import Simulation, load_config
from simulator.archive.recorder import Recorder
from simulator.simulation.advance import Until
from simulator.simulation.compiling import Compilable

WITHOUT = ("precision", "exchange", "snapshots", "memory", "after")
"""Factors that ask for single precision, or that add no operation to a program."""


def each_part() -> Iterator[Case]:
    """The fewest of the cases of tests/pairs, greedily, in which every part appears; in double precision."""
    cases = [case for case in read_cases() if case.get("initial") != "snapshot"]  # it needs another run
    double = [{factor: level for factor, level in case.items() if factor not in WITHOUT} for case in cases]
    missing = {choice for case in double for choice in case.items()}
    while missing:
        yield (best := max(double, key=lambda case: len(missing & case.items())))
        missing -= best.items()


CASES = list(each_part())
QUICK = {"model": "particles", "assignment": "interlaced"}, {"model": "navier_stokes", "subgrid": "spectral"}
"""The default tier has cases with these levels. Windows and phases of the first were computed in single precision."""


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_compiled_yet():
    jax.clear_caches()


def simulation(folder: Path, case: Case) -> Simulation:
    return Simulation(load_config(write(folder, case), ["devices.count=1"]), report=lambda line: None)


def lowered(simulation: Simulation, folder: Path) -> dict[str, str]:
    """What a run compiles before its first step. On one device the text holds the bodies of all programs."""
    until = Until(np.float64(0), np.float64(0), np.int64(0))
    found = {
        "advance": Compilable(simulation.advance, (simulation.placed_template, until)),
        "diagnostics": Compilable(simulation.diagnostics, (simulation.placed_template,)),
        **Recorder(simulation, folder, lambda write: None).programs(),
        **{n: Compilable(simulation.values(n), (simulation.placed_template,)) for n in simulation.field_names},
    }
    return {name: function.lower(*arguments).as_text() for name, (function, arguments, _) in found.items()}


def of_the_start(simulation: Simulation, folder: Path) -> dict[str, str]:
    """What is compiled to make the first state, which is made."""
    jax.config.update("jax_dump_ir_to", str(folder / "start"))
    try:
        simulation.check_start()
    finally:
        jax.config.update("jax_dump_ir_to", "")
    return {path.name: path.read_text() for path in sorted((folder / "start").glob("*.mlir"))}


def narrow(texts: dict[str, str]) -> dict[str, list[str]]:
    """The lines with single-precision values, by program."""
    found = {
        name: [line.strip() for line in text.splitlines() if re.search(r"\bf32\b|xf32[,>]", line)]
        for name, text in texts.items()
    }
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[] if any(q.items() <= case.items() for q in QUICK) else pytest.mark.slow)
        for case in CASES
    ],
    ids=named,
)
def test_a_double_run_has_no_single_precision_value(tmp_path, case):
    texts = lowered(simulation(tmp_path, case), tmp_path)
    assert "xf64>" in texts["advance"]
    assert not narrow(texts)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=named)
def test_nor_has_its_start(tmp_path, case):
    texts = of_the_start(simulation(tmp_path, case), tmp_path)
    assert texts and not narrow(texts)
