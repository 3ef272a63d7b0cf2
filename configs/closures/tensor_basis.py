"""A subgrid stress by a small network on invariants, for `model.subgrid: {kind: python}` in three
dimensions.

tau = -Delta^2 |A|^2 sum_n c_n T_n, with the velocity gradient A_ij = du_i/dx_j, its symmetric and antisymmetric parts
S and R, |A|^2 = A_ij A_ij, and the tensors S/|A|, (SR - RS)/|A|^2, S^2/|A|^2 and R^2/|A|^2
(Pope, J. Fluid Mech. 72, 331 (1975)). The coefficients c_n depend on the invariants of S and R, divided by powers of
|A|, and on the ratio of Delta^2 |A| to the viscosity. The stress is therefore the same in every frame, inertial or
turned.
"""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np

HIDDEN = 16


def weights():
    random = np.random.default_rng(0)
    sizes = (5, HIDDEN, HIDDEN)
    layers = [
        {"w": random.normal(0, (1 / m) ** 0.5, (n, m)), "b": np.zeros(n)}
        for m, n in pairwise(sizes)
    ]
    # The untrained stress is that of Smagorinsky with a coefficient of 0.1: 2 C^2 |S| S, |S| about
    # |A|.
    last = {"w": np.zeros((4, HIDDEN)), "b": np.array([0.02, 0.0, 0.0, 0.0])}
    return {"layers": [*layers, last]}


def _product(a, b):
    axes = range(len(a))
    return [[sum(a[i][k] * b[k][j] for k in axes) for j in axes] for i in axes]


def _trace(a, b):
    """a_ij b_ji."""
    return sum(a[i][k] * b[k][i] for i in range(len(a)) for k in range(len(a)))


def stress(velocity, gradient, width, layers, viscosity):
    axes = range(len(velocity))
    tiny = jnp.finfo(velocity.dtype).tiny ** 0.5
    size = jnp.sqrt((gradient**2).sum((0, 1)) + tiny)
    a = gradient / size
    s = [[0.5 * (a[i, j] + a[j, i]) for j in axes] for i in axes]
    r = [[0.5 * (a[i, j] - a[j, i]) for j in axes] for i in axes]
    sr, ss, rr = _product(s, r), _product(s, s), _product(r, r)
    reynolds = jnp.log1p(width**2 * size / viscosity) - 2
    invariants = [
        4 * _trace(s, s) - 2,
        reynolds,
        10 * _trace(ss, s),
        10 * _trace(rr, s),
        10 * _trace(rr, ss),
    ]
    tensors = [s, [[sr[i][j] + sr[j][i] for j in axes] for i in axes], ss, rr]  # (RS)_ij = -(SR)_ji
    x = jnp.stack(invariants)
    for layer in layers[:-1]:
        x = jnp.tensordot(layer["w"], x, 1) + layer["b"].reshape(-1, *(1,) * (x.ndim - 1))
        x = x / (1 + abs(x))
    x = jnp.tensordot(layers[-1]["w"], x, 1) + layers[-1]["b"].reshape(-1, *(1,) * (x.ndim - 1))
    factor = -(width**2) * size**2
    pairs = [*((i, i) for i in axes), *((i, j) for i in axes for j in axes if i < j)]
    return [factor * sum(c * t[i][j] for c, t in zip(x, tensors, strict=True)) for i, j in pairs]
