"""The native kernels for particles against XLA's path: interpolation, order in buffers, values kept
on the grid."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import MATTER, by_id, simulation
from numpy.testing import assert_allclose, assert_array_equal
from particle_cases import GRID, LAYOUTS, random_positions, shared_out
from tiers import slow

from simulator.physics.particles import Domain
from simulator.physics.particles.assignment import Assignment
from simulator.physics.particles.interpolation import Sampler
from simulator.physics.particles.migration import ORDER, in_cell_order
from simulator.simulation.advance import Until
from simulator.spectral import Grid, Local, make_transform, native
from simulator.spectral.native import build

pytestmark = pytest.mark.skipif(
    native.missing() is not None, reason="there are no native kernels here"
)

COUNT = 150


def transform(layout, dtype, kernels="native"):
    count, choice = LAYOUTS[layout]
    return make_transform(GRID, jax.devices()[:count], dtype, kernels=kernels, **choice)


def positions(domain):
    """(3, entries): points in each device's box, on cell borders, outside, beyond what it sees, and
    no number."""
    rng = np.random.default_rng(1)
    box = np.array(GRID.box)[:, None]
    spacing = np.array(GRID.spacing)[:, None]
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
@pytest.mark.parametrize(
    ("layout", "kind", "dtype"),
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
    t = transform(layout, dtype)
    plain = transform(layout, dtype, "xla")
    sampler = Sampler(t, kind)
    order = t.kept_order
    assert order is not None
    numbers = (
        np.random.default_rng(0).uniform(-1, 1, (4, *t.physical.shape)).astype(dtype)
    )  # three at a time and one
    spec = jax.sharding.PartitionSpec(None, *map(t.physical.sharded.get, order))
    turned = numbers.transpose(0, *(1 + "xyz".index(axis) for axis in order))
    values = jax.device_put(turned, jax.sharding.NamedSharding(t.physical.mesh, spec))
    where = positions(sampler.domain)
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


@pytest.mark.spmd
@pytest.mark.parametrize(
    ("layout", "scheme", "dtype", "whole"),
    [
        ("one device", "cic", np.float32, False),
        ("4 slabs, the last with fewer planes", "tsc", np.float64, False),
        ("3 x 2 pencils", "pcs", np.float64, True),
        slow("one device", "tsc", np.float64, True),
        slow("2 slabs", "pcs", np.float32, True),
        slow("5 x 1 pencils, the last empty", "cic", np.float64, True),
    ],
)
def test_masses_on_the_grid_are_those_of_xla(layout, scheme, dtype, whole):
    """And their derivatives. A cell's sum has some hundred terms of up to 1, which are rounded once
    each."""
    found = {}
    for kernels in ("native", "xla"):
        t = transform(layout, dtype, kernels)
        domain = Domain.of(t)
        where = positions(domain)
        # Off the borders of cells, where linear weights have no slope; particles that are lost have
        # no mass.
        where = jnp.where(abs(where) < 1e9, where + 1e-9, 0)
        mass = jnp.where((where != 0).all(0), jnp.linspace(0.1, 1, where.shape[1]), 0)
        made = Assignment(t, scheme, where.shape[1] if whole else None).deposit
        pulled = jnp.asarray(np.random.default_rng(2).uniform(size=t.physical.shape))
        slope = jax.grad(
            lambda *a, made=made, pulled=pulled: (made(*a) * pulled).sum().astype(float),
            argnums=(0, 1),
        )
        found[kernels] = jax.jit(made)(where, mass), *jax.jit(slope)(where, mass)
    # On a border of cells the slope of cic is that of either side, and a device knows no slope
    # beyond its planes.
    inside = np.arange(where.shape[1]) % (where.shape[1] // domain.devices) < COUNT
    assert np.nanmax(abs(found["native"][1][:, inside])) > 1e-3  # also of whole numbers
    assert abs(found["native"][0]).max() > 1
    for mine, theirs, part in zip(*found.values(), (..., inside, inside), strict=True):
        mine, theirs = (a[..., part] if part is not ... else a for a in (mine, theirs))
        assert_allclose(mine, theirs, rtol=0, atol=500 * np.finfo(dtype).eps)


@pytest.mark.parametrize("scheme", ["cic", "tsc", "pcs"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masses_of_neighbours_in_the_buffer_are_those_of_xla(scheme, dtype):
    """Lines of particles in the order of their cells, some far from the others and some lost, are
    summed up in vectors along z; a cell has some 30 terms of up to 1."""
    grid = Grid((5, 6, 24), (5.0, 6.0, 24.0))
    rng = np.random.default_rng(3)
    where = rng.random((3, 4000)) * np.array(grid.box)[:, None]
    where = where[:, np.lexsort(np.floor(where)[::-1])]
    where[:, ::50] = rng.random((3, 80)) * np.array(grid.box)[:, None]
    where[:, 77] = np.nan
    mass = rng.random(4000)
    mass[77] = 0
    mine, theirs = (
        Assignment(make_transform(grid, jax.devices()[:1], dtype, kernels=kernels), scheme).deposit(
            jnp.nan_to_num(where) if kernels == "xla" else jnp.asarray(where), jnp.asarray(mass)
        )
        for kernels in ("native", "xla")
    )
    assert mine.sum() == pytest.approx(mass.sum(), rel=1e-5)
    assert_allclose(mine, theirs, rtol=0, atol=100 * np.finfo(dtype).eps)


def test_sums_of_whole_numbers_are_as_exact_for_masses_of_any_size():
    t = transform("one device", np.float64)
    where = positions(Domain.of(t))[:, :COUNT]
    mass = jnp.linspace(0.1, 1, COUNT)
    usual = Assignment(t, "tsc").deposit(where, mass)
    for size in (1e-9, 1e9):
        found = Assignment(t, "tsc", COUNT).deposit(where, size * mass) / size
        assert_allclose(found, usual, rtol=0, atol=1e-13 * usual.max())


def test_every_variant_interpolates():
    """All instruction sets that this processor has."""
    t = transform("one device", np.float64)
    before = native.load().variant
    tried = []
    values = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (3, *GRID.shape)))
    where = positions(Domain.of(t))[:, :COUNT]
    run = jax.jit(Sampler(t, "cubic_spline").of_values)
    expected = Sampler(transform("one device", np.float64, "xla"), "cubic_spline").of_values(
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
    domain = Domain.of(transform(layout, np.float64))
    devices = domain.devices
    position = random_positions(COUNT * devices, 3)
    particles = shared_out(position, domain, 2 * COUNT)
    run = jax.jit(lambda p, due: in_cell_order(p, domain, due))
    same = run(particles, jnp.asarray(False))
    for before, after in zip(jax.tree.leaves(particles), jax.tree.leaves(same), strict=True):
        assert_array_equal(before, after)
    found = run(particles, jnp.asarray(True))
    cells = [np.asarray(domain.plane(found.records["position"], "xyz".index(a))) for a in ORDER]
    cell = np.ravel_multi_index(cells, [GRID.shape["xyz".index(a)] for a in ORDER])
    assert (np.diff(cell.reshape(devices, -1)[:, :COUNT]) >= 0).all()
    home = np.asarray(found.id).reshape(devices, -1)
    assert_array_equal(home[:, :COUNT] // COUNT, np.arange(devices)[:, None].repeat(COUNT, 1))
    assert_array_equal(home[:, COUNT:], -1)
    records = by_id(found)
    assert_array_equal(records["tag"], 0.5 + np.arange(COUNT * devices))
    assert_array_equal(records["position"], position)


CASE = """\
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [16, 12, 8]}
initial: {kind: random, peak: 2.0, energy: 2.0, seed: 1}
time: {stop: 1, dt: 0.1}
particles: [{name: a, kind: tracer, count: 100}, {name: b, kind: tracer, count: 60, interpolation: linear}]
"""


def stepped(case, devices, steps, *overrides):
    """For each kind of particles those at the start and after steps by native kernels, and both
    by XLA."""
    found = []
    for kernels in ("native", "xla"):
        run = simulation(case, f"fft.kernels={kernels}", *overrides, devices=devices)
        found.append([by_id(particles) for particles in run.state.particles.values()])
        state = run.advance(run.state, Until(np.float64(9), np.float64(9), np.int64(steps)))
        found.append([by_id(particles) for particles in state.particles.values()])
    return zip(*found, strict=True)


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize(
    ("integrator", "devices"), [("rk2", 1), ("rk3", 1), ("rk4", 2), ("etdrk4", 1)]
)
def test_tracers_take_the_steps_that_xla_takes(integrator, devices):
    """Kernels compute the positions of stages from combinations of rates. In 10 steps, in which
    particles are sorted and some move to other devices, round-off of lengths of order 10 does not
    grow much."""
    for _, one, _, other in stepped(CASE, devices, 10, f"time.integrator={integrator}"):
        assert abs(other["displacement"]).max() > 1
        for record in ("position", "displacement"):
            assert_allclose(one[record], other[record], rtol=0, atol=1e-11)


@pytest.mark.spmd
@pytest.mark.parametrize("devices", [1, 2])
def test_matter_takes_the_steps_that_xla_takes(devices):
    """Kicks, drifts and sorting, to the rounding of some ten sums over 64 points."""
    ((begin, one, _, other),) = stepped(MATTER, devices, 4)
    for record in ("position", "velocity"):
        assert abs(one[record] - begin[record]).max() > 1e-3
        assert_allclose(one[record], other[record], rtol=0, atol=1e-11)


def test_the_first_step_brings_matter_into_the_order_of_its_cells():
    """Particles that begin in no order; the box is a single tile of cells."""
    run = simulation(MATTER, "fft.kernels=native")
    begun = run.state.particles["dark"]
    mixed = np.random.default_rng(4).permutation(begun.id.shape[0])
    shuffled = jax.tree.map(lambda a: a[..., mixed], (begun.records, begun.id))
    dark = replace(begun, records=shuffled[0], id=shuffled[1])
    state = replace(run.state, particles={"dark": dark})
    ended = run.advance(state, Until(np.float64(9), np.float64(9), np.int64(1)))
    after = ended.particles["dark"]
    spacing = np.array(run.system.model.transform.grid.spacing)[:, None]
    cells = np.floor(np.asarray(after.records["position"]) / spacing)
    numbers = (cells[0] * 8 + cells[1]) * 8 + cells[2]
    assert len(np.unique(numbers)) > 100
    assert (np.diff(numbers) >= 0).all()
    assert_array_equal(np.sort(after.id), np.arange(len(mixed)))
