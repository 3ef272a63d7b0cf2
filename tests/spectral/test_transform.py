"""Forward and inverse transforms against numpy.fft, on every backend, plan and number of devices."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spectral_cases import EVERY, Case, coefficients, compiled, error, pairwise, points, put, sample, transform

from simulator.spectral import Grid, Modes, make_transform
from simulator.spectral.backends import candidates

PAIRWISE = pairwise(EVERY)


@pytest.mark.spmd
@pytest.mark.parametrize(
    "case", [pytest.param(c, id=str(c), marks=[] if c in PAIRWISE else pytest.mark.slow) for c in EVERY]
)
def test_agrees_with_numpy(case: Case) -> None:
    """Coefficients are numpy's; the inverse restores what they hold; Parseval; shardings are the layouts'."""
    t, values = transform(case), sample(case)
    modes = compiled(case, "forward")(put(case, values))
    expected = coefficients(case, values)
    assert error(modes, expected) < case.tolerance
    assert modes.sharding.is_equivalent_to(t.layout.sharding(4), 4)

    back = compiled(case, "inverse")(modes)
    assert back.sharding.is_equivalent_to(t.physical.sharding(4), 4)
    kept = points(case, back)
    assert not np.isnan(np.asarray(back)).any()
    assert error(np.asarray(back).sum(), kept.sum()) < case.tolerance * kept.size  # zero in padding
    assert error(compiled(case, "forward")(back), expected) < case.tolerance
    if "every" in case.fields:
        assert error(kept, values) < case.tolerance
    energy = np.asarray(t.layout.inner(modes, modes))
    assert error(energy, (np.abs(kept) ** 2).mean((1, 2, 3))) < 10 * case.tolerance


def test_pairs_of_everything_are_covered():
    for parameter in ("plan", "devices", "shape", "fields", "precision", "block", "kernels"):
        assert {getattr(c, parameter) for c in EVERY} == {getattr(c, parameter) for c in PAIRWISE}
    assert {c.devices for c in EVERY if c.plan == ("custom_partitioning", "z_xy")} == {1, 2, 3, 4, 8}


@pytest.mark.spmd
@settings(max_examples=8)
@given(
    st.tuples(st.integers(1, 17), st.integers(1, 17), st.integers(1, 17)),
    st.sampled_from(["two_thirds", "spherical", "none"]),
    st.sampled_from(["z_xy", "zx_y", "z_y_x"]),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from(["auto", "xla"]),
)
def test_any_shape(shape, dealias, plan, devices, real, kernels):
    """Whatever the extents, the largest usable number of devices up to `devices` transforms exactly."""
    modes = Modes(Grid(shape, dealias=dealias), real)
    count = max(n for n in range(1, devices + 1) if candidates(modes, n, "custom_partitioning", plan))
    t = make_transform(modes.grid, jax.devices()[:count], decomposition=plan, real=real, kernels=kernels)
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    ends = [(0, m - n) for n, m in zip(shape, t.physical.shape, strict=True)]
    found = np.asarray(jax.jit(t.forward)(jax.device_put(np.pad(values, ends), t.physical.sharding())))
    full = np.fft.fftn(values, norm="forward")
    order = ["xyz".index(a) for a in t.layout.order]
    expected = full.transpose(order)[np.ix_(*(t.layout.mode_numbers[a] for a in t.layout.order))]
    mask = np.broadcast_to(np.asarray(t.layout.mask), t.layout.shape)
    inner = tuple(slice(n) for n in t.layout.valid)
    assert np.abs(found[inner] - np.where(mask[inner], expected, 0)).max() < 1e-13 * np.abs(full).max()
    assert np.count_nonzero(found) == np.count_nonzero(found[inner])
