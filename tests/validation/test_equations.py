"""The equations of configs/equations: their right-hand sides, exact solutions and invariants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equation_support import EQUATIONS, simulation, stepped, with_values
from numpy.testing import assert_allclose
from run_support import drawn
from tiers import slow_but

from simulator.cli import main
from simulator.physics.models.tendency import linear_terms, tendency

FEW = ("gray_scott", "turbulence_2d")
LINES = ("burgers", "korteweg_de_vries", "kuramoto_sivashinsky")
PEAKS = {
    "hasegawa_wakatani": ("vorticity", "density"),
    "salt_fingers": ("temperature", "salinity"),
}
"""Starts whose smallest wavenumber few points do not hold, by their fields."""
SHORT = ("cahn_hilliard", "nonlinear_schrodinger")


NAMES = sorted(path.stem for path in EQUATIONS.glob("*.yaml"))


@pytest.mark.plugins
@pytest.mark.parametrize("name", slow_but(NAMES, FEW))
def test_every_example_is_a_run(name: str, monkeypatch, tmp_path):
    """Its file checks, and a run of two steps on few points ends well."""
    monkeypatch.chdir(tmp_path)
    config = EQUATIONS / f"{name}.yaml"
    shape = "16,16,8" if name in ("hall_mhd", "reduced_mhd") else "16,16"
    shape = "64" if name in LINES else shape
    dt = "time.dt=1e-4" if "dt:" in config.read_text().replace("max_dt:", "") else ""
    overrides = [o for o in (f"grid.shape={shape}", dt, "time.max_steps=2", "devices.count=1") if o]
    if name in PEAKS:
        overrides += [f"initial.fields.{field}.peak=0.2" for field in PEAKS[name]]
    overrides += ["initial.fields.concentration.peak=2"] if name == "cahn_hilliard" else []
    assert main(["run", str(config), *overrides]) == 0
    assert len((EQUATIONS / f"{name}.py").read_text().splitlines()) <= (30 if name in SHORT else 67)
    assert drawn(f"outputs/{name}")


def reaction(lap, u, v):
    return {
        "u": 2e-5 * lap(u) - u * v**2 + 0.04 * (1 - u),
        "v": 1e-5 * lap(v) + u * v**2 - (0.04 + 0.06) * v,
    }


def separation(lap, concentration):
    return {"concentration": lap(concentration**3 - concentration - 0.02 * lap(concentration))}


def flame(lap, u):
    square_of_slope = lap(u**2) / 2 - u * lap(u)
    return {"u": -lap(u) - lap(lap(u)) - (square_of_slope - square_of_slope.mean()) / 2}


RIGHT_HAND_SIDES = {
    "gray_scott": reaction,
    "cahn_hilliard": separation,
    "kuramoto_sivashinsky": flame,
}


@pytest.mark.parametrize("name", RIGHT_HAND_SIDES)
def test_right_hand_sides_by_numpy(name: str):
    """Of wavenumbers up to 3, whose cubes 48 x 48 points hold. 100 steps were those of exponax to
    1e-8."""
    n = 48
    length = 30.0
    parameters = {"cahn_hilliard": "{gamma: 0.02}", "gray_scott": "{feed: 0.04, kill: 0.06}"}.get(
        name, "{}"
    )
    grid = f"grid={{shape: [{n}, {n}], box: [{length}, {length}]}}"
    own = simulation(name, grid, f"model.parameters={parameters}", "devices.count=1")
    angle = 2 * np.pi * np.arange(n) / n
    chance = np.random.default_rng(1)
    phases = [kx * angle[:, None] + ky * angle for kx in range(-3, 4) for ky in range(4)]
    start = {
        f: sum(chance.normal() * np.cos(p + chance.uniform(0, 6)) for p in phases)
        for f in own.model.fields
    }
    with_values(own, start)
    k = 2 * np.pi * np.fft.fftfreq(n, length / n)
    square = k[:, None] ** 2 + k**2

    def lap(f: np.ndarray) -> np.ndarray:
        return np.fft.ifft2(-square * np.fft.fft2(f)).real

    fields = own.state.fields
    linear = linear_terms(own.model)
    products = jax.jit(lambda u: tendency(own.model, u, own.state.time)[0])(fields)
    for field, wanted in RIGHT_HAND_SIDES[name](lap, **start).items():
        found = own.transform.inverse(products[field] + linear[field] * fields[field])
        assert_allclose(
            np.asarray(found).ravel(), wanted.ravel(), rtol=0, atol=1e-11 * abs(wanted).max()
        )


@pytest.mark.parametrize("case", ["example", "mhd", "mhd in a layer"])
@pytest.mark.parametrize("kind", ["whistler", "ion_cyclotron"])
def test_waves_of_hall_mhd(kind: str, case: str):
    """Beltrami waves, curl b = s k b, along the mean field B are exact at any amplitude, here 0.1:
    with u = a b the equations u_t = B d_z b and b_t = B d_z (u - d j) agree where a^2 - s d k a - 1
    = 0, and b moves at k B / a: omega = k B (sqrt(1 + (k d / 2)^2) -+ k d / 2) for s = +-1. RK4's
    error of a frequency is (omega dt)^4 / 120 < 1e-8."""
    d = 0.5
    b0 = 1.0
    k = 2
    size = 0.1
    dt = 0.01
    steps = 40
    s = -1 if kind == "whistler" else 1
    omega = k * b0 * (np.sqrt(1 + (k * d / 2) ** 2) - s * k * d / 2)
    parameters = f"ion_length: {d}, viscosity: 0, resistivity: 0"
    model = f"model.parameters={{{parameters}}}"
    if case != "example":
        model = f"model={{kind: mhd, {parameters}}}"
    nx = 1 if "layer" in case else 8
    own = simulation("hall_mhd", f"grid.shape={nx},8,16", model, f"time={{stop: 1, dt: {dt}}}")
    z = np.arange(16) * 2 * np.pi / 16 + np.zeros((nx, 8, 1))
    wave = size * np.stack([np.cos(k * z), -s * np.sin(k * z), 0 * z])
    mean = np.array([0, 0, b0]).reshape(3, 1, 1, 1)
    with_values(own, {"velocity": k * b0 / omega * wave, "magnetic": wave + mean})
    stepped(own, steps, dt)
    after = np.fft.fft(np.asarray(own.fields["magnetic"])[0, 0, 0])[k] / (16 * size / 2)
    assert abs(abs(after) - 1) < 1e-8
    assert abs(abs(np.angle(after)) / (steps * dt) / omega - 1) < 1e-6


@pytest.mark.parametrize(
    "name, field, parameters, columns",
    [
        (
            "surface_quasi_geostrophic",
            "buoyancy",
            "{hyperviscosity: 0}",
            ("energy", "surface_energy"),
        ),
        (
            "beta_plane",
            "vorticity",
            "{beta: 2, inverse_deformation_radius: 1}",
            ("energy", "enstrophy"),
        ),
    ],
    ids=lambda value: value if value in ("surface_quasi_geostrophic", "beta_plane") else "",
)
def test_inviscid_invariants_drift_with_the_order_of_the_integrator(
    name: str, field: str, parameters: str, columns: tuple[str, ...]
):
    """RK4 changes quadratic invariants by order dt^4 in a fixed time: half the step makes the drift
    16 times smaller; 2^3.7 is asked for, because the next order adds to it."""
    time = "time={stop: 1, dt: 0.1, integrator: rk4}"
    own = simulation(name, "grid.shape=32,32", f"model.parameters={parameters}", time)
    random = np.random.default_rng(5)
    x = np.arange(32) * 2 * np.pi / 32
    start = sum(
        random.normal() * np.cos(kx * x[:, None] + ky * x[None, :] + random.uniform(0, 6))
        for kx in range(-3, 4)
        for ky in range(1, 4)
    )
    drifts = []
    for steps in (5, 10):  # with shorter ones the drift of the plane's energy changes its sign
        with_values(own, {field: np.asarray(start)})
        before = own.diagnostics(own.state)
        after = own.diagnostics(stepped(own, steps, 0.4 / steps))
        drifts.append([abs(float(after[n] / before[n]) - 1) for n in columns])
    for coarse, fine in zip(*drifts, strict=True):
        assert 1e-13 < fine < coarse / 2**3.7


def test_a_rossby_wave_is_exact_at_any_amplitude():
    """omega = -beta k_x / (k^2 + L_d^-2); the linear term is integrated exactly, so to round-off of
    20 steps."""
    own = simulation(
        "beta_plane",
        "grid.shape=16,16",
        "model.parameters={beta: 3, inverse_deformation_radius: 2}",
    )
    x, y = np.meshgrid(np.arange(16) * np.pi / 8, np.arange(16) * np.pi / 8, indexing="ij")
    with_values(own, {"vorticity": 5 * np.cos(2 * x - y)})
    stepped(own, 20, 0.1)
    wave = 5 * np.cos(2 * x - y + 3 * 2 / (5 + 4) * 2.0)
    assert_allclose(np.asarray(own.fields["vorticity"]), wave, atol=1e-12)


def test_waves_and_invariants_of_shallow_water():
    """h = a cos(k x - omega t), u = omega h / (k H), v = f a / (k H) sin(k x - omega t), omega^2 =
    f^2 + g H k^2. RK4 is off by (omega dt)^5 / 120 < 5e-9 a step, and a wave of a = 1e-6 by a. A
    smooth flow of finite amplitude keeps energy and potential enstrophy to RK4's (omega dt)^6 a
    step."""
    k = 2
    h0 = 1.0
    f = 8.0
    g = 16.0
    a = 1e-6
    dt = 0.005
    steps = 40
    own = simulation("shallow_water", "grid.shape=32,32", "model.parameters={viscosity: 0}")
    omega = np.sqrt(f**2 + g * h0 * k**2)
    x, y = np.meshgrid(np.arange(32) * np.pi / 16, np.arange(32) * np.pi / 16, indexing="ij")

    def wave(t: float) -> dict[str, np.ndarray]:
        cos = a * np.cos(k * x - omega * t)
        sin = a * np.sin(k * x - omega * t)
        return {"velocity": np.stack([omega * cos, f * sin]) / (k * h0), "height": cos}

    with_values(own, wave(0.0))
    stepped(own, steps, dt)
    for name, values in wave(steps * dt).items():
        assert_allclose(np.asarray(own.fields[name]), values, atol=2 * steps * a * (5e-9 + a))
    flow = np.stack([0.3 * np.sin(y), 0.2 * np.cos(x)])
    with_values(own, {"velocity": flow, "height": 0.1 * np.cos(x) * np.cos(y)})
    before = own.diagnostics(own.state)
    after = own.diagnostics(stepped(own, steps, dt))
    for name in ("energy", "potential_enstrophy"):
        assert abs(float(after[name] / before[name]) - 1) < steps * (omega * dt) ** 6


def test_plane_waves_of_ginzburg_landau():
    """sqrt(1 - k^2) exp(i (k x - omega t)), omega = c + (b - c) k^2; ETDRK4's error falls by 2^4
    (14 asked for)."""
    grid = "grid={shape: [16, 16], box: [4*pi, 4*pi]}"
    parameters = "model.parameters={b: 0.5, c: -1.5}"
    own = simulation("ginzburg_landau", grid, parameters)
    x = np.arange(16) * 4 * np.pi / 16 + np.zeros((16, 1))
    k = 0.5
    omega = -1.5 + (0.5 + 1.5) * k**2
    wave = np.sqrt(1 - k**2) * np.exp(1j * k * x)
    errors = []
    for steps in (10, 20):
        with_values(own, {"amplitude": wave})
        stepped(own, steps, 2.0 / steps)
        errors.append(abs(np.asarray(own.fields["amplitude"]) - wave * np.exp(-2j * omega)).max())
    assert errors[1] < errors[0] / 14 and errors[0] < 1e-3


def soliton(x: np.ndarray, time: float, speed: float) -> np.ndarray:
    """Of interaction -1 and height 1; a box of 16 pi cuts its tails off at 3e-11."""
    box = 16 * np.pi
    away = (x - 8 * np.pi - speed * time + box / 2) % box - box / 2
    place = away + speed * time  # along a line that the box does not cut near the soliton
    return np.exp(1j * (speed * place + (1 - speed**2) * time / 2)) / np.cosh(away)


def test_a_soliton_and_the_order_of_split_steps():
    """Halving dt divides the error by 2^4; the mass stays to round-off: 16384 values, some hundred
    transforms."""
    grid = ("grid.shape=256,4", "grid.box=50.26548245743669,1")
    run = simulation("nonlinear_schrodinger", *grid, "model.parameters.interaction=-1")
    x = np.arange(256) * np.pi / 16
    speed = 0.5
    stop = 2.0
    errors = []
    for steps in (40, 80):
        with_values(run, {"psi": jnp.asarray(np.repeat(soliton(x, 0, speed)[:, None], 4, axis=1))})
        layout = run.transform.layout
        before = float(layout.inner(run.state.fields["psi"], run.state.fields["psi"]))
        state = stepped(run, steps, stop / steps)
        found = np.asarray(run.fields["psi"])
        errors.append(float(abs(found - soliton(x, stop, speed)[:, None]).max()))
        assert (
            abs(float(layout.inner(state.fields["psi"], state.fields["psi"])) / before - 1) < 1e-13
        )
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.1 and errors[1] < 1e-4, errors


def test_a_step_that_phases_limit():
    """Without `phase_rate` the fastest mode alone sets the rate: k^2 / 2 pi at the corner of the
    spectrum."""
    run = simulation(
        "nonlinear_schrodinger",
        "grid.shape=16,8",
        "grid.box=2*pi,2*pi",
        "time={stop: 1, cfl: 0.5, integrator: composition4}",
    )
    run.check_start()
    assert abs(float(run.state.memory.rate) - (8**2 + 4**2) / 2 / np.pi) < 1e-12
