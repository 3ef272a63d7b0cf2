"""Forward and inverse transforms against numpy.fft, on every backend, plan and number of devices;
the blocked nonlinear term, equal to whole transforms; and exact products with spherical
truncation."""

import os
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from scipy.signal import fftconvolve
from spectral_cases import (
    EVERY,
    PLANS,
    Case,
    coefficients,
    compiled,
    coordinates,
    error,
    modes_of,
    pairwise,
    points,
    put,
    sample,
    transform,
)
from tiers import slow, slow_but

from simulator.physics.models.advection import strain_rate
from simulator.physics.models.boussinesq import Boussinesq, BoussinesqSettings
from simulator.spectral import Grid, Local, Modes, make_transform, native
from simulator.spectral.backends import candidates
from simulator.spectral.operators import gradient
from simulator.spectral.random import gaussian
from simulator.spectral.schedules.exchange import ComponentArrays, MessageArrays
from simulator.spectral.schedules.native import NativeStages
from simulator.spectral.schedules.xla import XlaStages
from simulator.spectral.staged import StagedTransform

PAIRWISE = pairwise(EVERY)


@pytest.mark.spmd
@pytest.mark.parametrize("case", slow_but(EVERY, PAIRWISE), ids=str)
def test_agrees_with_numpy(case: Case):
    """Coefficients are numpy's; the inverse restores what they hold; Parseval; shardings are the
    layouts'."""
    t = transform(case)
    values = sample(case)
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


@pytest.mark.skipif(native.missing() is not None, reason="no native kernels")
def test_every_schedule_is_among_the_cases():
    """Those of all platforms, on processors."""
    transforms = map(transform, filter(lambda case: case.works, CASES))
    schedules = [t.schedule for t in transforms if isinstance(t, StagedTransform)]
    assert {(type(s.stages), type(s.exchange)) for s in schedules} == {
        (NativeStages, MessageArrays),
        (XlaStages, MessageArrays),
        (XlaStages, ComponentArrays),
    }


@pytest.mark.spmd
@settings(max_examples=8)
@given(
    st.tuples(st.integers(1, 17), st.integers(1, 17), st.integers(1, 17)),
    st.sampled_from(["two_thirds", "spherical", "phase_shift", "none"]),
    st.sampled_from(["z_xy", "zx_y", "z_y_x"]),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from(["auto", "xla"]),
)
def test_any_shape(shape, dealias, plan, devices, real, kernels):
    """Whatever the extents, the largest usable number of devices up to `devices` transforms
    exactly."""
    modes = Modes(Grid(shape, dealias=dealias), real)
    count = max(
        n for n in range(1, devices + 1) if candidates(modes, n, "custom_partitioning", plan)
    )
    t = make_transform(
        modes.grid, jax.devices()[:count], decomposition=plan, real=real, kernels=kernels
    )
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    ends = [(0, m - n) for n, m in zip(shape, t.physical.shape, strict=True)]
    padded = jax.device_put(np.pad(values, ends), t.physical.sharding())
    found = np.asarray(jax.jit(t.forward)(padded))
    assert error(found, modes_of(t.layout, values)) < 1e-13


def pointwise(values, at, parameters):
    """A product with coordinates and parameters, one that needs no input's shape, and
    reductions."""
    a = values["a"]
    b = values["b"]
    product = a * b + parameters["g"] * jnp.sin(at.x) * jnp.cos(at.z)
    return Local(
        {"p": product, "q": jnp.sin(at.y)}, {"largest": a[0].real}, {"mean": b.real, "x": at.x}
    )


def with_stored(values, at, parameters):
    """And a product with values that no transform has truncated."""
    local = pointwise(values, at, parameters)
    return local._replace(products={**local.products, "r": values["a"] * values["c"]})


def evaluated(t, values):
    u = t.forward(values)
    inputs = {"a": u[:2], "b": u[2]}
    return t.evaluate(inputs, with_stored, {"g": jnp.float64(0.5)}, (), {"c": values[2]})


CASES = [
    *(Case(plan, 4, "even") for plan in PLANS),
    Case(PLANS[0], 4, "even", kernels="xla"),
    Case(PLANS[1], 2, "odd", "complex", block=4),
    Case(PLANS[2], 8, "unequal", block=1),
    Case(PLANS[0], 1, "odd", precision="single", block=4),
    Case(PLANS[0], 3, "prime", block=2, kernels="xla"),
    Case(PLANS[1], 4, "even", kernels="gpu"),
    Case(PLANS[2], 8, "unequal", block=1, kernels="gpu in blocks"),
]
SLOW = [
    Case(PLANS[2], 4, "even", kernels="xla"),
    Case(PLANS[1], 3, "flat", block=5),
    Case(PLANS[1], 2, "odd", "complex", block=15, kernels="xla"),
    Case(PLANS[1], 1, "odd", block=4, kernels="gpu in blocks"),
    Case(PLANS[0], 1, "unequal", "complex", kernels="gpu"),
]


