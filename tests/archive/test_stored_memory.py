"""The numbers that a state carries from step to step, in checkpoints: their names are those of every
version before they had types."""

import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import simulation
from storage_support import save

from simulator.archive.shard import Dataset
from simulator.archive.stored_state import datasets, load_state

FLOW = """\
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [8, 8, 8]}
initial: {kind: taylor_green}
forcing: {kind: ornstein_uhlenbeck, rate: 0.1, correlation_time: 0.5, band: [1, 1]}
particles: [{name: drops, kind: inertial, count: 8, stokes_number: 1}]
time: {stop: 1.0, dt: 0.01}
"""
MATTER = """\
model:
  kind: composite
  cosmology: {start: 0.5, matter: 0.3, hubble: 1.0}
  components: [{kind: particles, name: dark, count: 512}]
grid: {shape: [8, 8, 8]}
initial: {kind: composite, components: {dark: {kind: jeans_wave, amplitude: 0.2, mode: [1, 1, 0]}}}
time: {stop: 1.0, cfl: 0.2, max_dt: 0.1}
"""


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (FLOW, {"forcing": (3, 3), "budget_residual": (), "drops_relaxation_time": ()}),
        (MATTER, {"rate": (), "expected_energy": (5,)}),
    ],
)
def test_a_checkpoint_of_an_earlier_version_is_restored(text, shapes, tmp_path):
    run = simulation(text)
    others = [
        d
        for d in datasets(run.state, run.model, run.populations)
        if not d.name.startswith("memory_")
    ]
    values = {
        name: np.arange(1.0, 1 + np.prod(shape)).reshape(shape) for name, shape in shapes.items()
    }
    stored = [Dataset(f"memory_{name}", value) for name, value in values.items()]
    save(tmp_path, 3, [*others, *stored], {"time": 0.0})
    memory = load_state(tmp_path / "00000003", run.template, run.model, run.populations).memory
    parts = {
        "forcing": memory.forcing.get("forcing"),
        "expected_energy": memory.model.get("expected_energy"),
        "drops_relaxation_time": memory.particles.get("drops_relaxation_time"),
        "rate": memory.rate,
        "budget_residual": memory.residual,
    }
    for name, array in parts.items():
        if name in values:
            np.testing.assert_array_equal(array, jnp.asarray(values[name]))
        else:
            assert array is None
    written = datasets(run.state, run.model, run.populations)
    names = {d.name.removeprefix("memory_") for d in written if d.name.startswith("memory_")}
    assert names == shapes.keys()
