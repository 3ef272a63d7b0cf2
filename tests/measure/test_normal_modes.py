"""Waves, balanced flow and horizontally uniform flow are told apart, and their energies add up."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow
from measuring import row, with_values
from numpy.testing import assert_allclose

from simulator.physics.models import outputs
from simulator.spectral import Local
from simulator.spectral.operators import curl

SHAPE = (12, 10, 9)
BOX = (2 * np.pi, 5.0, 4.0)
N = 1.5
ROTATION = (0.3, -0.2, 0.4)
GRAVITY = (0.1, 0.2, -1)
FLOWS = {
    "stratified": {"kind": "boussinesq"},
    "both": {"kind": "boussinesq", "rotation": ROTATION},
    "oblique": {"kind": "boussinesq", "rotation": ROTATION, "gravity": GRAVITY},
    "rotating": {"kind": "navier_stokes", "rotation": ROTATION},
    "upright": {"kind": "navier_stokes", "rotation": (0, 0, 0.5)},
}


def made(count=1, **model):
    if model["kind"] == "boussinesq":
        model |= {"stratification": N**2, "diffusivity": 0.01}
    scalars = {"buoyancy": {"peak": 2, "seed": 9}} if model["kind"] == "boussinesq" else {}
    initial = {"kind": "random", "peak": 2, "scalars": scalars}
    output = {"spectra": {"every": 1}, "cospectra": {"every": 1}}
    model = {"viscosity": 0.02, **model}
    return flow(*SHAPE, initial=initial, model=model, grid={"box": BOX}, count=count, output=output)


@cache
def upright(f: float):
    """A stratified flow with the Coriolis parameter f."""
    return made(kind="boussinesq", rotation=(0, 0, f / 2))


def wave_parts(model, fields):
    parts = outputs.cospectra(model, fields)
    return {name: parts[name] for name in parts if not name.startswith("buoyancy_flux")}


def parts(simulation, state):
    """The energy of each part, summed over all modes."""
    layout = simulation.transform.layout
    sums = jax.jit(lambda f: {n: layout.sum(e) for n, e in wave_parts(simulation.model, f).items()})
    return {name: float(energy) for name, energy in sums(state.fields).items()}


@pytest.mark.spmd
@pytest.mark.parametrize("name, count", [("stratified", 1), ("rotating", 1), ("oblique", 3)])
def test_parts_add_up_in_every_shell(name, count):
    simulation = made(count, **FLOWS[name])
    spectra = row(simulation, "spectra")
    found = row(simulation, "cospectra")
    total = spectra["kinetic_energy"] + spectra.get("potential_energy", 0)
    summed = found["wave_energy"] + found["vortical_energy"] + found.get("shear_energy", 0)
    assert_allclose(summed, total, rtol=1e-12)
    both = found["wave_up_energy"] + found["wave_down_energy"]
    assert_allclose(both, found["wave_energy"], rtol=1e-12, atol=1e-16)
    assert (found["wave_up_energy"] > -1e-16).all() and (found["wave_down_energy"] > -1e-16).all()


@pytest.mark.parametrize("name", ["both", "oblique", "rotating"])
def test_linear_terms_conserve_the_energy_of_every_part(name):
    """Mode by mode: the derivative of each part along the linear tendency of the model vanishes."""
    simulation = made(**FLOWS[name])
    model = simulation.model
    fields = simulation.state.fields

    def local(values, points, parameters):
        return Local(model.products(values))

    @jax.jit
    def linear_tendency(fields):
        products = model.transform.evaluate(model.inputs(fields), local).products
        return model.combine(jax.tree.map(jnp.zeros_like, products), fields)

    rates = linear_tendency(fields)
    found, change = jax.jit(lambda f, r: jax.jvp(partial(wave_parts, model), (f,), (r,)))(
        fields, rates
    )
    fastest = max(float(abs(r).max()) for r in rates.values())
    assert fastest > 0.01
    mask = model.transform.layout.weight() > 0
    for part, energy in found.items():
        assert (
            jnp.where(mask, abs(change[part]), 0).max()
            < 1e-12 * abs(energy).max() + 1e-16 * fastest
        ), part


def plane(simulation, k):
    """The phase k . x on the grid, for an integer wavevector `k` in units of the box's."""
    x = np.meshgrid(*(np.arange(n) * h / n for n, h in zip(SHAPE, BOX, strict=True)), indexing="ij")
    wave = [2 * np.pi * n / h for n, h in zip(k, BOX, strict=True)]
    return sum(q * c for q, c in zip(wave, x, strict=True)), np.asarray(wave)


