"""Unknowns that linear terms couple: functions of a small matrix for each mode.

L is diagonal but for a few unknowns, the `names` of a `Coupling`, whose part of L is a matrix for
each mode. An integrator needs exp(L dt) and, for etdrk4, the phi functions of L dt. A `Coupling`
hands its matrices to such a function and applies the results to the unknowns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import factorial
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from simulator.physics.stepping.evolved import Evolved, once
from simulator.spectral.arrays import Number, OverModes, Whole


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SmallMatrix:
    """A square matrix for each mode; its entries, row by row, are arrays over the modes or
    numbers."""

    entries: tuple[OverModes | float, ...]

    @classmethod
    def of(cls, *rows: Sequence[OverModes | float]) -> "SmallMatrix":
        return cls(tuple(entry for row in rows for entry in row))

    @property
    def size(self) -> int:
        return round(len(self.entries) ** 0.5)

    def __getitem__(self, place: tuple[int, int]) -> Any:
        row, column = place
        return self.entries[row * self.size + column]

    def __add__(self, other: "SmallMatrix") -> "SmallMatrix":
        pairs = zip(self.entries, other.entries, strict=True)
        return SmallMatrix(tuple(a + b for a, b in pairs))

    def __rmul__(self, factor: Number | float) -> "SmallMatrix":
        return SmallMatrix(tuple(factor * entry for entry in self.entries))

    def __matmul__(self, other: "SmallMatrix") -> "SmallMatrix":
        indices = range(self.size)

        def entry(i: int, j: int) -> Any:
            return reduce(add, (self[i, k] * other[k, j] for k in indices))

        return SmallMatrix(tuple(entry(i, j) for i in indices for j in indices))

    def plus(self, number: float) -> "SmallMatrix":
        """The matrix plus a multiple of the identity."""
        diagonal = self.size + 1
        entries = (e if i % diagonal else e + number for i, e in enumerate(self.entries))
        return SmallMatrix(tuple(entries))


MatrixFunction = Callable[[SmallMatrix], tuple[SmallMatrix, ...]]
"""Functions of L dt, e.g. `exponential` alone."""

Blocks = dict[tuple[str, str], jax.Array]
"""A function of L: (a, b) to the factor of b in a for each mode, with an axis of components for each
of both that is a vector, unless it is the same for all components."""


class Coupling:
    """The part of L that couples unknowns."""

    @property
    def names(self) -> tuple[str, ...]:
        """The unknowns that are coupled."""
        raise TypeError(f"{type(self).__name__} does not define names")

    def blocks(self, L: Evolved, dt: Number, function: MatrixFunction) -> list[Blocks]:
        """The functions of (L + coupling) dt, where L (1/time) is diagonal."""
        raise TypeError(f"{type(self).__name__} does not define blocks")

    def applied(self, blocks: Blocks, u: Mapping[str, Any]) -> dict[str, Any]:
        """The product of a function with the coupled unknowns."""
        return product(blocks, u)

    def rates(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The coupling times the unknowns (per time), without the diagonal L."""
        raise TypeError(f"{type(self).__name__} does not define rates")


class Coupled(Evolved):
    """A diagonal L and a `Coupling` beside it."""

    coupling: Coupling

    def __init__(self, diagonal: Mapping[str, Any], coupling: Coupling):
        super().__init__(diagonal)
        self.coupling = coupling

    def diagonal(self) -> Evolved:
        """L of the unknowns that nothing couples."""
        return Evolved({n: rate for n, rate in self.items() if n not in self.coupling.names})

    def exponential(self, duration: Number) -> "Propagator":
        return self.functions(duration, partial(exponential, duration))[0]

    def functions(self, dt: Number, function: MatrixFunction) -> list["Propagator"]:
        """The functions of L dt, as factors of the unknowns."""

        def factors(rate: OverModes) -> list[Any]:
            return [f[0, 0] for f in function(SmallMatrix((rate * dt.astype(rate.real.dtype),)))]

        rows = {name: factors(rate) for name, rate in self.diagonal().items()}
        blocks = once(dt, lambda: self.coupling.blocks(self, dt, function))
        return [
            Propagator({name: row[i] for name, row in rows.items()}, self.coupling, part)
            for i, part in enumerate(blocks)
        ]


class Propagator(Evolved):
    """A function of L: factors of the unknowns that nothing couples, and blocks for the others,
    after `scale`."""

    def __init__(
        self,
        factors: Mapping[str, Any],
        coupling: Coupling,
        blocks: Blocks,
        scale: Any = None,
    ):
        super().__init__(factors)
        self.coupling = coupling
        self.blocks = blocks
        self.scale = scale

    def __mul__(self, other: Evolved) -> Evolved:
        own = {name: factor * other[name] for name, factor in self.items()}
        coupled = Evolved({name: other[name] for name in self.coupling.names})
        scaled = coupled if self.scale is None else self.scale * coupled
        return Evolved(own | self.coupling.applied(self.blocks, scaled))

    def __rmul__(self, factor: "Evolved | Number | float") -> "Propagator":
        """h times the operator, where h may have one number for each unknown."""
        each = factor if isinstance(factor, Evolved) else Evolved(dict.fromkeys(self, factor))
        factors = {name: each[name] * own for name, own in self.items()}
        if isinstance(factor, Evolved):
            factor = Evolved({name: factor[name] for name in self.coupling.names})
        scale = factor if self.scale is None else factor * self.scale
        return Propagator(factors, self.coupling, self.blocks, scale)


