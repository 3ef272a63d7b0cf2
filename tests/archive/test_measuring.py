"""Every kind of series through a run, and after a restart from its checkpoint."""

import numpy as np
import pytest
from flow_support import flow

from simulator import open_run
from simulator.show import plot_run

EVERY = {"every_steps": 2}


def configured(folder, **changes):
    """A flow of four steps, with every kind of series."""
    blocks = {
        "viscosity": 0.05,
        "initial": {"kind": "random", "peak": 2},
        "forcing": {"kind": "ornstein_uhlenbeck", "rate": 0.1, "correlation_time": 0.2},
        "time": {"stop": 1.0, "dt": 0.05, "max_steps": 4},
        "output": {
            "directory": str(folder),
            "diagnostics": EVERY,
            "spectra": {"axis": "y", **EVERY},
            "transfer": EVERY,
            "structure_functions": {"separations": [0.5, 1.0], "orders": [2, 3], **EVERY},
            "histograms": {"bins": 40, **EVERY},
        },
    }
    return flow(8, 8, 8, count=2, **blocks | changes)


WAVES = {
    "model": {"kind": "schrodinger_poisson"},
    "initial": {"kind": "random", "peak": 2, "fields": {"psi": {"variance": 0.01}}},
    "forcing": None,
    "output": {"histograms": {"bins": 20, **EVERY}},
}
REST = {
    "model": {"kind": "mhd", "viscosity": 0.05, "resistivity": 0.05},
    "initial": {"kind": "uniform"},
    "forcing": {"kind": "kolmogorov", "amplitude": 0.1},
    "output": {"statistics": EVERY},
}


@pytest.mark.parametrize("case", [pytest.param(WAVES, marks=pytest.mark.slow), REST], ids=["waves", "ratios at rest"])
def test_a_run_with_undefined_values_continues(case, tmp_path):
    output = {"directory": str(tmp_path / "run"), "diagnostics": EVERY, **case["output"]}
    short, whole = ({"stop": 1.0, "dt": 0.05, "max_steps": n} for n in (2, 4))
    for time in (short, whole):
        assert configured(tmp_path, **case | {"output": output, "time": time}).run() == 0
    (name,) = case["output"]
    np.testing.assert_array_equal(open_run(tmp_path / "run").series(name).step, [0, 2, 4])


@pytest.mark.spmd
def test_all_kinds_through_a_run_and_its_continuation(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert configured(whole).run() == 0
    assert configured(parts, time={"stop": 1.0, "dt": 0.05, "max_steps": 2}).run() == 0
    assert configured(parts).run() == 0
    one, two = open_run(whole), open_run(parts)
    for kind in ("spectra", "transfer", "structure_functions", "histograms"):
        series, other = one.series(kind), two.series(kind)
        np.testing.assert_array_equal(series.step, [0, 2, 4])
        assert series.variables == other.variables
        for name in series:
            np.testing.assert_array_equal(series[name], other[name], err_msg=name)
    k = one.spectra.coordinates["k"]
    shape = k**4 * np.exp(-2 * (k / 2) ** 2)
    np.testing.assert_allclose(one.spectra["kinetic_energy"][0], 0.5 * shape / shape.sum(), rtol=1e-12)
    for kind in ("spectra", "transfer"):
        shells = two.series(kind).coordinates
        np.testing.assert_array_equal(shells["modes"], [1, 18, 62, 44])  # of the 5^3 modes of 8^3 points
        assert shells["k_mean"][:2] == pytest.approx([0, (6 + 12 * 2**0.5) / 18])
    for name, column in one.diagnostics.items():
        np.testing.assert_array_equal(column, two.diagnostics[name], err_msg=name)
    assert abs(one.diagnostics["budget_residual"]).max() < 1e-2
    drawn = {path.name for path in plot_run(whole).files}
    names = (
        "transfer_kinetic_energy",
        "structure_functions",
        "histogram_vorticity",
        "spectrum_directional_kinetic_energy",
    )
    assert drawn >= {f"{name}.png" for name in names}
