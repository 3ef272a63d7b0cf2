"""Particles that are matter: their mass on the grid, their forces, their motion, on any devices;
and in a glass, which has no noise at large scales and no order of a lattice."""

import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import measured
from gravity_cases import MATTER, advanced, by_id, simulation, source, stepped
from numpy.testing import assert_allclose
from scipy.special import erfc
from tiers import slow

from simulator.physics.models import outputs
from simulator.physics.particles.population import crowded
from simulator.plugins.gravity.assignment import Assignment, cloud
from simulator.plugins.gravity.composite import EXPECTED
from simulator.spectral import Grid, make_transform

pytestmark = pytest.mark.spmd

RANDOM = """
import jax
def start(id):
    draw = lambda n: jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(jax.random.key(3), i), (n,)))(id).T
    many = draw(7).astype(jnp.float64)
    return {"position": many[:3] * jnp.array(BOX)[:, None], "velocity": many[3:6] - 0.5, "mass": 0.1 + many[6]}
"""


def random_start(box: list[float]) -> str:
    return f"{{kind: python, path: {source(RANDOM.replace('BOX', str(box)))}, function: start}}"


@cache
def random_matter(*overrides: str, devices: int = 1):
    """Made, and compiled, once for all tests."""
    box = [6.0, 5.0, 4.0]
    return simulation(
        MATTER,
        "model.components.0.count=300",
        "grid={shape: [10, 9, 8], box: [6, 5, 4]}",
        f"initial.components.dark={random_start(box)}",
        *overrides,
        devices=devices,
    )


def assigned(scheme: str):
    """On 4 devices, of which the 9 planes of y are uneven."""
    return random_matter(f"model.components.0.assignment={scheme}", devices=4)


@pytest.mark.parametrize("scheme", ["tsc", *map(slow, ("cic", "pcs"))])
def test_mass_on_the_grid(scheme):
    """Against a sum over all particles by numpy."""
    run = assigned(scheme)
    records = by_id(run.state.particles["dark"])
    found = np.asarray(run.fields["dark_density"])
    reach = {"cic": 1.0, "tsc": 1.5, "pcs": 2.0}[scheme]

    def spline(s):
        s = np.abs(s)
        if scheme == "cic":
            return np.where(s < 1, 1 - s, 0)
        if scheme == "tsc":
            return np.where(s < 0.5, 0.75 - s**2, np.where(s < reach, 0.5 * (1.5 - s) ** 2, 0))
        return np.where(
            s < 1, (4 - 6 * s**2 + 3 * s**3) / 6, np.where(s < reach, (2 - s) ** 3 / 6, 0)
        )

    factors = []
    for x, n, length in zip(records["position"], (10, 9, 8), (6.0, 5.0, 4.0), strict=True):
        away = x[:, None] / (length / n) - np.arange(n)
        factors.append(spline(away - n * np.round(away / n)))
    expected = np.einsum("p,pi,pj,pk->ijk", records["mass"], *factors) * (720 / 120)
    assert_allclose(found, expected, rtol=0, atol=1e-13 * expected.max())
    row = {name: float(value) for name, value in run.diagnostics(run.state).items()}
    assert row["mass"] == pytest.approx(records["mass"].sum(), rel=1e-14)
    noise = 120 * (records["mass"] ** 2).sum() / records["mass"].sum() ** 2
    assert row["dark_shot_noise"] == pytest.approx(noise, rel=1e-13)


@pytest.mark.long
def test_whole_numbers_add_up_the_same_anywhere():
    bits = []
    for devices in (1, 3):
        run = random_matter("model.components.0.reproducible=true", devices=devices)
        bits.append(np.asarray(run.fields["dark_density"]))
        if devices == 1:
            usual = np.asarray(random_matter().fields["dark_density"])
            assert_allclose(bits[0], usual, rtol=0, atol=1e-13 * usual.max())
    assert (bits[0] == bits[1]).all()


