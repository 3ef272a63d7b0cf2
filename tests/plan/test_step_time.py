"""The planned duration of a step against the measured one, on this machine."""

import time

import jax
import pytest
from bench_plan import compare
from planning_cases import config_of

from simulator.errors import UserError
from simulator.plan import measured, this_machine

FACTOR = 1.5


@pytest.fixture
def optimised():
    """As a run's programs are; tests are compiled quickly."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def test_this_machine_is_measured(monkeypatch) -> None:
    """The rate is that of some machine, between 0.1 GB/s and 10 TB/s."""
    monkeypatch.setattr(measured, "WHOLE", 0.0)
    found = this_machine(config_of("navier_stokes", "grid.shape=512,512,256"), 2, largest=12)
    assert found.measured and found.platform == "cpu" and "12 x 12 x 6" in found.source
    assert 1e8 < found.bandwidth < 1e13 and found.memory > 1e8 and found.link == found.bandwidth


def test_a_run_that_cannot_start_on_few_points_is_refused_with_the_cure() -> None:
    forcing = "forcing={kind: ornstein_uhlenbeck, rate: 1, correlation_time: 1, band: [20, 21]}"
    config = config_of("navier_stokes", "grid.shape=512,512,512", forcing)
    with pytest.raises(UserError, match=r"^--device here: a step on 16 x 16 x 16 .* name a device instead"):
        this_machine(config, 1, largest=16)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_a_step_takes_as_long_as_planned(optimised, devices, precision) -> None:
    """Within a factor of 1.5 for every kind of step, on a grid with eight times the points of the one that is
    measured; in seconds of the processor, so that other work on this machine hardly matters. scripts/bench_plan.py
    compares all models and several grids."""
    ratios = {}
    for kind in ("navier_stokes", "mhd", "schrodinger_poisson"):
        config = config_of(kind, "grid.shape=48,48,48", f"precision={precision}")
        ratios[kind] = compare(config, devices, lambda: time.process_time() / devices, 24).ratio
    assert all(1 / FACTOR < ratio < FACTOR for ratio in ratios.values()), ratios
