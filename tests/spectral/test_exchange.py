"""Narrow exchanges: what they send, how far off they are, and that derivatives pass through them."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectral_cases import Case, error, put, sample

from simulator.spectral import Local, native
from simulator.spectral.backends import build, candidates
from simulator.spectral.collectives import collectives

SENT = {"full": 1.0, "single": 0.5, "half_scaled": 0.25}
EXACT = {"full": 1e-13, "single": 1e-6, "half_scaled": 1e-2}
"""Relative errors of products: 2^-24 and 2^-11 in each of two exchanges, and in the two factors of a product."""
CASES = [
    Case(("custom_partitioning", plan), 4, "even", kernels=kernels)
    for plan, kernels in (("zx_y", "native"), ("z_xy", "xla"), ("zx_y", "gpu"), ("z_y_x", "gpu in blocks"))
    if kernels != "native" or not native.missing()
]


@cache
def transform(case: Case, kind):
    choice = candidates(case.modes, case.devices, *case.plan)[0]
    devices = jax.devices()[: case.devices]
    if case.on_gpu:
        return build(
            case.modes, choice, devices, case.dtype, None, "blocks" in case.kernels, "gpu", "xla", kind
        )
    return build(case.modes, choice, devices, case.dtype, kernels=case.kernels, exchange=kind)


def products(t, u):
    def pointwise(values, points, parameters):
        return Local({"p": jnp.stack([values["u"][0] * values["u"][1], values["u"][2]])})

    return t.evaluate({"u": u}, pointwise).products["p"]


def start(case: Case):
    t = transform(case, "full")
    return jax.jit(t.forward)(put(case, sample(case, 3)))


@pytest.mark.spmd
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_and_errors(case):
    """Half and a quarter of the bytes, and a two-byte exponent for each plane; errors of the numbers sent."""
    u = start(case)
    compiled = {k: jax.jit(lambda a, k=k: products(transform(case, k), a)).lower(u).compile() for k in SENT}
    sent = {k: collectives(c)["all-to-all"].bytes for k, c in compiled.items()}
    exact = compiled["full"](u)
    assert sent["single"] == 0.5 * sent["full"]
    assert 0.25 < sent["half_scaled"] / sent["full"] < 0.27
    for kind, c in compiled.items():
        assert error(c(u), exact) < EXACT[kind]
    assert error(compiled["single"](u), exact) > 1e-10  # what was sent was narrow


@pytest.mark.spmd
def test_whole_transforms_send_full_numbers():
    """They make what is stored and drawn."""
    case = CASES[0]
    values = put(case, sample(case, 3))
    sent = {
        k: collectives(jax.jit(transform(case, k).forward).lower(values).compile())["all-to-all"].bytes
        for k in SENT
    }
    assert len(set(sent.values())) == 1


@pytest.mark.spmd
@pytest.mark.parametrize("kind", ["single", "half_scaled"])
@pytest.mark.parametrize("case", CASES[1:3], ids=str)
def test_derivatives(case, kind):
    """The tangent is that of the exchange, with the rounded factors; vjp is its transpose; vmap stacks."""
    u, t, full = start(case), transform(case, kind), transform(case, "full")
    other = u[::-1]
    tolerance = EXACT[kind]

    @jax.jit
    def check(u, other):
        f = lambda a: products(t, a)  # noqa: E731
        made, tangent = jax.jvp(f, (u,), (other,))
        expected = jax.jvp(lambda a: products(full, a), (u,), (other,))[1]
        (back,) = jax.vjp(f, u)[1](made)
        mapped = jax.vmap(f)(jnp.stack([u, other]))
        return tangent, expected, made, back, mapped, jnp.stack([f(u), f(other)])

    tangent, expected, made, back, mapped, stacked = check(u, other)
    assert error(tangent, expected) < tolerance

    def dot(a, b):  # JAX's pairing of cotangents is bilinear
        return np.asarray(jnp.sum(a * b)).real

    assert dot(made, tangent) == pytest.approx(dot(back, other), rel=tolerance)
    assert error(mapped, stacked) < tolerance