@pytest.mark.long
def test_pauses_change_no_bit():
    """In a loop the kick that ends a step and the one that begins the next share their forces: a
    loop that pauses after any number of steps ends at the same bits, and single steps at the same
    numbers."""
    expanding = "model.cosmology={start: 0.5, matter: 0.3, hubble: 1.0}"
    run = random_matter(expanding, "time={stop: 1, cfl: 0.2}", devices=2)
    ends = []
    for pauses in ([20], [1, 6, 0, 13], [1] * 20):
        state = jax.tree.map(jnp.copy, run.state)
        for steps in pauses:
            state = advanced(run, state, np.inf, steps)
        ends.append(jax.device_get(state))
    assert ends[0].step == 20 and ends[0].dt > 0
    for other in ends[1:]:
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), ends[0], other))
    state = run.state
    step = jax.jit(run.step)
    for _ in range(20):
        assert state.memory.rate is not None
        state = step(state, 0.2 / state.memory.rate)
    one, two = (by_id(s.particles["dark"]) for s in (ends[0], state))
    for name, values in one.items():
        assert_allclose(values, two[name], rtol=0, atol=1e-12 * abs(values).max())
    assert_allclose(ends[0].memory.model[EXPECTED], state.memory.model[EXPECTED], rtol=1e-11)


def ewald(r: np.ndarray, length: float) -> np.ndarray:
    """Acceleration (3,) by a unit mass at the origin and its images, G = 1 (Ewald, Ann. Phys. 369,
    253, 1921)."""
    alpha = 6 / length
    force = np.zeros(3)
    cells = np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3), -1).reshape(-1, 3)
    d = r + cells * length
    s = np.sqrt((d**2).sum(1))
    near = erfc(alpha * s) + 2 * alpha * s / math.sqrt(math.pi) * np.exp(-((alpha * s) ** 2))
    force -= (d * (near / s**3)[:, None]).sum(0)
    modes = np.stack(np.meshgrid(*[np.arange(-10, 11)] * 3), -1).reshape(-1, 3)
    k = 2 * np.pi / length * modes[(modes**2).sum(1) > 0]
    k2 = (k**2).sum(1)
    far = k * (np.exp(-k2 / (4 * alpha**2)) / k2 * np.sin(k @ r))[:, None]
    return force - 4 * np.pi / length**3 * far.sum(0)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "softening, scheme, limit, interlacing",
    [
        ("3.6", "tsc", 0.01, False),
        slow("3.6", "pcs", 0.006, False),
        slow("3.6", "tsc", 0.002, True),
        slow("compensated", "pcs", 0.2, False),
    ],
)
def test_the_force_of_a_mass_is_newtons_beyond_three_cells(softening, scheme, limit, interlacing):
    """1 % of the Ewald sum beyond 3 cells for a cloud of 3.6, as root mean square over places and
    directions at one distance. Compensated clouds oscillate about Newton's force by 17 % at 3
    cells; points do by 70 %."""
    rng = np.random.default_rng(0)
    n = 16
    distances = np.array([3.1, 3.5, 4.0, 6.0])
    count = 1 + 40 * len(distances)
    run = simulation(
        MATTER,
        f"model.components.0={{kind: particles, name: dark, count: {count}, assignment: {scheme}, "
        f"softening: {softening}, interlacing: {str(interlacing).lower()}}}",
        f"grid={{shape: [{n}, {n}, {n}], box: [{n}, {n}, {n}]}}",
        f"initial.components.dark={random_start([n, n, n])}",
    )
    mass = np.full(count, 1e-12)
    begun = run.state.particles["dark"]
    mass[0] = 1

    @jax.jit
    def pulled(places):
        records = {
            "position": places,
            "velocity": jnp.zeros_like(places),
            "mass": jnp.asarray(mass),
        }
        particles = begun.with_records(records)
        kicked, _ = run.model.kick({"dark": particles}, jnp.float64(0), jnp.float64(1))
        return kicked["dark"].records["velocity"]

    squares = []
    for _ in range(20):
        first = rng.uniform(0, n, 3)
        ways = rng.normal(size=(count - 1, 3))
        ways *= (np.repeat(distances, 40) / np.linalg.norm(ways, axis=1))[:, None]
        found = np.asarray(pulled(np.vstack([first, (first + ways) % n]).T)).T[1:]
        expected = np.array([ewald(way, float(n)) for way in ways])
        squares.append(((found - expected) ** 2).sum(1) / (expected**2).sum(1))
    errors = np.sqrt(np.mean(squares, 0).reshape(len(distances), 40).mean(1))
    assert (errors < limit).all(), errors


