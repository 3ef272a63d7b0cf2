"""Each forcing: what it adds, what it refuses, and that it depends on seed, mode and step alone."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, last, marched, measured
from numpy.testing import assert_allclose, assert_array_equal
from peers.collectives import collectives

from simulator.equations import Equation, Field
from simulator.errors import UserError
from simulator.physics.forcing import FORCINGS
from simulator.physics.forcing.band import band_modes, in_band
from simulator.settings import Settings
from simulator.simulation.inputs import Inputs
from simulator.spectral import Grid, make_transform
from simulator.spectral.operators import project

GRID = Grid((8, 12, 9), (2 * np.pi, 3.0, 4.0))


class Incompressible(Equation):
    evolved = (Field("velocity", vector=True, solenoidal=True),)


class Compressible(Equation):
    evolved = (Field("velocity", vector=True), Field("density"))


def flow_model(transform):
    return Incompressible(Settings(), transform)


def gas_model(transform):
    return Compressible(Settings(), transform)


def made(kind, *, grid=GRID, count=1, model=flow_model, **keys):
    transform = make_transform(grid, jax.devices()[:count], np.float64)
    cls = FORCINGS[kind]
    return transform, cls(cls.Settings(**keys), model(transform), Inputs())


def test_a_band_around_more_modes_than_a_device_holds_is_refused():
    """|k_x| <= 150, |k_y| <= 120 and 0 <= k_z <= 100 are 301 241 101 modes."""
    grid = Grid((600, 480, 400), (2 * np.pi, 2 * np.pi * 120 / 150, 2 * np.pi * 100 / 150))
    with pytest.raises(UserError, match=re.escape(f"reaches over {301 * 241 * 101:.2g} modes")):
        band_modes(grid, (149.5, 150))


def test_a_band_holds_one_of_each_pair_of_modes_that_lie_in_it_and_are_kept():
    numbers = np.stack(np.meshgrid(*(np.arange(-4, 5),) * 3, indexing="ij"), -1).reshape(-1, 3)
    k = np.linalg.norm(numbers * np.array(GRID.fundamental), axis=1)
    found = band_modes(GRID, (1.7, 2.9))
    expected = set(map(tuple, numbers[(k >= 1.7) & (k <= 2.9)]))
    assert set(map(tuple, [*found, *-found])) == expected and 2 * len(found) == len(expected) > 10
    # Its ends belong to it, whatever the round-off of their squares.
    layout = make_transform(Grid.of((8, 8, 8), (7.0,) * 3), jax.devices()[:1], np.float64).layout
    unit = 2 * np.pi / 7.0
    for wanted in (1, 2):
        inside = np.asarray(in_band(layout, (wanted * unit, wanted * unit)))
        k2 = np.asarray(layout.k_squared())
        assert_array_equal(inside, np.isclose(k2, (wanted * unit) ** 2) & np.asarray(layout.mask))
    # `dealias: spherical` keeps the modes with sum (2 n_i / N_i)^2 < 8/9: 7.5^2 / 16^2 < 2/9 < 8^2
    # / 16^2.
    grid = replace(Grid.of((16, 16, 16), (2 * np.pi,) * 3), dealias="spherical")
    numbers = np.stack(np.meshgrid(*(np.arange(-8, 9),) * 3, indexing="ij"), -1).reshape(-1, 3)
    k2 = (numbers**2).sum(1)
    assert (
        2 * len(band_modes(grid, (6.9, 8.5))) == ((k2 >= 6.9**2) & (k2 < 2 / 9 * 16**2)).sum() > 100
    )


def points():
    x, y, z = (np.arange(n) * h for n, h in zip(GRID.shape, GRID.spacing, strict=True))
    x, y, z = np.meshgrid(x, y, z, indexing="ij")
    return (
        x,
        y,
        z,
        2 * np.pi * x / GRID.box[0],
        2 * np.pi * y / GRID.box[1],
        2 * np.pi * z / GRID.box[2],
    )


def force(kind, *, count=1, time=0.0, **keys):
    transform, forcing = made(kind, count=count, **keys)
    still = transform.layout.constrain(jnp.zeros((3, *transform.layout.shape), complex))
    # A scalar first, as in gases; its density is 1.
    rest = {"density": jnp.where(transform.layout.zero, 1, still[0]), "velocity": still}
    values = jax.jit(
        lambda f: transform.inverse(forcing.acceleration(f, time, forcing.memory())["velocity"])
    )
    nx, ny, nz = GRID.shape
    return np.asarray(values(rest))[:, :nx, :ny, :nz]


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.spmd)])
def test_steady_forces_have_the_values_of_their_formulas(count):
    *_, x, y, z = points()
    zero = np.zeros_like(x)
    kolmogorov = [0.7 * np.sin(2 * y), zero, zero]
    found = force("kolmogorov", amplitude=0.7, wavenumber=2, count=count)
    assert_allclose(found, kolmogorov, atol=1e-14)
    ratio = GRID.box[1] / GRID.box[0]
    green = [np.sin(x) * np.cos(y) * np.cos(z), -ratio * np.cos(x) * np.sin(y) * np.cos(z), zero]
    assert_allclose(force("taylor_green", count=count), green, atol=1e-14)
    a, b, c = 1.5, -0.4, 0.8
    abc = [
        a * np.sin(z) + c * np.cos(y),
        b * np.sin(x) + a * np.cos(z),
        c * np.sin(y) + b * np.cos(x),
    ]
    assert_allclose(force("abc", A=a, B=b, C=c, count=count), abc, atol=1e-14)


CODE = """
import jax.numpy as jnp

