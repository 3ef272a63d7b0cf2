"""Flows whose solution is known, in boxes and on grids of any shape."""

import numpy as np
import pytest
from flow_support import EPSILON, flow, last, marched, measured, order, python_flow, values


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    # 50 steps, in each of which a value is rounded some 20 times; the nonlinear term of a Beltrami flow is
    # zero but for round-off of u x omega, which grows with |u|^2 = 7 and is not amplified in this time.
    [("double", 1000 * EPSILON), ("single", 1000 * float(np.finfo(np.float32).eps))],
)
@pytest.mark.parametrize("shape", [(16, 16, 16), (11, 13, 7)])
def test_an_abc_flow_only_decays(shape, precision, tolerance):
    """curl u = k u in a cube, k = 2 pi / L, so that u(t) = u(0) exp(-nu k^2 t), exactly by the integrating factor."""
    length, viscosity, dt, steps = 3.0, 0.05, 0.02, 50
    k = 2 * np.pi / length
    simulation = flow(
        *shape,
        initial={"kind": "abc", "A": 1.5, "B": 0.7, "C": -1.0},
        viscosity=viscosity,
        grid={"box": [length] * 3},
        precision=precision,
    )
    start, end = (
        values(simulation, simulation.state),
        values(simulation, last(marched(simulation, dt, steps))),
    )
    decay = np.exp(-viscosity * k**2 * dt * steps)
    assert abs(end - decay * start).max() < tolerance * abs(start).max()
    found = measured(simulation, simulation.state)
    # <u^2> = A^2 + B^2 + C^2 and omega = k u
    energy = 0.5 * (1.5**2 + 0.7**2 + 1.0)
    assert found["kinetic_energy"] == pytest.approx(energy, rel=tolerance)
    assert found["enstrophy"] == pytest.approx(k**2 * energy, rel=tolerance)
    assert found["helicity"] == pytest.approx(2 * k * energy, rel=tolerance)
    assert found["dissipation"] == pytest.approx(2 * viscosity * k**2 * energy, rel=tolerance)


# A vortex sheet pattern in one plane, carried by a uniform wind: with X_i = 2 pi x_i / L_i and the wind U,
# u = U + exp(-nu (ka^2 + kb^2) t) w(x - U t), w = (sin Xa cos Xb, -(Lb / La) cos Xa sin Xb) is an exact solution in
# any box (2-D Taylor-Green, Galilean invariance), and every term of the equation takes part.
MOVING = """
box, wind, time, damping = jnp.array(box), jnp.array(wind), time, damping
position = [x, y, z]
X = [2 * jnp.pi * (position[i] - wind[i] * time) / box[i] for i in range(3)]
zero = 0 * (x + y + z)
u = [wind[i] + zero for i in range(3)]
a, b = plane
u[a] = u[a] + damping * jnp.sin(X[a]) * jnp.cos(X[b])
u[b] = u[b] - damping * box[b] / box[a] * jnp.cos(X[a]) * jnp.sin(X[b])
return {"velocity": tuple(u)}
"""


def moving_vortex(folder, shape, box, plane, *, time=0.0, viscosity=0.05, **options):
    rate = viscosity * sum((2 * np.pi / box[i]) ** 2 for i in plane)
    wind = [0.7, -0.4, 0.9]
    initial = python_flow(
        folder, MOVING, box=box, wind=wind, time=time, damping=float(np.exp(-rate * time)), plane=plane
    )
    return flow(*shape, initial=initial, viscosity=viscosity, grid={"box": box}, **options)


@pytest.mark.parametrize(
    ("shape", "box", "plane", "count"),
    [
        ((12, 15, 7), [2.0, 3.5, 1.0], [0, 1], 1),
        ((7, 11, 13), [1.0, 6.0, 2.5], [1, 2], 3),
        ((8, 9, 16), [4.0, 1.0, 3.0], [2, 0], 2),
    ],
)
def test_a_vortex_in_the_wind(tmp_path, shape, box, plane, count):
    end = 0.4
    simulation = moving_vortex(tmp_path, shape, box, plane, count=count)
    exact = moving_vortex(tmp_path, shape, box, plane, count=count, time=end)
    expected = values(exact, exact.state)
    errors = [
        abs(values(simulation, last(marched(simulation, end / n, n))) - expected).max() for n in (10, 20, 40)
    ]
    # Of order 4, from (k U dt)^5 / 120 per step on; the last error comes near to nothing else than that.
    assert all(3.8 < found < 4.3 for found in order(errors)), errors
    fastest = max(abs(2 * np.pi * u / length) for u, length in zip((0.7, 0.4, 0.9), box, strict=True))
    assert errors[-1] < 10 * 40 * (3 * fastest * end / 40) ** 5 / 120


def test_without_dealiasing(tmp_path):
    """`dealias: none` holds the modes up to (N - 1) // 2; this flow has no more than the first two."""
    shape, box, plane, end = (8, 10, 7), [2.0, 3.5, 1.0], [0, 1], 0.4
    simulation = moving_vortex(tmp_path, shape, box, plane)
    every = flow(
        *shape, initial=dict(simulation.config.initial), viscosity=0.05, grid={"box": box, "dealias": "none"}
    )
    assert every.grid.kept == (3, 4, 3) and simulation.grid.kept == (2, 3, 2)
    found, expected = (values(s, last(marched(s, end / 40, 40))) for s in (every, simulation))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1000 * EPSILON)


def test_one_plane_of_points(tmp_path):
    """A grid of one point in z is two-dimensional flow."""
    end, shape, box, plane = 0.4, (12, 9, 1), [2.0, 3.5, 1.0], [0, 1]
    simulation = moving_vortex(tmp_path, shape, box, plane)
    exact = moving_vortex(tmp_path, shape, box, plane, time=end)
    found = values(simulation, last(marched(simulation, end / 40, 40)))
    assert abs(found - values(exact, exact.state)).max() < 1e-6
