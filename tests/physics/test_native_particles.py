"""The native kernels for particles against XLA's path: interpolation, order in buffers, values kept on the grid."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simulator.physics.particles import Domain, ParticleSet
from simulator.physics.particles.interpolation import Sampler
from simulator.physics.particles.migration import ORDER, sorted_by_cell
from simulator.spectral import Grid, Local, make_transform, native
from simulator.spectral.native import build
from simulator.spectral.native.particles import select

pytestmark = pytest.mark.skipif(native.missing() is not None, reason="there are no native kernels here")

GRID = Grid((16, 10, 12), (6.0, 5.0, 4.0))
LAYOUTS = {
    "one device": (1, {}),
    "2 slabs": (2, {}),
    "4 slabs, the last with fewer planes": (4, {}),
    "5 x 1 pencils, the last empty": (5, {}),
    "3 x 2 pencils": (6, {"decomposition": "pencil"}),
}
COUNT = 150


def transform(layout, dtype, kernels="native"):
    count, choice = LAYOUTS[layout]
    return make_transform(GRID, jax.devices()[:count], dtype, kernels=kernels, **choice)


def positions(domain):
    """(3, entries): for every device points in the box, on cell borders, outside of the box, beyond what a device
    sees, and no number."""
    rng = np.random.default_rng(1)
    box, spacing = np.array(GRID.box)[:, None], np.array(GRID.spacing)[:, None]
    inside = rng.random((3, COUNT)) * box
    borders = rng.integers(0, GRID.shape, (COUNT, 3)).T * spacing
    outside = (rng.random((3, COUNT)) * 3 - 1) * box
    faces = np.nextafter(box, 0) * rng.integers(0, 2, (3, COUNT))
    lost = np.full((3, 3), 1.0)
    lost[np.arange(3), np.arange(3)] = (np.nan, np.inf, 1e30)
    one = np.concatenate([inside, borders, outside, faces, lost], axis=1)
    every = np.concatenate([one] * domain.devices, axis=1)
    return jax.device_put(every, domain.sharding(2))


@pytest.mark.spmd
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("cubic_spline", np.float64),
        ("linear", np.float64),
        ("quadratic_spline", np.float32),
        ("cubic_spline", np.float32),
        ("linear", np.float32),
    ],
)
def test_interpolation_is_that_of_xla(layout, kind, dtype):
    """Values of up to 1 are sums over 64 points with weights of sum 1: 64 roundings at most. Where a device does not
    see all points of a particle, both are not a number."""
    t = transform(layout, dtype)
    sampler = Sampler(t, kind)
    components = 4  # three at a time and one
    order = t.kept_order
    shape = [t.physical.shape["xyz".index(a)] for a in order]
    sharding = jax.sharding.NamedSharding(
        t.physical.mesh, jax.sharding.PartitionSpec(None, *map(t.physical.sharded.get, order))
    )
    values = np.random.default_rng(0).uniform(-1, 1, (components, *shape)).astype(dtype)
    values = jax.device_put(values, sharding)
    where = positions(sampler.domain)
    found = np.asarray(jax.jit(partial(sampler.of_values, order=order))(values, where))
    expected = np.asarray(jax.jit(partial(sampler._reference, order))(values, where))
    seen = np.isfinite(np.asarray(where)).all(0) & (abs(np.asarray(where)) < 1e9).all(0)
    # A device without planes holds no particles, and has nothing to interpolate between.
    seen &= np.repeat(sampler.domain.owners, len(seen) // sampler.domain.devices)
    np.testing.assert_array_equal(np.isnan(found)[:, seen], np.isnan(expected)[:, seen])
    assert np.isnan(found[:, ~np.isfinite(np.asarray(where)).all(0)]).all()
    assert np.isfinite(found[:, seen]).any()
    np.testing.assert_allclose(found[:, seen], expected[:, seen], rtol=0, atol=64 * np.finfo(dtype).eps)


def test_every_variant_interpolates():
    """All instruction sets that this processor has."""
    t = transform("one device", np.float64)
    before, tried = native.load().variant, []
    values = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (3, *GRID.shape)))
    where = positions(Domain.of(t))[:, :COUNT]
    run = jax.jit(Sampler(t, "cubic_spline").of_values)
    expected = Sampler(t, "cubic_spline")._reference("xyz", values, where)
    try:
        for variant in build.VARIANTS:
            if native.load().choose(variant):
                tried.append(variant)
                np.testing.assert_allclose(run(values, where), expected, rtol=0, atol=1e-14, err_msg=variant)
    finally:
        native.load().choose(before)
    assert "baseline" in tried


@pytest.mark.spmd
@pytest.mark.parametrize("layout", ["one device", "4 slabs, the last with fewer planes", "3 x 2 pencils"])
def test_kept_values_are_those_of_the_inverse(layout):
    """The values that a nonlinear term has seen, in blocks of which the last overlaps."""
    count, choice = LAYOUTS[layout]
    t = make_transform(GRID, jax.devices()[:count], np.float64, kernels="native", block=2, **choice)
    rng = np.random.default_rng(0)
    values = np.where(t.physical.inside(), rng.standard_normal((4, *t.physical.shape)), 0)
    modes = jax.jit(t.forward)(jax.device_put(values, t.physical.sharding(4)))
    inputs = {"a": modes[0], "velocity": modes[1:]}

    def product(values, points, parameters):
        return Local({"p": values["a"] * values["velocity"]})

    found = jax.jit(lambda i: t.evaluate(i, product, keep=("velocity", "a")))(inputs)
    plain = jax.jit(lambda i: t.evaluate(i, product))(inputs)
    np.testing.assert_array_equal(found.products["p"], plain.products["p"])
    assert plain.values == {}
    back = np.asarray(jax.jit(t.inverse)(modes))
    for name, part in (("velocity", back[1:]), ("a", back[:1]), ("all", back)):
        values = t.inverse_kept(modes) if name == "all" else found.values[name]
        kept = np.asarray(values).transpose(0, *(1 + t.kept_order.index(a) for a in "xyz"))
        inside = np.broadcast_to(np.asarray(t.physical.inside()), part.shape)
        np.testing.assert_allclose(kept[inside], part[inside], rtol=0, atol=1e-13)


@pytest.mark.parametrize("most", [1, 7, 100])
def test_the_first_marks_are_selected(most):
    marks = np.random.default_rng(0).choice(3, 203, p=(0.8, 0.1, 0.1)).astype(np.int8)
    for found, mark in zip(jax.jit(select, static_argnums=1)(marks, most), (1, 2), strict=True):
        (places,) = np.nonzero(marks == mark)
        np.testing.assert_array_equal(found, np.append(places, [203] * most)[:most])


@pytest.mark.spmd
@pytest.mark.parametrize("layout", ["one device", "2 slabs"])
def test_sorting_keeps_particles_whole_and_empty_entries_empty(layout):
    domain = Domain.of(transform(layout, np.float64))
    rng, entries, devices = np.random.default_rng(3), 300, domain.devices
    position = rng.random((3, devices * entries)) * np.array(GRID.box)[:, None]
    ids, count = rng.permutation(devices * entries), np.full(devices, COUNT, np.int32)
    empty = (np.arange(entries) >= COUNT)[None].repeat(devices, 0).ravel()
    ids[empty], position[:, empty] = -1, 0
    put = jax.device_put
    particles = ParticleSet(
        {"tag": put(2.0 * ids, domain.sharding(1)), "position": put(position, domain.sharding(2))},
        put(ids, domain.sharding(1)),
        put(count, domain.sharding(1)),
        put(jnp.int32(0), domain.everywhere),
    )
    run = jax.jit(lambda p, due: sorted_by_cell(p, domain, due))
    same = run(particles, jnp.asarray(False))
    for before, after in zip(jax.tree.leaves(particles), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(before, after)
    found = run(particles, jnp.asarray(True))
    cells = [np.asarray(domain.plane(found.records["position"], "xyz".index(a))) for a in ORDER]
    cell = np.ravel_multi_index(cells, [GRID.shape["xyz".index(a)] for a in ORDER]).reshape(devices, entries)
    assert (np.diff(cell[:, :COUNT]) >= 0).all()
    np.testing.assert_array_equal(np.asarray(found.id)[empty], -1)
    np.testing.assert_array_equal(np.asarray(found.records["tag"]), 2.0 * np.asarray(found.id))
    for device in range(devices):
        here = slice(device * entries, device * entries + COUNT)
        a, b = np.argsort(ids[here]), np.argsort(np.asarray(found.id)[here])
        np.testing.assert_array_equal(np.asarray(found.id)[here][b], ids[here][a])
        np.testing.assert_array_equal(
            np.asarray(found.records["position"])[:, here][:, b], position[:, here][:, a]
        )


def test_derivatives_follow_the_sorted_particles():
    """The derivative of a sum over particles with distinct weights."""
    domain = Domain.of(transform("one device", np.float64))
    position = jnp.asarray(np.random.default_rng(5).random((3, 20)) * np.array(GRID.box)[:, None])
    tags = jnp.arange(20.0)

    def total(position):
        particles = ParticleSet(
            {"position": position, "tag": tags}, jnp.arange(20), jnp.full(1, 20, jnp.int32), jnp.int32(0)
        )
        found = sorted_by_cell(particles, domain, jnp.asarray(True))
        return (found.records["tag"] * found.records["position"] ** 2).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(total))(position), 2 * tags * position, rtol=1e-14)
