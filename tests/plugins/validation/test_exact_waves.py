"""Waves under several effects at once, whose frequencies and growth rates are right to 1e-6; the
cases of `simulator validate` have inertial, Alfven and internal waves one by one.

RK4 turns a wave by omega dt (1 - (omega dt)^4 / 120): with omega dt < 0.06 the frequency is right
to 1.1e-7, and the amplitude to (omega dt)^5 / 144 a step relative to omega dt, 9e-8."""

import numpy as np
import pytest
from flow_support import last, marched, measured

from simulator.plugins.validation.case import simulation, with_fields
from simulator.plugins.validation.waves import BOX, INTEGERS, growth, plane_wave

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


@pytest.mark.parametrize("square, rotation", [(4.0, (0.3, 0.0, 0.8)), (-2.0, (0.0, 0.0, 0.0))])
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
