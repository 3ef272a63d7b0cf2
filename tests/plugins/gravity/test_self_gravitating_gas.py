"""The gas: conservation, stress against numpy, the Hermitian plane, ways to stop; and forces on it,
which are accelerations: what they add to momentum and energy, and the budget that results."""

import math

import gravity_cases as cases
import jax
import numpy as np
import pytest
from flow_support import measured
from gravity_cases import CLUMPS, GAS, stepped
from tiers import slow, slow_but

from simulator.physics.models.tendency import tendency


def clumps(*overrides: str, devices: int = 1):
    return cases.simulation(GAS, *overrides, devices=devices, python=CLUMPS)


@pytest.mark.smoke
def test_mass_and_momentum_are_conserved_to_round_off():
    """Mass bit for bit: the k = 0 mode of a divergence is 0. Momentum: rho grad Phi cancels to
    round-off."""
    run = clumps("model.viscosity=0.02", "model.polytropic_exponent=1.4")
    end = stepped(run, run.state, 0.5, 25)
    before = measured(run)
    after = measured(run, end)
    assert after["mass"] == before["mass"]
    assert (
        max(abs(after[f"mean_momentum_{a}"] - before[f"mean_momentum_{a}"]) for a in "xyz") < 1e-16
    )
    assert after["max_density"] > before["max_density"] > after["min_density"] > 0
    # Viscosity takes nu rho_0 (<|grad v|^2> + <(div v)^2> / 3), both of which count here.
    v = np.fft.fftn(np.asarray(run.field_program("velocity")(end)), axes=(1, 2, 3), norm="forward")
    numbers = (
        np.fft.fftfreq(n, 1 / n) * k
        for n, k in zip(run.grid.shape, run.grid.fundamental, strict=True)
    )
    k = np.array(np.meshgrid(*numbers, indexing="ij"))
    for axis in (1, 2, 3):  # the model's velocity has the modes that the grid keeps
        dropped = np.flatnonzero(abs(np.fft.fftfreq(v.shape[axis])) >= 1 / 3)
        v[(slice(None),) * axis + (dropped,)] = 0
    gradients = ((k**2).sum(0) * abs(v) ** 2).sum()
    stretch = (abs((k * v).sum(0)) ** 2).sum()
    assert stretch > 0.2 * gradients
    assert np.isclose(after["dissipation"], 0.02 * (gradients + stretch / 3), rtol=1e-3)


def test_right_hand_side_against_numpy():
    """Of density and velocity with modes up to 1: nothing is truncated or aliased at 32^3;
    differences are 1e-14."""
    run = clumps(
        "model.viscosity=0.1",
        "model.bulk_viscosity=0.05",
        "model.polytropic_exponent=2",
        "model.gravitational_constant=0.7",
        "model.external_acceleration=[0.1, -0.2, 0.3]",
        "grid.shape=32,32,32",
    )

    f = run.state.fields
    found, _ = jax.jit(lambda f: tendency(run.model, f, 0.0))(f)
    damped = found["momentum"] + run.model.linear()["momentum"] * f["momentum"]
    m_t = np.asarray(run.transform.inverse(damped))
    rho_t = np.asarray(run.transform.inverse(found["density"]))
    rho, m = (np.asarray(run.fields[n]) for n in ("density", "momentum"))
    v = m / rho
    k = np.fft.fftfreq(32, 1 / 32)
    ks = np.meshgrid(k, k, k, indexing="ij")

    def d(q, axis):
        return np.fft.ifftn(1j * ks[axis] * np.fft.fftn(q)).real

    k2 = sum(q * q for q in ks)
    phi = np.fft.ifftn(-4 * np.pi * 0.7 * np.fft.fftn(rho) / np.where(k2 == 0, np.inf, k2)).real
    div = sum(d(v[i], i) for i in range(3))
    pressure = rho**2 / 2
    for i in range(3):
        expected = -sum(d(m[i] * v[j], j) for j in range(3)) - d(pressure, i) - rho * d(phi, i)
        expected += rho * (0.1, -0.2, 0.3)[i] + 0.1 * sum(d(d(v[i], j), j) for j in range(3))
        expected += (0.1 / 3 + 0.05) * d(div, i)
        assert np.abs(m_t[i] - expected).max() < 4e-14 * np.abs(expected).max()
    assert np.abs(rho_t + sum(d(m[i], i) for i in range(3))).max() < 5e-15


