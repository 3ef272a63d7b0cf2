"""A simulation's arrays lie on its own devices, whatever JAX's default device is: on a machine with
GPUs a plan builds the start of a run on a processor."""

from pathlib import Path

import jax
import pytest

from simulator.archive.stored_state import RunInputs
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import load_config
from simulator.simulation.simulation import Simulation

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    "name", ["self_gravitating_turbulence", "fuzzy_dark_matter_box", "gas_and_waves"]
)
def test_a_start_touches_no_other_device(name: str):
    device = jax.devices()[-1]
    config = load_config(CONFIGS / f"{name}.yaml", ["grid.shape=16,16,16"])
    cluster = Cluster(discover({}), "cpu", (device,))
    with jax.transfer_guard_device_to_device("disallow"):
        simulation = Simulation(
            config, cluster=cluster, inputs=RunInputs(), report=lambda line: None
        )
        arrays = jax.tree.leaves(simulation.state)
    assert all(array.devices() == {device} for array in arrays)
