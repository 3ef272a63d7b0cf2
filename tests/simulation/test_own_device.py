"""A simulation's arrays lie on its own devices, whatever JAX's default device is: on a machine with
GPUs a plan builds the start of a run on a processor."""

from pathlib import Path

import jax
import pytest
from shipped_runs import shipped_runs

from simulator.archive.stored_state import RunInputs
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import load_config
from simulator.simulation.simulation import Simulation

NAMES = ("self_gravitating_turbulence", "fuzzy_dark_matter_box", "gas_and_waves")


@pytest.mark.parametrize("path", [path for path in shipped_runs() if path.stem in NAMES], ids=str)
def test_a_start_touches_no_other_device(path: Path):
    device = jax.devices()[-1]
    config = load_config(path, ["grid.shape=16,16,16"])
    cluster = Cluster(discover({}), "cpu", (device,))
    with jax.transfer_guard_device_to_device("disallow"):
        simulation = Simulation(
            config, cluster=cluster, inputs=RunInputs(), report=lambda line: None
        )
        arrays = jax.tree.leaves(simulation.state)
    assert all(array.devices() == {device} for array in arrays)
