"""Spectra of probes in frequency."""

import numpy as np
import pytest
from flow_support import flow, python_flow
from numpy.testing import assert_allclose, assert_array_equal
from run_support import drawn

from simulator import open_run
from simulator.errors import UserError
from simulator.plugins.pictures.frequencies import (
    FrequencySpectrum,
    WaveSpectrum,
    even_rows,
    frequency_spectrum,
    probe_spectrum,
    wave_spectrum,
)

WAVES = """
phases = [n * x + vertical * z + 2.0 * n for n in horizontal]
return {'buoyancy': 1e-6 * sum(jnp.sin(p) for p in phases) + 0 * y}"""


@pytest.mark.slow
def test_internal_waves_lie_on_their_dispersion_relation(tmp_path):
    """omega = N k_h / |k| within the frequency resolution 2 pi / duration, along and against the
    axis, from a run that stops half-way and goes on: rows wait in memory, and none is lost or taken
    twice."""
    horizontal = [1, 2, 3, 5]
    vertical = 2
    frequency = 2.0
    duration = 40.0
    # Standing plane waves with the wavenumbers (n, 0, vertical), so small that they do not know one
    # another.
    start = python_flow(tmp_path, WAVES, horizontal=horizontal, vertical=vertical)
    model = {"kind": "boussinesq", "viscosity": 0, "diffusivity": 0, "stratification": frequency**2}
    places = {"points": [[0.5, 0, 0.3]], "lines": [{"axis": "x", "through": [0, 0, 0.3]}]}
    probes = {"every_steps": 1, "fields": ["buoyancy"], **places}
    for stop in (50, 160):
        run = flow(
            16,
            1,
            8,
            model=model,
            grid={"box": [2 * np.pi, 3.0, 4.0]},
            initial=start,
            time={"stop": duration, "dt": 0.25, "max_steps": stop},
            output={"directory": str(tmp_path / "run"), "probes": probes},
        )
        assert run.run() == 0
    series = open_run(tmp_path / "run").series("probes")
    assert_array_equal(series.step, np.arange(161))
    found = probe_spectrum(series, "line/buoyancy")
    assert isinstance(found, WaveSpectrum)
    resolution = 2 * np.pi / duration
    assert found.omega[1] == pytest.approx(resolution, rel=0.01)
    for n in horizontal:
        expected = frequency * n / np.hypot(n, vertical)
        for sign in (1, -1):
            column = found.energy[:, np.argmin(abs(found.k - sign * n))]
            assert abs(found.omega[np.argmax(column)] - expected) < resolution
    silent = found.energy[:, np.argmin(abs(found.k - 4))]
    # Waves of amplitude 1e-6 drive their sums and differences at this fraction of theirs.
    assert silent.max() < 1e-10 * found.energy.max()
    assert isinstance(probe_spectrum(series, "buoyancy"), FrequencySpectrum)
    names = {name.removesuffix(".png") for name in drawn(tmp_path / "run")}
    assert {
        "probes_buoyancy_frequency",
        "probes_line_buoyancy",
        "probes_line_buoyancy_frequency",
    } <= names


def test_the_sign_of_k_is_the_direction_of_travel():
    """And the sum over frequencies and wavenumbers is the mean square, here of whole periods: 1/2
    and 1/8."""
    time = np.arange(64) * 0.25
    x = np.arange(16) * (2 * np.pi / 16)
    omega = 2 * np.pi * 4 / 16
    values = (
        np.cos(3 * x - omega * time[:, None]) + 0.5 * np.cos(5 * x + 2 * omega * time[:, None]) + 7
    )
    found = wave_spectrum(time, values, x[1])
    steps = found.omega[1] * (found.k[1] - found.k[0])
    assert found.energy.sum() * steps == pytest.approx(1 / 2 + 1 / 8, rel=1e-12)
    alone = wave_spectrum(time, values[:, :1], x[1])  # one point has one wavenumber, in units of 1
    in_time = frequency_spectrum(time, values)
    assert in_time.energy.sum() * found.omega[1] == pytest.approx(1 / 2 + 1 / 8, rel=1e-12)
    at_first = frequency_spectrum(time, values[:, :1])
    assert_allclose(alone.energy[alone.omega > 0, 0].sum(), at_first.energy[1:].sum(), rtol=1e-9)
    for k, frequency, energy in ((3, omega, 1 / 2), (-5, 2 * omega, 1 / 8)):
        column = found.energy[:, found.k == k].ravel()
        assert column.sum() * steps == pytest.approx(energy, rel=1e-12)
        assert found.omega[np.argmax(column)] == pytest.approx(frequency)
    with pytest.raises(
        UserError, match=r"64 rows, at most 2 of them at even intervals.*align: true"
    ):
        wave_spectrum(time**1.1, values, x[1])
    # The longest sequence of even rows counts: here the last 40.
    uneven = np.concatenate([time[:24] - np.linspace(2, 1, 24) ** 3, time[24:]])
    assert even_rows(uneven) == slice(24, 64)