def test_the_plane_kz_0_stays_exactly_hermitian():
    """Unstable gas: after 50 steps the plane's modes k and -k are conjugates bit for bit."""
    run = clumps("model.gravitational_constant=3", "model.sound_speed=0.5")
    end = stepped(run, run.state, 0.25, 50)
    layout = run.transform.layout
    places = {a: {int(k): i for i, k in enumerate(layout.mode_numbers[a])} for a in "xy"}
    flip = [np.array([places[a][-int(k)] for k in layout.mode_numbers[a]]) for a in "yx"]
    assert layout.order == "zyx"
    for field in end.fields.values():
        plane = np.asarray(field)[..., 0, :, :]
        assert np.array_equal(plane[..., flip[0], :][..., flip[1]].conj(), plane)


def test_columns():
    run = clumps("model.gravitational_constant=0.5")
    found = measured(run)
    rho = np.asarray(run.fields["density"])
    v = np.asarray(run.fields["velocity"])
    assert np.isclose(found["kinetic_energy"], 0.5 * (rho * (v**2).sum(0)).mean(), rtol=1e-12)
    assert np.isclose(found["thermal_energy"], (rho * np.log(rho)).mean(), rtol=1e-12)
    adiabatic = measured(clumps("model.polytropic_exponent=1.4"))
    reference = rho.mean()
    pressure = run.model.sound_speed**2 * reference / 1.4 * (rho / reference) ** 1.4
    assert np.isclose(adiabatic["thermal_energy"], pressure.mean() / (1.4 - 1), rtol=1e-12)
    potential = np.asarray(run.fields["potential"])
    assert np.isclose(found["potential_energy"], 0.5 * (rho * potential).mean(), rtol=1e-12)
    assert np.isclose(found["max_density"], rho.max()) and np.isclose(
        found["min_density"], rho.min()
    )
    assert np.isclose(found["mach_rms"], np.sqrt((v**2).sum(0).mean()), rtol=1e-12)
    assert np.isclose(found["max_speed"], np.sqrt((v**2).sum(0)).max(), rtol=1e-12)
    power = np.asarray(run.spectra(run.state)["density_power"])
    # delta = 0.3 cos x sin(y + z): four pairs of modes with |delta_k|^2 = (0.3 / 4)^2 in the shell
    # round(sqrt 3) = 2.
    assert power[[0, 1, 3]].max() < 1e-20 and power[2] > 0


@pytest.mark.parametrize(
    "python, message",
    [
        (
            '{"density": 1 + 1.5 * jnp.cos(x) + 0 * y + 0 * z}',
            "the density lost its sign (least value -0.5)",
        ),
        (
            '{"density": 1 + 0 * x, "velocity": [0.1 * jnp.sin(5 * y) + 0 * x + 0 * z, 0 * x, 0 * x]}',
            "the flow is under-resolved: 100.0% of the squared momentum",
        ),
    ],
)
def test_what_cannot_go_on_says_why(python: str, message: str):
    """A step that cannot be taken has no dt and leaves the fields as they are."""
    run = cases.simulation(GAS, "time.cfl=0.5", "time.dt=null", python=python)
    before = {n: np.asarray(f) for n, f in run.state.fields.items()}
    run.state = cases.advanced(run, run.state, 1.0, 3)
    assert np.isnan(float(run.state.dt)) and int(run.state.step) == 0
    assert all(np.array_equal(np.asarray(f), before[n]) for n, f in run.state.fields.items())
    assert message in run.trouble()[0]


def test_a_start_without_density():
    """Random velocity in gas: the density is the background's."""
    turbulent = "initial={kind: random, peak: 2, energy: 0.1}"
    run = cases.simulation(GAS, turbulent, "model.background_density=2.5")
    assert np.abs(np.asarray(run.fields["density"]) - 2.5).max() < 1e-14
    assert abs(measured(run)["kinetic_energy"] - 0.25) < 1e-12