def product(blocks: Blocks, u: Mapping[str, Any]) -> dict[str, Any]:
    """The blocks times the unknowns."""
    sums: dict[str, Any] = {}
    for (name, other), block in blocks.items():
        x = u[other]
        if x.ndim > 3 and block.ndim > 3:  # the last axis of components is that of x
            parts = jnp.unstack(block, axis=-4)
            term = reduce(add, (part * x[j] for j, part in enumerate(parts)))
        else:
            term = block * x
        sums[name] = sums[name] + term if name in sums else term
    return sums


# ---- functions of matrices
# ------------------------------------------------------------------------------------------------

_LARGEST = 1e9
"""The cap of a damping times dt, whose exponential is zero long before."""
_TERMS = 14
"""exp(z) to 1/14! 2^-14 = 7e-16 for |z| <= 1/2."""
_MOST_SQUARINGS = 32


def exponential(dt: Number, z: SmallMatrix) -> tuple[SmallMatrix]:
    """exp(z), where z is a multiple of dt; in closed form for one and two unknowns."""
    if z.size == 1:
        return (SmallMatrix((once(dt, lambda: jnp.exp(z[0, 0])),)),)
    if z.size == 2:
        return (_exponential_of_two(dt, z),)
    return (phi_matrices(z)[0],)


def _exponential_of_two(dt: Number, z: SmallMatrix) -> SmallMatrix:
    """e^m (cosh r + sinh r / r (z - m)) with m = (z_11 + z_22) / 2, r^2 = (z_11 - z_22)^2 / 4 +
    z_12 z_21, which holds where both eigenvalues m +- r agree, too."""
    first, last = (_capped(z[i, i]) for i in range(2))
    coupling = z[0, 1] * z[1, 0]
    mean = (first + last) / 2
    half = (first - last) / 2
    square = half * half + coupling
    hyperbolic = _hyperbolic if jnp.isrealobj(square) else _hyperbolic_complex
    cosh, sinch = once(dt, lambda: hyperbolic(dt, mean, square, first * last - coupling))
    return SmallMatrix.of(
        (cosh + half * sinch, z[0, 1] * sinch), (z[1, 0] * sinch, cosh - half * sinch)
    )


def _capped(rate: OverModes) -> OverModes:
    return rate + (jnp.maximum(rate.real, -_LARGEST) - rate.real)


def _slow_root(mean: OverModes, root: OverModes, determinant: OverModes) -> OverModes:
    """The larger of mean +- root, of damped modes without cancellation."""
    cancels = (mean.real < 0) & (abs(root) > 0.5 * abs(mean))
    fast = jnp.where(cancels, mean - root, 1)
    return jnp.where(cancels, determinant / fast, mean + root)


def _series(square: OverModes) -> tuple[OverModes, OverModes]:
    """cosh r and sinh r / r for |r^2| <= 1/4."""
    cosh = sinch = jnp.zeros_like(square)
    for n in reversed(range(8)):
        cosh = 1 / factorial(2 * n) + square * cosh
        sinch = 1 / factorial(2 * n + 1) + square * sinch
    return cosh, sinch


def _hyperbolic(
    dt: Number, mean: OverModes, square: OverModes, determinant: OverModes
) -> tuple[OverModes, OverModes]:
    """e^mean cosh r and e^mean sinh r / r for a real r^2 of either sign."""
    small = abs(square) < 0.25
    r = jnp.sqrt(jnp.where(small, 1, abs(square)))
    turning = square < 0
    apart = jnp.where(turning, 0, r)

    def waves() -> tuple[Any, Any, Any]:
        return jnp.exp(mean), jnp.cos(r), jnp.sin(r)

    def decays() -> tuple[Any, Any]:
        return jnp.exp(_slow_root(mean, apart, determinant)), jnp.exp(mean - apart)

    decay, cosine, sine = once(dt, waves)
    up, down = once(dt, decays)
    cosh = jnp.where(turning, decay * cosine, (up + down) / 2)
    sinch = jnp.where(turning, decay * sine, (up - down) / 2) / r
    near = _series(jnp.where(small, square, 0))
    return jnp.where(small, decay * near[0], cosh), jnp.where(small, decay * near[1], sinch)


