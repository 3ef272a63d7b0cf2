"""Fluids, plasmas and matter of configs/equations against exact solutions and linear theory."""

import itertools
from collections.abc import Callable, Mapping

import jax
import numpy as np
import pytest
from equation_support import simulation, stepped, with_values
from numpy.testing import assert_allclose
from scipy.linalg import expm

from simulator import Simulation
from simulator.physics.models.tendency import tendency

Values = Mapping[str, np.ndarray]


def axes(points: int, length: float = 2 * np.pi) -> np.ndarray:
    return np.arange(points) * length / points


def smooth(seed: int, *axes: np.ndarray) -> np.ndarray:
    """Random waves with wavenumbers up to 2 along each axis."""
    random = np.random.default_rng(seed)
    place = np.meshgrid(*axes, indexing="ij")
    waves = np.zeros(place[0].shape)
    for k in np.ndindex(*(3 for _ in axes)):
        if any(k[:2]):
            phase = sum(n * x for n, x in zip(k, place, strict=True))
            waves += random.normal() * np.cos(phase + random.uniform(0, 6))
    return waves


def slopes(values: np.ndarray) -> list[np.ndarray]:
    """The derivatives of values on boxes of 2 pi."""
    modes = np.fft.fftn(values)
    k = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in values.shape), indexing="ij")
    return [np.fft.ifftn(1j * component * modes).real for component in k]


