"""Probes: exact values anywhere, frequent rows through runs and restarts, and spectra in
frequency."""

from pathlib import Path

import numpy as np
import pytest
from flow_support import flow
from numpy.testing import assert_allclose

from simulator.archive.series_recorder import measured_series

EQUATION = Path(__file__).parents[2] / "configs" / "equations" / "turbulence_2d.py"
BOX = (2 * np.pi, 3.0, 4.0)
SHAPE = (8, 9, 10)
DYE = {
    "kind": "navier_stokes",
    "viscosity": 0.05,
    "scalars": [{"name": "dye", "diffusivity": 0.01}],
}


def configured(count=1, probes=None, **blocks):
    usual = {
        "model": DYE,
        "grid": {"box": list(BOX)},
        "initial": {"kind": "random", "peak": 2, "scalars": {"dye": {"peak": 2}}},
        "time": {"stop": 1.0, "dt": 0.05},
        "output": {"probes": {"every_steps": 1, **(probes or {})}},
    }
    return flow(*SHAPE, count=count, **usual | blocks)


@pytest.mark.long
@pytest.mark.spmd
def test_values_are_those_of_the_fourier_series():
    """At grid points those of the inverse transform, on lines too, and shifted copies of a
    coordinate are the same point; any other point against the sum over all modes. Round-off of some
    hundred terms."""
    spacing = [box / n for box, n in zip(BOX, SHAPE, strict=True)]
    on_grid = [spacing[0] * 3, spacing[1] * 7, spacing[2] * 9]
    others = ([0.1 * i, 0, 0] for i in range(20))
    points = [on_grid, [0.3, 1.1, 2.7], [0.3 + BOX[0], 1.1 - BOX[1], 2.7], *others]
    lines = [{"axis": axis, "through": on_grid, "name": f"along_{axis}"} for axis in "xyz"]
    simulation = configured(4, {"points": points, "lines": lines})
    measured = measured_series(simulation)["probes"]
    state = simulation.state
    row = measured.compute(state)
    assert row.keys() == measured.variables.keys()
    for name in ("velocity_x", "velocity_y", "velocity_z", "dye"):
        field, _, component = name.partition("_")
        grid = np.asarray(simulation.field_program(field)(state))[
            ..., : SHAPE[0], : SHAPE[1], : SHAPE[2]
        ]
        values = grid["xyz".index(component)] if component else grid
        found = np.asarray(row[name])
        assert found[0] == pytest.approx(values[3, 7, 9], abs=1e-13)
        assert found[1] == pytest.approx(found[2], abs=1e-13)
        modes = np.fft.fftn(values) / values.size
        k = [2 * np.pi * np.fft.fftfreq(n, h) for n, h in zip(SHAPE, spacing, strict=True)]
        phases = [np.exp(1j * k[i] * points[1][i]) for i in range(3)]
        expected = np.einsum("xyz,x,y,z->", modes, *phases)
        assert found[1] == pytest.approx(expected.real, abs=1e-13)
        for axis, cut in (("x", values[:, 7, 9]), ("y", values[3, :, 9]), ("z", values[3, 7, :])):
            assert_allclose(row[f"along_{axis}/{name}"], cut, atol=1e-13)


def test_a_plane_has_two_axes():
    model = {
        "kind": "python",
        "path": str(EQUATION),
        "equation": "Vorticity",
        "parameters": {"viscosity": 1e-3},
    }
    simulation = configured(
        probes={"points": [[1.0, 2.0]], "lines": [{"axis": "y", "through": [0.5, 0]}]},
        model=model,
        grid={"shape": [8, 10], "box": [2, 4]},
        initial={"kind": "random", "fields": {"vorticity": {"peak": 2}}},
    )
    measured = measured_series(simulation)["probes"]
    grid = simulation.transform.physical.as_seen(
        simulation.field_program("vorticity")(simulation.state)
    )
    row = measured.compute(simulation.state)
    assert_allclose(row["line/vorticity"], np.asarray(grid)[2, :10], atol=1e-13)
    assert row["vorticity"][0] == pytest.approx(float(grid[4, 5]), abs=1e-13)
    assert measured.coordinates["line_y"].tolist() == pytest.approx(np.arange(10) * 0.4)
