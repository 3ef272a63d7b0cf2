"""The native kernels for particles that are matter against XLA's path: their masses on the grid, and
steps."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import MATTER, advanced, native_and_xla, simulation
from numpy.testing import assert_allclose, assert_array_equal
from particle_cases import HARD, hard_positions, random_positions, transform, transform_of
from tiers import slow

from simulator.physics.particles import Domain
from simulator.plugins.gravity import matter_kernels
from simulator.plugins.gravity.assignment import Assignment
from simulator.spectral import Grid, make_transform, native
from simulator.spectral.native.particles import Held

needs_kernels = pytest.mark.skipif(
    native.missing() is not None, reason="there are no native kernels here"
)


@needs_kernels
@pytest.mark.spmd
@pytest.mark.parametrize(
    "layout, scheme, dtype, whole",
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
        t = transform_of(layout, dtype, kernels)
        domain = Domain.of(t)
        where = hard_positions(domain)
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
    inside = np.arange(where.shape[1]) % (where.shape[1] // domain.devices) < HARD
    assert np.nanmax(abs(found["native"][1][:, inside])) > 1e-3  # also of whole numbers
    assert abs(found["native"][0]).max() > 1
    for mine, theirs, part in zip(*found.values(), (..., inside, inside), strict=True):
        mine, theirs = (a[..., part] if part is not ... else a for a in (mine, theirs))
        assert_allclose(mine, theirs, rtol=0, atol=500 * np.finfo(dtype).eps)


@needs_kernels
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


@needs_kernels
def test_sums_of_whole_numbers_are_as_exact_for_masses_of_any_size():
    t = transform_of("one device", np.float64)
    where = hard_positions(Domain.of(t))[:, :HARD]
    mass = jnp.linspace(0.1, 1, HARD)
    usual = Assignment(t, "tsc").deposit(where, mass)
    for size in (1e-9, 1e9):
        found = Assignment(t, "tsc", HARD).deposit(where, size * mass) / size
        assert_allclose(found, usual, rtol=0, atol=1e-13 * usual.max())


@needs_kernels
@pytest.mark.spmd
@pytest.mark.parametrize("devices", [1, 2])
def test_matter_takes_the_steps_that_xla_takes(devices):
    """Kicks, drifts and sorting, to the rounding of some ten sums over 64 points."""
    ((begin, one, _, other),) = native_and_xla(MATTER, devices, 4)
    for record in ("position", "velocity"):
        assert abs(one[record] - begin[record]).max() > 1e-3
        assert_allclose(one[record], other[record], rtol=0, atol=1e-11)


@needs_kernels
def test_the_first_step_brings_matter_into_the_order_of_its_cells():
    """Particles that begin in no order; the box is a single tile of cells."""
    run = simulation(MATTER, "fft.kernels=native")
    begun = run.state.particles["dark"]
    mixed = np.random.default_rng(4).permutation(begun.id.shape[0])
    shuffled = jax.tree.map(lambda a: a[..., mixed], (begun.records, begun.id))
    dark = replace(begun, records=shuffled[0], id=shuffled[1])
    state = replace(run.state, particles={"dark": dark})
    ended = advanced(run, state, 9.0, 1)
    after = ended.particles["dark"]
    spacing = np.array(run.system.model.transform.grid.spacing)[:, None]
    cells = np.floor(np.asarray(after.records["position"]) / spacing)
    numbers = (cells[0] * 8 + cells[1]) * 8 + cells[2]
    assert len(np.unique(numbers)) > 100
    assert (np.diff(numbers) >= 0).all()
    assert_array_equal(np.sort(after.id), np.arange(len(mixed)))


@pytest.mark.parametrize("scheme", ["cic", "tsc", "pcs"])
def test_the_gradient_by_a_position_is_proportional_to_the_mass_there(scheme):
    t = transform("one device")
    position = jnp.asarray(random_positions(40))
    weight = jnp.asarray(np.random.default_rng(2).standard_normal(t.physical.shape))

    @jax.jit
    def gradient(mass):
        deposit = Assignment(t, scheme).deposit
        return jax.grad(lambda position: (weight * deposit(position, mass)).sum())(position)

    one = gradient(jnp.ones(40))
    half = gradient(jnp.full(40, 0.5))
    none = gradient(jnp.arange(40) % 2.0)[:, ::2]
    assert (one != 0).all()
    assert_allclose(half, one / 2, rtol=1e-12)
    assert not none.any()


def kernels_of_matter(threads: int) -> list[jax.Array]:
    """Kicks, steps and masses of particles, of which one is lost."""
    cells = (16, 20, 18)  # lines longer than a vector
    particles = 9_000  # more than the entries of three parts of the work
    box = (1.0, 2.0, 3.0)
    spacing = tuple(length / n for length, n in zip(box, cells, strict=True))
    rng = np.random.default_rng(2)
    entries = particles + 500
    count = jnp.array([particles], jnp.int32)
    position = jnp.asarray(rng.random((3, entries)) * np.array(box)[:, None])
    velocity = jnp.asarray(rng.standard_normal((3, entries)))
    mass = jnp.asarray(rng.random(entries))
    pull = velocity.astype(jnp.float32)[::-1]
    one, tenth = jnp.array(1.0), jnp.array(0.1)
    results = [*matter_kernels.kicked(threads, spacing, pull, velocity, count, tenth)]
    lengths = tenth, one, tenth
    ids = jnp.arange(entries)
    results += matter_kernels.leapt(
        threads, box, True, pull, velocity, count, lengths, position, ids
    )
    position = position.at[0, 7].set(np.nan)
    for points in (2, 3, 4):
        held = Held(points, "xyz", (0, 0, 0), cells, spacing, -1, threads)
        for dtype, scale in ((jnp.int64, 2.0**40), (jnp.float64, 1.0), (jnp.float32, 1.0)):
            block = jax.ShapeDtypeStruct(cells, dtype)
            results.append(matter_kernels.deposit(position, mass, count, scale, block, held))
    return results


@needs_kernels
def test_the_number_of_threads_changes_no_bit_of_matter() -> None:
    """Every point's mass is a sum in the order of the particles, and their largest rate a
    maximum."""
    results = jax.jit(kernels_of_matter, static_argnums=0)
    expected = results(1)
    for threads in (2, 5, 16):
        for number, (array, first) in enumerate(zip(results(threads), expected, strict=True)):
            assert np.asarray(array).tobytes() == np.asarray(first).tobytes(), (threads, number)