def isothermal_slab(points: int, depth: float) -> tuple[np.ndarray, float]:
    """A hydrostatic density on `points` of a periodic line of length 2 pi, with mean 1 and c = 1,
    and its 4 pi G. rho = exp(-phi), phi'' = q (rho - 1), phi(0) = -depth: Newton's method for phi
    and q = 4 pi G."""
    x = np.arange(points) * 2 * math.pi / points
    k2 = np.fft.fftfreq(points, 1 / points) ** 2
    second = np.fft.ifft(-k2[:, None] * np.fft.fft(np.eye(points), axis=0), axis=0).real
    phi = -depth * np.cos(x)
    q = 1.0

    def residual() -> np.ndarray:
        # Depth, and symmetry about x = 0.
        return np.concatenate(
            [second @ phi - q * np.expm1(-phi), [phi[0] + depth, phi @ np.sin(x)]]
        )

    for _ in range(20):
        by_phi = np.vstack([second + q * np.diag(np.exp(-phi)), np.eye(points)[0], np.sin(x)])
        by_q = np.concatenate([-np.expm1(-phi), [0, 0]])
        change = np.linalg.lstsq(np.column_stack([by_phi, by_q]), residual(), rcond=None)[0]
        phi = phi - change[:-1]
        q -= change[-1]
    assert np.abs(residual()).max() < 1e-11
    return np.exp(-phi), q


def test_the_virial_ratio_of_a_hydrostatic_slab():
    """1 in an equilibrium, anywhere and in motion; modes beyond 21 hold 1e-11. Without the surface
    term it is 8.6."""
    rho, attraction = isothermal_slab(64, 1.0)
    assert rho.max() > 2 and rho.min() < 0.6
    modes = np.fft.fft(rho).real / 64
    series = " + ".join(f"{2 * modes[n]:.17g} * jnp.cos({n} * (x - 0.7))" for n in range(1, 22))
    run = cases.simulation(
        GAS,
        "grid.shape=64,4,4",
        f"model.gravitational_constant={attraction / (4 * math.pi)}",
        python=f'{{"density": 1 + {series} + 0 * y + 0 * z, "velocity": [0.3 + 0 * x, 0 * y, 0 * z]}}',
    )
    row = measured(run)
    assert 3 / abs(row["potential_energy"]) > 8
    assert abs(row["virial_ratio"] - 1) < 1e-8


def test_viscosity_limits_dt_where_the_gas_is_thin():
    """The part of the rate: K^2 / 2 (nu max |rho_0 / rho - 1| + (nu / 3 + zeta) rho_0 / min rho), K^2
    the sum of the largest k^2 of each axis, 3 5^2."""
    still, viscous = (
        measured(clumps(*more))["rate"]
        for more in ((), ("model.viscosity=0.2", "model.bulk_viscosity=0.3"))
    )
    thinnest = 1 - 0.3
    expected = 0.5 * 75 * (0.2 * (1 / thinnest - 1) + (0.2 / 3 + 0.3) / thinnest)
    assert viscous - still == pytest.approx(expected, rel=1e-3)


def test_statistics_do_not_know_a_mean_flow():
    """The same gas with U added: Mach number, virial ratio and the share of the edge, which is 0.1
    here, stay."""
    wind = CLUMPS.replace("[0.3 *", "[1.5 + 0.3 *").replace("0.2 *", "-0.7 + 0.2 *")
    both = [
        cases.simulation(GAS, "model.gravitational_constant=0.5", python=p) for p in (CLUMPS, wind)
    ]
    rest, windy = map(measured, both)
    assert rest["mean_momentum_x"] != windy["mean_momentum_x"]
    assert windy["kinetic_energy"] > 3 * rest["kinetic_energy"]
    for name in ("mach_rms", "virial_ratio", "thermal_energy", "dissipation"):
        assert windy[name] == pytest.approx(rest[name], rel=1e-11, abs=1e-13), name
    assert windy["edge_energy"] == pytest.approx(rest["edge_energy"], abs=1e-12)


def test_the_spectrum_sums_to_the_kinetic_energy():
    """Of strongly varying density, whose square root has far more modes than the state."""
    run = clumps("grid.shape=10,10,10")
    spectrum = np.asarray(run.spectra(run.state)["kinetic_energy"])
    width = run.transform.layout.shell_width
    assert spectrum.sum() * width == pytest.approx(measured(run)["kinetic_energy"], rel=1e-13)


MOVING = CLUMPS.replace("[0.3 *", "[0.1 + 0.3 *")
KINDS = {
    "linear": "{kind: linear, coefficient: 0.4}",
    "constant_power": "{kind: constant_power, rate: 0.3, band: [1, 2]}",
    "ornstein_uhlenbeck": "{kind: ornstein_uhlenbeck, rate: 0.2, band: [1, 2], correlation_time: 0.5, seed: 2, "
    "solenoidal_weight: 0.4}",
    "abc": "{kind: abc}",
    "python": "{kind: python, path: PATH, function: push}",
}
PUSH = """\
def push(x, y, z, t):
    return {"velocity": (jnp.sin(x) * jnp.cos(t), 0.3, 0.2 * jnp.cos(y + z))}
"""


