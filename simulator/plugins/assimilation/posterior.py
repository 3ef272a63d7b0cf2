"""The variance that observations leave of a Gaussian prior, by field and shell.

In control variables of unit variance the posterior covariance is M = (1 + G)^(-1), where G is the
misfit's Gauss-Newton Hessian (the Hessian preconditioned by the prior). Leading eigenpairs of G, by
the Lanczos process, give it with low rank (Bui-Thanh, Ghattas, Martin & Stadler, SIAM J. Sci. Comput.
35, A2494 (2013)),

A = 1 - sum of lambda_i / (1 + lambda_i) v_i v_i^T.

The diagonal of the rest, M - A, is the mean of z times (M - A) z over random directions z of unit
modulus (Hutchinson, Commun. Stat. Simul. Comput. 19, 433 (1990)), with M z by conjugate gradients that
begin with A z and are preconditioned by A."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import jax
import numpy as np
import optax

Control = dict[str, jax.Array]
Shells = dict[str, np.ndarray]
Product = Callable[[Control], Control]
_EXHAUSTED = 1e-6  # Relative to the largest eigenvalue; then the basis spans an invariant subspace.
_SOLVED = 1e-3  # The factor by which conjugate gradients lower the squared residual.
_SCATTER = 1e-2  # Relative standard error of a field's variance at which no more directions follow.


@dataclass(frozen=True)
class Posterior:
    variance: Shells  # By field, half the sum of squares in each shell.
    known: float  # Degrees of freedom that the observations determine, the trace of G (1 + G)^(-1).
    eigenpairs: int
    directions: int  # Random directions, of the rest.
    products: int  # Products with G.
    is_rough: bool  # Whether the products did not suffice for one random direction.


@jax.jit
def _inner(a: Control, b: Control) -> jax.Array:
    return optax.tree.real(optax.tree.vdot(a, b))


@jax.jit
def _plus(a: Control, factor: float, b: Control) -> Control:
    return jax.tree.map(lambda x, y: x + (factor * y).astype(x.dtype), a, b)


@jax.jit
def _combined(factors: np.ndarray, vectors: Sequence[Control]) -> Control:
    total = jax.tree.map(lambda x: (factors[0] * x).astype(x.dtype), vectors[0])
    for factor, vector in zip(factors[1:], vectors[1:], strict=True):
        total = _plus(total, factor, vector)
    return total


def _norm(a: Control) -> float:
    return float(_inner(a, a)) ** 0.5


def _scaled(factor: float, a: Control) -> Control:
    return _plus(a, factor - 1, a)


@jax.jit
def _reduced(a: Control, vector: Control, share: float = 1.0) -> Control:
    """`a` less this share of its part along a unit vector."""
    return _plus(a, -share * _inner(vector, a), vector)


def eigenpairs(
    curvature: Product, start: Control, products: int
) -> tuple[np.ndarray, list[Control]]:
    """The eigenvalues and eigenvectors of `curvature`, symmetric and not negative, that the Lanczos
    process from `start` has resolved after so many products."""
    basis = []
    diagonal = []
    beside = [_norm(start)]
    vector = start
    while beside[-1] > _EXHAUSTED * max(diagonal, default=0.0) and len(basis) < products:
        basis.append(_scaled(1 / beside[-1], vector))
        vector = curvature(basis[-1])
        diagonal.append(float(_inner(basis[-1], vector)))
        for one in (*basis, *basis):  # twice is enough (Parlett)
            vector = _reduced(vector, one)
        beside.append(_norm(vector))
    if not basis:
        return np.empty(0), []
    tridiagonal = np.diag(diagonal) + np.diag(beside[1:-1], 1) + np.diag(beside[1:-1], -1)
    values, columns = np.linalg.eigh(tridiagonal)
    return np.maximum(values, 0), [_combined(column, basis) for column in columns.T]


class _Curvature:
    """The products with G; at most `most` are made."""

    def __init__(self, product: Product, most: int):
        self._product = product
        self._most = most
        self.used = 0

    def __call__(self, vector: Control) -> Control:
        self.used += 1
        return self._product(vector)

    @property
    def is_spent(self) -> bool:
        return self.used >= self._most


def _solved(
    curvature: _Curvature, precondition: Product, right: Control, guess: Control
) -> tuple[Control, bool]:
    """x of (1 + curvature) x = `right` by preconditioned conjugate gradients from a guess, and
    whether it has converged; it ends when the products are spent."""
    x = guess
    direction = None
    if curvature.is_spent:
        return x, False
    residual = _plus(_plus(right, -1.0, guess), -1.0, curvature(guess))
    first = float(_inner(right, precondition(right)))
    square = np.inf
    while True:
        preconditioned = precondition(residual)
        before = square
        square = float(_inner(residual, preconditioned))
        if square < _SOLVED * first:
            return x, True
        if curvature.is_spent:
            return x, False
        direction = (
            preconditioned
            if direction is None
            else _plus(preconditioned, square / before, direction)
        )
        product = _plus(curvature(direction), 1.0, direction)
        rate = square / float(_inner(direction, product))
        x = _plus(x, rate, direction)
        residual = _plus(residual, -rate, product)


def posterior(
    curvature: Product,
    measure: Callable[[Control, Control], Shells],
    prior: Shells,
    start: Control,
    random: Callable[[int], Control],
    products: int,
) -> Posterior:
    """The posterior by at most so many products with G, `curvature`; most of them are for
    eigenpairs. `measure` gives half the sum of products of two fields in each shell, `prior` its mean
    for a random direction, and `random` the direction of a number."""
    counted = _Curvature(curvature, products)
    values, vectors = eigenpairs(counted, start, max(3 * products // 4, 1))
    known = values / (1 + values)
    variance = dict(prior)
    for part, vector in zip(known, vectors, strict=True):
        for name, square in measure(vector, vector).items():
            variance[name] = variance[name] - part * square

    def approximate(vector: Control) -> Control:
        for part, one in zip(known, vectors, strict=True):
            vector = _reduced(vector, one, part)
        return vector

    corrections = []
    freedoms = []
    is_rough = False
    for change, direction, converged in _changes(counted, approximate, random):
        if corrections and not converged:
            break
        is_rough = not converged
        corrections.append(measure(direction, change))
        freedoms.append(-float(_inner(direction, change)))
        if counted.is_spent or _scatter(variance, corrections) < _SCATTER:
            break
    mean = {n: sum(c[n] for c in corrections) / len(corrections) for n in prior}
    return Posterior(
        variance={n: np.maximum(variance[n] + mean[n], 0) for n in prior},
        known=float(known.sum() + np.mean(freedoms)),
        eigenpairs=len(values),
        directions=len(corrections),
        products=counted.used,
        is_rough=is_rough,
    )


def _changes(
    curvature: _Curvature, approximate: Product, random: Callable[[int], Control]
) -> Iterator[tuple[Control, Control, bool]]:
    """(M - A) z of random directions z, z, and whether conjugate gradients have converged."""
    for number in count():
        direction = random(number)
        guess = approximate(direction)
        x, converged = _solved(curvature, approximate, direction, guess)
        yield _plus(x, -1.0, guess), direction, converged


def _scatter(variance: Shells, corrections: Sequence[Shells]) -> float:
    """The largest relative standard error of a field's variance; infinite for one direction."""
    if len(corrections) < 2:
        return np.inf
    errors = []
    for name, known in variance.items():
        totals = [(known + correction[name]).sum() for correction in corrections]
        errors.append(np.std(totals, ddof=1) / len(totals) ** 0.5 / max(np.mean(totals), 1e-300))
    return float(max(errors))
