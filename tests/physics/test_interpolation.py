"""Fields between the points of the grid: orders, smoothness, the same values on any devices; and
particles that move to the devices where they live: nobody is lost, and more room is asked for where
it is needed."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import by_id
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from particle_cases import LAYOUTS, domain, random_positions, shared_out, transform
from tiers import slow

from simulator.physics.particles.interpolation import REACH, Sampler
from simulator.physics.particles.migration import settled
from simulator.physics.particles.particle_set import capacity_for, grown, id_sum
from simulator.spectral import Grid, make_transform

pytestmark = pytest.mark.spmd

COUNT = 200


def wave(x, y, z):
    return jnp.stack([jnp.sin(x + 2 * y) * jnp.cos(z), jnp.cos(x - z) + jnp.sin(y)])


def coefficients(t, function=wave):
    def build():
        values = function(*t.physical.coordinates())
        return t.forward(t.physical.constrain(jnp.where(t.physical.inside(), values, 0)))

    return jax.jit(build)()


def error(n, kind):
    t = make_transform(Grid((n, n, n)), jax.devices()[:1])
    position = jnp.asarray(random_positions(COUNT, grid=t.grid))
    found = jax.jit(Sampler(t, kind).__call__)(coefficients(t), position)
    return abs(np.asarray(found) - np.asarray(wave(*position))).max()


@pytest.mark.parametrize("kind, order", [("cubic_spline", 4), ("linear", 2)])
def test_the_error_falls_with_the_order(kind, order):
    """Within 0.3 of the order from 16 to 32 points: terms beyond the leading one are still felt."""
    assert abs(np.log2(error(16, kind) / error(32, kind)) - order) < 0.3


@pytest.mark.parametrize("kind", ["cubic_spline", "linear"])
def test_at_the_points_of_the_grid_it_is_exact(kind):
    t = make_transform(Grid((8, 12, 16)), jax.devices()[:1])
    axes = (np.arange(n) * h for n, h in zip(t.grid.shape, t.grid.spacing, strict=True))
    position = jnp.asarray(np.stack(np.meshgrid(*axes)).reshape(3, -1))
    found = jax.jit(Sampler(t, kind).__call__)(coefficients(t), position)
    assert_allclose(found, wave(*position), rtol=0, atol=1e-14)


def test_the_spline_has_two_continuous_derivatives():
    """Across a plane of points the second derivative changes by no more than the third derivative
    times the way."""
    t = make_transform(Grid((16, 16, 16)), jax.devices()[:1])
    modes = coefficients(t)
    sample = Sampler(t, "cubic_spline")
    face = 5 * t.grid.spacing[0]

    def second(x):
        return jax.grad(jax.grad(lambda s: sample(modes, jnp.array([[s], [1.3], [2.1]]))[0, 0]))(x)

    below, above = (float(jax.jit(second)(face + side * 1e-6)) for side in (-1, 1))
    assert abs(above - below) < 1e-5 and abs(below) > 0.1


@pytest.mark.parametrize(
    "layout",
    [*list(LAYOUTS)[1::2], *map(slow, list(LAYOUTS)[2::2])],
)
def test_devices_do_not_matter(layout):
    position = random_positions(COUNT)
    scale = 2 * np.pi / np.array(transform(layout).grid.box)

    def function(x, y, z):
        return wave(*(c * s for c, s in zip((x, y, z), scale, strict=True)))

    def values(name):
        t = transform(name)
        particles = jax.jit(lambda p: settled(p, domain(name)))(
            shared_out(position, domain(name), COUNT)
        )
        seen = jax.jit(Sampler(t, "cubic_spline").__call__)(
            coefficients(t, function), particles.records["position"]
        )
        return by_id(particles.with_records({"seen": seen}))["seen"]

    # Transforms on other numbers of devices differ by round-off.
    assert_allclose(values(layout), values("one device"), rtol=0, atol=1e-14)


def test_a_position_beyond_the_ghost_planes_is_not_a_number():
    """The first device sees REACH planes beyond its own on both sides, around the box, and knows
    farther ones."""
    name = "2 slabs"
    t = transform(name)
    home = domain(name)
    planes = t.grid.shape[1] // 2
    dy = t.grid.spacing[1]
    y = (
        np.array([-(REACH + 0.1), -(REACH - 0.1), planes - 1 + REACH + 0.9, planes + REACH + 0.1])
        * dy
    )
    position = np.zeros((3, 2 * len(y)))
    position[1, : len(y)] = y
    position[1, len(y) :] = planes * dy
    found = jax.jit(Sampler(t, "cubic_spline").__call__)(
        coefficients(t), jax.device_put(position, home.sharding(2))
    )
    assert np.isfinite(np.asarray(found[0])).tolist() == [False, True, True, False] + [True] * len(
        y
    )


@cache
def settle(layout):
    return jax.jit(lambda particles: settled(particles, domain(layout)))


def homes(particles, home):
    """The device of every entry, and the one that owns its planes."""
    here = np.repeat(np.arange(home.devices), particles.capacity)
    mesh = home.physical.mesh
    index = [np.zeros(len(here), int) for _ in mesh.axis_names]
    for cut in home.cuts:
        position = np.asarray(particles.records["position"][cut.axis])
        plane = np.minimum(position / home.physical.grid.spacing[cut.axis], cut.planes - 1).astype(
            int
        )
        index[mesh.axis_names.index(cut.name)] = plane // cut.extent
    return here, np.ravel_multi_index(index, mesh.devices.shape)


@pytest.mark.parametrize("layout", list(LAYOUTS)[2::2])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), spread=st.floats(0.05, 1.0))
def test_everybody_gets_home_with_all_records(layout, seed, spread):
    """From any devices to any others, clumps included; 150 particles need more than one round of
    messages."""
    position = random_positions(150, seed) * spread
    home = domain(layout)
    found = settle(layout)(shared_out(position, home, 150))
    assert int(found.needed) <= 150
    here, lives = homes(found, home)
    valid = np.asarray(found.valid)
    assert_array_equal(here[valid], lives[valid])
    ordered = by_id(found)
    assert_array_equal(ordered["position"], position)
    assert_array_equal(ordered["tag"], 0.5 + np.arange(150))
    counts = np.asarray(found.count)
    assert_array_equal(valid.reshape(home.devices, -1), np.arange(150) < counts[:, None])


@pytest.mark.parametrize("layout, room", [("2 slabs", 70), ("2 x 2 pencils", 90)])
def test_where_there_is_no_room_nobody_is_lost_and_larger_buffers_cure_it(layout, room):
    position = random_positions(120) * 0.4  # all of them in one corner
    home = domain(layout)
    start = shared_out(position, home, room)
    found = settle(layout)(start)
    assert bool(found.crowded)
    assert_array_equal(by_id(found)["position"], position)
    if len(home.cuts) == 1:  # one round of messages, for which there was no room
        assert_array_equal(start.id, found.id)
    again = found
    while bool(again.crowded):  # each time a quarter more room
        again = settle(layout)(grown(again, int(again.needed)))
    assert again.capacity <= 160
    assert_array_equal(by_id(again)["position"], position)


def test_only_neighbours_exchange_and_no_device_sees_all_particles():
    """Collectives of the compiled program: permutations of messages and sums of a few numbers."""
    from peers.collectives import collectives

    layout = "4 slabs, the last with fewer planes"
    count = 4096
    home = domain(layout)
    particles = shared_out(random_positions(count), home, capacity_for(count, 4))
    found = collectives(settle(layout).lower(particles).compile())
    assert {kind for kind, c in found.items() if c.count} == {"collective-permute", "all-reduce"}
    record = 8 * (3 + 1 + 1)  # position, tag, id
    message = particles.capacity // 64 + 16
    assert found["collective-permute"].bytes == 2 * message * record
    assert found["all-reduce"].bytes < 1000


def test_the_sum_of_ids_is_that_of_the_first_whole_numbers():
    assert id_sum(1000) == sum(range(1000))
    assert id_sum(10**12) == int(
        np.array(10**12 * (10**12 - 1) // 2 % 2**64, np.uint64).astype(np.int64)
    )