@pytest.mark.long
@pytest.mark.parametrize("overrides", [(), ("model.components.0.interlacing=true",)])
def test_momentum_is_conserved_to_round_off(overrides):
    """Random masses at random places: every step changes the sum of m v by round-off of its terms
    alone."""
    run = random_matter(*overrides, devices=4)
    state = run.state
    records = by_id(state.particles["dark"])
    terms = np.sqrt(((records["mass"] * records["velocity"]) ** 2).sum())
    after = records
    for _ in range(3):
        before = after
        state = stepped(run, state, 0.05, 1)
        after = by_id(state.particles["dark"])
        pushed = after["mass"] * (after["velocity"] - before["velocity"])
        assert np.abs(pushed).sum() > 1e-2 * terms
        assert np.abs(pushed.sum(1)).max() < 1e-14 * np.abs(pushed).sum()
    columns = measured(run, state)
    squares = (after["velocity"] ** 2).sum(0)
    kinetic = 0.5 * (after["mass"] * squares).sum() / run.grid.volume
    assert columns["dark_max_speed"] == pytest.approx(squares.max() ** 0.5, rel=1e-12)
    assert columns["kinetic_energy"] == pytest.approx(kinetic, rel=1e-12)


def test_devices_agree_and_the_order_is_two():
    ends = {}
    for devices in (1, 4):
        run = random_matter(devices=devices)
        ends[devices] = by_id(stepped(run, run.state, 0.2, 4).particles["dark"])
    for record, values in ends[1].items():
        assert_allclose(ends[4][record], values, rtol=0, atol=1e-12)
    run = simulation(MATTER)
    states = (stepped(run, run.state, 0.5, n) for n in (80, 5, 10))
    exact, coarse, fine = (by_id(state.particles["dark"])["position"] for state in states)
    assert np.abs(coarse - exact).max() / np.abs(fine - exact).max() == pytest.approx(4, rel=0.1)


PILE = """
def start(id):
    x = (id + 0.5) / 400
    return {"position": jnp.stack([4 + 0 * x, 8 * x, 4 + 0 * x]), "mass": 1e-9 + 0 * x,
            "velocity": jnp.stack([0 * x, 5 - 8 * x, 0 * x])}
"""


@pytest.mark.long
def test_a_step_without_room_is_taken_again():
    """All particles fly to one plane within a step: its buffer grows, the state stays until then,
    nobody is lost."""
    run = simulation(
        MATTER,
        "model.components.0.count=400",
        "grid={shape: [8, 8, 8], box: [8, 8, 8]}",
        f"initial.components.dark={{kind: python, path: {source(PILE)}, function: start}}",
        "time.dt=1",
        devices=2,
    )
    had = run.state.particles["dark"].capacity
    state = run.state
    state = advanced(run, state, 10.0, 1)
    assert crowded(state.particles) == "dark" and int(state.step) == 0 and float(state.time) == 0
    start = by_id(state.particles["dark"])
    assert_allclose(start["velocity"][1], 5 - 8 * (np.arange(400) + 0.5) / 400, atol=1e-14)
    state = run.grow(state)
    state = advanced(run, state, 10.0, 1)
    found = state.particles["dark"]
    assert crowded(state.particles) is None and int(state.step) == 1 and found.capacity > had
    assert np.asarray(found.count).max() == 400
    assert_allclose(by_id(found)["position"][1], 5, rtol=0, atol=1e-6)


def modes_of_one(run, scheme: str, interlaced: bool) -> np.ndarray:
    """The modes of the density of a single particle, number 7, times the volume."""
    transform = run.model.transform
    dark = run.state.particles["dark"]
    assignment = Assignment(transform, scheme, None, interlaced)

    @jax.jit
    def modes():
        mass = jnp.where(dark.id == 7, 1.0, 0.0)
        found = transform.forward(assignment.density(dark.records["position"], mass))
        return found / assignment.window(transform.layout) * transform.grid.points

    return np.asarray(modes())


@pytest.mark.parametrize("scheme", ["tsc", slow("pcs")])
def test_interlacing_cancels_the_odd_aliases(scheme):
    """The modes of one particle at x, over those of a point: the sum over n of prod_i w(k_i + n_i K) / w(k_i)
    exp(-i n_i K x_i), K = 2 pi / h and w the spline's window; only even sums of n stay. A sum over the axes' n is a
    product of three, and half the sum of those with and without (-1)^n is that of the even ones. The terms beyond
    |n| = 400 are below (1 / 2n)^3 and add up to 1e-6 along an axis."""
    run = assigned(scheme)
    power = {"tsc": 3, "pcs": 4}[scheme]
    layout = run.model.transform.layout
    n = np.arange(-400, 401)
    whole = alternating = point = 1.0
    nyquist = False  # modes without a phase
    places = zip(by_id(run.state.particles["dark"])["position"][:, 7], run.grid.box, strict=True)
    for axis, cells, (x, length) in zip("xyz", run.grid.shape, places, strict=True):
        m = np.asarray(layout.integers(axis))
        point = point * np.exp(-2j * np.pi * m * x / length)
        aliases = (np.sinc(m[..., None] / cells + n) / np.sinc(m / cells)[..., None]) ** power
        aliases = aliases * np.exp(-2j * np.pi * n * x * cells / length)
        whole = whole * aliases.sum(-1)
        alternating = alternating * (aliases * (-1.0) ** n).sum(-1)
        nyquist = nyquist | (2 * abs(m) == cells)
    even = np.where(nyquist, whole, (whole + alternating) / 2)
    errors = []
    for interlaced, expected in ((False, whole), (True, even)):
        found = modes_of_one(run, scheme, interlaced) / point
        mask = np.asarray(jnp.broadcast_to(layout.mask, found.shape))
        wanted = np.broadcast_to(expected, found.shape)
        assert_allclose(found[mask], wanted[mask], rtol=0, atol=5e-6)
        errors.append(abs(found - 1)[mask & (np.asarray(layout.k_squared()) <= 1.1)].max())
    assert errors[1] < 0.2 * errors[0]