def test_an_inertia_gravity_wave_is_a_wave_and_its_energy_sinks_when_its_phase_rises():
    """f < N. The plane wave obeys u_t = ..., v_t = -f u, b_t = -N^2 w."""
    f = 0.8
    simulation = upright(f)
    for up in (1, -1):
        phase, k = plane(simulation, (2, 0, up))
        length = np.hypot(k[0], k[2])
        omega = np.sqrt((N * k[0]) ** 2 + (f * k[2]) ** 2) / length
        across = f * k[2] / (length * omega) * np.sin(phase)
        velocity = [k[2] / length * np.cos(phase), across, -k[0] / length * np.cos(phase)]
        buoyancy = -(N**2) * k[0] / (length * omega) * np.sin(phase)
        found = parts(simulation, with_values(simulation, velocity=velocity, buoyancy=buoyancy))
        down, none = ("wave_down_energy", "wave_up_energy")[::up]
        assert found["wave_energy"] == pytest.approx(0.5, rel=1e-13)
        assert found[down] == pytest.approx(0.5, rel=1e-13)
        assert max(found[none], found["vortical_energy"], found["shear_energy"]) < 1e-30


def test_a_wave_that_neither_rises_nor_sinks_counts_half_in_both_directions():
    """Horizontal k: omega = N is extreme, so the group velocity is zero."""
    simulation = made(kind="boussinesq")
    x = np.arange(SHAPE[0])[:, None, None] * BOX[0] / SHAPE[0] + np.zeros(SHAPE)
    velocity = np.stack([0 * x, 0 * x, np.cos(x)])
    found = parts(simulation, with_values(simulation, velocity=velocity, buoyancy=N * np.sin(x)))
    expected = {"wave_energy": 0.5, "wave_up_energy": 0.25, "wave_down_energy": 0.25}
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_geostrophic_balance_is_vortical_and_uniform_flow_is_shear_until_it_oscillates():
    """u = -psi_y, v = psi_x, b = f psi_z; without rotation any flow in horizontal planes without
    b."""
    for f in (0.8, 0.0):
        simulation = upright(f)
        phase, k = plane(simulation, (1, 2, 1))
        slope = -np.sin(phase)
        velocity = [-k[1] * slope, k[0] * slope, 0 * slope]
        found = parts(
            simulation, with_values(simulation, velocity=velocity, buoyancy=f * k[2] * slope)
        )
        total = (k[0] ** 2 + k[1] ** 2 + (f * k[2] / N) ** 2) / 4
        assert found["vortical_energy"] == pytest.approx(total, rel=1e-13)
        assert max(abs(found["wave_energy"]), found["shear_energy"]) < 1e-14 * total
    for f, part in ((0.0, "shear_energy"), (0.8, "wave_energy")):
        simulation = upright(f)
        phase, _ = plane(simulation, (0, 0, 2))
        velocity = [np.cos(phase), np.sin(phase), 0 * phase]
        found = parts(simulation, with_values(simulation, velocity=velocity, buoyancy=0 * phase))
        assert found[part] == pytest.approx(0.5, rel=1e-13)
        assert sum(
            found[n] for n in ("wave_energy", "vortical_energy", "shear_energy")
        ) == pytest.approx(0.5)


def test_of_a_rotating_flow_only_the_two_dimensional_part_does_not_oscillate():
    """Inertial waves of negative helicity carry their energy along Omega (Davidson 2013, section
    3.2)."""
    simulation = made(**FLOWS["upright"])
    phase, k = plane(simulation, (2, 1, 0))
    flat = [-k[1] * np.cos(phase), k[0] * np.cos(phase), np.sin(phase)]
    found = parts(simulation, with_values(simulation, velocity=flat))
    assert found["vortical_energy"] == pytest.approx((k @ k + 1) / 4, rel=1e-13)
    assert found["wave_energy"] == 0
    phase, k = plane(simulation, (2, 0, 1))
    direction = np.cross(k, [0, 1, 0]) / np.linalg.norm(k)
    helical = [-direction[i] * np.sin(phase) + (i == 1) * np.cos(phase) for i in range(3)]
    found = parts(simulation, with_values(simulation, velocity=helical))
    u = with_values(simulation, velocity=helical).fields["velocity"]
    layout = simulation.transform.layout
    helicity = float(layout.inner(u, curl(layout, u)).sum())
    assert abs(helicity) == pytest.approx(np.linalg.norm(k), rel=1e-12)
    whole, other = ("wave_up_energy", "wave_down_energy")[:: 1 if helicity < 0 else -1]
    assert found[whole] == pytest.approx(0.5, rel=1e-13) and found[other] < 1e-30