@pytest.mark.spmd
@pytest.mark.parametrize("case", [*CASES, *map(slow, SLOW)], ids=str)
def test_agrees_with_whole_transforms(case: Case):
    """In blocks that divide or do not, with padding or without: what numpy gets from whole
    fields."""
    t = transform(case)
    values = sample(case, 3)
    found = jax.jit(lambda v: evaluated(t, v))(put(case, values))
    kept = points(case, jax.jit(lambda v: t.inverse(t.forward(v)))(put(case, values)))
    a = kept[:2]
    b = kept[2]
    x, y, z = coordinates(case)
    product = a * b + 0.5 * np.sin(x) * np.cos(z)
    tolerance = 20 * case.tolerance
    assert error(found.products["p"], coefficients(case, product)) < tolerance
    assert error(found.products["q"], coefficients(case, np.sin(y))) < tolerance
    stored = points(case, put(case, values))[2]
    assert error(found.products["r"], coefficients(case, a * stored)) < tolerance
    assert found.products["p"].sharding.is_equivalent_to(t.layout.sharding(4), 4)
    assert error(found.maxima["largest"], a[0].real.max()) < tolerance
    assert abs(found.means["mean"] - b.real.mean()) < tolerance
    assert error(found.means["x"], x.mean()) < tolerance


@pytest.mark.parametrize("shape", [(4, 2, 2), (2, 4, 2), (2, 2, 4), (2, 1, 4)])
@pytest.mark.parametrize("plan", ["z_xy", "zx_y"])
def test_stored_values_on_axes_of_few_points(shape: tuple[int, int, int], plan: str):
    """Each block takes those of its points, also where several axes have as many points."""
    t = make_transform(Grid(shape), jax.devices()[:1], decomposition=plan, block=1, kernels="xla")
    stored = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    ones = t.forward(jnp.ones(shape))

    def product(values, at, parameters):
        return Local(
            {}, {}, {"r": values["a"] * values["c"] * (1 + at.x) * (2 + at.y) * (3 + at.z)}
        )

    found = t.evaluate({"a": ones}, product, (), (), {"c": jnp.asarray(stored)})
    x, y, z = (np.arange(n) * 2 * np.pi / n for n in shape)
    weights = (1 + x)[:, None, None] * (2 + y)[:, None] * (3 + z)
    assert found.means["r"] == pytest.approx((stored * weights).mean(), rel=1e-12)


def test_nothing_to_evaluate_is_refused():
    for case in filter(lambda case: case.works, (Case(), Case(("jaxdecomp", "slab")))):
        with pytest.raises(ValueError, match="at least one input field"):
            transform(case).evaluate({}, pointwise)


def test_partial_functions_of_the_same_arguments_share_a_program():
    """The stages of an integrator state one each."""
    t = transform(Case())
    traced = []

    def product(factor, values, at, parameters):
        traced.append(factor)
        return Local({"p": factor * values["a"]})

    modes = jnp.zeros(t.layout.shape, complex)
    counts = []
    for factor in (2.0, 2.0, 3.0):
        t.evaluate({"a": modes}, partial(product, factor))
        counts.append(len(traced))
    assert counts[0] == counts[1] < counts[2]


@pytest.mark.spmd
@pytest.mark.parametrize("decomposition", ["z_xy", "zx_y"])
def test_no_physical_field_exists_whole(decomposition):
    """The largest real array of a compiled term is a block of its inputs."""
    t = make_transform(Grid((32, 32, 32)), jax.devices()[:2], decomposition=decomposition, block=2)

    def many(values, at, parameters):
        return Local({"s": values["f"][0] * values["f"][:3]})

    modes = jax.ShapeDtypeStruct((5, *t.layout.shape), complex, sharding=t.layout.sharding(4))
    text = (
        jax.jit(lambda f: t.evaluate({"f": f}, many).products["s"]).lower(modes).compile().as_text()
    )
    sizes = [
        np.prod([int(n) for n in dims.split(",")]) for dims in re.findall(r"f64\[([\d,]+)\]", text)
    ]
    assert max(sizes) == 5 * 2 * 32 * 32


EPSILON = np.finfo(float).eps
SPHERICAL = [
    ((15, 12, 9), "custom_partitioning", 1),
    ((14, 8, 1), "custom_partitioning", 1),
    ((12, 16, 12), "custom_partitioning", 4),
    ((12, 12, 12), "jaxdecomp", 2),
]


