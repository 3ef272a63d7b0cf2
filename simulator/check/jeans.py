"""Density waves in self-gravitating matter against their dispersion relations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.check.case import Case, Check, Curve, Result, followed, simulation
from simulator.physics.models import State

RATE = 1e-6
"""Relative error that is allowed: of rk4 (omega dt)^4 / 120 = 2e-8, of composition4 6e-9, and the fit's."""


def _contrast(sim: Any) -> Callable[[State], jax.Array]:
    """The density of the mode (1, 0, 0) over the mean, at a moment."""

    def contrast(state: State) -> jax.Array:
        density = sim.values("density")(state)
        x = 2 * jnp.pi * jnp.arange(sim.grid.shape[0]) / sim.grid.shape[0]
        profile = density.sum((1, 2))[: sim.grid.shape[0]]
        return 2 * (profile * jnp.cos(x)).sum() / profile.sum()

    return contrast


def _wave(model: dict[str, Any], squared: float, name: str, source: str, **time: str) -> Result:
    """A wave of amplitude 1e-6 whose exact frequency is known; `squared` is negative where it grows."""
    initial = {"kind": "jeans_wave", "amplitude": 1e-6}
    sim = simulation(model, initial, (16, 16, 16), time={"stop": 1.0, "dt": 0.01, "max_steps": 1, **time})
    rate = abs(squared) ** 0.5
    times, values = followed(sim, 0.04 / rate, 60, _contrast(sim))
    values = values.real / values.real[0]
    exact = np.cos if squared > 0 else np.exp  # the growing mode alone: jeans_wave starts with it
    if squared > 0:  # f(t + dt) + f(t - dt) = 2 cos(omega dt) f(t), by least squares
        middle, sides = values[1:-1], values[:-2] + values[2:]
        measured = float(np.arccos(middle @ sides / (2 * middle @ middle))) / times[1]
    else:
        measured = float(np.log(values[-1])) / times[-1]
    check = Check("frequency" if squared > 0 else "growth rate", rate, measured, RATE, source)
    curve = Curve(
        name, times, values, times[::5], exact(rate * times[::5]), ("t", "density contrast / first"), source
    )
    return Result([check], [curve])


def gas(gravity: float, name: str) -> Result:
    """omega^2 = k^2 c^2 - 4 pi G rho with k = c = rho = 1."""
    model = {"kind": "self_gravitating_gas", "sound_speed": 1.0, "gravitational_constant": gravity}
    source = "omega^2 = k^2 c^2 - 4 pi G rho; Jeans, Phil. Trans. R. Soc. A 199, 1 (1902)"
    return _wave(model, 1 - 4 * np.pi * gravity, name, source)


def waves() -> Result:
    """omega^2 = (hbar k^2 / 2m)^2 + k^2 g rho - 4 pi G rho with k = hbar / m = rho = 1."""
    model = {
        "kind": "schrodinger_poisson",
        "hbar_over_m": 1.0,
        "gravitational_constant": 0.01,
        "self_interaction": 0.5,
    }
    source = "omega^2 = (hbar k^2 / 2m)^2 + k^2 g rho - 4 pi G rho; Chavanis, Phys. Rev. D 84, 043531 (2011)"
    squared = 0.25 + 0.5 - 4 * np.pi * 0.01
    return _wave(model, squared, "matter_wave", source, integrator="composition4")


CASES = (
    Case("sound_wave", "sound wave slowed by its own gravity", lambda: gas(0.05, "sound_wave")),
    Case("jeans_collapse", "growth of a wave beyond the Jeans length", lambda: gas(1.0, "jeans_collapse")),
    Case("matter_wave", "wave in a self-gravitating, self-interacting condensate", waves),
)
