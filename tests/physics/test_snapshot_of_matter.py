"""Gas, waves and both from a snapshot or checkpoint, at the same resolution and at others."""

import gravity_cases as cases
import numpy as np
import pytest
from gravity_cases import GAS, WAVE, measured, modes
from storage_support import save

from simulator.archive.shard import Dataset
from simulator.archive.states import component_names, datasets, physical_axes
from simulator.errors import UserError

CLUMPS = (
    '{"density": 1 + 0.3 * jnp.cos(x) * jnp.sin(y + z), '
    '"velocity": [0.3 * jnp.sin(y) + 0 * z + 0 * x, 0.2 * jnp.cos(x + z) + 0 * y, 0 * x]}'
)
# Every mode has its share, also those of the Nyquist planes.
ROUGH = '{"psi": jnp.exp(1j * (x * y + jnp.sin(3 * z)))}'
BOTH = """\
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
    pytest.param("snapshot", MHD, "16,12,20", 4, marks=pytest.mark.slow),
    pytest.param("snapshot", WAVE, "6,5,4", 2, marks=pytest.mark.slow),
    pytest.param("snapshot", BOTH, "16,14,12", 1, marks=pytest.mark.slow),
    pytest.param("checkpoint", BOTH, "12,12,12", 2, marks=pytest.mark.slow),
]


def stored(run, tmp_path, kind: str) -> str:
    """A snapshot or checkpoint of the run's start, as `initial.path`."""
    if kind == "checkpoint":
        found = datasets(run.state, run.model)
    else:
        axes = physical_axes(run.transform)
        values = {n: run.values(n)(run.state) for n in run.model.fields}
        found = [Dataset(n, v, axes, component_names(v.shape[:-3])) for n, v in values.items()]
    save(tmp_path, 0, found, {"time": 0.0, "box": list(run.grid.box)})
    return f"initial={{kind: snapshot, path: {tmp_path / '00000000'}}}"


@pytest.mark.spmd
@pytest.mark.parametrize(("kind", "text", "shape", "devices"), CASES)
def test_every_mode_that_both_grids_keep(tmp_path, kind: str, text: str, shape: str, devices: int) -> None:
    python = {GAS: CLUMPS, WAVE: ROUGH}.get(text)
    first = cases.simulation(text, python=python)
    other = cases.simulation(text, stored(first, tmp_path, kind), f"grid.shape={shape}", devices=devices)
    assert other.state.fields.keys() == first.state.fields.keys()
    for name in first.model.fields:
        here, there = modes(first, name), modes(other, name)
        assert len(here.keys() & there.keys()) > 30
        for k, value in there.items():
            np.testing.assert_allclose(value, here.get(k, 0 * value), atol=1e-14)
    if text in (WAVE, BOTH) and np.prod(other.grid.shape) >= np.prod(first.grid.shape):
        assert measured(other)["mass"] == pytest.approx(measured(first)["mass"], rel=1e-13)


def test_gas_takes_density_and_velocity_too(tmp_path) -> None:
    first = cases.simulation(GAS, python=CLUMPS)
    axes = physical_axes(first.transform)
    values = {n: first.values(n)(first.state) for n in ("density", "velocity")}
    found = [Dataset(n, v, axes, component_names(v.shape[:-3])) for n, v in values.items()]
    save(tmp_path, 0, found, {"time": 0.0, "box": list(first.grid.box)})
    start = f"initial={{kind: snapshot, path: {tmp_path / '00000000'}}}"
    other = cases.simulation(GAS, start)
    for name, field in first.state.fields.items():
        assert np.abs(np.asarray(field - other.state.fields[name])).max() < 1e-14


def test_what_does_not_fit_is_refused(tmp_path) -> None:
    start = stored(cases.simulation(GAS, python=CLUMPS), tmp_path, "snapshot")
    with pytest.raises(UserError, match="holds density, momentum; this model's fields are psi"):
        _ = cases.simulation(WAVE, start).state
    with pytest.raises(UserError, match=r"its box is .* set grid\.box"):
        _ = cases.simulation(GAS, start, "grid.box=1,1,1").state