def gas(kind: str, *overrides: str, devices: int = 1):
    forcing = "forcing=" + KINDS[kind].replace("PATH", str(cases.source(PUSH)))
    return cases.simulation(GAS, forcing, *overrides, devices=devices, python=MOVING)


def acceleration(run) -> np.ndarray:
    """Values of the force at the start."""
    s = run.state
    f = jax.jit(lambda s: run.forcing.acceleration(s.fields, s.time, s.memory.forcing)["velocity"])(
        s
    )
    return np.asarray(run.transform.inverse(f))


@pytest.mark.parametrize("kind", slow_but(KINDS, ["constant_power"]))
def test_momentum_gains_density_times_acceleration(kind: str):
    """d(rho u)/dt with the force minus without it is rho f, to round-off: the modes of density and
    force are few. The injection is the box mean of rho u . f, by a sum over the grid's points."""
    run = gas(kind)
    s = run.state

    def added(fields):
        force = run.system.force(s.memory)
        assert force is not None
        rates = [
            tendency(run.model, fields, s.time, a)[0]["momentum"]
            for a in (force(fields, s.time), None)
        ]
        return run.transform.inverse(rates[0] - rates[1])

    rho, v, f = (
        np.asarray(a) for a in (run.fields["density"], run.fields["velocity"], acceleration(run))
    )
    found = np.asarray(jax.jit(added)(s.fields))
    assert np.abs(f).max() > 0.05
    # The linear force has all modes of the velocity; what truncation cuts of rho f is 1e-7 of it.
    assert np.abs(found - rho * f).max() < (1e-6 if kind == "linear" else 1e-14)
    assert measured(run)["injection"] == pytest.approx((rho * (v * f).sum(0)).mean(), rel=1e-12)


def test_constant_power_is_exact_while_the_gas_is_compressed():
    """Also while the gas is compressed; and the energy grows by rate x time less what viscosity
    took."""
    run = gas("constant_power", "model.viscosity=0.05", "model.gravitational_constant=0.02")
    state = run.state
    rows = []
    for _ in range(4):
        rows.append(measured(run, state))
        state = stepped(run, state, 0.1, 10)
    assert all(row["injection"] == pytest.approx(0.3, rel=1e-12) for row in rows)
    # Simpson's rule for the dissipation, 1e-5; what truncation takes of the energy is 1e-5 too.
    a, b, c = rows[0], rows[1], rows[2]
    lost = (a["dissipation"] + 4 * b["dissipation"] + c["dissipation"]) / 6 * 0.2
    assert c["energy"] - a["energy"] == pytest.approx(0.3 * 0.2 - lost, abs=1e-5)


@pytest.mark.parametrize("kind", ["ornstein_uhlenbeck", "linear", slow("constant_power")])
def test_a_driven_gas_keeps_its_momentum(kind: str):
    """Although its density follows the force. A hundred evaluations round <rho f>, about 1, by
    1e-16 each."""
    run = gas(kind, "model.viscosity=0.05", "model.gravitational_constant=0.02")
    ends = [measured(run, state) for state in (run.state, stepped(run, run.state, 1.0, 25))]
    before, after = (np.array([row[f"mean_momentum_{a}"] for a in "xyz"]) for row in ends)
    assert abs(before[0]) > 0.05
    assert abs(after - before).max() < 1e-14


@pytest.mark.parametrize(
    "model",
    [
        "model.viscosity=0.05",
        "model={kind: self_gravitating_gas, sound_speed: 1, viscosity: 0.05, "
        "bulk_viscosity: 0.02, polytropic_exponent: 1.4, external_acceleration: [0.1, 0, 0.2], "
        "hyperviscosity: {order: 2, coefficient: 1e-3}}",
    ],
)
def test_the_budget_of_a_forced_gas_closes_at_its_start(model: str):
    """dE/dt = injection + rho v . a - dissipation, to round-off: the velocity has few modes."""
    run = gas("ornstein_uhlenbeck", model, "grid.shape=16,16,16")
    assert abs(measured(run)["budget_residual"]) < 1e-13
