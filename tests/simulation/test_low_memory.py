"""Runs that save memory or messages, `run.memory` and narrow exchanges; and one precision: the text
of every program that a run compiles, from its start to its last row, is read."""

import re
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from cover import read_cases, write
from flow_support import flow
from table import Case, named
from tiers import slow

from simulator import Simulation
from simulator.archive.series_recorder import recorders
from simulator.config import load_config, run_config_class
from simulator.errors import UserError
from simulator.run import refusals
from simulator.simulation import compiling as module
from simulator.simulation.advance import Until
from simulator.simulation.compiling import Compilable

FLOW = {
    "model": {
        "kind": "navier_stokes",
        "viscosity": 0.01,
        "scalars": [{"name": "dye", "diffusivity": 0.01}],
    },
    "grid": {"shape": [8, 10, 6]},
    "initial": {"kind": "random", "peak": 2, "energy": 0.5, "seed": 3},
    "time": {"stop": 1, "integrator": "rk3", "cfl": 0.5},
}


def simulation(memory, devices=2, **others):
    given = {
        **FLOW,
        "devices": {"platform": "cpu", "count": devices},
        "run": {"memory": memory},
        **others,
    }
    return Simulation(run_config_class().model_validate(given))


def after(s, steps=3):
    until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(steps))
    s.state = s.advance(s.state, until)
    assert int(s.state.step) == steps
    return np.asarray(s.fields["velocity"])


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize("decomposition", ["auto", slow("pencil")])
def test_low_and_fast_are_equal(decomposition):
    """To round-off: another plan sums in another order, some hundred operations of size 1 each."""
    found = {
        memory: after(simulation(memory, 2, fft={"decomposition": decomposition}))
        for memory in ("low", "fast")
    }
    np.testing.assert_allclose(found["low"], found["fast"], atol=1e-13)


@pytest.mark.spmd
def test_auto_is_low_only_where_fast_does_not_fit(monkeypatch):
    assert not simulation("auto").placement.low
    monkeypatch.setattr(module, "SMALL", 0)
    # A grid of a few points needs more memory for the threads' tiles than for arrays.
    grid = {"shape": [24, 26, 18]}
    fast = module.Memory.of(simulation("fast", grid=grid).compiled_loop()).total
    for free, low in ((fast, False), (fast - 1, True)):
        monkeypatch.setattr(module, "free_everywhere", lambda cluster, free=free: free)
        s = simulation("auto", grid=grid)
        assert s.placement.low is low
        assert s.transform.name.endswith("_sequential") is low


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["navier_stokes", "mhd"])
def test_words_per_grid_point(kind):
    """Of rk3 in single precision, all arguments and temporaries of the compiled steps included.
    Fields as large as these are cut into blocks that are small beside them."""
    model = {"kind": kind, "viscosity": 0.01} | ({"resistivity": 0.01} if kind == "mhd" else {})
    found = {}
    large = {
        "model": model,
        "grid": {"shape": [128, 128, 128]},
        "initial": {"kind": "orszag_tang"} if kind == "mhd" else FLOW["initial"],
    }
    for memory in ("low", "fast"):
        s = simulation(memory, precision="single", **large)
        found[memory] = module.words(
            module.Memory.of(s.compiled_loop()).total, s.config, s.grid.points, 2
        )
    # Of three components a processor's program holds little on both sides of an exchange in any
    # case.
    assert found["low"] <= 7 if kind == "navier_stokes" else found["low"] < found["fast"], found


def error(found, expected) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("kind", ["single", "half_scaled"])
def test_a_user_s_split_equation_is_refused_like_shipped_waves(kind):
    """It is known only once its file is read."""
    file = Path(__file__).parents[2] / "configs" / "equations" / "nonlinear_schrodinger.yaml"
    config = load_config(file, ["grid.shape=16,16", f"fft.exchange={kind}", "output={}"])
    message = (
        f"fft.exchange: {kind} would cost wave functions .* remove the key for NonlinearSchrodinger"
    )
    with pytest.raises(UserError, match=message):
        refusals.check_configuration(config)


