"""Helical parts and the transfer from shell to shell close what theory closes."""

import jax
import numpy as np
import pytest

from simulator import Simulation, load_config
from simulator.measure.helicity import helical
from simulator.measure.shell_to_shell import band_edges, shell_to_shell
from simulator.measure.transfer import transfer

CASE = """\
name: case
model: {{kind: navier_stokes, viscosity: 0.02}}
grid: {{shape: [16, 12, 14]}}
initial: {initial}
time: {{stop: 1.0, dt: 0.02}}
devices: {{platform: cpu, count: 2}}
"""
RANDOM = "{kind: random, peak: 3, energy: 0.5, seed: 1}"


def flow(tmp_path_factory, initial):
    path = tmp_path_factory.mktemp("flow") / "run.yaml"
    path.write_text(CASE.format(initial=initial))
    return Simulation(load_config(path))


@pytest.fixture(scope="module")
def turbulent(tmp_path_factory):
    return flow(tmp_path_factory, RANDOM)


def computed(measured, simulation):
    return {name: np.asarray(v) for name, v in jax.jit(measured.compute)(simulation.state).items()}


def advective(simulation):
    return computed(transfer(simulation.transform.layout, simulation.model, ("kinetic_energy",)), simulation)


def test_an_abc_flow_has_one_sign(tmp_path_factory):
    """curl u = u: everything is positive, to round-off (whose square is 1e-32 of the energy)."""
    simulation = flow(tmp_path_factory, "{kind: abc}")
    found = computed(helical(simulation.transform), simulation)
    assert found["energy/positive"].sum() == pytest.approx(1.5, rel=1e-13)
    assert found["energy/negative"].sum() < 1e-28
    assert found["helicity"].sum() == pytest.approx(3.0, rel=1e-13)


def test_both_signs_add_up(turbulent):
    found, whole = computed(helical(turbulent.transform), turbulent), advective(turbulent)
    spectrum = np.asarray(turbulent.spectra(turbulent.state)["kinetic_energy"])
    np.testing.assert_allclose(
        found["energy/positive"] + found["energy/negative"], spectrum, rtol=1e-12, atol=1e-18
    )
    for kind in ("transfer", "flux"):
        expected = whole[f"{kind}/kinetic_energy"]
        both = found[f"{kind}/positive"] + found[f"{kind}/negative"]
        np.testing.assert_allclose(both, expected, rtol=0, atol=1e-12 * abs(expected).max())
    row = jax.device_get(turbulent.diagnostics(turbulent.state))
    assert found["helicity"].sum() == pytest.approx(float(row["helicity"]), rel=1e-12)


def test_rows_add_up_to_the_transfer_and_what_one_gains_another_loses(turbulent):
    found = computed(shell_to_shell(turbulent.transform, 2), turbulent)["transfer"]
    layout, edges = turbulent.transform.layout, band_edges(turbulent.transform, 2)
    whole = advective(turbulent)["transfer/kinetic_energy"] * layout.shell_width
    expected = np.add.reduceat(whole, edges[:-1])
    np.testing.assert_allclose(found.sum(1), expected, rtol=0, atol=1e-12 * abs(found).max())
    np.testing.assert_allclose(found, -found.T, rtol=0, atol=1e-12 * abs(found).max())
    assert edges[-1] == layout.shells and (np.diff(edges) > 0).all()
