"""Transfers of energy between modes close what theory closes; mixed structure functions are those of
values shifted by whole cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, python_flow
from measuring import on_grid, row, with_values
from numpy.testing import assert_allclose

from simulator.physics.models import outputs
from simulator.physics.models.tendency import tendency
from simulator.plugins.statistics.transfer import band_edges

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


def test_both_signs_and_rows_add_up_to_the_transfer_and_what_one_gains_another_loses(
    turbulent, advective
):
    found = row(turbulent, "helicity")
    spectrum = np.asarray(turbulent.spectra(turbulent.state)["kinetic_energy"])
    both = found["energy/positive"] + found["energy/negative"]
    assert_allclose(both, spectrum, rtol=1e-12, atol=1e-18)
    for kind in ("transfer", "flux"):
        expected = advective[f"{kind}/kinetic_energy"]
        both = found[f"{kind}/positive"] + found[f"{kind}/negative"]
        assert_allclose(both, expected, rtol=0, atol=1e-12 * abs(expected).max())
    columns = jax.device_get(turbulent.diagnostics(turbulent.state))
    assert found["helicity"].sum() == pytest.approx(float(columns["helicity"]), rel=1e-12)
    found = row(turbulent, "shell_to_shell")["transfer"]
    layout = turbulent.transform.layout
    edges = band_edges(layout.shells, 2)
    whole = advective["transfer/kinetic_energy"] * layout.shell_width
    expected = np.add.reduceat(whole, edges[:-1])
    assert_allclose(found.sum(1), expected, rtol=0, atol=1e-12 * abs(found).max())
    assert_allclose(found, -found.T, rtol=0, atol=1e-12 * abs(found).max())
    assert edges[-1] == layout.shells and (np.diff(edges) > 0).all()


WAVES = """
return {
    "density": 1 + 0.05 * jnp.cos(x + 0.2) * jnp.sin(2 * y) + 0.04 * jnp.sin(x - z),
    "velocity": (
        jnp.sin(y + 0.3) + 0.2 * jnp.cos(x - z + 0.1),
        jnp.sin(z + x) + 0.6 * jnp.cos(x - 0.9) + 0 * y,
        0.5 * jnp.cos(y - x + 0.7) + 0.4 * jnp.sin(y) + 0 * z,
    ),
}"""


@pytest.mark.parametrize("gamma, count", [(1, 1), (1.5, 3)])
def test_transfers_of_a_gas_are_the_change_of_the_spectrum(tmp_path, gamma, count):
    """Without viscosity, shell by shell; on this grid truncation takes less than round-off adds."""
    model = {"kind": "self_gravitating_gas", "sound_speed": 1.2, "gravitational_constant": 0.5}
    model["polytropic_exponent"] = gamma
    time = {"stop": 1.0, "max_dt": 0.1}
    output = {"transfer": {"every": 1}}
    initial = python_flow(tmp_path, WAVES)
    simulation = flow(
        18, 18, 18, initial=initial, model=model, time=time, count=count, output=output
    )
    model = simulation.model
    layout = simulation.transform.layout
    fields = simulation.state.fields
    found = {name: v * layout.shell_width for name, v in row(simulation, "transfer").items()}

    @jax.jit
    def change(fields):
        rates, _ = tendency(model, fields, jnp.float64(0))
        return jax.jvp(lambda f: outputs.spectra(model, f)["kinetic_energy"], (fields,), (rates,))[
            1
        ]

    expected = np.asarray(change(fields)) * layout.shell_width
    total = sum(found[f"transfer/{name}"] for name in ("kinetic_energy", "pressure", "gravity"))
    size = abs(found["transfer/kinetic_energy"]).max()
    assert_allclose(total, expected, rtol=0, atol=1e-12 * size)
    assert abs(found["transfer/kinetic_energy"].sum()) < 1e-13 * size
    assert min(abs(found[f"transfer/{n}"]).max() for n in ("pressure", "gravity")) > 1e-3 * size


N = 12
H = 2 * np.pi / N
R = (H, 3 * H, 0.7)
SCALAR = [{"name": "dye", "diffusivity": 0.01}]
MAGNETIC = {"kind": "mhd", "viscosity": 0.01, "resistivity": 0.01, "scalars": SCALAR}
GAS = {"kind": "self_gravitating_gas", "sound_speed": 1, "viscosity": 0.1}


def configured(model, initial, count=1):
    output = {"structure_functions": {"every": 1, "separations": R, "orders": [3], "mixed": True}}
    time = {"stop": 1.0, "max_dt": 0.1}
    return flow(N, N, N, initial=initial, model=model, time=time, count=count, output=output)


@pytest.mark.spmd
def test_moments_are_those_of_shifted_values():
    others = {"scalars": {"dye": {"peak": 2}}, "magnetic": {"energy": 0.3, "seed": 4}}
    simulation = configured(MAGNETIC, {"kind": "random", "peak": 2, **others}, 3)
    found = row(simulation, "structure_functions")
    u, b, dye = on_grid(simulation, "velocity", "magnetic", "dye")
    for e in range(3):
        for place, cells in ((0, 1), (1, 3)):
            du, db, dt = (np.roll(f, -cells, e - 3) - f for f in (u, b, dye))
            plus = du + db
            minus = du - db
            expected = {
                "longitudinal_3": du[e] ** 3,
                "mixed_velocity": du[e] * (du**2).sum(0),
                "mixed_dye": du[e] * dt**2,
                "mixed_elsasser_plus": minus[e] * (plus**2).sum(0),
                "mixed_elsasser_minus": plus[e] * (minus**2).sum(0),
            }
            for name, values in expected.items():
                assert found[name][e, place] == pytest.approx(values.mean(), abs=1e-14), name


def test_gas_has_those_of_momentum_over_density():
    x = np.arange(N) * H
    density = np.broadcast_to((2 + np.cos(x))[:, None, None], (N, N, N))
    velocity = np.zeros((3, N, N, N))
    velocity[0] = np.sin(x)[None, :, None] + np.cos(2 * x)[None, :, None]
    gas = configured(GAS, {"kind": "uniform"})
    found = row(
        gas, "structure_functions", with_values(gas, density=density, momentum=density * velocity)
    )
    du = np.roll(velocity[0], -3, 1) - velocity[0]
    assert found["transverse_3"][1, 1] == pytest.approx((du**3).mean() / 2, abs=1e-13)
    assert set(found) == {"longitudinal_3", "transverse_3", "mixed_velocity"}
