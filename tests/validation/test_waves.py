"""Waves that are exact nonlinear solutions: frequencies and growth rates to 1e-6. The published cases, which
`test_cases` runs, have inertial, Alfven and internal waves one by one.

RK4 turns a wave by omega dt (1 - (omega dt)^4 / 120): with omega dt < 0.06 the frequency is right to 1.1e-7, and
the amplitude to (omega dt)^5 / 144 a step relative to omega dt, 9e-8.
"""

import numpy as np
import pytest
from flow_support import flow, last, marched
from wave_support import coefficient, single_wave, wavenumber

SHAPE, BOX, INTEGERS = (9, 10, 12), (2 * np.pi, 3.0, 4.0), (1, -2, 1)
STEPS = 40


def across(k: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The part of a direction across k."""
    return direction - k * (k @ direction) / (k @ k)


def frequency(simulation, name: str, dt: float, which=slice(None)) -> complex:
    """sigma of a(t) = a(0) exp(sigma t) for the wave's mode."""
    start = coefficient(simulation, simulation.state, name, INTEGERS)
    end = coefficient(simulation, last(marched(simulation, dt, STEPS)), name, INTEGERS)
    largest = np.argmax(abs(np.atleast_1d(start)))
    found = np.atleast_1d(end)[largest] / np.atleast_1d(start)[largest]
    return np.log(found) / (dt * STEPS)


@pytest.mark.parametrize("sign", [1, -1])
def test_magneto_coriolis_waves(tmp_path, sign):
    """A helical wave of flow and field under rotation and a mean field: omega^2 - (2 Omega . k / |k|) omega -
    (B . k)^2 = 0 with b = u (B . k) / omega (Lehnert 1954, Astrophys. J. 119, 647), here damped alike by viscosity
    and resistivity with their hyper-terms. Both parts are Beltrami fields, so that its amplitude does not matter."""
    k, rotation, mean = wavenumber(BOX, INTEGERS), np.array([0.4, -1.0, 2.0]), np.array([0.5, -0.8, 0.3])
    size = np.linalg.norm(k)
    a = across(k, np.array([1.0, 0.3, -0.2]))
    helical = a - 1j * np.cross(a, k) / size
    turning, alfven = 2 * rotation @ k / size, mean @ k
    omega = turning / 2 + sign * np.hypot(turning / 2, alfven)
    simulation = flow(
        *SHAPE,
        initial=single_wave(
            tmp_path,
            BOX,
            INTEGERS,
            {"velocity": helical, "magnetic": helical * alfven / omega},
            {"magnetic": mean},
        ),
        grid={"box": BOX},
        model={
            "kind": "mhd",
            "viscosity": 0.003,
            "resistivity": 0.003,
            "hyperviscosity": {"order": 2, "coefficient": 1e-4},
            "hyperresistivity": {"order": 2, "coefficient": 1e-4},
            "rotation": rotation.tolist(),
        },
    )
    dt = 0.02 / max(abs(turning), abs(omega))
    for name in ("velocity", "magnetic"):
        sigma = frequency(simulation, name, dt)
        assert sigma.imag == pytest.approx(omega, rel=1e-6)
        assert sigma.real == pytest.approx(-0.003 * size**2 - 1e-4 * size**4, rel=1e-6)


@pytest.mark.parametrize(("square", "rotation"), [(4.0, (0.3, 0.0, 0.8)), (-2.0, (0.0, 0.0, 0.0))])
def test_internal_waves_and_convection(tmp_path, square, rotation):
    """A plane wave in a stratified, rotating fluid: omega^2 = (N^2 |k x e|^2 + 4 (Omega . k)^2) / k^2, an exact
    solution at any amplitude (u and k are perpendicular, so nothing is advected). For N^2 < 0 it grows or decays.
    Viscosity = diffusivity damps all of it alike."""
    k, gravity, viscosity = wavenumber(BOX, INTEGERS), np.array([0.2, 0.5, -1.0]), 0.002
    e, turning = -gravity / np.linalg.norm(gravity), np.array(rotation)
    # a' = M a for a = (u, b): Coriolis and buoyancy projected across k.
    project = np.eye(3) - np.outer(k, k) / (k @ k)
    coriolis = -2 * np.cross(turning, np.eye(3)).T
    matrix = np.zeros((4, 4))
    matrix[:3, :3], matrix[:3, 3], matrix[3, :3] = (
        project @ coriolis @ project,
        project @ e,
        -square * e @ project,
    )
    values, vectors = np.linalg.eig(matrix)
    expected = (square * (k @ k - (k @ e) ** 2) + 4 * (turning @ k) ** 2) / (k @ k)
    number = int(np.argmax(values.imag if square > 0 else values.real))
    assert -(values[number] ** 2) == pytest.approx(expected, rel=1e-12)
    wave = vectors[:, number] * np.exp(0.3j)
    simulation = flow(
        *SHAPE,
        initial=single_wave(tmp_path, BOX, INTEGERS, {"velocity": wave[:3], "buoyancy": wave[3]}, {}),
        grid={"box": BOX},
        model={
            "kind": "boussinesq",
            "viscosity": viscosity,
            "diffusivity": viscosity,
            "stratification": square,
            "gravity": gravity.tolist(),
            "rotation": list(rotation),
        },
    )
    scale = abs(expected) ** 0.5
    for name in ("velocity", "buoyancy"):
        sigma = frequency(simulation, name, 0.05 / scale)
        assert sigma + viscosity * (k @ k) == pytest.approx(values[number], rel=1e-6)


def test_a_scalar_diffuses_while_it_is_carried(tmp_path):
    """In a uniform wind U: theta(k, t) = theta(k, 0) exp(-D k^2 t - i k . U t), and a mean gradient G adds -U . G t
    to the mean. The wind's own mode and its scalar's mean are exact as well."""
    k, wind = wavenumber(BOX, INTEGERS), np.array([0.3, 0.2, -0.4])
    scalars = [
        {"name": "dye", "diffusivity": 0.05},
        {"name": "heat", "diffusivity": 0.01, "mean_gradient": [0.5, 0.0, 2.0]},
    ]
    amplitudes = {"velocity": np.zeros(3), "dye": 1 - 0.5j, "heat": 0.2}
    simulation = flow(
        *SHAPE,
        initial=single_wave(tmp_path, BOX, INTEGERS, amplitudes, {"velocity": wind, "dye": 3.0}),
        grid={"box": BOX},
        model={"kind": "navier_stokes", "viscosity": 0.1, "scalars": scalars},
    )
    dt = 0.04 / abs(k @ wind)
    for s in scalars:
        sigma = frequency(simulation, s["name"], dt)
        assert sigma.real == pytest.approx(-s["diffusivity"] * (k @ k), rel=1e-6)
        assert sigma.imag == pytest.approx(-k @ wind, rel=1e-6)
    rows = {n: float(v) for n, v in simulation.diagnostics(last(marched(simulation, dt, STEPS))).items()}
    assert rows["dye_mean"] == pytest.approx(3.0, rel=1e-14)
    assert rows["heat_mean"] == pytest.approx(-(wind @ [0.5, 0, 2.0]) * dt * STEPS, rel=1e-12)


def test_every_kind_of_damping_is_exact():
    """An ABC flow of wavenumber k is a Beltrami flow: it decays at nu k^2 + nu_2 k^4 + drag."""
    simulation = flow(
        *(8, 8, 8),
        initial={"kind": "abc"},
        grid={"box": [3.0] * 3},
        model={
            "kind": "navier_stokes",
            "viscosity": 0.01,
            "hyperviscosity": {"order": 2, "coefficient": 0.002},
            "drag": {"coefficient": 0.3, "below": "2*pi/3"},
        },
    )
    k, dt = 2 * np.pi / 3, 0.05
    rate = 0.01 * k**2 + 0.002 * k**4 + 0.3
    first, final = simulation.state, last(marched(simulation, dt, 20))
    row = simulation.diagnostics(first)
    assert float(row["dissipation"]) == pytest.approx(rate * 3.0, rel=1e-13)
    assert float(row["drag_dissipation"]) == pytest.approx(0.3 * 3.0, rel=1e-12)
    decayed = np.asarray(first.fields["velocity"]) * np.exp(-rate * dt * 20)
    assert abs(np.asarray(final.fields["velocity"]) - decayed).max() < 1e-13
