"""Poisson's equation and the Hermitian part, on every kind of layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectral_cases import Case, coefficients, error, points, put, sample, transform

from simulator.spectral.operators import hermitian, laplacian_symbol, solve_poisson

LAYOUTS = [
    Case(),
    Case(devices=3, shape="unequal"),
    Case(shape="odd", fields="real, every mode"),
    Case(plan=("custom_partitioning", "z_y_x"), devices=4, shape="prime"),
    Case(fields="complex, every mode"),
    Case(plan=("jaxdecomp", "slab"), shape="even"),
]


@pytest.mark.parametrize("case", LAYOUTS, ids=str)
def test_one_mode_is_exact(case: Case) -> None:
    """lap Phi = cos(k . x + 1) + 3 has the solution -cos(k . x + 1) / k^2: the mean attracts nothing. Measured in
    the norm of the source: round-off of a transform is 1e-14 of its largest value, and Phi divides it by k^2 >= 1."""
    t = transform(case)
    k = np.array((1, -2, 3)) * t.grid.fundamental
    phase = sum(q * p for q, p in zip(k, t.physical.coordinates(), strict=True)) + 1
    wave = np.broadcast_to(np.cos(np.asarray(phase)), t.physical.shape)[tuple(map(slice, t.grid.shape))]
    solve = jax.jit(lambda s: t.inverse(solve_poisson(t.layout, t.forward(s))))
    found = points(case, solve(put(case, wave + 3)))
    assert np.abs(found + wave / (k @ k)).max() < 1e-14
    assert np.abs(found.mean()) < 1e-15


def test_the_finite_difference_solution_solves_the_difference_equation() -> None:
    """The second difference of Phi is the source without mean, to round-off, for any source: all modes count."""
    case = Case(shape="even", fields="real, every mode")
    t = transform(case)
    source = sample(case, 1)[0]
    solve = jax.jit(lambda s: t.inverse(solve_poisson(t.layout, t.forward(s), "finite_difference")))
    phi = points(case, solve(put(case, source)))
    axes = enumerate(t.grid.spacing)
    found = sum((np.roll(phi, 1, a) - 2 * phi + np.roll(phi, -1, a)) / h**2 for a, h in axes)
    assert error(found, source - source.mean()) < 1e-12


def test_nyquist_planes_count_with_their_wavenumber() -> None:
    """An even derivative knows no sign: cos(pi x / dx) has a potential, though its gradient vanishes on the grid."""
    t = transform(Case(shape="even", fields="real, every mode"))
    symbol = np.broadcast_to(np.asarray(laplacian_symbol(t.layout)), t.layout.shape)
    k = np.pi / t.grid.spacing[2]
    z = int(np.flatnonzero(t.layout.mode_numbers["z"] == t.grid.shape[2] // 2)[0])
    assert t.layout.order[0] == "z" and np.isclose(symbol[z, 0, 0], k**2)


@pytest.mark.parametrize("case", [*LAYOUTS[1:4], LAYOUTS[5]], ids=str)
def test_the_hermitian_part_is_what_is_seen(case: Case) -> None:
    """It is exact (a second time changes no bit), leaves values alone, and takes away what is invisible."""
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
