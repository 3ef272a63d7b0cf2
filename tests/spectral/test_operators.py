"""Operators, Poisson's equation, sums over modes and shells, and random fields, in every layout."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from spectral_cases import (
    PLANS,
    Case,
    coefficients,
    coordinates,
    error,
    points,
    put,
    sample,
    transform,
)
from tiers import slow

from simulator.spectral import Grid, Modes, make_transform
from simulator.spectral import operators as op
from simulator.spectral.bins import Bins, spectral_map
from simulator.spectral.operators import hermitian, laplacian_symbol, solve_poisson
from simulator.spectral.random import gaussian

DEFAULT = ("zx_y", "pencil")
CASES = [
    case if case.plan[1] in DEFAULT else slow(case)
    for case in (Case(p, *((3, "odd") if p[1] in ("zx_y", "z_xy") else (4, "even"))) for p in PLANS)
]


def known(case: Case):
    """f = sin(a x) cos(b y) + sin(c z), its gradient and its Laplacian, at grid points."""
    t = transform(case)
    a, b, c = (m * k for m, k in zip((1, 2, 2), t.grid.fundamental, strict=True))
    x, y, z = coordinates(case)
    f = np.sin(a * x) * np.cos(b * y) + np.sin(c * z)
    gradient = (
        a * np.cos(a * x) * np.cos(b * y),
        -b * np.sin(a * x) * np.sin(b * y),
        c * np.cos(c * z),
    )
    laplacian = -(a**2 + b**2) * np.sin(a * x) * np.cos(b * y) - c**2 * np.sin(c * z)
    return f, np.stack(gradient), laplacian


@pytest.mark.spmd
@pytest.mark.parametrize("case", CASES, ids=str)
def test_derivatives_and_projections(case: Case):
    """The projection is solenoidal, idempotent, and leaves a solenoidal field and the mean
    alone; a mean attracts nothing."""
    t = transform(case)
    layout = t.layout
    f, gradient, laplacian = known(case)

    @jax.jit
    def check(f, v, source):
        f = t.forward(f)
        v = t.forward(v)
        solenoidal = op.project(layout, v)
        twist = op.curl(layout, v)
        shift = t.grid.spacing
        laplacian_of_f = op.divergence(layout, op.gradient(layout, f))
        slopes = sum(k * k for k in layout.wavenumbers())
        return {
            "gradient": t.inverse(op.gradient(layout, f)),
            "laplacian": t.inverse(laplacian_of_f),
            "shifted": t.inverse(op.translate(layout, f, shift)),
            "zero": [
                op.divergence(layout, solenoidal),
                op.divergence(layout, twist),
                op.curl(layout, op.gradient(layout, f)),
                op.project(layout, solenoidal) - solenoidal,
                op.project(layout, twist) - twist,
                op.project(layout, op.gradient(layout, f)),
                solve_poisson(layout, t.forward(source)) - f,
                op.inverse_curl(layout, twist) - jnp.where(slopes > 0, solenoidal, 0),
                layout.at_zero(solenoidal) - layout.at_zero(v),
                layout.inner(v, solenoidal).sum() - layout.inner(solenoidal, solenoidal).sum(),
            ],
        }

    found = check(put(case, f), put(case, sample(case, 3)), put(case, laplacian + 3))
    assert error(points(case, found["gradient"]), gradient) < 1e-12
    assert error(points(case, found["laplacian"]), laplacian) < 1e-12
    assert error(points(case, found["shifted"]), np.roll(f, (-1, -1, -1), (0, 1, 2))) < 1e-12
    for i, value in enumerate(found["zero"]):
        assert np.abs(np.asarray(value)).max() < 1e-12, i  # k up to 60 times round-off


@pytest.mark.spmd
@pytest.mark.parametrize("width", [None, 0.1, 3.0])
def test_shells_of_a_long_box(width):
    """80 x 8 x 8 points keep |k_x| <= 26, |k_y|, |k_z| <= 2; the mean leaves k = 0 out."""
    grid = Grid((80, 8, 8), (20 * np.pi, 2 * np.pi, 2 * np.pi), given_shell_width=width)
    layout = make_transform(grid, jax.devices()[:4]).layout
    dk = width or 1.0
    assert layout.shell_width == dk
    modes, mean = map(np.asarray, jax.jit(layout.shell_modes)())
    k = np.linalg.norm(
        np.stack(np.meshgrid(np.arange(-26, 27) / 10, *2 * [np.arange(-2, 3)], indexing="ij")),
        axis=0,
    )
    shell = np.floor(k / dk + 0.5 + 1e-9).astype(int)
    assert layout.shells == shell.max() + 1
    for n in range(layout.shells):
        waves = k[(shell == n) & (k > 0)]
        assert modes[n] == (shell == n).sum()
        assert mean[n] == pytest.approx(waves.mean() if len(waves) else n * dk, rel=1e-13)
    assert modes.sum() == 53 * 25
    if width is None:
        assert modes[0] == 9 and mean[0] == pytest.approx(
            0.25
        )  # kx = 0 to 0.4: 0.5 is in the next shell


@pytest.mark.parametrize("scale", [1.0, 1 / 3, 0.7, 50.0])
def test_modes_between_two_shells_belong_to_the_upper_one(scale):
    """A box of 2:1:1, in which |k| / dk = sqrt(i^2 / 4 + j^2 + l^2) is halfway between two shells
    where i^2 + 4 j^2 + 4 l^2 is the square of an odd number: counted in integers. Another unit of
    length changes nothing."""
    side = 2 * np.pi * scale
    layout = make_transform(Grid((32, 16, 16), (2 * side, side, side)), jax.devices()[:1]).layout
    i, j, k = np.meshgrid(np.arange(-10, 11), *2 * [np.arange(-5, 6)], indexing="ij")
    count = jax.jit(layout.shell_modes)()[0]
    assert_array_equal(count, np.bincount(_shells(i * i + 4 * (j * j + k * k))))
    assert count[:5].tolist() == [1, 28, 112, 212, 404]
    across = Bins(layout, "y", "perpendicular")
    along = Bins(layout, "y", "parallel")
    count = (
        across.width
        * along.width
        * spectral_map(across, along, layout, jnp.ones(layout.shape)).sum(1)
    )
    assert_array_equal(np.rint(count), np.bincount(_shells(i * i + 4 * k * k)))


def _shells(four_k_squared: np.ndarray) -> list[int]:
    """floor(|k| + 1/2), in integers."""
    return [(math.isqrt(square) + 1) // 2 for square in four_k_squared.ravel().tolist()]


@pytest.mark.spmd
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_and_shells(case: Case):
    """The shells hold all energy; a single mode lies in its own shell alone."""
    t = transform(case)
    layout = t.layout
    f, _, _ = known(case)
    noise = sample(case, 1)[0]
    modes = t.forward(put(case, np.stack([noise, f])))
    energy = jnp.abs(modes) ** 2
    shells, total = jax.jit(lambda e: (layout.shell_sum(e), layout.sum(e)))(energy)
    assert shells.shape == (2, layout.shells) and shells.sharding.is_fully_replicated
    assert error(shells.sum(-1), total) < 1e-13
    kept = coefficients(case, noise)
    assert error(total[0], np.sum(np.asarray(layout.weight()) * np.abs(kept) ** 2)) < 1e-13
    assert error(layout.at_zero(modes), np.stack([noise, f]).mean((1, 2, 3))) < 1e-12
    units = np.array(t.grid.fundamental)
    dk = max(t.grid.fundamental)
    expected = np.zeros(layout.shells)
    expected[round(float(np.hypot(units[0], 2 * units[1]) / dk))] += 0.25
    expected[round(2 * units[2] / dk)] += 0.5
    assert np.abs(np.asarray(shells[1]) - expected).max() < 1e-13
    assert np.allclose(layout.shell_wavenumbers(), dk * np.arange(layout.shells))


@pytest.mark.spmd
@pytest.mark.parametrize("case", CASES, ids=str)
def test_physical_means_leave_padding_out(case: Case):
    t = transform(case)
    values = put(case, sample(case, 1)[0] - 5)
    inside = points(case, values)
    spoilt = jnp.where(t.physical.inside(), values, 1e9)
    assert error(t.physical.mean(spoilt), inside.mean()) < 1e-13
    assert float(t.physical.max(spoilt)) == inside.max()
    assert float(t.physical.min(spoilt)) == inside.min()
    x, y, z = t.physical.coordinates()
    for got, n, h in zip((x, y, z), t.physical.shape, t.grid.spacing, strict=True):
        assert np.array_equal(np.asarray(got).ravel(), np.arange(n) * h)


def by_label(layout, array) -> dict:
    """Coefficients by (kx, ky, kz), of the modes of the state."""
    mask = np.broadcast_to(np.asarray(layout.mask), layout.shape)
    grids = np.meshgrid(*(layout.padded_mode_numbers(a) for a in layout.order), indexing="ij")
    k = {a: g[mask] for a, g in zip(layout.order, grids, strict=True)}
    rows = zip(zip(k["x"], k["y"], k["z"], strict=True), np.asarray(array)[:, mask].T, strict=True)
    return {tuple(map(int, key)): value for key, value in rows}


@pytest.mark.spmd
def test_random_fields_are_the_same_everywhere():
    """One seed, one field: on any number of devices and in any layout, bit for bit; a finer grid
    keeps the large scales; the fields are real, have unit variance per mode, and differ between
    seeds."""
    modes = Modes(Grid((12, 16, 24)))
    draws = {}

    def drawn(t, seed=3):
        key = t.name, t.grid.shape, t.layout.mesh.size
        found = draws.setdefault(key, jax.jit(lambda seed: gaussian(t.layout, seed, 2)))(
            np.uint32(seed)
        )
        assert found.sharding.is_equivalent_to(t.layout.sharding(4), 4)
        return by_label(t.layout, found)

    reference = drawn(make_transform(modes.grid, jax.devices()[:1]))
    for (backend, decomposition), devices in ((PLANS[1], 3), (PLANS[2], 8), (PLANS[3], 4)):
        t = make_transform(
            modes.grid, jax.devices()[:devices], backend=backend, decomposition=decomposition
        )
        same = drawn(t)
        for key, value in reference.items():
            assert np.array_equal(same[key], value), (backend, key)
        if t.layout.order == "yzx":
            for (x, y, z), value in same.items():
                assert np.array_equal(same[-x, -y, -z], value.conj())
    finer = drawn(make_transform(Grid((24, 24, 32)), jax.devices()[:2]))
    assert all(np.array_equal(finer[key], value) for key, value in reference.items())
    values = np.array(list(reference.values()))
    weight = np.array([1 if z == 0 else 2 for _, _, z in reference])[:, None]
    variance = (weight * np.abs(values) ** 2).sum() / (2 * weight.sum())
    # 2 components of about 9 * 11 * 15 / 2 independent complex modes: the mean of |f|^2 spreads by
    # 1 / sqrt(n)
    assert abs(variance - 1) < 5 / np.sqrt(weight.sum())
    for (x, y, z), value in reference.items():
        if z == 0:
            assert np.array_equal(reference[-x, -y, 0], value.conj())
    assert np.all(reference[0, 0, 0].imag == 0)
    other = drawn(make_transform(modes.grid, jax.devices()[:1]), seed=4)
    assert not np.any(other[1, 1, 1] == reference[1, 1, 1])


LAYOUTS = [
    Case(),
    Case(devices=3, shape="unequal"),
    Case(shape="odd", fields="real, every mode"),
    Case(plan=("custom_partitioning", "z_y_x"), devices=4, shape="prime"),
    Case(fields="complex, every mode"),
    Case(plan=("jaxdecomp", "slab"), shape="even"),
]


def test_finite_differences_solve_their_equation_and_nyquist_planes_count():
    """The second difference of Phi is the source without mean, to round-off, for any source: all
    modes count."""
    case = Case(shape="even", fields="real, every mode")
    t = transform(case)
    source = sample(case, 1)[0]
    solve = jax.jit(lambda s: t.inverse(solve_poisson(t.layout, t.forward(s), "finite_difference")))
    phi = points(case, solve(put(case, source)))
    axes = enumerate(t.grid.spacing)
    found = sum((np.roll(phi, 1, a) - 2 * phi + np.roll(phi, -1, a)) / h**2 for a, h in axes)
    assert error(found, source - source.mean()) < 1e-12
    # An even derivative knows no sign: cos(pi x / dx) has a potential, though its gradient vanishes
    # on the grid.
    symbol = np.broadcast_to(np.asarray(laplacian_symbol(t.layout)), t.layout.shape)
    k = np.pi / t.grid.spacing[2]
    z = int(np.flatnonzero(t.layout.mode_numbers["z"] == t.grid.shape[2] // 2)[0])
    assert t.layout.order[0] == "z" and np.isclose(symbol[z, 0, 0], k**2)


@pytest.mark.parametrize("case", [*LAYOUTS[1:4], LAYOUTS[5]], ids=str)
def test_the_hermitian_part_is_what_is_seen(case: Case):
    """It is exact (a second time changes no bit), leaves values alone, and takes away what is
    invisible."""
    t = transform(case)
    values = sample(case, 1)[0]
    modes = coefficients(case, values)
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(modes.shape) + 1j * rng.standard_normal(modes.shape)
    plane = np.broadcast_to(np.asarray(t.layout.integers("z")) == 0, modes.shape)
    noise = np.where(plane & np.asarray(t.layout.mask), noise, 0)
    apply = jax.jit(lambda f: hermitian(t.layout, f))
    mean_of_both = np.asarray(apply(jnp.asarray(noise)))
    once = np.asarray(apply(jnp.asarray(modes + noise - mean_of_both)))
    assert np.array_equal(np.asarray(apply(jnp.asarray(once))), once)
    assert error(once, modes) < 1e-14
