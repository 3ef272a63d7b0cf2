"""Mixed structure functions: an exact case, and values shifted by whole cells."""

import numpy as np
import pytest
from flow_support import flow
from measuring import on_grid, row, with_values

N = 12
H = 2 * np.pi / N
R = (H, 3 * H, 0.7)
SCALAR = [{"name": "dye", "diffusivity": 0.01}]
MODELS = {
    "navier_stokes": {"viscosity": 0.01, "scalars": SCALAR},
    "mhd": {"viscosity": 0.01, "resistivity": 0.01, "scalars": SCALAR},
    "self_gravitating_gas": {"sound_speed": 1, "viscosity": 0.1},
}


def configured(kind, count=1):
    initial = {"kind": "random", "peak": 2} if kind != "self_gravitating_gas" else {"kind": "uniform"}
    if kind != "self_gravitating_gas":
        initial["scalars"] = {"dye": {"peak": 2}}
    if kind == "mhd":
        initial["magnetic"] = {"energy": 0.3, "seed": 4}
    output = {"structure_functions": {"every": 1, "separations": R, "orders": [3], "mixed": True}}
    model, time = {"kind": kind, **MODELS[kind]}, {"stop": 1.0, "max_dt": 0.1}
    return flow(N, N, N, initial=initial, model=model, time=time, count=count, output=output)


def row_of(simulation, **values):
    return row(simulation, "structure_functions", with_values(simulation, **values))


def test_the_flux_of_a_scalar_in_taylor_green_vortices_is_exact():
    """u = sin x cos y, theta = (1 + cos y)(sin x + sin 2x): <du dtheta^2> = 4 sin^2(r / 2) sin r along x."""
    x, y, z = np.meshgrid(*(np.arange(N) * H,) * 3, indexing="ij")
    velocity = np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y), 0 * z])
    dye = (1 + np.cos(y)) * (np.sin(x) + np.sin(2 * x))
    found = row_of(configured("navier_stokes"), velocity=velocity, dye=dye)
    r = np.asarray(R)
    np.testing.assert_allclose(found["mixed_dye"][0], 4 * np.sin(r / 2) ** 2 * np.sin(r), rtol=1e-12)
    np.testing.assert_allclose(found["mixed_dye"][2], 0, atol=1e-15)


@pytest.mark.spmd
def test_moments_are_those_of_shifted_values():
    simulation = configured("mhd", 3)
    found = row_of(simulation)
    u, b, dye = on_grid(simulation, "velocity", "magnetic", "dye")
    for e in range(3):
        for place, cells in ((0, 1), (1, 3)):
            du, db, dt = (np.roll(f, -cells, e - 3) - f for f in (u, b, dye))
            plus, minus = du + db, du - db
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
    found = row_of(configured("self_gravitating_gas"), density=density, momentum=density * velocity)
    du = np.roll(velocity[0], -3, 1) - velocity[0]
    assert found["transverse_3"][1, 1] == pytest.approx((du**3).mean() / 2, abs=1e-13)
    assert set(found) == {"longitudinal_3", "transverse_3", "mixed_velocity"}
