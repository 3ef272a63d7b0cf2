"""Narrow exchanges: what they send, how far off they are, and that derivatives pass through them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectral_cases import Case, compiled, error, put, sample, transform

from simulator.spectral import Local, native
from simulator.spectral.collectives import collectives

EXACT = {"full": 1e-13, "single": 1e-6, "half_scaled": 1e-2}
"""Relative errors of products: 2^-24 and 2^-11 in each of two exchanges, and in the two factors of a product."""
CASES = [
    Case(("custom_partitioning", plan), 4, "even", kernels=kernels)
    for plan, kernels in (("zx_y", "native"), ("z_xy", "xla"), ("zx_y", "gpu"), ("z_y_x", "gpu in blocks"))
    if kernels != "native" or not native.missing()
]


def products(t, u):
    def pointwise(values, points, parameters):
        return Local({"p": jnp.stack([values["u"][0] * values["u"][1], values["u"][2]])})

    return t.evaluate({"u": u}, pointwise).products["p"]


@pytest.mark.spmd
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_and_errors(case):
    """Half and a quarter of the bytes, and a two-byte exponent for each plane; errors of the numbers sent."""
    values = put(case, sample(case, 3))
    u = compiled(case, "forward")(values)
    programs = {k: jax.jit(lambda a, k=k: products(transform(case, k), a)).lower(u).compile() for k in EXACT}
    sent = {k: collectives(c)["all-to-all"].bytes for k, c in programs.items()}
    exact = programs["full"](u)
    assert sent["single"] == 0.5 * sent["full"]
    assert 0.25 < sent["half_scaled"] / sent["full"] < 0.27
    for kind, program in programs.items():
        assert error(program(u), exact) < EXACT[kind]
    assert error(programs["single"](u), exact) > 1e-10  # what was sent was narrow
    # Whole transforms, which make what is stored and drawn, send full numbers.
    whole = [
        compiled(case, "forward").lower(values),
        jax.jit(transform(case, "single").forward).lower(values),
    ]
    assert len({collectives(p.compile())["all-to-all"].bytes for p in whole}) == 1


@pytest.mark.spmd
@pytest.mark.parametrize(("case", "kind"), list(zip(CASES[1:3], ("single", "half_scaled"), strict=True)), ids=str)
def test_derivatives(case, kind):
    """The tangent is that of the exchange, with the rounded factors; vjp is its transpose; vmap stacks."""
    u = compiled(case, "forward")(put(case, sample(case, 3)))
    t, full = transform(case, kind), transform(case)
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
