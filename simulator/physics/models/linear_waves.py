"""Waves as linear terms that couple fields: a small matrix for each mode, with functions of it in
closed form.

With k' = k / |k| a solenoidal vector X of one mode has two components, which k' x turns into each
other: (k' x)^2 = -1. Hence a complex number g acts on X as

    g X = Re g X - Im g k' x X,                                                             (1)

and a rotation, du/dt = -2 Omega x u - grad p, is the number i F with F = 2 Omega . k'. At k = 0 the
mean velocity turns about Omega, which takes the place of k'. Davidson, Turbulence in Rotating,
Stratified and Electrically Conducting Fluids (2013), chapters 3 and 6; Galtier, J. Plasma Phys. 72,
721 (2006), for all three waves of magnetised rotating flows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product as pairs_of
from math import hypot, sqrt
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from simulator.physics.models.damping import absent
from simulator.physics.models.fields import Fields, along, constant, directed
from simulator.physics.stepping.coupled import (
    Blocks,
    Coupling,
    MatrixFunction,
    SmallMatrix,
)
from simulator.physics.stepping.evolved import Evolved, once
from simulator.spectral import Layout
from simulator.spectral.arrays import Number, OverModes, quotient, root
from simulator.spectral.operators import cross, wavenumbers

CoupledTerms = Mapping[tuple[str, str], OverModes]
"""Factors (1/time): (a, b) of the field b in the rate of the field a."""


Waves = Coupling | CoupledTerms


@dataclass(frozen=True)
class MatrixWaves(Coupling):
    """A matrix of factors between fields with the same components."""

    terms: CoupledTerms

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for pair in self.terms for name in pair))

    def rates(self, fields: Fields) -> Fields:
        rates: dict[str, Any] = {}
        for (name, other), factor in self.terms.items():
            rates[name] = rates.get(name, 0) + factor * fields[other]
        return rates

    def blocks(self, L: Evolved, dt: Number, function: MatrixFunction) -> list[Blocks]:
        t = dt.astype(L[self.names[0]].real.dtype)
        pairs = [(name, other) for name in self.names for other in self.names]
        functions = function(t * self.matrix(L))
        return [dict(zip(pairs, map(jnp.asarray, f.entries), strict=True)) for f in functions]

    def matrix(self, L: Mapping[str, OverModes]) -> SmallMatrix:
        """The coupling and the diagonal L (1/time)."""

        def entry(name: str, other: str) -> OverModes:
            factor = self.terms.get((name, other), 0.0)
            return jnp.asarray(factor) + (L[name] if name == other else 0.0)

        pairs = pairs_of(self.names, repeat=2)
        return SmallMatrix(tuple(entry(name, other) for name, other in pairs))


def equally_damped(model: Any, *rates: Any) -> bool:
    """Whether the fields of a model with these diffusivities are known to be damped equally."""
    known = all(isinstance(rate, int | float) for rate in rates)
    return known and len(set(rates)) == 1 and not model.damps


def _turned(g: Any, direction: Sequence[OverModes]) -> OverModes:
    """The matrix (3, 3) of equation (1), or the factor g itself if it is real."""
    if jnp.isrealobj(g):
        return g
    x, y, z = (-g.imag * q for q in direction)
    zero = jnp.zeros_like(g.real)
    rows = ((g.real, -z, y), (z, g.real, -x), (-y, x, g.real))
    return _stacked(rows, zero.shape)


def _stacked(rows: Sequence[Sequence[Any]], shape: tuple[int, ...]) -> jax.Array:
    """Arrays over the modes as one, with the axes row and column."""
    full = [jnp.broadcast_to(entry, shape) for row in rows for entry in row]
    return jnp.stack(full).reshape(len(rows), len(rows[0]), *shape)


def _complex(real: OverModes, imaginary: OverModes) -> OverModes:
    return jax.lax.complex(*jnp.broadcast_arrays(real, imaginary))


def _length(vector: Sequence[float]) -> float:
    return sum(x**2 for x in vector) ** 0.5


@dataclass(frozen=True)
class HelicalWaves(Coupling):
    """Inertial, Alfven and Hall waves, and their combinations. With F = 2 Omega . k', a = B . k and
    c = i b, in the sense of equation (1):

        du/dt = i F u + a c,  dc/dt = -a u - i d |k| a c.

    B is the mean of the magnetic field, d the ion length of the Hall effect; without B velocities
    alone turn. `equal`: both fields are damped at the same rate; then the eigenvalues are that rate
    and, beside it, i (F + h) / 2 +- i omega, h = -d |k| a, omega^2 = (F - h)^2 / 4 + a^2."""

    layout: Layout
    rotation: Sequence[float]
    mean_field: jax.Array | None = None
    ion_length: float = 0.0
    equal: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return ("velocity",) if self.mean_field is None else ("velocity", "magnetic")

    @property
    def turning(self) -> bool:
        """Whether some number of the matrix is complex."""
        return not absent(*self.rotation) or (self.mean_field is not None and self.ion_length != 0)

    def _direction(self, dtype: DTypeLike) -> list[OverModes]:
        """k'."""
        inverse = jnp.sqrt(self.layout.inverse_k_squared(dtype))
        k = [q * inverse for q in wavenumbers(self.layout, dtype)]
        if absent(*self.rotation):
            return k
        axis = (x / _length(self.rotation) for x in self.rotation)
        return [jnp.where(self.layout.zero, e, q) for e, q in zip(axis, k, strict=True)]

    def _numbers(self, dtype: DTypeLike) -> tuple[Any, Any, Any]:
        """F, a and -d |k| a (1/time)."""
        zero = jnp.zeros((1, 1, 1), dtype)
        k = wavenumbers(self.layout, dtype)
        direction = self._direction(dtype)
        parts = [2 * x * q for x, q in zip(self.rotation, direction, strict=False) if not absent(x)]
        turn = reduce(add, parts, zero)
        if self.mean_field is None:
            return turn, zero, zero
        a = reduce(add, (b * q for b, q in zip(self.mean_field, k, strict=True)))
        length = jnp.sqrt(self.layout.k_squared(dtype)) if self.turning else zero
        return turn, a, -self.ion_length * length * a

    def blocks(self, L: Evolved, dt: Number, function: MatrixFunction) -> list[Blocks]:
        dtype = L["velocity"].real.dtype
        t = dt.astype(dtype)
        still = function(SmallMatrix((jnp.zeros((1, 1, 1), dtype),)))
        matrices = once(dt, lambda: self._matrices(L, t, function))
        direction = once(dt, lambda: self._direction(dtype))
        pairs = zip(matrices, still, strict=True)
        return [self._block(f, g[0, 0], direction) for f, g in pairs]

    def _matrices(self, L: Evolved, t: Number, function: MatrixFunction) -> Sequence[SmallMatrix]:
        """The functions of the matrix times t between u and c."""
        damping = [L[name] * t for name in self.names]
        turn, a, hall = (number * t for number in self._numbers(t.dtype))
        if self.mean_field is not None and self.equal:
            if self.turning:
                return _precessing(function, damping[0], (turn, a, hall))
            waves = function(SmallMatrix((_complex(damping[0], a),)))
            parts = ((f[0, 0].real, f[0, 0].imag) for f in waves)
            return [SmallMatrix.of((even, odd), (-odd, even)) for even, odd in parts]
        if self.turning:
            damping = [_complex(d, spin) for d, spin in zip(damping, (turn, hall), strict=False)]
        if self.mean_field is None:
            return function(SmallMatrix((damping[0],)))
        return function(SmallMatrix.of((damping[0], a), (-a, damping[1])))

    def _block(self, f: SmallMatrix, still: OverModes, direction: Sequence[OverModes]) -> Blocks:
        """f between the fields u and c; `still` is f of the mean velocity along the axis."""
        pairs = [(name, other) for name in self.names for other in self.names]
        blocks = {pair: _turned(g, direction) for pair, g in zip(pairs, f.entries, strict=True)}
        if not absent(*self.rotation):
            axis = constant([x / _length(self.rotation) for x in self.rotation], still.dtype)
            along = axis[:, None] * axis * (still - f[0, 0].real)
            key = ("velocity", "velocity")
            blocks[key] = blocks[key] + jnp.where(self.layout.zero, along, 0)
        return blocks

    def applied(self, blocks: Blocks, u: Mapping[str, Any]) -> dict[str, Any]:
        if self.mean_field is None:
            return super().applied(blocks, u)
        new = super().applied(blocks, {**u, "magnetic": 1j * u["magnetic"]})
        return {**new, "magnetic": -1j * new["magnetic"]}

    def rates(self, fields: Fields) -> Fields:
        u = fields["velocity"]
        dtype = u.real.dtype
        turn, a, hall = self._numbers(dtype)
        direction = self._direction(dtype)
        rates: dict[str, Any] = {"velocity": jnp.zeros_like(u)}
        if not absent(*self.rotation):
            rates["velocity"] -= turn * cross(direction, u)
        if self.mean_field is not None:
            b = fields["magnetic"]
            rates["velocity"] += 1j * a * b
            rates["magnetic"] = 1j * a * u
            if self.ion_length:
                rates["magnetic"] -= hall * cross(direction, b)
        return rates


