"""The planned duration of a step against the measured one, on this machine."""

import importlib
import time

import jax
import pytest
from planning_cases import config_of

from simulator.check.planned import compare
from simulator.plan import this_machine

FACTOR = 1.5


@pytest.fixture
def optimised():
    """As a run's programs are; tests are compiled quickly."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def test_this_machine_is_measured(monkeypatch) -> None:
    """Rates and times are those of some machine: a byte per nanosecond at least, no second to start a kernel."""
    module = importlib.import_module(
        "simulator.plan.this_machine"
    )  # the package has the function of that name
    monkeypatch.setattr(module, "_ROUNDS", 1)
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    found = this_machine(2)
    assert found.measured and found.platform == "cpu"
    assert 1e8 < found.bandwidth <= (found.block_bandwidth or 0) < 1e13
    assert found.double == found.single > 1e7 and found.link > 1e6
    assert 0 < found.start < 1e-3 and 0 < found.exchange_latency < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_a_step_takes_as_long_as_planned(optimised, devices, precision) -> None:
    """Within a factor of 1.5 for every kind of step, in seconds of the processor, so that other work on this machine
    hardly matters. scripts/bench_plan.py compares all models and several grids."""
    given = {
        kind: config_of(kind, "grid.shape=32,32,32", f"precision={precision}")
        for kind in ("navier_stokes", "mhd", "schrodinger_poisson")
    }
    found = compare(given, devices, precision, lambda: time.process_time() / devices)
    ratios = {name: one.ratio for name, one in found.items()}
    assert all(1 / FACTOR < ratio < FACTOR for ratio in ratios.values()), ratios
