"""The native kernels compute products at points: the results of XLA in blocks of planes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from spectral_cases import slabs, variants

from simulator.spectral import native
from simulator.spectral.schedules.pointwise import MissingOperation, operations_of
from simulator.spectral.transform import Local, Transform

pytestmark = pytest.mark.skipif(
    native.missing() is not None, reason="there are no native kernels here"
)


def transform_of(
    shape: tuple[int, ...],
    devices: int = 1,
    plan: str = "zx_y",
    precision: type = np.float64,
    block: int | None = None,
) -> Transform:
    return slabs(shape, plan, devices, precision, threads=3, block=block)


def products(values, points, parameters) -> Local:
    """Every operation of the kernels, numbers that a program is given, an input that is a product,
    and one that two products share."""
    u = values["u"]
    size = jnp.sqrt(jnp.sum(u * u, axis=0))
    largest = jnp.maximum(abs(u[0]), -u[1])
    return Local(
        {
            "u": u * u[::-1] - parameters["g"],
            "ratio": u[0] / (1 + size),
            "same": u[1],
            "larger": jnp.stack([largest, largest, jnp.minimum(u[0], u[1]) + jnp.square(u[2])]),
        },
        {"largest": largest, "size": size},
    )


def with_means(values, points, parameters) -> Local:
    local = products(values, points, parameters)
    return local._replace(means={"square": values["u"][0] ** 2})


def with_coordinates(values, points, parameters) -> Local:
    local = products(values, points, parameters)
    return local._replace(products={**local.products, "x": points.x * values["u"][0]})


def evaluated(transform: Transform, function, u):
    result = transform.evaluate({"u": u}, function, {"g": jnp.asarray(0.25, transform.dtype)})
    return result.products, result.maxima, result.means


def random_modes(transform: Transform, seed: int = 0) -> jax.Array:
    values = np.random.default_rng(seed).standard_normal((3, *transform.physical.shape))
    return transform.forward(jnp.asarray(values, transform.dtype))


def compiled(transform: Transform, function):
    """The compiled evaluation, and whether the kernels compute the products."""
    layout = transform.layout
    shape = (3, *layout.shape)
    modes = jax.ShapeDtypeStruct(shape, transform.complex_dtype, sharding=layout.sharding(4))
    run = jax.jit(lambda u: evaluated(transform, function, u)).lower(modes).compile()
    return run, "simulator_evaluate" in str(run.as_text())


def assert_close(found, expected, precision: type) -> None:
    """Up to a few roundings of the largest value: XLA rounds a b + c once."""
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        size = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=8 * np.finfo(precision).eps * size)


@pytest.mark.smoke
@pytest.mark.spmd
@pytest.mark.parametrize(
    "shape, plan, devices, precision, function",
    [
        ((16, 24, 20), "zx_y", 1, np.float64, products),
        ((32, 12, 10), "zx_y", 2, np.float64, with_means),
        ((32, 12, 10), "zx_y", 2, np.float32, with_means),
        ((19, 12, 14), "zx_y", 2, np.float64, products),
        ((19, 10, 14), "z_xy", 1, np.float32, products),
        ((16, 12, 18), "z_y_x", 2, np.float64, products),
        ((1, 48, 40), "zx_y", 1, np.float64, with_means),
        ((1, 36, 40), "zx_y", 2, np.float32, products),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_kernels_compute_what_xla_computes(shape, plan, devices, precision, function) -> None:
    """The blocks are visited by a function that XLA compiles; the kernels visit all planes in one
    call, tile by tile."""
    at_once = transform_of(shape, devices, plan, precision)
    run, by_kernels = compiled(at_once, function)
    assert by_kernels
    block = 4 if shape[0] > 1 else 32
    expected, by_kernels = compiled(transform_of(shape, devices, plan, precision, block), function)
    assert not by_kernels
    u = random_modes(at_once)
    assert_close(run(u), expected(u), precision)


@pytest.mark.parametrize(
    "shape, devices, function",
    [
        ((16, 12, 10), 1, with_coordinates),
        ((19, 12, 10), 1, with_means),
        ((16, 13, 10), 2, products),
        ((7, 12, 10), 1, products),
    ],
    ids=["coordinates", "lines that two tiles share", "padding", "few lines"],
)
def test_what_the_kernels_cannot_do_is_done_in_blocks(shape, devices, function) -> None:
    transform = transform_of(shape, devices)
    _, by_kernels = compiled(transform, function)
    assert not by_kernels


def test_every_variant_of_the_kernels_computes_the_products() -> None:
    """Whose vectors are as wide as a cell of a tile, or narrower."""
    transform = transform_of((32, 12, 10))
    u = random_modes(transform)
    run = jax.jit(lambda u: evaluated(transform, with_means, u))
    expected = jax.tree.map(np.asarray, run(u))
    with variants() as choose:
        for _ in filter(choose, ("avx2", "baseline")):
            assert_close(run(u), expected, np.float64)


def test_a_value_that_is_not_a_number_is_seen() -> None:
    """By maxima, although comparisons with it are false."""
    transform = transform_of((16, 12, 10))
    u = random_modes(transform).at[0, 0, 0, 0].set(jnp.nan)
    _, maxima, _ = evaluated(transform, products, u)
    assert np.isnan(maxima["largest"])


def test_derivatives_and_batches_are_those_of_the_blocks() -> None:
    """Forwards, backwards, with respect to fields and numbers, and of several fields at once."""
    at_once = transform_of((16, 12, 10))
    in_blocks = transform_of((16, 12, 10), block=4)
    u = random_modes(at_once)
    v = random_modes(at_once, 1)

    def total(transform: Transform):
        def of(u, g):
            result = transform.evaluate({"u": u}, products, {"g": g})
            return sum(jnp.sum(jnp.abs(p) ** 2) for p in jax.tree.leaves(result.products))

        return of

    one = jnp.float64(0.25)
    derivatives = (
        lambda t: jax.jvp(total(t), (u, one), (v, one))[1],
        lambda t: jax.grad(total(t), (0, 1))(u, one),
        lambda t: jax.vmap(total(t), (0, None))(jnp.stack([u, v]), one),
    )
    for derivative in derivatives:
        found, expected = (jax.jit(partial(derivative, t))() for t in (at_once, in_blocks))
        assert_close(found, expected, np.float64)


def operations(function):
    """The operations of a function of two values, a coordinate and an argument."""
    point = jax.ShapeDtypeStruct((1, 1, 1), float)
    values = jax.ShapeDtypeStruct((2, 1, 1, 1), float)
    traced = jax.make_jaxpr(function)(values, point, jax.ShapeDtypeStruct((), float))
    return operations_of(traced, 0, 1, 0, np.dtype(float))


def test_operations_that_no_result_needs_are_left_out() -> None:
    def function(values, x, parameter):
        product = values[:1] * values[1:]
        _ = jnp.sqrt(values[0]) + 3
        return product

    assert operations(function).rows == ((3, 2, 0, 1),)


@pytest.mark.parametrize(
    "function",
    [
        lambda values, x, parameter: jnp.exp(values[:1]),
        lambda values, x, parameter: x * values[:1],
        lambda values, x, parameter: values[:1].astype(np.float32),
        lambda values, x, parameter: lax.reshape(values, (1, 2, 1, 1), (1, 0, 2, 3)),
    ],
    ids=["primitive", "coordinate", "type", "parameter of a primitive"],
)
def test_unknown_operations_are_left_to_xla(function) -> None:
    """So is a known primitive with a parameter of another release of JAX."""
    with pytest.raises(MissingOperation):
        operations(function)