@dataclass(frozen=True)
class BuoyancyWaves(Coupling):
    """Internal gravity waves, and inertia-gravity waves with rotation. With b = N theta and the unit
    vectors e_2 = -(e - k' k' . e) / S and e_1 = e_2 x k' of a mode, S = |e - k' k' . e|:

        du_1/dt = F u_2,  du_2/dt = -F u_1 - S N theta,  dtheta/dt = S N u_2.

    `equal`: velocity and buoyancy are damped at the same rate; then the eigenvalues are that rate
    and, beside it, +-i omega, omega^2 = F^2 + S^2 N^2, so that the functions of the matrix are
    known."""

    layout: Layout
    rotation: Sequence[float]
    up: Sequence[float]
    stratification: float
    equal: bool

    @property
    def names(self) -> tuple[str, ...]:
        return ("velocity", "buoyancy")

    @property
    def frequency(self) -> float:
        """N (1/time)."""
        return sqrt(self.stratification)

    def _basis(self, dtype: DTypeLike) -> tuple[list[OverModes], list[OverModes], OverModes]:
        """k', e_2 and S; where S = 0, e_2 is any vector across e with rotation, and 0 without."""
        inverse = jnp.sqrt(self.layout.inverse_k_squared(dtype))
        k = [q * inverse for q in wavenumbers(self.layout, dtype)]
        rise = reduce(add, (e * q for e, q in zip(self.up, k, strict=True)))
        level = [q * rise - e for e, q in zip(self.up, k, strict=True)]
        square = reduce(add, (x * x for x in level))
        vertical = square <= (64 * jnp.finfo(dtype).eps) ** 2
        steepness = jnp.sqrt(jnp.where(vertical, 1, square))
        other = [0.0] * len(k) if absent(*self.rotation) else _across(self.up)
        unit = [jnp.where(vertical, o, x / steepness) for o, x in zip(other, level, strict=True)]
        return k, unit, jnp.where(vertical, 0, steepness)

    def blocks(self, L: Evolved, dt: Number, function: MatrixFunction) -> list[Blocks]:
        dtype = L["velocity"].real.dtype
        t = dt.astype(dtype)
        direction, second, steepness = once(dt, lambda: self._basis(dtype))
        damping, diffusion = (L[name] * t for name in self.names)
        lift = steepness * self.frequency * t
        if absent(*self.rotation):
            # The component e_2 and theta form waves, others are damped.
            waves = function(SmallMatrix.of((damping, -lift), (lift, diffusion)))
            others = function(SmallMatrix((damping,)))
            return [self._block([second], f, g[0, 0]) for f, g in zip(waves, others, strict=True)]
        parts = (2 * x * q for x, q in zip(self.rotation, direction, strict=True) if not absent(x))
        turn = t * reduce(add, parts)

        def functions() -> Sequence[SmallMatrix]:
            if self.equal:
                return _oscillating(function, damping, turn, lift)
            rows = ((damping, turn, 0.0), (-turn, damping, -lift), (0.0, lift, diffusion))
            return function(SmallMatrix.of(*rows))

        matrices = once(dt, functions)
        first = cross(second, jnp.stack(jnp.broadcast_arrays(*direction)))
        basis = [once(dt, lambda: list(first)), second]
        means = function(self._mean(t))
        return [
            self._with_mean(self._block(basis, f, 0.0), mean)
            for f, mean in zip(matrices, means, strict=True)
        ]

    def _mean(self, t: Number) -> SmallMatrix:
        """The matrix of the means of velocity and theta times t."""
        x, y, z = (2 * w * t for w in self.rotation)
        a, b, c = (self.frequency * e * t for e in self.up)
        zero = 0 * t
        return SmallMatrix.of(
            (zero, z, -y, a), (-z, zero, x, b), (y, -x, zero, c), (-a, -b, -c, zero)
        )

    def _block(
        self, basis: Sequence[Sequence[OverModes]], f: SmallMatrix, other: OverModes | float
    ) -> Blocks:
        """f of the components along the vectors `basis` and of theta, as blocks between velocity
        and b = N theta; `other` is the factor of components across the basis."""
        last = len(basis)
        axes = range(len(self.up))
        unit = [[basis[a][i] for a in range(last)] for i in axes]

        def entry(i: int, j: int) -> OverModes:
            pairs = pairs_of(range(last), repeat=2)
            inside = (unit[i][a] * (f[a, b] - (a == b) * other) * unit[j][b] for a, b in pairs)
            return reduce(add, inside) + (i == j) * other

        def mixed(column: bool, i: int) -> OverModes:
            parts = (unit[i][a] * (f[a, last] if column else f[last, a]) for a in range(last))
            return reduce(add, parts)

        rows = [[entry(i, j) for j in axes] for i in axes]
        shape = jnp.broadcast_shapes(*(jnp.shape(e) for row in rows for e in row))
        n = self.frequency
        up = [mixed(column=True, i=i) / n for i in axes]
        down = [mixed(column=False, i=i) * n for i in axes]
        return {
            ("velocity", "velocity"): _stacked(rows, shape),
            ("velocity", "buoyancy"): _stacked([up], shape)[0],
            ("buoyancy", "velocity"): _stacked([down], shape)[0],
            ("buoyancy", "buoyancy"): jnp.broadcast_to(f[last, last], shape),
        }

    def _with_mean(self, blocks: Blocks, mean: SmallMatrix) -> Blocks:
        """The blocks with those of the means at k = 0."""
        n = self.frequency
        matrix = jnp.stack(mean.entries).reshape(4, 4, 1, 1, 1)
        means = {
            ("velocity", "velocity"): matrix[:3, :3],
            ("velocity", "buoyancy"): matrix[:3, 3] / n,
            ("buoyancy", "velocity"): matrix[3, :3] * n,
            ("buoyancy", "buoyancy"): matrix[3, 3],
        }
        zero = self.layout.zero
        return {pair: jnp.where(zero, means[pair], block) for pair, block in blocks.items()}

    def rates(self, fields: Fields) -> Fields:
        u = fields["velocity"]
        b = fields["buoyancy"]
        direction, *_ = self._basis(u.real.dtype)
        force = directed(self.up, b)
        if not absent(*self.rotation):
            force += cross(u, jnp.asarray(2 * constant(self.rotation, u.real.dtype)))
        pressure = reduce(add, (q * x for q, x in zip(direction, jnp.unstack(force), strict=True)))
        solenoidal = force - jnp.stack([q * pressure for q in direction])
        return {"velocity": solenoidal, "buoyancy": -self.stratification * along(self.up, u)}


