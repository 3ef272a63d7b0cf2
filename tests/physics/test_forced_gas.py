"""Forces on gas are accelerations: what they add to momentum and energy, and the budget that results."""

import gravity_cases as cases
import jax
import numpy as np
import pytest
from gravity_cases import GAS, measured, stepped

from simulator.simulation.quantities import force_of

CLUMPS = (
    '{"density": 1 + 0.3 * jnp.cos(x) * jnp.sin(y + z), '
    '"velocity": [0.3 * jnp.sin(y) + 0.1 + 0 * z + 0 * x, 0.2 * jnp.cos(x + z) + 0 * y, '
    "0.1 * jnp.sin(x) + 0 * y + 0 * z]}"
)
KINDS = {
    "linear": "{kind: linear, coefficient: 0.4}",
    "constant_power": "{kind: constant_power, rate: 0.3, band: [1, 2]}",
    "ornstein_uhlenbeck": "{kind: ornstein_uhlenbeck, rate: 0.2, band: [1, 2], correlation_time: 0.5, seed: 2, "
    "solenoidal_weight: 0.4}",
    "kolmogorov": "{kind: kolmogorov, amplitude: 0.7, wavenumber: 2}",
    "taylor_green": "{kind: taylor_green}",
    "abc": "{kind: abc}",
    "python": "{kind: python, path: PATH, function: push}",
}
PUSH = """
import jax.numpy as jnp

def push(x, y, z, t):
    return {"velocity": (jnp.sin(x) * jnp.cos(t), 0.3, 0.2 * jnp.cos(y + z))}

def source(x, y, z, t):
    return {"density": jnp.sin(x)}
"""


def gas(kind: str, *overrides: str, devices: int = 1):
    path = cases.folder() / "push.py"
    path.write_text(PUSH)
    forcing = "forcing=" + KINDS[kind].replace("PATH", str(path))
    return cases.simulation(GAS, forcing, *overrides, devices=devices, python=CLUMPS)


def acceleration(run) -> np.ndarray:
    """Values of the force at the start."""
    s = run.state
    f = jax.jit(lambda s: run.forcing.acceleration(s.fields, s.time, s.memory)["velocity"])(s)
    return np.asarray(run.transform.inverse(f))


@pytest.mark.parametrize(
    "kind", [k if k == "constant_power" else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_momentum_gains_density_times_acceleration(kind: str) -> None:
    """d(rho u)/dt with the force minus without it is rho f, to round-off: the modes of density and force are few. The
    injection is the box mean of rho u . f, by a sum over the grid's points."""
    run = gas(kind)
    s = run.state

    def added(fields):
        force = force_of(run.forcing, s)
        with_it, without = (
            run.model.tendency(fields, s.time, a)[0]["momentum"] for a in (force(fields, s.time), None)
        )
        return run.transform.inverse(with_it - without)

    rho, v, f = (np.asarray(a) for a in (run.fields["density"], run.fields["velocity"], acceleration(run)))
    found = np.asarray(jax.jit(added)(s.fields))
    assert np.abs(f).max() > 0.05
    # The linear force has all modes of the velocity; what truncation cuts of rho f is 1e-7 of it.
    assert np.abs(found - rho * f).max() < (1e-6 if kind == "linear" else 1e-14)
    assert measured(run)["injection"] == pytest.approx((rho * (v * f).sum(0)).mean(), rel=1e-12)


def test_constant_power_is_exact_at_every_evaluation() -> None:
    """Also while the gas is compressed; and the energy grows by rate x time less what viscosity took."""
    run = gas("constant_power", "model.viscosity=0.05", "model.gravitational_constant=0.02")
    state, rows = run.state, []
    for _ in range(4):
        rows.append(measured(run, state))
        state = stepped(run, state, 0.1, 10)
    assert all(row["injection"] == pytest.approx(0.3, rel=1e-12) for row in rows)
    # Simpson's rule for the dissipation, 1e-5; what truncation takes of the energy is 1e-5 too.
    a, b, c = rows[0], rows[1], rows[2]
    lost = (a["dissipation"] + 4 * b["dissipation"] + c["dissipation"]) / 6 * 0.2
    assert c["energy"] - a["energy"] == pytest.approx(0.3 * 0.2 - lost, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["model.viscosity=0.05", "model={kind: self_gravitating_gas, sound_speed: 1, viscosity: 0.05, "
              "bulk_viscosity: 0.02, polytropic_exponent: 1.4, external_acceleration: [0.1, 0, 0.2], "
              "hyperviscosity: {order: 2, coefficient: 1e-3}}"],
)  # fmt: skip
def test_the_budget_closes(model: str) -> None:
    """dE/dt = injection + rho v . a - dissipation: to round-off at the start, whose velocity has few modes, and later
    up to what truncation takes, which falls exponentially with resolution."""
    found = []
    for n in (16, 24):
        run = gas("ornstein_uhlenbeck", model, f"grid.shape={n},{n},{n}")
        assert abs(measured(run)["budget_residual"]) < 1e-13
        found.append(abs(measured(run, stepped(run, run.state, 0.4, 10))["budget_residual"]))
    # Measured with shear viscosity alone: 8.3e-4 and 9.3e-6.
    assert found[0] < 3e-3 and found[1] < found[0] / 20