def shear(x, y, z, t, strength):
    return {"velocity": (strength * jnp.sin(2 * jnp.pi * y / 3.0) * jnp.cos(t), 0, 0)}

def compressive(x, y, z, t):
    return {"velocity": (jnp.sin(x), 1.0, 0 * z)}
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "forces.py"
    path.write_text(CODE)
    return str(path)


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.spmd)])
def test_python(code, count):
    *_, y, _ = points()
    found = force(
        "python", path=code, function="shear", parameters={"strength": 2.0}, time=0.4, count=count
    )
    assert_allclose(found[0], 2 * np.sin(y) * np.cos(0.4), atol=1e-14)
    assert abs(found[1:]).max() < 1e-15
    # What a solenoidal field cannot take is removed; the mean stays.
    found = force("python", path=code, function="compressive", count=count)
    assert_allclose(found, np.reshape([0, 1, 0], (3, 1, 1, 1)) + 0 * found, atol=1e-14)


def test_constant_power_is_exact_at_every_evaluation_and_gained_to_the_integrators_order():
    """Without viscosity the energy grows by rate x time: RK4's error of it is of order 5."""
    rate = 0.3
    simulation = flow(
        *(12, 12, 12),
        initial={"kind": "random", "peak": 2, "energy": 0.5},
        forcing={"kind": "constant_power", "rate": rate, "band": [1, 2]},
    )
    errors = []
    for n in (4, 8):
        rows = [measured(simulation, state) for state in marched(simulation, 0.4 / n, n)]
        assert all(row["injection"] == pytest.approx(rate, rel=1e-12) for row in rows)
        errors.append(abs(rows[-1]["energy"] - rows[0]["energy"] - rate * 0.4))
    assert np.log2(errors[0] / errors[1]) > 3.9 and errors[1] < 1e-6


def test_linear_forcing_leaves_the_mean_alone():
    linear = {"kind": "linear", "coefficient": 0.4}
    simulation = flow(8, 8, 8, initial={"kind": "abc"}, viscosity=0.1, forcing=linear)
    first = simulation.state
    final = last(marched(simulation, 0.05, 10))
    # A Beltrami flow of k = 1: exp((A - nu) t), to RK4's (A dt)^5 / 120 a step.
    grown = np.asarray(first.fields["velocity"]) * np.exp(0.3 * 0.5)
    assert abs(np.asarray(final.fields["velocity"]) - grown).max() < 1e-9
    row = measured(simulation, final)
    assert row["injection"] == pytest.approx(2 * 0.4 * row["energy"])


NOISE = {"rate": 0.5, "correlation_time": 0.4, "band": [1.0, 2.5], "seed": 3}
CUBE = Grid((10, 10, 10))


def test_the_noise_has_its_variance_and_correlation_time():
    """<b_i* b_j> = delta_ij, and <b(t)* b(t + s)> = exp(-s / T): over 2000 steps of T / 4 there are
    2000 / 8 times (modes x 3) independent numbers, 3 % of statistical error with 40 modes; 5 of
    these are allowed."""
    _, forcing = made("ornstein_uhlenbeck", grid=CUBE, **NOISE)
    dt = jnp.float64(0.1)

    def step(memory, n):
        new = forcing.renewed(memory, n, dt)
        return new, (memory["forcing"], new["forcing"])

    _, (old, new) = jax.jit(lambda m: jax.lax.scan(step, m, jnp.arange(1, 2001)))(forcing.memory())
    error = 5 / np.sqrt(2000 / 8 * old.shape[1] * 3)
    assert float((abs(old) ** 2).mean()) == pytest.approx(1, abs=error)
    assert float((old.conj() * new).real.mean()) == pytest.approx(np.exp(-0.1 / 0.4), abs=error)
    assert abs(complex((old[..., 0].conj() * old[..., 1]).mean())) < error


