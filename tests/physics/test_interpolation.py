"""Fields between the points of the grid: orders of convergence, smoothness, and the same values on any devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import by_id as in_order
from particle_cases import LAYOUTS, domain, random_positions, shared_out, transform

from simulator.physics.particles.interpolation import REACH, Sampler
from simulator.physics.particles.migration import settled
from simulator.spectral import Grid, make_transform

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


@pytest.mark.parametrize(("kind", "order"), [("cubic_spline", 4), ("linear", 2)])
def test_the_error_falls_with_the_order(kind, order):
    """Within 0.3 of the order from 16 to 32 points: terms beyond the leading one are still felt."""
    assert abs(np.log2(error(16, kind) / error(32, kind)) - order) < 0.3


@pytest.mark.parametrize("kind", ["cubic_spline", "linear"])
def test_at_the_points_of_the_grid_it_is_exact(kind):
    t = make_transform(Grid((8, 12, 16)), jax.devices()[:1])
    axes = (np.arange(n) * h for n, h in zip(t.grid.shape, t.grid.spacing, strict=True))
    position = jnp.asarray(np.stack(np.meshgrid(*axes)).reshape(3, -1))
    found = jax.jit(Sampler(t, kind).__call__)(coefficients(t), position)
    np.testing.assert_allclose(found, wave(*position), rtol=0, atol=1e-14)


def test_the_spline_has_two_continuous_derivatives():
    """Across a plane of points the second derivative changes by no more than the third derivative times the way."""
    t = make_transform(Grid((16, 16, 16)), jax.devices()[:1])
    modes, sample = coefficients(t), Sampler(t, "cubic_spline")
    face = 5 * t.grid.spacing[0]

    def second(x):
        return jax.grad(jax.grad(lambda s: sample(modes, jnp.array([[s], [1.3], [2.1]]))[0, 0]))(x)

    below, above = (float(jax.jit(second)(face + side * 1e-6)) for side in (-1, 1))
    assert abs(above - below) < 1e-5 and abs(below) > 0.1


@pytest.mark.spmd
@pytest.mark.parametrize(
    "layout", [*list(LAYOUTS)[1::2], *(pytest.param(n, marks=pytest.mark.slow) for n in list(LAYOUTS)[2::2])]
)
def test_devices_do_not_matter(layout):
    position = random_positions(COUNT)
    scale = 2 * np.pi / np.array(transform(layout).grid.box)

    def function(x, y, z):
        return wave(*(c * s for c, s in zip((x, y, z), scale, strict=True)))

    def values(name):
        t = transform(name)
        particles = jax.jit(lambda p: settled(p, domain(name)))(shared_out(position, domain(name), COUNT))
        seen = jax.jit(Sampler(t, "cubic_spline").__call__)(coefficients(t, function), particles.records["position"])
        return in_order(particles.with_records({"seen": seen}))["seen"]

    # Transforms on other numbers of devices differ by round-off.
    np.testing.assert_allclose(values(layout), values("one device"), rtol=0, atol=1e-14)


@pytest.mark.spmd
def test_a_position_beyond_the_ghost_planes_is_not_a_number():
    """The first device sees REACH planes beyond its own on both sides, around the box, and knows farther ones."""
    name = "2 slabs"
    t, home = transform(name), domain(name)
    planes, dy = t.grid.shape[1] // 2, t.grid.spacing[1]
    y = np.array([-(REACH + 0.1), -(REACH - 0.1), planes - 1 + REACH + 0.9, planes + REACH + 0.1]) * dy
    position = np.zeros((3, 2 * len(y)))
    position[1, : len(y)] = y
    position[1, len(y) :] = planes * dy
    found = jax.jit(Sampler(t, "cubic_spline").__call__)(coefficients(t), jax.device_put(position, home.sharding(2)))
    assert np.isfinite(np.asarray(found[0])).tolist() == [False, True, True, False] + [True] * len(y)
