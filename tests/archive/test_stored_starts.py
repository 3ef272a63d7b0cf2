"""Fields of a snapshot or checkpoint as a start, at the same resolution and at others."""

import gravity_cases as cases
import numpy as np
import pytest
from flow_support import measured
from gravity_cases import CLUMPS, GAS, WAVE, modes, stored
from tiers import slow

# Every mode has its share, also those of the Nyquist planes.
ROUGH = '{"psi": jnp.exp(1j * (x * y + jnp.sin(3 * z)))}'
GAS_AND_WAVES = """\
model: {kind: composite, components: [{kind: self_gravitating_gas, sound_speed: 1}, {kind: schrodinger_poisson}]}
grid: {shape: [12, 12, 12]}
initial: {kind: composite, components: {gas: {kind: jeans_wave, amplitude: 0.1}, waves: {kind: uniform}}}
time: {stop: 1.0, dt: 0.01}
"""
MHD = """\
model: {kind: mhd, viscosity: 0.02, resistivity: 0.02}
grid: {shape: [12, 12, 16]}
initial: {kind: random, peak: 2, helicity: 1.0, magnetic: {energy: 0.2, mean_field: [0, 0, 2.0]}}
time: {stop: 1.0, dt: 0.01}
"""
CASES = [
    ("snapshot", GAS, "20,18,24", 4),
    ("checkpoint", WAVE, "12,10,16", 4),
    ("checkpoint", MHD, "8,10,8", 2),
    slow("snapshot", MHD, "16,12,20", 4),
    slow("snapshot", WAVE, "6,5,4", 2),
    slow("snapshot", GAS_AND_WAVES, "16,14,12", 1),
    slow("checkpoint", GAS_AND_WAVES, "12,12,12", 2),
]


@pytest.mark.spmd
@pytest.mark.parametrize(("kind", "text", "shape", "devices"), CASES)
def test_every_mode_that_both_grids_keep(tmp_path, kind: str, text: str, shape: str, devices: int):
    python = {GAS: CLUMPS, WAVE: ROUGH}.get(text)
    first = cases.simulation(text, python=python)
    other = cases.simulation(
        text, stored(first, tmp_path, kind), f"grid.shape={shape}", devices=devices
    )
    assert other.state.fields.keys() == first.state.fields.keys()
    for name in first.model.fields:
        here = modes(first, name)
        there = modes(other, name)
        assert len(here.keys() & there.keys()) > 30
        for k, value in there.items():
            np.testing.assert_allclose(value, here.get(k, 0 * value), atol=1e-14)
    if text in (WAVE, GAS_AND_WAVES) and np.prod(other.grid.shape) >= np.prod(first.grid.shape):
        assert measured(other)["mass"] == pytest.approx(measured(first)["mass"], rel=1e-13)
