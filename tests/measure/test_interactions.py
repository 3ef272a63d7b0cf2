"""Helical parts and the transfer from shell to shell close what theory closes."""

import jax
import numpy as np
import pytest
from flow_support import flow
from measuring import row

from simulator.measure.transfer import band_edges

OUTPUT = {kind: {"every": 1} for kind in ("transfer", "helicity", "shell_to_shell")}


@pytest.fixture(scope="module")
def turbulent():
    initial = {"kind": "random", "peak": 3, "energy": 0.5, "seed": 1}
    return flow(16, 12, 14, initial=initial, viscosity=0.02, count=2, output=OUTPUT)


@pytest.fixture(scope="module")
def advective(turbulent):
    return row(turbulent, "transfer")


def test_an_abc_flow_has_one_sign():
    """curl u = u: everything is positive, to round-off (whose square is 1e-32 of the energy)."""
    found = row(flow(8, 8, 8, initial={"kind": "abc"}, output=OUTPUT), "helicity")
    assert found["energy/positive"].sum() == pytest.approx(1.5, rel=1e-13)
    assert found["energy/negative"].sum() < 1e-28
    assert found["helicity"].sum() == pytest.approx(3.0, rel=1e-13)


def test_both_signs_add_up(turbulent, advective):
    found = row(turbulent, "helicity")
    spectrum = np.asarray(turbulent.spectra(turbulent.state)["kinetic_energy"])
    both = found["energy/positive"] + found["energy/negative"]
    np.testing.assert_allclose(both, spectrum, rtol=1e-12, atol=1e-18)
    for kind in ("transfer", "flux"):
        expected = advective[f"{kind}/kinetic_energy"]
        both = found[f"{kind}/positive"] + found[f"{kind}/negative"]
        np.testing.assert_allclose(both, expected, rtol=0, atol=1e-12 * abs(expected).max())
    columns = jax.device_get(turbulent.diagnostics(turbulent.state))
    assert found["helicity"].sum() == pytest.approx(float(columns["helicity"]), rel=1e-12)


def test_rows_add_up_to_the_transfer_and_what_one_gains_another_loses(turbulent, advective):
    found, layout = row(turbulent, "shell_to_shell")["transfer"], turbulent.transform.layout
    edges, whole = band_edges(layout.shells, 2), advective["transfer/kinetic_energy"] * layout.shell_width
    expected = np.add.reduceat(whole, edges[:-1])
    np.testing.assert_allclose(found.sum(1), expected, rtol=0, atol=1e-12 * abs(found).max())
    np.testing.assert_allclose(found, -found.T, rtol=0, atol=1e-12 * abs(found).max())
    assert edges[-1] == layout.shells and (np.diff(edges) > 0).all()
