"""jit, vmap, jvp, vjp, grad and checkpoint through the transforms and the blocked nonlinear
term."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectral_cases import PLANS, Case, error, put, sample, transform
from tiers import slow_but

from simulator.spectral import Local
from simulator.spectral.operators import curl

REAL = [
    Case(plan, 4, "even", block=2 if plan[0] == "custom_partitioning" else None) for plan in PLANS
]
COMPLEX = [Case(plan, 3, "odd", "complex, every mode") for plan in PLANS if plan[1] != "pencil"]
XLA = [replace(c, kernels="xla") for c in REAL + COMPLEX if c.plan[0] == "custom_partitioning"]
PLAN = ("custom_partitioning", "zx_y")
GPU = [Case(PLAN, n, "even", block=b, kernels="gpu in blocks") for n, b in ((1, 5), (4, 2))]
LINEAR = (COMPLEX[1],)
NONLINEAR = (REAL[1], XLA[0])
"""Of every layout these are quick enough for the default tier."""


def each(*quick: Case):
    every = REAL + COMPLEX + XLA + GPU
    return pytest.mark.parametrize("case", slow_but(every, quick), ids=str)


def real_dot(a, b):
    return jnp.sum(a.real * b.real) + jnp.sum(a.imag * b.imag)


def square(f, v):
    return real_dot(f(v), f(v))


@pytest.mark.spmd
@each(*LINEAR)
def test_linear_identities(case: Case):
    """jvp of a linear map is the map; its vjp is the adjoint: <F x, y> = <x, F* y>; vmap stacks,
    nested too."""
    case = replace(case, block=None)
    t = transform(case)

    @jax.jit
    def check(x, other):
        found = []
        for f, source in ((t.forward, lambda v: v), (t.inverse, t.forward)):
            a = source(x)
            b = source(other)
            y, tangent = jax.jvp(f, (a,), (b,))
            mapped = jax.vmap(f, in_axes=1, out_axes=1)(jnp.stack([a, b], 1))
            found += [(tangent, mapped[:, 1]), (y, mapped[:, 0])]
            weight = (y * y.conj() + 1).astype(y.dtype)  # any cotangent of the result's type
            # JAX pairs tangents and cotangents without conjugation; the real part is what counts.
            (back,) = jax.vjp(f, a)[1](weight)
            found.append((jnp.sum(tangent * weight).real, jnp.sum(b * back).real))
            gradient = jax.grad(partial(square, f))
            found.append(
                (jax.vmap(jax.vmap(gradient))(jnp.stack([a, b])[:, None])[0, 0], gradient(a))
            )
        return found

    for one, other in check(*(put(case, sample(case, 2, seed=s)) for s in (0, 1))):
        assert error(one, other) < 1e-12


def momentum(values, points, parameters):
    """u x w, with a coordinate and a parameter in it, and both kinds of reduction."""
    u = values["u"]
    w = values["w"]
    force = jnp.cross(u, w, axis=0) * (1 + parameters["a"] * jnp.sin(points.x + 0 * points.y))
    speed = jnp.sqrt((u.conj() * u).real.sum(0))
    return Local(
        {"f": force, "s": u[0] * w[0]}, {"speed": speed}, {"power": (force * u).real.sum(0)}
    )


def term(t):
    def run(u, a):
        found = t.evaluate({"u": u, "w": curl(t.layout, u)}, momentum, {"a": a})
        return found.products, found.means

    return run


@pytest.mark.spmd
@each(*NONLINEAR)
def test_nonlinear_term(case: Case):
    """The blocked term: forward and reverse derivatives agree with each other and with differences;
    vmap stacks."""
    t = transform(case)
    run = term(t)
    x, v = (put(case, sample(case, 3, seed=s)) for s in (0, 1))

    @jax.jit
    def check(x, v):
        u = t.forward(x)
        du = t.forward(v)
        a = jnp.float64(0.3)
        da = jnp.float64(-0.7)
        (products, _), (dproducts, dmeans) = jax.jvp(run, (u, a), (du, da))
        weights = jax.tree.map(lambda p: p.conj() * 1e3 + 1, products), {"power": jnp.float64(2)}
        _, back = jax.vjp(run, u, a)
        gu, ga = back(weights)
        forward = sum(
            jnp.sum(p * w).real
            for p, w in zip(dproducts.values(), weights[0].values(), strict=True)
        )
        forward += dmeans["power"] * 2
        reverse = jnp.sum(gu * du).real + ga * da
        step = 1e-5
        ends = [run(u + s * step * du, a + s * step * da)[0]["f"] for s in (1, -1)]
        difference = (ends[0] - ends[1]) / (2 * step)
        both = jax.vmap(run, in_axes=(0, None))(jnp.stack([u, du]), a)[0]["f"]
        alone = jnp.stack([products["f"], run(du, a)[0]["f"]])
        remade, _ = jax.vjp(jax.checkpoint(run), u, a)[1](weights)
        return forward, reverse, dproducts["f"], difference, both, alone, remade, gu

    forward, reverse, tangent, difference, both, alone, remade, plain = check(x, v)
    assert error(reverse, forward) < 1e-11
    assert error(difference, tangent) < 1e-8  # h^2 f''' and eps / h
    assert error(both, alone) < 1e-12
    assert error(remade, plain) < 1e-12


@pytest.mark.spmd
def test_hessian_of_a_quadratic_form_is_its_matrix():
    """Second derivatives, forward over reverse: hessian of the energy of a field is 2 / N times the
    identity."""
    case = Case(fields="real, every mode", shape="prime", devices=2)
    t = transform(case)
    x, v = (put(case, sample(case, 1, seed=s)) for s in (0, 1))

    def energy(x):
        modes = t.forward(x)
        return t.layout.inner(modes, modes).sum()

    _, curvature = jax.jit(lambda x, v: jax.jvp(jax.grad(energy), (x,), (v,)))(x, v)
    assert error(curvature, 2 * np.asarray(v) / t.grid.points) < 1e-12