def test_a_flow_that_only_responds_takes_up_the_rate():
    """du/dt = P f alone for a time t >> T: <u^2> / 2 = rate (t - T (1 - exp(-t / T))). With 2
    complex numbers for each of M modes in 20 stretches the statistical error is 1 / sqrt(40 M); 5
    of these are allowed, and 1 % for steps of T / 4."""
    transform, forcing = made("ornstein_uhlenbeck", grid=CUBE, **NOISE)
    dt = jnp.float64(0.1)
    correlation = NOISE["correlation_time"]

    @jax.jit
    def energies(memory):
        def step(carry, n):
            u, memory = carry
            return (u + dt * memory["forcing"], forcing.renewed(memory, n, dt)), None

        def stretch(memory, n):
            (u, memory), _ = jax.lax.scan(step, (0 * memory["forcing"], memory), n)
            # The force is linear in its memory: with sum b dt for the memory it is the velocity.
            velocity = forcing.acceleration({}, dt, {"forcing": u})["velocity"]
            return memory, transform.layout.inner(velocity, velocity).sum() / 2

        return jax.lax.scan(stretch, memory, jnp.arange(1, 4001).reshape(20, 200))[1]

    memory = forcing.memory()
    expected = NOISE["rate"] * (20 - correlation * (1 - np.exp(-20 / correlation)))
    error = 5 / np.sqrt(40 * len(memory["forcing"])) + 0.01
    assert float(energies(memory).mean()) == pytest.approx(expected, rel=error)


@pytest.mark.spmd
def test_noise_knows_seed_mode_and_step_only():
    finer = Grid((16, 16, 12))
    _, one = made("ornstein_uhlenbeck", grid=CUBE, **NOISE)
    _, same = made("ornstein_uhlenbeck", grid=finer, **NOISE)
    _, other = made("ornstein_uhlenbeck", grid=CUBE, **{**NOISE, "seed": 4})

    def at(forcing, step):
        return np.asarray(
            forcing.renewed(forcing.memory(), jnp.int64(step), jnp.float64(0.1))["forcing"]
        )

    assert_array_equal(at(one, 7), at(same, 7))
    assert abs(at(one, 7) - at(one, 8)).min() > 0
    assert abs(np.asarray(one.memory()["forcing"] - other.memory()["forcing"])).min() > 0
    fields = [force("ornstein_uhlenbeck", count=n, **{**NOISE, "band": [1.0, 3.5]}) for n in (1, 4)]
    assert_allclose(fields[0], fields[1], atol=1e-14)
    assert abs(fields[0]).max() > 0.1


@pytest.mark.parametrize("weight", [1.0, 0.0, 0.4])
def test_solenoidal_weight(weight):
    """The share of compressive energy is (1 - w)^2 / (2 w^2 + (1 - w)^2) on average; 1 and 0 are
    exact."""
    keys = {**NOISE, "solenoidal_weight": weight}
    transform, forcing = made("ornstein_uhlenbeck", model=gas_model, grid=CUBE, **keys)
    f = forcing.acceleration({}, jnp.float64(0), forcing.memory())["velocity"]
    layout = transform.layout
    total = float(layout.inner(f, f).sum())
    rest = f - project(layout, f)
    share = float(layout.inner(rest, rest).sum()) / total
    expected = (1 - weight) ** 2 / (2 * weight**2 + (1 - weight) ** 2)
    assert share == pytest.approx(expected, abs=1e-14 if weight in (0, 1) else 0.1)
    # The variance is rate / T on average; 240 numbers or more fluctuate by 1 / sqrt(120).
    assert total == pytest.approx(NOISE["rate"] / NOISE["correlation_time"], rel=5 / 120**0.5)


@pytest.mark.spmd
def test_placing_the_noise_communicates_nothing():
    transform, forcing = made("ornstein_uhlenbeck", count=4, **NOISE)
    force = jax.jit(lambda m: forcing.acceleration({}, jnp.float64(0), m)["velocity"])
    found = collectives(force.lower(forcing.memory()).compile())
    assert not any(c.count for c in found.values())
    assert transform.mesh.size == 4