def _across(up: Sequence[float]) -> list[float]:
    """A unit vector perpendicular to `up`."""
    least = min(range(len(up)), key=lambda i: abs(up[i]))
    vector = [(i == least) - up[least] * e for i, e in enumerate(up)]
    return [v / hypot(*vector) for v in vector]


def _precessing(
    function: MatrixFunction, damping: OverModes, numbers: tuple[OverModes, OverModes, OverModes]
) -> list[SmallMatrix]:
    """The functions of damping + ((i F, a), (-a, i h)) with the eigenvalues damping + i (m +- omega),
    m = (F + h) / 2, omega^2 = (F - h)^2 / 4 + a^2: S + D ((F - h) / 2, -i a), (i a, (h - F) / 2)) /
    omega, where S and D are half the sum and half the difference of f at both."""
    turn, a, hall = numbers
    mean = (turn + hall) / 2
    half = (turn - hall) / 2
    omega = root(half * half + a * a)
    inverse = quotient(1, omega)
    above, below = (function(SmallMatrix((_complex(damping, mean + s * omega),))) for s in (1, -1))
    matrices = []
    for f, g in zip(above, below, strict=True):
        even = (f[0, 0] + g[0, 0]) / 2
        odd = inverse * (f[0, 0] - g[0, 0]) / 2
        mixed = -1j * a * odd
        matrices.append(SmallMatrix.of((even + half * odd, mixed), (-mixed, even - half * odd)))
    return matrices


def _oscillating(
    function: MatrixFunction, damping: OverModes, turn: OverModes, lift: OverModes
) -> list[SmallMatrix]:
    """The functions of damping + A, A^3 = -omega^2 A: f(0) + Im f(i omega) A / omega + (f(0) - Re f(i
    omega)) A^2 / omega^2, where f is taken beside `damping`."""
    square = turn * turn + lift * lift
    omega = jnp.sqrt(jnp.where(square > 0, square, 1))
    F = jnp.where(square > 0, turn / omega, 0)
    G = jnp.where(square > 0, lift / omega, 0)
    phase = jnp.where(square > 0, omega, 0)
    steady = function(SmallMatrix((damping,)))
    waves = function(SmallMatrix((_complex(damping, phase),)))
    matrices = []
    for f, g in zip(steady, waves, strict=True):
        zero = f[0, 0]
        odd = g[0, 0].imag
        even = zero - g[0, 0].real
        matrices.append(
            SmallMatrix.of(
                (zero - even * F * F, odd * F, -even * F * G),
                (-odd * F, g[0, 0].real + 0 * zero, -odd * G),
                (-even * F * G, odd * G, zero - even * G * G),
            )
        )
    return matrices