GLASS = """\
model: {kind: composite, components: [{kind: particles, name: dark, count: 4000, arrangement: glass, softening: 0}]}
grid: {shape: [16, 16, 16], box: [1, 1, 1]}
initial: {kind: composite, components: {dark: {kind: START, density: 1}}}
time: {stop: 1.0, dt: 0.05}
"""


@pytest.fixture(scope="module")
def glass():
    return simulation(GLASS.replace("START", "uniform"), devices=3)


def power(run) -> np.ndarray:
    """P(k) over the shot noise V / N."""
    return (
        np.asarray(
            jax.jit(partial(outputs.spectra, run.model))(outputs.contents(run.model, run.state))[
                "dark_density_power"
            ]
        )
        * 4000
    )


@pytest.mark.long
def test_a_glass_has_no_noise_at_large_scales_and_no_lattice(glass):
    """32^3 particles on as many points have 2e-8 of the shot noise in the first shell, 5e-6 in the
    eighth."""
    noise = power(glass)[1:5]
    assert noise[0] < 1e-5 and (noise < 1e-3).all()
    assert np.log(noise[3] / noise[0]) / np.log(4) > 2
    assert (np.diff(noise) > 0).all()
    # Distances to the nearest neighbour are near (V/N)^(1/3) and spread, and no particle has lost
    # its id.
    position = by_id(glass.state.particles["dark"])["position"]
    away = position[:, :300, None] - position[:, None, :]
    away = np.sqrt(((away - np.round(away)) ** 2).sum(0))
    away[np.arange(300), np.arange(300)] = 1
    nearest = away.min(1) * 4000 ** (1 / 3)
    assert 0.5 < nearest.mean() < 1.1 and 0.02 < nearest.std() < 0.3
    assert (by_id(glass.state.particles["dark"])["velocity"] == 0).all()


def test_a_wave_is_put_on_it():
    """The mode of a density wave of 1 %, whose window is divided out, to 1 % of it."""
    run = simulation(GLASS.replace("START", "jeans_wave, amplitude: 0.01, mode: [1, 0, 0]"))
    modes = np.asarray(
        run.transform.forward(run.model.parts["dark"].density(run.state.particles["dark"]))
    )
    layout = run.transform.layout
    m = [np.abs(np.asarray(layout.integers(axis))) for axis in "xyz"]
    window = np.asarray(run.model.parts["dark"].assignment.window(layout))
    wave = np.abs(modes / window)[(m[0] == 1) & (m[1] == 0) & (m[2] == 0)]
    assert_allclose(wave, 0.005, rtol=0.01)


def test_the_transform_of_a_sphere_with_a_linear_profile():
    """4 pi integral of rho(r) r^2 sin(k r) / (k r) for a density that falls linearly to 0 at the
    edge; where x = k a / 2 is small the series' next term, x^6 / 38000, is 3e-11."""
    layout = make_transform(Grid((16, 16, 16)), jax.devices()[:1]).layout
    r, weight = np.polynomial.legendre.leggauss(60)
    r, weight = (r + 1) / 2, weight / 2
    k = np.sqrt(np.asarray(layout.k_squared()))
    for diameter in (0.02, 0.1, 1.0):
        kr = k[..., None] * r * diameter / 2
        wanted = (12 * weight * (1 - r) * r**2 * np.sinc(kr / np.pi)).sum(-1)
        assert_allclose(cloud(layout, diameter, float), wanted, rtol=0, atol=1e-10)
