"""Runs on a GPU: published numbers, blocks against whole fields, and what the plan says of memory.
With --gpu."""

from pathlib import Path

import jax
import numpy as np
import pytest

from simulator import Simulation
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import load_config
from simulator.simulation.advance import Until
from simulator.simulation.compiling import Memory

CONFIG = Path(__file__).parents[2] / "configs" / "taylor_green.yaml"
pytestmark = pytest.mark.gpu


def simulation_of(*overrides: str) -> Simulation:
    devices = tuple(jax.devices("gpu")[:1])
    return Simulation(
        load_config(CONFIG, ["time.cfl=null", "time.dt=0.01", *overrides]),
        cluster=Cluster(discover({}), "gpu", devices),
        report=lambda line: None,
    )


def advanced(simulation: Simulation, steps: int) -> Simulation:
    until = Until(np.float64(np.inf), np.float64(np.inf), np.int64(steps))
    simulation.state = jax.block_until_ready(simulation.compiled_loop()(simulation.state, until))
    return simulation


@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-11), ("single", 7e-6)])
def test_the_early_taylor_green_vortex(precision: str, tolerance: float):
    """Energy and enstrophy at t = 0.1, 32^3, nu = 1/1600, to the digits that are known, or to
    round-off: a step rounds the fields by its two exponentials and four stages, 6e-8 each, which is
    twice as much of the energy; in ten steps of one sign 7e-6."""
    found = advanced(
        simulation_of("grid.shape=32,32,32", f"precision={precision}", "model.viscosity=6.25e-4"),
        10,
    )
    row = jax.device_get(found.diagnostics(found.state))
    assert row["kinetic_energy"] == pytest.approx(0.124953117517, rel=tolerance)
    assert row["enstrophy"] == pytest.approx(0.375249931114, rel=tolerance)


def test_blocks_give_what_whole_fields_give(monkeypatch):
    """In blocks of seven planes, which do not divide the 64, as whole; to round-off of a few
    steps."""

    def velocity(memory: str) -> np.ndarray:
        simulation = simulation_of("grid.shape=64,64,64", f"run.memory={memory}")
        return np.asarray(advanced(simulation, 4).fields["velocity"])

    whole, low = map(velocity, ("fast", "low"))
    monkeypatch.setenv("SIMULATOR_FFT_BLOCK", "7")
    blocks = velocity("fast")
    assert np.abs(low - whole).max() < 1e-13 and np.abs(blocks - whole).max() < 1e-13


def test_a_step_takes_the_memory_that_the_compiler_says():
    """And at most as much again as its largest transform for the library's workspace."""
    simulation = simulation_of("grid.shape=256,256,256")
    compiled = simulation.compiled_loop()
    device = simulation.cluster.devices[0]
    advanced(simulation, 1)
    peak = device.memory_stats()["peak_bytes_in_use"]
    needed = Memory.of(compiled).total
    field = 8 * 256**3
    assert 0.5 * needed < peak < 1.2 * needed + 6 * field  # the start holds a few fields of its own
