"""The native kernels for particles against XLA's path: interpolation, order in buffers, values kept
on the grid."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import by_id, native_and_xla
from numpy.testing import assert_allclose, assert_array_equal
from particle_cases import (
    GRID,
    HARD,
    LAYOUTS,
    hard_positions,
    random_positions,
    shared_out,
    transform_of,
)

from simulator.physics.particles import Domain
from simulator.physics.particles.interpolation import Sampler
from simulator.physics.particles.migration import ORDER, in_cell_order
from simulator.spectral import Local, make_transform, native
from simulator.spectral.native import build

pytestmark = pytest.mark.skipif(
    native.missing() is not None, reason="there are no native kernels here"
)


@pytest.mark.spmd
@pytest.mark.parametrize(
    "layout, kind, dtype",
    [
        ("one device", "cubic_spline", np.float64),
        ("one device", "linear", np.float32),
        ("2 slabs", "linear", np.float64),
        ("4 slabs, the last with fewer planes", "cubic_spline", np.float64),
        ("5 x 1 pencils, the last empty", "cubic_spline", np.float32),
        ("3 x 2 pencils", "quadratic_spline", np.float32),
        ("3 x 2 pencils", "cubic_spline", np.float64),
    ],
)
def test_interpolation_is_that_of_xla(layout, kind, dtype):
    """Values of up to 1 are sums over 64 points with weights of sum 1: 64 roundings at most. Where
    a device does not see all points of a particle, both are not a number."""
    t = transform_of(layout, dtype)
    plain = transform_of(layout, dtype, "xla")
    sampler = Sampler(t, kind)
    order = t.kept_order
    assert order is not None
    numbers = (
        np.random.default_rng(0).uniform(-1, 1, (4, *t.physical.shape)).astype(dtype)
    )  # three at a time and one
    spec = jax.sharding.PartitionSpec(None, *map(t.physical.sharded.get, order))
    turned = numbers.transpose(0, *(1 + "xyz".index(axis) for axis in order))
    values = jax.device_put(turned, jax.sharding.NamedSharding(t.physical.mesh, spec))
    where = hard_positions(sampler.domain)
    found = np.asarray(jax.jit(partial(sampler.of_values, order=order))(values, where))
    given = jax.device_put(numbers, plain.physical.sharding(4))
    expected = np.asarray(jax.jit(Sampler(plain, kind).of_values)(given, where))
    seen = np.isfinite(np.asarray(where)).all(0) & (abs(np.asarray(where)) < 1e9).all(0)
    # A device without planes holds no particles, and has nothing to interpolate between.
    seen &= np.repeat(sampler.domain.owners, len(seen) // sampler.domain.devices)
    assert_array_equal(np.isnan(found)[:, seen], np.isnan(expected)[:, seen])
    assert np.isnan(found[:, ~np.isfinite(np.asarray(where)).all(0)]).all()
    assert np.isfinite(found[:, seen]).any()
    assert_allclose(found[:, seen], expected[:, seen], rtol=0, atol=64 * np.finfo(dtype).eps)


def test_every_variant_interpolates():
    """All instruction sets that this processor has."""
    t = transform_of("one device", np.float64)
    before = native.load().variant
    tried = []
    values = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (3, *GRID.shape)))
    where = hard_positions(Domain.of(t))[:, :HARD]
    run = jax.jit(Sampler(t, "cubic_spline").of_values)
    expected = Sampler(transform_of("one device", np.float64, "xla"), "cubic_spline").of_values(
        values, where
    )
    try:
        for variant in build.VARIANTS:
            if native.load().choose(variant):
                tried.append(variant)
                assert_allclose(run(values, where), expected, rtol=0, atol=1e-14, err_msg=variant)
    finally:
        native.load().choose(before)
    assert "baseline" in tried


@pytest.mark.spmd
@pytest.mark.parametrize(
    "layout", ["one device", "4 slabs, the last with fewer planes", "3 x 2 pencils"]
)
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
    assert_array_equal(found.products["p"], plain.products["p"])
    assert plain.values == {}
    back = np.asarray(jax.jit(t.inverse)(modes))
    for name, part in (("velocity", back[1:]), ("a", back[:1]), ("all", back)):
        values = t.inverse_kept(modes) if name == "all" else found.values[name]
        kept = np.asarray(values).transpose(0, *(1 + t.kept_order.index(a) for a in "xyz"))
        inside = np.broadcast_to(np.asarray(t.physical.inside()), part.shape)
        assert_allclose(kept[inside], part[inside], rtol=0, atol=1e-13)


@pytest.mark.spmd
@pytest.mark.parametrize("layout", ["one device", "2 slabs"])
def test_sorting_keeps_particles_whole_and_empty_entries_empty(layout):
    domain = Domain.of(transform_of(layout, np.float64))
    devices = domain.devices
    position = random_positions(HARD * devices, 3)
    particles = shared_out(position, domain, 2 * HARD)
    run = jax.jit(lambda p, due: in_cell_order(p, domain, due))
    same = run(particles, jnp.asarray(False))
    for before, after in zip(jax.tree.leaves(particles), jax.tree.leaves(same), strict=True):
        assert_array_equal(before, after)
    found = run(particles, jnp.asarray(True))
    cells = [np.asarray(domain.plane(found.records["position"], "xyz".index(a))) for a in ORDER]
    cell = np.ravel_multi_index(cells, [GRID.shape["xyz".index(a)] for a in ORDER])
    assert (np.diff(cell.reshape(devices, -1)[:, :HARD]) >= 0).all()
    home = np.asarray(found.id).reshape(devices, -1)
    assert_array_equal(home[:, :HARD] // HARD, np.arange(devices)[:, None].repeat(HARD, 1))
    assert_array_equal(home[:, HARD:], -1)
    records = by_id(found)
    assert_array_equal(records["tag"], 0.5 + np.arange(HARD * devices))
    assert_array_equal(records["position"], position)


CASE = """\
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [16, 12, 8]}
initial: {kind: random, peak: 2.0, energy: 2.0, seed: 1}
time: {stop: 1, dt: 0.1}
particles: [{name: a, kind: tracer, count: 100}, {name: b, kind: tracer, count: 60, interpolation: linear}]
"""


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize("integrator, devices", [("rk2", 1), ("rk3", 1), ("rk4", 2), ("etdrk4", 1)])
def test_tracers_take_the_steps_that_xla_takes(integrator, devices):
    """Kernels compute the positions of stages from combinations of rates. In 10 steps, in which
    particles are sorted and some move to other devices, round-off of lengths of order 10 does not
    grow much."""
    for _, one, _, other in native_and_xla(CASE, devices, 10, f"time.integrator={integrator}"):
        assert abs(other["displacement"]).max() > 1
        for record in ("position", "displacement"):
            assert_allclose(one[record], other[record], rtol=0, atol=1e-11)