def _hyperbolic_complex(
    dt: Number, mean: OverModes, square: OverModes, determinant: OverModes
) -> tuple[OverModes, OverModes]:
    """The same for complex numbers; r is the root with Re r >= 0."""

    def small() -> Any:
        return abs(square) < 0.25

    r = once(dt, lambda: jnp.sqrt(jnp.where(small(), 1, square)))

    def decays() -> tuple[Any, Any]:
        # Small r: e^mean alone, for the series.
        slow = jnp.where(small(), mean, _slow_root(mean, r, determinant))
        return jnp.exp(slow), jnp.exp(mean - r)

    up, down = once(dt, decays)
    near = _series(jnp.where(small(), square, 0))
    cosh = jnp.where(small(), up * near[0], (up + down) / 2)
    return cosh, jnp.where(small(), up * near[1], (up - down) / (2 * r))


def _dense(z: SmallMatrix) -> SmallMatrix:
    """The matrix with all entries of one shape and type."""
    arrays = [jnp.asarray(entry) for entry in z.entries]
    shape = jnp.broadcast_shapes(*(a.shape for a in arrays))
    kind = jnp.result_type(*arrays)
    return SmallMatrix(tuple(jnp.broadcast_to(a, shape).astype(kind) for a in arrays))


def _row_sum(z: SmallMatrix) -> Number:
    """A bound of |z| in all modes."""
    return jnp.stack([abs(jnp.asarray(entry)).max() for entry in z.entries]).max() * z.size


def fastest_growth(L: SmallMatrix) -> Number:
    """The largest real part of an eigenvalue of L (1/time), and 0 where it is round-off: log|exp(L
    t)^n| / (n t) for n = 2^40, by Gelfand's formula."""
    bound = jnp.maximum(_row_sum(L), jnp.finfo(jnp.float64).tiny)
    power = phi_matrices((1 / bound) * _dense(L))[0]

    def squared(n: jax.Array, pair: tuple[SmallMatrix, Any]) -> tuple[SmallMatrix, Any]:
        power, logarithm = pair
        size = reduce(jnp.maximum, (abs(entry) for entry in power.entries))
        size = jnp.where(size > 0, size, 1)
        power = (1 / size) * power
        return power @ power, logarithm + jnp.log(size) * 0.5**n

    start = jnp.zeros(jnp.shape(power[0, 0]), jnp.float64)
    _, logarithm = lax.fori_loop(0, 40, squared, (power, start))
    rate = logarithm.max()
    return jnp.where(rate <= 1e-10, 0, rate) * bound


def phi_matrices(
    z: SmallMatrix,
) -> tuple[SmallMatrix, SmallMatrix, SmallMatrix, SmallMatrix]:
    """exp z, phi_1, phi_2 and phi_3 of matrices of any size: Taylor series of z / 2^s, and then s
    times

        phi_n(2 z) = 2^-n (e^z phi_n(z) + sum_(j=1)^n phi_j(z) / (n - j)!).

    Al-Mohy & Higham, SIAM J. Sci. Comput. 33, 488 (2011), section 4; s follows from the largest row
    sum of |z| over all modes."""
    size = z.size
    diagonal = range(0, size * size, size + 1)
    capped = (
        _capped(jnp.asarray(e)) if i in diagonal else jnp.asarray(e)
        for i, e in enumerate(z.entries)
    )
    z = SmallMatrix(tuple(capped))
    largest = _row_sum(z)
    z = _dense(z)
    wanted = jnp.ceil(jnp.log2(jnp.maximum(2 * largest, 1)))
    squarings = jnp.clip(wanted, 0, _MOST_SQUARINGS).astype(jnp.int32)
    x = jnp.exp2(-squarings.astype(z[0, 0].real.dtype)) * z
    zero = 0.0 * x
    third = zero
    for j in reversed(range(_TERMS)):
        third = (x @ third).plus(1 / factorial(j + 3))
    second = (x @ third).plus(0.5)
    first = (x @ second).plus(1.0)
    exp = (x @ first).plus(1.0)
    return _doubled(squarings, (exp, first, second, third))


Phis = tuple[SmallMatrix, SmallMatrix, SmallMatrix, SmallMatrix]


def _double(phis: Phis) -> Phis:
    exp, first, second, third = phis
    return (
        exp @ exp,
        0.5 * (exp @ first + first),
        0.25 * (exp @ second + first + second),
        0.125 * (exp @ third + 0.5 * first + second + third),
    )


@jax.custom_jvp
def _doubled(times: Whole, phis: Phis) -> Phis:
    return lax.fori_loop(0, times, lambda _, phis: _double(phis), phis)


@_doubled.defjvp
def _(primals: tuple[Whole, Phis], tangents: tuple[Any, Phis]) -> Any:
    # The reverse of a loop needs a fixed number of rounds.
    times, phis = primals

    def rounds(phis: Phis) -> Phis:
        def one(phis: Phis, number: Whole) -> tuple[Phis, None]:
            due = number < times
            return jax.tree.map(lambda a, b: jnp.where(due, a, b), _double(phis), phis), None

        return lax.scan(one, phis, jnp.arange(_MOST_SQUARINGS))[0]

    return jax.jvp(rounds, (phis,), (tangents[1],))
