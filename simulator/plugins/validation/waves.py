"""Waves, decays and collapses that are exact solutions."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from simulator import Simulation
from simulator.physics.models import State
from simulator.plugins.validation.case import (
    Case,
    Check,
    Curve,
    Result,
    followed,
    march,
    simulation,
    with_fields,
)
from simulator.spectral.operators import curl

TIME = "time $t$"
INTEGERS = (1, -2, 1)
BOX = (2 * np.pi, 3.0, 4.0)


def plane_wave(sim: Simulation, amplitude: ArrayLike, mean: float = 0.0) -> jax.Array:
    """Coefficients of Re(a exp(i k . x)) + mean; `amplitude` has the components of a, k = 2 pi
    INTEGERS / L."""
    layout = sim.transform.layout
    x, y, z = (layout.integers(axis) for axis in "xyz")
    at = (x == INTEGERS[0]) & (y == INTEGERS[1]) & (z == INTEGERS[2])
    a, uniform = (jnp.asarray(v, complex)[..., None, None, None] for v in (amplitude, mean))
    return jnp.where(at, a / 2, 0) + jnp.where(layout.zero, uniform, 0) + jnp.zeros(layout.shape)


def growth(
    sim: Simulation, name: str, state: State, dt: float, steps: int
) -> tuple[complex, np.ndarray, Any]:
    """(sigma, times, a(t) / a(0)) with a(t) = a(0) exp(sigma t), the projection of the state on the
    initial wave."""
    sim.state = state
    first = jnp.asarray(state.fields[name])
    weights = jnp.where(sim.transform.layout.integers("z") > 0, jnp.conj(first), 0)
    times, values = followed(sim, dt, steps, lambda s, w: (w * s.fields[name]).sum(), weights)
    values = values / values[0]
    # The argument of the logarithm stays below pi, because the wave advances by 2 radians.
    return complex(np.log(values[-1])) / times[-1], times, values


def _curve(
    name: str,
    times: np.ndarray,
    values: np.ndarray,
    expected: Callable[[np.ndarray], np.ndarray],
    quantity: str,
    source: str,
) -> Curve:
    """The measured amplitude of a wave, and the exact amplitude at every fourth step."""
    return Curve(name, times, values, times[::4], expected(times[::4]), (TIME, quantity), source)


def inertial() -> Result:
    k = 2 * np.pi * np.array(INTEGERS) / np.array(BOX)
    size = np.linalg.norm(k)
    rotation = np.array([0.4, -1.0, 2.0])
    nu = 0.003
    model = {"kind": "navier_stokes", "viscosity": nu, "rotation": rotation.tolist()}
    sim = simulation(model, {"kind": "abc"}, (10, 10, 12), grid={"box": BOX})
    a = np.cross(k, [1.0, 0.3, -0.2])
    state = with_fields(sim, velocity=plane_wave(sim, a - 1j * np.cross(a, k) / size))
    omega = 2 * rotation @ k / size
    sigma, times, values = growth(sim, "velocity", state, float(0.05 / abs(omega)), 40)
    source = "Greenspan, The Theory of Rotating Fluids (1968), section 4.2"
    curve = _curve(
        "inertial_wave",
        times,
        values.real,
        lambda t: np.exp(-nu * size**2 * t) * np.cos(omega * t),
        "velocity of the wave",
        source,
    )
    return Result([Check("frequency", float(omega), sigma.imag, 1e-6, source)], [curve])


def alfven() -> Result:
    mean = np.array([0.5, -0.8, 1.1])
    model = {"kind": "mhd", "viscosity": 0.0, "resistivity": 0.0}
    sim = simulation(model, {"kind": "random", "peak": 2, "seed": 4}, (12, 12, 12))
    u = sim.state.fields["velocity"]
    layout = sim.transform.layout
    b = u + jnp.where(layout.k_squared() == 0, mean.reshape(3, 1, 1, 1), 0)
    sim.state = with_fields(sim, magnetic=b)
    times, overlaps = followed(
        sim, 0.01, 40, lambda s, u: layout.inner(u, s.fields["velocity"]).sum(), u
    )
    last, _ = march(sim, 0.01, 40)
    kx, ky, kz = layout.wavenumbers()
    frequency = kx * mean[0] + ky * mean[1] + kz * mean[2]
    # d arg u(k) / dt = k . B: the speed is the least-squares slope over all modes.
    phase = jnp.angle(last.fields["velocity"] * jnp.conj(u) * jnp.exp(-1j * frequency * 0.4))
    weight = layout.weight() * abs(u) ** 2 * frequency
    speed = 1 + float((weight * phase).sum() / (weight * frequency * 0.4).sum())
    source = "Biskamp, Magnetohydrodynamic Turbulence (2003), section 2.3"

    def expected(t: np.ndarray) -> np.ndarray:
        """<u(x) . u(x - B t)> / <u^2>: every mode keeps its amplitude and changes its phase by k .
        B t."""
        weights = layout.weight() * (abs(u) ** 2).sum(0)
        sums = [float((weights * jnp.cos(frequency * time)).sum()) for time in t]
        return np.array(sums) / float(weights.sum())

    curve = _curve(
        "alfven_wave",
        times,
        overlaps.real / overlaps.real[0],
        expected,
        "correlation with the start",
        source,
    )
    return Result([Check("speed / Alfven speed", 1.0, speed, 1e-6, source)], [curve])


def _stratified(square: float):
    k = 2 * np.pi * np.array(INTEGERS) / np.array(BOX)
    model = {"kind": "boussinesq", "viscosity": 0.0, "diffusivity": 0.0, "stratification": square}
    sim = simulation(model, {"kind": "abc"}, (10, 10, 12), grid={"box": BOX})
    size2 = k @ k
    e = np.array([0.0, 0.0, 1.0])
    upward = e - k * (k @ e) / size2
    rate = np.emath.sqrt(-square * (upward @ upward))
    # u = upward, b = -N^2 (u . e) / sigma
    state = with_fields(
        sim,
        velocity=plane_wave(sim, upward),
        buoyancy=plane_wave(sim, -square * (upward @ e) / rate),
    )
    return complex(rate), *growth(sim, "buoyancy", state, float(0.05 / abs(rate)), 40)


def internal() -> Result:
    rate, sigma, times, values = _stratified(4.0)
    source = "ω = N k_h / k; Davidson, Turbulence in Rotating ... Fluids (2013), section 4.1"
    curve = _curve(
        "internal_wave",
        times,
        values.real,
        lambda t: np.cos(rate.imag * t),
        "buoyancy of the wave",
        source,
    )
    return Result([Check("frequency", rate.imag, sigma.imag, 1e-6, source)], [curve])


def convection() -> Result:
    rate, sigma, *_ = _stratified(-2.0)
    return Result([Check("growth rate", rate.real, sigma.real, 1e-6, "sigma = sqrt(-N^2) k_h / k")])


def abc_decay() -> Result:
    nu = 0.02
    stop = 1.0
    sim = simulation({"kind": "navier_stokes", "viscosity": nu}, {"kind": "abc"}, (16, 16, 16))
    _, rows = march(sim, 0.05, round(stop / 0.05))
    expected = 1.5 * np.exp(-2 * nu * stop)
    omega = curl(sim.transform.layout, sim.state.fields["velocity"])
    beltrami = float(abs(omega - sim.state.fields["velocity"]).max())
    source = "exp(-2 nu t): a Beltrami flow, Dombre et al., J. Fluid Mech. 167, 353 (1986)"
    energy = Check("energy, t = 1", expected, rows["energy"][-1], 1e-13, source)
    return Result([energy, Check("curl u - u", 0.0, beltrami, 1e-14, source, absolute=True)])


RATE = 1e-6
"""The allowed relative error: (omega dt)^4 / 120 = 2e-8 of rk4, 6e-9 of composition4, and the error
of the fit."""


def _contrast(sim: Any, mode: Sequence[int]) -> Callable[[State], jax.Array]:
    """The function from a state to the density of a mode over the mean density, in a box with sides
    2 pi."""

    def contrast(state: State) -> jax.Array:
        density = sim.field_program("density")(state)
        points = sim.transform.physical.coordinates()
        phase = sum(m * x for m, x in zip(mode, points, strict=True))
        return 2 * (density * jnp.cos(phase)).sum() / density.sum()  # the density is 0 in padding

    return contrast


def density_wave(
    model: dict[str, Any],
    squared: float,
    name: str,
    source: str,
    mode: Sequence[int] = (1, 0, 0),
    **time: str,
) -> Result:
    """Follows a wave of amplitude 1e-6 with the exact squared frequency `squared`, negative for a
    growing wave."""
    initial = {"kind": "jeans_wave", "amplitude": 1e-6, "mode": list(mode)}
    sim = simulation(
        model, initial, (16, 16, 16), time={"stop": 1.0, "dt": 0.01, "max_steps": 1, **time}
    )
    rate = abs(squared) ** 0.5
    times, values = followed(sim, 0.04 / rate, 60, _contrast(sim, mode))
    values = values.real / values.real[0]
    exact = np.cos if squared > 0 else np.exp  # the growing mode alone: jeans_wave starts with it
    if squared > 0:  # f(t + dt) + f(t - dt) = 2 cos(omega dt) f(t), by least squares
        middle = values[1:-1]
        sides = values[:-2] + values[2:]
        measured = float(np.arccos(middle @ sides / (2 * middle @ middle))) / times[1]
    else:
        measured = float(np.log(values[-1])) / times[-1]
    check = Check("frequency" if squared > 0 else "growth rate", rate, measured, RATE, source)
    labels = (TIME, "density contrast / first")
    known = exact(rate * times[::5])
    curve = Curve(name, times, values, times[::5], known, labels, source)
    return Result([check], [curve])


def gas(gravity: float, name: str) -> Result:
    """omega^2 = k^2 c^2 - 4 pi G rho with k = c = rho = 1."""
    model = {"kind": "self_gravitating_gas", "sound_speed": 1.0, "gravitational_constant": gravity}
    source = "ω² = k²c² − 4πGρ; Jeans, Phil. Trans. R. Soc. A 199, 1 (1902)"
    return density_wave(model, 1 - 4 * np.pi * gravity, name, source)


def waves() -> Result:
    """omega^2 = (hbar k^2 / 2m)^2 + k^2 g rho - 4 pi G rho with k = hbar / m = rho = 1."""
    model = {"kind": "schrodinger_poisson", "gravitational_constant": 0.01, "self_interaction": 0.5}
    source = "ω² = (ħk²/2m)² + k²gρ − 4πGρ; Chavanis, Phys. Rev. D 84, 043531 (2011)"
    squared = 0.25 + 0.5 - 4 * np.pi * 0.01
    return density_wave(model, squared, "matter_wave", source, integrator="composition4")


CASES = (
    Case("abc_decay", "ABC flow: exact viscous decay", abc_decay),
    Case("inertial_wave", "inertial wave under rotation about a tilted axis", inertial),
    Case("alfven_wave", "turbulent Alfven wave along a tilted mean field", alfven),
    Case("internal_wave", "internal gravity wave", internal),
    Case("convection", "growth of a mode in unstable stratification", convection),
    Case(
        "sound_wave",
        "sound wave slowed by its own gravity",
        lambda: gas(0.05, "sound_wave"),
        part="self_gravitating_gas",
    ),
    Case(
        "jeans_collapse",
        "growth of a wave beyond the Jeans length",
        lambda: gas(1.0, "jeans_collapse"),
        part="self_gravitating_gas",
    ),
    Case(
        "matter_wave",
        "wave in a self-gravitating, self-interacting condensate",
        waves,
        part="schrodinger_poisson",
    ),
)
