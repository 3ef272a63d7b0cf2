"""Flows whose solution is known, in boxes and on grids of any shape, and the order of the integrator
where every mode interacts."""

import numpy as np
import pytest
from flow_support import EPSILON, flow, last, marched, measured, order, python_flow, values


@pytest.mark.parametrize(
    "shape, precision, tolerance",
    # 50 steps, in each of which a value is rounded some 20 times; the nonlinear term of a Beltrami
    # flow is zero but for round-off of u x omega, which grows with |u|^2 = 7 and is not amplified
    # in this time.
    [
        ((11, 13, 7), "double", 1000 * EPSILON),
        ((16, 16, 16), "single", 1000 * float(np.finfo(np.float32).eps)),
    ],
)
def test_an_abc_flow_only_decays(shape, precision, tolerance):
    """curl u = k u, k = 2 pi / L: u(t) = u(0) exp(-(nu k^2 + nu_2 k^4 + drag) t) by the integrating
    factor."""
    length = 3.0
    drag = 0.3
    dt = 0.02
    steps = 50
    k = 2 * np.pi / length
    abc = {"kind": "abc", "A": 1.5, "B": 0.7, "C": -1.0}
    model = {
        "kind": "navier_stokes",
        "viscosity": 0.05,
        "drag": {"coefficient": drag, "below": "2*pi/3"},
    }
    model["hyperviscosity"] = {"order": 2, "coefficient": 0.002}
    rate = 0.05 * k**2 + 0.002 * k**4 + drag
    made = flow(*shape, initial=abc, model=model, grid={"box": [length] * 3}, precision=precision)
    start, end = (values(made, state) for state in (made.state, last(marched(made, dt, steps))))
    assert abs(end - np.exp(-rate * dt * steps) * start).max() < tolerance * abs(start).max()
    found = measured(made)
    # <u^2> = A^2 + B^2 + C^2 and omega = k u
    energy = 0.5 * (1.5**2 + 0.7**2 + 1.0)
    assert found["kinetic_energy"] == pytest.approx(energy, rel=tolerance)
    assert found["enstrophy"] == pytest.approx(k**2 * energy, rel=tolerance)
    assert found["helicity"] == pytest.approx(2 * k * energy, rel=tolerance)
    assert found["dissipation"] == pytest.approx(2 * rate * energy, rel=tolerance)
    assert found["drag_dissipation"] == pytest.approx(2 * drag * energy, rel=max(tolerance, 1e-12))


# A vortex sheet pattern in one plane, carried by a uniform wind: with X_i = 2 pi x_i / L_i and the
# wind U, u = U + exp(-nu (ka^2 + kb^2) t) w(x - U t), w = (sin Xa cos Xb, -(Lb / La) cos Xa sin Xb)
# is an exact solution in any box (2-D Taylor-Green, Galilean invariance), and every term of the
# equation takes part.
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


def moving_vortex(
    folder, shape, box, plane, *, time=0.0, viscosity=0.05, dealias="two_thirds", **options
):
    rate = viscosity * sum((2 * np.pi / box[i]) ** 2 for i in plane)
    given = {"box": box, "wind": [0.7, -0.4, 0.9], "time": time, "plane": plane}
    initial = python_flow(folder, MOVING, **given, damping=float(np.exp(-rate * time)))
    return flow(
        *shape,
        initial=initial,
        viscosity=viscosity,
        grid={"box": box, "dealias": dealias},
        **options,
    )


@pytest.mark.parametrize(
    "shape, box, plane, count",
    [((7, 11, 13), [1.0, 6.0, 2.5], [1, 2], 3), ((8, 9, 16), [4.0, 1.0, 3.0], [2, 0], 2)],
)
def test_a_vortex_in_the_wind(tmp_path, shape, box, plane, count):
    end = 0.4
    simulation = moving_vortex(tmp_path, shape, box, plane, count=count)
    exact = moving_vortex(tmp_path, shape, box, plane, count=count, time=end)
    expected = values(exact, exact.state)
    ends = [values(simulation, last(marched(simulation, end / n, n))) for n in (10, 20, 40)]
    errors = [abs(found - expected).max() for found in ends]
    # Of order 4, from (k U dt)^5 / 120 per step on; the last error comes near to nothing else than
    # that.
    assert all(3.8 < found < 4.3 for found in order(errors)), errors
    fastest = max(
        abs(2 * np.pi * u / length) for u, length in zip((0.7, 0.4, 0.9), box, strict=True)
    )
    assert errors[-1] < 10 * 40 * (3 * fastest * end / 40) ** 5 / 120


def test_without_dealiasing(tmp_path):
    """`dealias: none` holds the modes up to (N - 1) // 2; this flow has no more than the first
    two."""
    given = (8, 10, 7), [2.0, 3.5, 1.0], [0, 1]
    usual, every = (moving_vortex(tmp_path, *given, dealias=d) for d in ("two_thirds", "none"))
    assert every.grid.kept == (3, 4, 3) and usual.grid.kept == (2, 3, 2)
    found, expected = (values(s, last(marched(s, 0.01, 40))) for s in (every, usual))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1000 * EPSILON)


def test_rk4_is_of_order_4_with_both_kinds_of_dealiasing():
    """Of modes up to 5 that are all excited, for half a turnover time. The reference has a quarter
    of the smallest dt: its error is 1/256 of that one's, 0.006 of an order. Spherical dealiasing
    takes both shifts in every stage, so that no aliasing error is left to cancel between stages.
    Its modes reach sqrt(2) times as far as those of two_thirds: (k u dt)^5 of the fastest is 2^2.5
    times as large."""
    found = {}
    initial = {"kind": "random", "peak": 3, "energy": 0.5, "seed": 3}
    for dealias in ("two_thirds", "spherical"):
        made = flow(16, 16, 16, initial=initial, viscosity=0.02, grid={"dealias": dealias})
        *ends, reference = (values(made, last(marched(made, 0.5 / n, n))) for n in (8, 16, 32, 128))
        found[dealias] = [abs(end - reference).max() for end in ends]
        assert all(3.9 < o < 4.1 for o in order(found[dealias])), found
    assert found["spherical"][-1] < 2**2.5 * found["two_thirds"][-1]