def bracket(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    (a_x, a_y, *_), (b_x, b_y, *_) = slopes(a), slopes(b)
    return a_x * b_y - a_y * b_x


def lap(values: np.ndarray) -> np.ndarray:
    """The second derivatives along the first two axes."""
    along_x, along_y = (slopes(slopes(values)[axis])[axis] for axis in (0, 1))
    return along_x + along_y


def rates_of(name: str, start: Values, *overrides: str) -> Callable[[str], np.ndarray]:
    """The nonlinear terms of an equation from values on the grid."""
    shape = ",".join(str(n) for n in next(iter(start.values())).shape[-2:])
    if next(iter(start.values())).ndim > 2 and name == "reduced_mhd":
        shape = ",".join(str(n) for n in next(iter(start.values())).shape)
    own = simulation(name, f"grid.shape={shape}", *overrides)
    with_values(own, dict(start))
    state = own.state
    rates = jax.jit(lambda u: tendency(own.model, u, state.time)[0])(state.fields)
    shapes = {n: np.shape(v) for n, v in start.items()}
    return lambda field: np.asarray(own.transform.inverse(rates[field])).reshape(shapes[field])


def test_nonlinear_terms_of_reduced_mhd():
    """By numpy from phi and psi: (lap phi)_t = -{phi, lap phi} + {psi, lap psi}, psi_t = -{phi,
    psi}; products of wavenumbers up to 2 are resolved by 16 points."""
    grid = axes(16), axes(16), axes(16)
    phi, psi = smooth(1, *grid), smooth(2, *grid)
    start = {"plus": lap(phi + psi), "minus": lap(phi - psi)}
    found = rates_of("reduced_mhd", start)
    spin = -bracket(phi, lap(phi)) + bracket(psi, lap(psi))
    current = -lap(bracket(phi, psi))
    for name, wanted in (("plus", spin + current), ("minus", spin - current)):
        assert_allclose(found(name), wanted, rtol=0, atol=1e-11 * abs(wanted).max())


def test_one_elsasser_field_of_reduced_mhd_travels_unchanged():
    """At any amplitude, along the mean field with the Alfven speed."""
    x, y, z = np.meshgrid(axes(16), axes(16), axes(8), indexing="ij")
    parameters = "model.parameters={alfven_speed: 0.7, viscosity: 0}"
    own = simulation("reduced_mhd", "grid.shape=16,16,8", parameters)

    def shape(z: np.ndarray) -> np.ndarray:
        return 3 * np.cos(x + 2 * y - z) + 2 * np.sin(3 * x + 2 * z)

    with_values(own, {"plus": shape(z), "minus": 0 * z})
    stepped(own, 10, 0.1)
    assert_allclose(np.asarray(own.fields["plus"]), shape(z + 0.7), atol=1e-12)


def amplitude(values: np.ndarray, kx: int, ky: int) -> complex:
    """The coefficient of exp(i (kx x + ky y))."""
    return complex(np.fft.fftn(values)[kx, ky] / values.size)


@pytest.mark.parametrize("ky", [2, 0], ids=["drift_wave", "zonal"])
def test_a_drift_wave_of_hasegawa_and_wakatani(ky: int):
    """One wave is exact at any amplitude, because it is not advected by itself; zonal means are not
    coupled."""
    kx, alpha, kappa, nu = 1, 0.5, 1.3, 0.01
    parameters = f"model.parameters={{alpha: {alpha}, kappa: {kappa}, viscosity: {nu}}}"
    box = "grid.box=[2*pi, 2*pi]"
    own = simulation("hasegawa_wakatani", "grid.shape=16,16", box, parameters)
    x, y = np.meshgrid(axes(16), axes(16), indexing="ij")
    phase = kx * x + ky * y
    with_values(own, {"vorticity": 2 * np.cos(phase), "density": 3 * np.cos(phase + 1)})
    stepped(own, 10, 0.2)
    k2 = kx**2 + ky**2
    c = alpha if ky else 0.0
    matrix = np.array([[-c / k2, -c], [-(c - 1j * kappa * ky) / k2, -c]]) - nu * k2 * np.eye(2)
    wanted = expm(2.0 * matrix) @ np.array([1.0, 1.5 * np.exp(1j)])
    found = [amplitude(np.asarray(own.fields[n]), kx, ky) for n in ("vorticity", "density")]
    assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_baroclinic_waves_of_two_layers():
    """Phillips' growth rate U k_x sqrt((k_d^2 - k^2) / (k_d^2 + k^2)), at any amplitude of one
    wave."""
    kx, kd, shear = 2, 5.0, 0.7
    parameters = f"model.parameters={{shear: {shear}, deformation_wavenumber: {kd}}}"
    own = simulation("two_layers", "grid.shape=16,16", parameters)
    growth = shear * kx * np.sqrt((kd**2 - kx**2) / (kd**2 + kx**2))
    x, _ = np.meshgrid(axes(16), axes(16), indexing="ij")
    with_values(own, {"upper": np.cos(kx * x), "lower": np.cos(kx * x + 1)})
    stepped(own, 40, 0.1)
    before = amplitude(np.asarray(own.fields["upper"]), kx, 0)
    stepped(own, 10, 0.1)
    after = amplitude(np.asarray(own.fields["upper"]), kx, 0)
    # The decaying wave has fallen to exp(-8 growth) beside the growing one: 4e-5.
    assert abs(np.log(abs(after / before)) - growth) < 2e-4
    assert abs(np.angle(after / before)) < 2e-4


@pytest.mark.long
def test_the_energy_of_two_layers_follows_from_their_fluxes():
    """Without shear, drag and damping energy is conserved to RK4's order."""
    drifts = []
    for steps in (10, 20):
        parameters = "model.parameters={shear: 0, beta: 1, deformation_wavenumber: 3}"
        own = simulation("two_layers", "grid.shape=24,24", parameters, "time={stop: 1, dt: 0.1}")
        grid = axes(24), axes(24)
        with_values(own, {"upper": smooth(3, *grid), "lower": smooth(4, *grid)})
        before = float(own.diagnostics(own.state)["energy"])
        after = float(own.diagnostics(stepped(own, steps, 0.5 / steps))["energy"])
        drifts.append(abs(after / before - 1))
    assert 1e-13 < drifts[1] < drifts[0] / 2**3.7


def test_shear_waves_of_oldroyd_b():
    """u(y, t) and C_xy(y, t) obey two linear equations, exactly at any amplitude, here without
    diffusion. RK4 is off by (rate dt)^5 / 120 a step."""
    nu, nup, relaxation, k, dt, steps = 0.1, 0.5, 2.0, 2, 0.01, 50
    numbers = f"viscosity: {nu}, polymer_viscosity: {nup}, relaxation_time: {relaxation}"
    parameters = f"model.parameters={{{numbers}, diffusion: 0}}"
    own = simulation("oldroyd_b", "grid.shape=16,16", parameters, "forcing=null")
    _, y = np.meshgrid(axes(16), axes(16), indexing="ij")
    with_values(
        own, {"velocity": np.stack([np.sin(k * y), 0 * y]), "stretch": np.zeros((3, 16, 16))}
    )
    stepped(own, steps, dt)
    # u = a sin(k y), C_xy = b cos(k y).
    matrix = np.array([[-nu * k**2, -nup / relaxation * k], [k, -1 / relaxation]])
    a, b = expm(steps * dt * matrix) @ [1, 0]
    velocity, stretch = (np.asarray(own.fields[n]) for n in ("velocity", "stretch"))
    assert_allclose(velocity[0], a * np.sin(k * y), atol=1e-9)
    assert_allclose(stretch[1], b * np.cos(k * y), atol=1e-9)


def test_nonlinear_terms_of_oldroyd_b():
    """The conformation's by numpy, of a flow without divergence."""
    grid = axes(16), axes(16)
    psi = smooth(5, *grid)
    psi_x, psi_y = slopes(psi)
    u, v = -psi_y, psi_x
    xx, xy, yy = (smooth(seed, *grid) for seed in (6, 7, 8))
    start = {"velocity": np.stack([u, v]), "stretch": np.stack([xx, xy, yy])}
    found = rates_of("oldroyd_b", start, "forcing=null")("stretch")
    (u_x, u_y), (v_x, v_y) = slopes(u), slopes(v)
    conformation = np.array([[1 + xx, xy], [xy, 1 + yy]])
    gradient = np.array([[u_x, u_y], [v_x, v_y]])  # d_j u_i
    stretched = np.einsum("ik...,jk...->ij...", conformation, gradient)
    gain = stretched + stretched.swapaxes(0, 1)
    for index, (i, j) in enumerate(((0, 0), (0, 1), (1, 1))):
        d_x, d_y = slopes(conformation[i, j])
        wanted = gain[i, j] - u * d_x - v * d_y
        assert_allclose(found[index], wanted, rtol=0, atol=1e-11 * abs(wanted).max())


def test_the_bend_instability_of_an_active_nematic():
    """Of rods along x that push: b exp(i k x) grows by activity k^2 / (eta k^2 + friction) (1 +
    flow_alignment) / 2 - K k^2, and its square is neglected. RK4's error of a rate is below 1e-9."""
    activity, eta, friction, alignment, elasticity, k = 1.5, 1.2, 0.3, 0.4, 0.02, 2
    numbers = f"activity: {activity}, viscosity: {eta}, friction: {friction}"
    numbers += f", flow_alignment: {alignment}, elasticity: {elasticity}"
    box = "grid.box=[2*pi, 2*pi]"
    own = simulation("active_nematics", "grid.shape=16,16", box, f"model.parameters={{{numbers}}}")
    x, _ = np.meshgrid(axes(16), axes(16), indexing="ij")
    small = 1e-6
    with_values(own, {"order": np.stack([0.5 + 0 * x, small * np.cos(k * x)])})
    stepped(own, 50, 0.02)
    drag = eta * k**2 + friction
    rate = activity * k**2 / drag * (1 + alignment) / 2 - elasticity * k**2
    grown = 2 * amplitude(np.asarray(own.fields["order"])[1], k, 0) / small
    assert abs(np.log(abs(grown)) - rate) < 1e-8


def test_elevator_modes_of_salt_fingers():
    """Waves of w, T and S along x are exact at any amplitude: three linear equations. RK4 is off by
    (rate dt)^5 / 120 a step."""
    prandtl, tau, ratio, k, dt, steps = 7.0, 0.1, 1.5, 1, 0.01, 50
    box = "grid.box=[2*pi, 2*pi]"
    numbers = f"prandtl: {prandtl}, diffusivity_ratio: {tau}, density_ratio: {ratio}"
    own = simulation("salt_fingers", "grid.shape=16,16", box, f"model.parameters={{{numbers}}}")
    x, _ = np.meshgrid(axes(16), axes(16), indexing="ij")
    wave = np.cos(k * x)
    velocity = np.stack([0 * x, 0.2 * wave])
    with_values(own, {"velocity": velocity, "temperature": 0.3 * wave, "salinity": -0.1 * wave})
    stepped(own, steps, dt)
    matrix = np.array(
        [
            [-prandtl * k**2, prandtl, -prandtl],
            [-1, -(k**2), 0],
            [-1 / ratio, 0, -tau * k**2],
        ]
    )
    wanted = expm(steps * dt * matrix) @ [0.2, 0.3, -0.1]
    fields = own.fields
    found = [fields["velocity"][1], fields["temperature"], fields["salinity"]]
    for values, size in zip(found, wanted, strict=True):
        assert_allclose(np.asarray(values), size * wave, atol=1e-7)


def test_the_free_energy_of_a_crystal_falls_and_its_mass_stays():
    own = simulation("phase_field_crystal", "grid.shape=64,64", "grid.box=[40, 40]")
    k = 2 * np.pi * np.fft.fftfreq(64, 40 / 64)
    square = k[:, None] ** 2 + k**2
    place = axes(64, 40.0)
    x, y = np.meshgrid(place, place, indexing="ij")
    density = -0.285 + 0.4 * np.cos(2 * np.pi * 6 * x / 40) * np.cos(2 * np.pi * 3 * y / 40)
    with_values(own, {"density": density})
    energies, means = [], []
    for _ in range(5):
        density = np.asarray(own.fields["density"])
        linear = np.fft.ifftn((-0.25 + (1 - square) ** 2) * np.fft.fftn(density)).real
        energies.append(float((density * linear / 2 + density**4 / 4).mean()))
        means.append(float(density.mean()))
        stepped(own, 10, 0.1)
    assert all(later < earlier for earlier, later in itertools.pairwise(energies))
    assert_allclose(means, -0.285, atol=1e-14)


def condensate(*numbers: str) -> Simulation:
    parameters = f"model.parameters={{{', '.join(numbers)}}}"
    return simulation("rotating_condensate", "grid={shape: [48, 48], box: [14, 14]}", parameters)


def centred() -> tuple[np.ndarray, np.ndarray]:
    place = axes(48, 14.0) - 7
    x, y = np.meshgrid(place, place, indexing="ij")
    return x, y


def test_a_vortex_of_an_ideal_condensate_turns_with_its_energy():
    """(x + i y) exp(-r^2 / 2) has the energy 2 - Omega; its tails at the box's edge are 7 e^-24. RK4's
    error of the phase is below (E dt)^5 / 120 a step, E < 60 for the modes kept."""
    own = condensate("interaction: 0", "rotation: 0.6", "imaginary_time: false")
    x, y = centred()
    vortex = (x + 1j * y) * np.exp(-(x**2 + y**2) / 2)
    with_values(own, {"psi": vortex})
    stepped(own, 100, 0.005)
    assert_allclose(np.asarray(own.fields["psi"]), vortex * np.exp(-0.5j * (2 - 0.6)), atol=1e-8)


def test_imaginary_time_finds_the_ground_state():
    """There E_kin + E_int = E_trap by the virial theorem. RK4 lets the mass creep by 1e-9 in 200
    steps, and the energy by 6 times that, its chemical potential."""
    own = condensate("interaction: 100", "rotation: 0", "imaginary_time: true")
    x, y = centred()
    cloud = np.exp(-(x**2 + y**2) / 8) / np.sqrt(4 * np.pi)
    with_values(own, {"psi": cloud + 0j})
    rows = [own.diagnostics(own.state)]
    for _ in range(4):
        rows.append(own.diagnostics(stepped(own, 200, 0.01)))
    energies = [float(row["energy"]) for row in rows]
    assert all(b < a + 1e-8 for a, b in itertools.pairwise(energies))
    assert_allclose([float(row["mass"]) for row in rows], float(rows[0]["mass"]), rtol=1e-7)
    density = abs(np.asarray(own.fields["psi"])) ** 2
    trap = float((density * (x**2 + y**2) / 2).sum() * (14 / 48) ** 2)
    assert abs(energies[-1] / (2 * trap) - 1) < 1e-6


def test_the_nonlinear_term_of_flow_over_topography():
    grid = axes(16), axes(16)
    psi = smooth(9, *grid)
    x, y = np.meshgrid(*grid, indexing="ij")
    hills = 5 * (np.cos(x) + np.cos(2 * y))
    found = rates_of("topographic_flow", {"vorticity": lap(psi)})("vorticity")
    wanted = -bracket(psi, lap(psi) + hills)
    assert_allclose(found, wanted, rtol=0, atol=1e-11 * abs(wanted).max())
