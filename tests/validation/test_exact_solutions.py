"""Flows whose solution is known, in boxes and on grids of any shape; the order of the integrator
where every mode interacts; and waves, whose frequencies and growth rates are right to 1e-6.
`simulator validate` has inertial, Alfven and internal waves one by one.

RK4 turns a wave by omega dt (1 - (omega dt)^4 / 120): with omega dt < 0.06 the frequency is right
to 1.1e-7, and the amplitude to (omega dt)^5 / 144 a step relative to omega dt, 9e-8."""

import numpy as np
import pytest
from flow_support import EPSILON, flow, last, marched, measured, order, python_flow, values
from validation_cases.case import simulation, with_fields
from validation_cases.waves import BOX, INTEGERS, growth, plane_wave


@pytest.mark.parametrize(
    ("shape", "precision", "tolerance"),
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
    ("shape", "box", "plane", "count"),
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


TURNS = 40
K = 2 * np.pi * np.array(INTEGERS) / np.array(BOX)


def waved(model, means=None, **amplitudes):
    """A simulation of a model, and its state with a plane wave in some fields and their means."""
    sim = simulation(model, {"kind": "random", "peak": 2}, (9, 10, 12), grid={"box": BOX})
    means = means or {}
    fields = {name: plane_wave(sim, a, means.get(name, 0.0)) for name, a in amplitudes.items()}
    return sim, with_fields(sim, **fields)


@pytest.mark.parametrize("sign", [1, -1])
def test_magneto_coriolis_waves(sign):
    """A helical wave of flow and field under rotation and a mean field: omega^2 - (2 Omega . k /
    |k|) omega - (B . k)^2 = 0 with b = u (B . k) / omega (Lehnert 1954, Astrophys. J. 119, 647),
    here damped alike by viscosity and resistivity with their hyper-terms. Both parts are Beltrami
    fields, so that its amplitude does not matter."""
    rotation = np.array([0.4, -1.0, 2.0])
    mean = np.array([0.5, -0.8, 0.3])
    size = np.linalg.norm(K)
    direction = np.array([1.0, 0.3, -0.2])
    a = direction - K * (K @ direction) / (K @ K)
    helical = a - 1j * np.cross(a, K) / size
    turning = 2 * rotation @ K / size
    alfven = mean @ K
    omega = turning / 2 + sign * np.hypot(turning / 2, alfven)
    hyper = {"order": 2, "coefficient": 1e-4}
    model = {"kind": "mhd", "viscosity": 0.003, "resistivity": 0.003, "rotation": rotation.tolist()}
    model |= {"hyperviscosity": hyper, "hyperresistivity": hyper}
    sim, state = waved(
        model, {"magnetic": mean}, velocity=helical, magnetic=helical * alfven / omega
    )
    for name in ("velocity", "magnetic"):
        sigma, *_ = growth(sim, name, state, 0.02 / max(abs(turning), abs(omega)), TURNS)
        assert sigma.imag == pytest.approx(omega, rel=1e-6)
        assert sigma.real == pytest.approx(-0.003 * size**2 - 1e-4 * size**4, rel=1e-6)


@pytest.mark.parametrize(("square", "rotation"), [(4.0, (0.3, 0.0, 0.8)), (-2.0, (0.0, 0.0, 0.0))])
def test_internal_waves_and_convection(square, rotation):
    """A plane wave in a stratified, rotating fluid: omega^2 = (N^2 |k x e|^2 + 4 (Omega . k)^2) /
    k^2, an exact solution at any amplitude (u and k are perpendicular, so nothing is advected). For
    N^2 < 0 it grows or decays. Viscosity = diffusivity damps all of it alike."""
    gravity = np.array([0.2, 0.5, -1.0])
    viscosity = 0.002
    e = -gravity / np.linalg.norm(gravity)
    turning = np.array(rotation)
    # a' = M a for a = (u, b): Coriolis and buoyancy projected across k.
    project = np.eye(3) - np.outer(K, K) / (K @ K)
    coriolis = -2 * np.cross(turning, np.eye(3)).T
    matrix = np.zeros((4, 4))
    matrix[:3, :3], matrix[:3, 3], matrix[3, :3] = (
        project @ coriolis @ project,
        project @ e,
        -square * e @ project,
    )
    values, vectors = np.linalg.eig(matrix)
    expected = (square * (K @ K - (K @ e) ** 2) + 4 * (turning @ K) ** 2) / (K @ K)
    number = int(np.argmax(values.imag if square > 0 else values.real))
    assert -(values[number] ** 2) == pytest.approx(expected, rel=1e-12)
    wave = vectors[:, number] * np.exp(0.3j)
    model = {
        "kind": "boussinesq",
        "viscosity": viscosity,
        "diffusivity": viscosity,
        "stratification": square,
    }
    model |= {"gravity": gravity.tolist(), "rotation": list(rotation)}
    sim, state = waved(model, velocity=wave[:3], buoyancy=wave[3])
    for name in ("velocity", "buoyancy"):
        sigma, *_ = growth(sim, name, state, 0.05 / abs(expected) ** 0.5, TURNS)
        assert sigma + viscosity * (K @ K) == pytest.approx(values[number], rel=1e-6)


def test_a_scalar_diffuses_while_it_is_carried():
    """In a uniform wind U: theta(k, t) = theta(k, 0) exp(-D k^2 t - i k . U t), and a mean gradient
    G adds -U . G t to the mean. The wind's own mode and its scalar's mean are exact as well."""
    wind = np.array([0.3, 0.2, -0.4])
    slope = [0.5, 0.0, 2.0]
    heat = {"name": "heat", "diffusivity": 0.01, "mean_gradient": slope}
    model = {
        "kind": "navier_stokes",
        "viscosity": 0.1,
        "scalars": [{"name": "dye", "diffusivity": 0.05}, heat],
    }
    means = {"velocity": wind, "dye": 3.0}
    sim, state = waved(model, means, velocity=np.zeros(3), dye=1 - 0.5j, heat=0.2)
    dt = 0.04 / abs(K @ wind)
    for name, diffusivity in (("dye", 0.05), ("heat", 0.01)):
        sigma, *_ = growth(sim, name, state, dt, TURNS)
        assert sigma.real == pytest.approx(-diffusivity * (K @ K), rel=1e-6)
        assert sigma.imag == pytest.approx(-K @ wind, rel=1e-6)
    row = measured(sim, last(marched(sim, dt, TURNS)))
    assert row["dye_mean"] == pytest.approx(3.0, rel=1e-14)
    assert row["heat_mean"] == pytest.approx(-(wind @ slope) * dt * TURNS, rel=1e-12)