def run(**blocks):
    """Velocity and budget residual of a short decaying flow on four devices."""
    time = {"stop": 3.0, "dt": 0.05, "integrator": "rk2"}
    made = flow(
        24, 24, 24, initial={"kind": "taylor_green"}, viscosity=0.01, time=time, count=4, **blocks
    )
    made.state = made.compiled_loop()(
        made.state, Until(np.float64(np.inf), np.float64(np.inf), np.int64(40))
    )
    return np.asarray(made.fields["velocity"]), float(made.state.memory.residual)


@pytest.mark.slow
@pytest.mark.spmd
def test_a_run_with_single_exchanges_is_far_closer_to_double_than_a_single_one():
    """To t = 2: a tenth of the error of a single-precision run, and a budget as closed as that of
    full exchanges."""
    exact, residual = run()
    narrow, narrow_residual = run(fft={"exchange": "single"})
    single, _ = run(precision="single")
    assert 0 < error(narrow, exact) < 0.1 * error(single, exact)
    # Products are rounded by 2^-24; their work on a flow of energy 0.125 is less than that, and so
    # is what the budget misses. The residual itself is that of the time step.
    assert abs(narrow_residual - residual) < 2**-24 < 0.1 * abs(residual)


WITHOUT = ("precision", "exchange", "snapshots", "memory", "after")
"""Factors that ask for single precision, or that add no operation to a program."""


def each_part() -> Iterator[Case]:
    """The fewest of the cases of tests/pairs, greedily, in which every part appears; in double
    precision."""
    cases = [
        case for case in read_cases() if case.get("initial") != "snapshot"
    ]  # it needs another run
    double = [
        {factor: level for factor, level in case.items() if factor not in WITHOUT} for case in cases
    ]
    missing = {choice for case in double for choice in case.items()}
    while missing:
        yield (best := max(double, key=lambda case: len(missing & case.items())))
        missing -= best.items()


CASES = list(each_part())
QUICK = (
    {"model": "particles", "assignment": "interlaced"},
    {"model": "navier_stokes", "subgrid": "spectral"},
)
"""The default tier has cases with these levels. Windows and phases of the first were computed in
single precision."""


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_compiled_yet():
    jax.clear_caches()


def of_case(folder: Path, case: Case) -> Simulation:
    return Simulation(
        load_config(write(folder, case), ["devices.count=1"]), report=lambda line: None
    )


def lowered(of_case: Simulation, folder: Path) -> dict[str, str]:
    """What a run compiles before its first step. On one device the text holds the bodies of all
    programs."""
    until = Until(np.float64(0), np.float64(0), np.int64(0))
    found = {
        "advance": Compilable(of_case.advance, (of_case.placed_template, until)),
        "diagnostics": Compilable(of_case.diagnostics, (of_case.placed_template,)),
        **{
            n: Compilable(s.program, (of_case.placed_template, s.template))
            for n, s in recorders(of_case).items()
        },
        **{
            n: Compilable(of_case.field_program(n), (of_case.placed_template,))
            for n in of_case.field_names
        },
    }
    return {
        name: function.lower(*arguments).as_text()
        for name, (function, arguments, _) in found.items()
    }


def of_the_start(of_case: Simulation, folder: Path) -> dict[str, str]:
    """What is compiled to make the first state, which is made."""
    jax.config.update("jax_dump_ir_to", str(folder / "start"))
    try:
        of_case.check_start()
    finally:
        jax.config.update("jax_dump_ir_to", "")
    return {path.name: path.read_text() for path in sorted((folder / "start").glob("*.mlir"))}


def narrow(texts: dict[str, str]) -> dict[str, list[str]]:
    """The lines with single-precision values, by program."""
    found = {
        name: re.findall(r"(?m)^.*(?:\bf32\b|xf32[,>]).*$", text) for name, text in texts.items()
    }
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize(
    "case",
    [case if any(q.items() <= case.items() for q in QUICK) else slow(case) for case in CASES],
    ids=named,
)
def test_a_double_run_has_no_single_precision_value(tmp_path, case):
    texts = lowered(of_case(tmp_path, case), tmp_path)
    assert "xf64>" in texts["advance"]
    assert not narrow(texts)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=named)
def test_nor_has_its_start(tmp_path, case):
    texts = of_the_start(of_case(tmp_path, case), tmp_path)
    assert texts and not narrow(texts)