def convolved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Coefficients of a product; those of the factors have no Nyquist modes."""
    full = fftconvolve(np.fft.fftshift(a), np.fft.fftshift(b))
    return np.fft.ifftshift(full[tuple(slice(n // 2, n // 2 + n) for n in a.shape)])


def in_sphere(shape: tuple[int, ...]) -> np.ndarray:
    """sum of (k_i / k_Nyquist,i)^2 < 8/9."""
    k = np.stack(np.meshgrid(*(2 * np.fft.fftfreq(n) for n in shape), indexing="ij"))
    return (k**2).sum(0) < 8 / 9 - 1e-12


@pytest.mark.spmd
@pytest.mark.parametrize("shape, backend, count", SPHERICAL)
def test_products_are_exact_convolutions(shape, backend, count):
    """To round-off: each of two transforms adds some log2 N^3 eps; once more for the reference."""
    t = make_transform(
        Grid(shape, dealias="spherical"), jax.devices()[:count], np.float64, backend=backend
    )
    field = gaussian(t.layout, 3, 2)

    def product(values, points, parameters):
        f = values["f"]
        return Local({"p": parameters["g"] * f[0] * f[1]}, {"largest": f[0]}, {"mean": f[0] * f[1]})

    @jax.jit
    def run(field):
        here = t.evaluate_once({"f": field}, product, {"g": jnp.float64(0.5)})
        both = t.evaluate({"f": field}, product, {"g": jnp.float64(0.5)})
        return here, both, *(t.inverse(f) for f in (field, here.products["p"], both.products["p"]))

    here, both, values, aliased, found = run(field)
    nx, ny, nz = shape
    fields = (np.asarray(v)[:nx, :ny, :nz] for v in (values[0], values[1], aliased, found))
    a, b, aliased, found = (np.fft.fftn(field) / np.prod(shape) for field in fields)
    exact = convolved(a, b)
    kept = np.where(in_sphere(shape), 0.5 * exact, 0)
    size = abs(kept).max()
    tolerance = 8 * np.log2(np.prod(shape)) * EPSILON
    assert abs(found - kept).max() < tolerance * size
    assert abs(aliased - kept).max() > 1e-3 * size
    assert (
        abs(both.means["mean"] - exact[0, 0, 0].real) < tolerance * np.sqrt(np.prod(shape)) * size
    )
    assert both.maxima["largest"] >= here.maxima["largest"]


@pytest.mark.parametrize("shape, backend, count", SPHERICAL)
def test_grids_half_a_spacing_apart_have_opposite_errors(shape, backend, count):
    """With `phase_shift`, for any shift of the first; without one the product is exact."""
    t = make_transform(
        Grid(shape, dealias="phase_shift"), jax.devices()[:count], np.float64, backend=backend
    )
    field = gaussian(t.layout, 3, 2)

    def product(values, points, parameters):
        return Local({"p": values["f"][0] * values["f"][1]})

    @jax.jit
    def run(field, shift):
        grids = (shift, shift + 0.5)
        found = (t.evaluate({"f": field}, product, shift=tuple(s)) for s in grids)
        return t.evaluate({"f": field}, product).products["p"], *(f.products["p"] for f in found)

    exact, one, other = map(np.asarray, run(field, jnp.asarray([0.3, 0.8, -0.4])))
    size = abs(exact).max()
    tolerance = 8 * np.log2(np.prod(shape)) * EPSILON
    assert abs((one + other) / 2 - exact).max() < tolerance * size
    assert abs(one - exact).max() > 1e-3 * size


@pytest.mark.parametrize("shift", [None, (0.3, 0.8, -0.4)])
def test_coordinates_are_those_of_the_moved_points(shift):
    """A product that is given as a function of x, y, z: sin(x + 2 y) cos(z), half of it from each
    grid, or all from one."""
    t = make_transform(Grid((12, 10, 8), dealias="phase_shift"), jax.devices()[:1], np.float64)

    def wave(values, points, parameters):
        return Local({"p": jnp.sin(points.x + 2 * points.y) * jnp.cos(points.z)})

    zero = jnp.zeros(t.layout.shape, complex)
    found = t.inverse(
        jax.jit(lambda f: t.evaluate({"f": f}, wave, shift=shift).products["p"])(zero)
    )
    x, y, z = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in t.grid.shape), indexing="ij")
    np.testing.assert_allclose(np.asarray(found), np.sin(x + 2 * y) * np.cos(z), atol=100 * EPSILON)


@pytest.mark.skipif(not os.environ.get("SIMULATOR_TESTS_ARRAYS"), reason="set it to check arrays")
def test_an_array_of_another_shape_or_type_is_refused():
    transform = make_transform(Grid((8, 8, 8)), jax.devices()[:1])
    layout = transform.layout
    field = jnp.zeros(layout.shape, complex)
    with pytest.raises(TypeCheckError, match=r"gradient.*\n.*'field'"):
        gradient(layout, jnp.stack([field] * 3))
    with pytest.raises(
        TypeCheckError, match=r"gradient.*\n.*'field'"
    ):  # while JAX traces a program
        jax.jit(lambda f: gradient(layout, f))(field.real)
    with pytest.raises(
        TypeCheckError, match=r"inner.*\n.*'b'"
    ):  # a name is one length in all arrays of a call
        layout.inner(field, field[1:])
    with pytest.raises(
        TypeCheckError, match=r"strain_rate.*\n.*'u'"
    ):  # annotated by names imported late
        strain_rate(layout, field)
    with pytest.raises(TypeCheckError, match=r"rate.*\n.*'maxima'"):
        Boussinesq(
            BoussinesqSettings(viscosity=1, diffusivity=1, stratification=1), transform
        ).rate({"rate": field})
    assert jax.vmap(lambda f: gradient(layout, f))(jnp.stack([field] * 2)).shape == (
        2,
        3,
        *layout.shape,
    )
