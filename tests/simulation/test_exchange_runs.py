"""Runs that send narrow numbers: refused where they are of no use, and how far off they are."""

from pathlib import Path

import jax
import numpy as np
import pytest

from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import load_config
from simulator.errors import UserError
from simulator.run import refusals
from simulator.simulation.advance import Until
from simulator.simulation.simulation import Simulation

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = {"navier_stokes": "taylor_green.yaml", "schrodinger_poisson": "fuzzy_dark_matter_box.yaml"}


def config_of(name: str, *overrides: str):
    return load_config(CONFIGS / name, list(overrides))


def error(found, expected) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def test_refusals():
    """In the place of the key, before anything is made."""
    for kind, overrides, message in (
        ("schrodinger_poisson", ["fft.exchange=single"], "fft.exchange: single would cost wave functions"),
        (
            "navier_stokes",
            ["fft.exchange=single", "precision=single"],
            "has no effect with precision: single",
        ),
        ("navier_stokes", ["fft.exchange=half_scaled", "fft.backend=jaxdecomp"], "needs fft.backend"),
    ):
        with pytest.raises(UserError, match=message):
            refusals.check(config_of(FILES[kind], "grid.shape=16,16,16", *overrides))


@pytest.mark.parametrize("kind", ["single", "half_scaled"])
def test_a_user_s_split_equation_is_refused_like_shipped_waves(kind):
    """It is known only once its file is read."""
    config = config_of(
        "equations/nonlinear_schrodinger.yaml", "grid.shape=16,16", f"fft.exchange={kind}", "output={}"
    )
    message = f"fft.exchange: {kind} would cost wave functions .* remove the key for NonlinearSchrodinger"
    with pytest.raises(UserError, match=message):
        refusals.check(config)


def run(*overrides: str):
    """Energy spectrum's fields and residual of a short decaying flow on four devices."""
    config = config_of(
        FILES["navier_stokes"], "grid.shape=24,24,24", "initial={kind: taylor_green}", "time.cfl=null",
        "time.dt=0.05", "model.viscosity=0.01", *overrides,
    )  # fmt: skip
    simulation = Simulation(
        config, cluster=Cluster(discover({}), "cpu", tuple(jax.devices()[:4])), report=lambda line: None
    )
    until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(40))
    state = simulation.compiled_loop()(simulation.state, until)
    simulation.state = state
    return np.asarray(simulation.fields["velocity"]), float(state.memory["budget_residual"])


@pytest.mark.spmd
def test_a_run_with_single_exchanges_is_far_closer_to_double_than_a_single_one():
    """To t = 2: a tenth of the error of a single-precision run, and a budget as closed as that of full exchanges."""
    exact, residual = run()
    narrow, narrow_residual = run("fft.exchange=single")
    single, _ = run("precision=single")
    assert 0 < error(narrow, exact) < 0.1 * error(single, exact)
    # Products are rounded by 2^-24; their work on a flow of energy 0.125 is less than that, and so is what the budget
    # misses. The residual itself is that of the time step.
    assert abs(narrow_residual - residual) < 2**-24 < 0.1 * abs(residual)
