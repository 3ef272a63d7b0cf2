"""Probability densities in the eigenframe of the rate of strain: strain.h5."""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import sqrt
from operator import add
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator import spectral
from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.rows import binned
from simulator.physics import models
from simulator.physics.models.advection import strain_rate
from simulator.plugins.statistics.transfer import check_flow
from simulator.settings import Points, Ratio
from simulator.spectral import Layout, operators
from simulator.spectral.arrays import SpectralVector
from simulator.spectral.program import Program


class StrainSettings(SeriesCadence):
    bins: Points = 100
    """Number of bins of each histogram."""
    range: Ratio = 5.0
    """The histograms of the eigenvalues extend by this many root mean squares of the strain to both
    sides."""


class Strain(Kind):
    """Probability densities in the eigenframe of S_ij = (du_i/dx_j + du_j/dx_i) / 2 of a velocity
    without divergence.

    `alpha`, `beta`, `gamma` (rate): the eigenvalues, largest first, in units of `strain_rms` =
    sqrt(<S_ij S_ij>). `s_star` (shape): -3 sqrt(6) alpha beta gamma / (alpha^2 + beta^2 +
    gamma^2)^(3/2), uniformly distributed in a Gaussian field (Lund and Rogers 1994, Phys. Fluids 6,
    1838). `VECTOR_alpha`, ... (cosine): |cos| of the angle between a vector and each eigenvector
    (Ashurst et al. 1987, Phys. Fluids 30, 2343); vectors are the vorticity, the magnetic field and
    the gradient of each scalar, among the fields of the model. Points where the vector or the
    strain is at round-off level are not counted.

    Means: `alpha_mean`, ... of the eigenvalues; `stretching_alpha`, ... = <alpha (omega .
    e_alpha)^2>, whose sum is <omega . S omega>; `strain_product` = <alpha beta gamma>, -1/4 of this
    sum (Betchov 1956, J. Fluid Mech. 1, 497)."""

    sheared = True
    name = "strain"
    description = (
        "Eigenvalues of the rate of strain, and alignment of vorticity, magnetic field and scalar gradients with its "
        "eigenvectors, in strain.h5."
    )
    Settings = StrainSettings

    def measured(self, subject: Subject, settings: StrainSettings) -> Measured:
        check_flow(subject)
        if subject.transform.grid.dimensions < 3:
            raise Unsupported("needs a flow in three dimensions", of_model=False)
        transform = subject.transform
        components = subject.model.shapes
        bins = settings.bins
        reach = settings.range
        layout = transform.layout
        physical = transform.physical
        scalars = [name for name, lead in components.items() if not lead]
        vectors = ["vorticity", *(["magnetic"] if "magnetic" in components else [])]
        vectors += [f"{name}_gradient" for name in scalars]
        program = _counting(transform, len(vectors), bins, reach)

        def compute(state: models.State) -> dict[str, jax.Array]:
            fields = state.fields
            s = strain_rate(layout, fields["velocity"])
            directions = _directions(layout, fields, scalars)
            squares = layout.inner(s, s)
            rms = jnp.sqrt(squares[:3].sum() + 2 * squares[3:].sum())
            lengths = [jnp.sqrt(layout.inner(v, v).sum()) for v in directions]
            unit = [
                v / jnp.where(size > 0, size, 1)
                for v, size in zip(directions, lengths, strict=True)
            ]
            values = transform.inverse(jnp.concatenate([s / jnp.where(rms > 0, rms, 1), *unit]))
            inside = jnp.broadcast_to(physical.inside(), physical.shape)
            rates, shape, cosines, sums = program(
                physical.constrain(values), physical.constrain(inside)
            )
            points = transform.grid.points
            densities = _named("", rates / (points * 2 * reach / bins))
            densities["s_star"] = shape / (jnp.maximum(shape.sum(), 1) * 2 / bins)
            for name, counts in zip(vectors, cosines, strict=True):
                number = jnp.maximum(counts.sum(-1, keepdims=True), 1)
                densities |= _named(f"{name}_", counts / (number / bins))
            return densities | _means(rms, lengths[0], sums / points)

        middles = (np.arange(bins) + 0.5) / bins
        coordinates = {
            "rate": reach * (2 * middles - 1),
            "shape": 2 * middles - 1,
            "cosine": middles,
        }
        return Measured(coordinates, _variables(vectors), compute, {"vectors": vectors})


def _named(prefix: str, values: jax.Array, suffix: str = "") -> dict[str, jax.Array]:
    """The `values` of the three eigenvalues by name."""
    return {f"{prefix}{e}{suffix}": value for e, value in zip(EIGENVALUES, values, strict=True)}


def _means(rms: jax.Array, vorticity: jax.Array, means: jax.Array) -> dict[str, jax.Array]:
    """The numbers of a row, from root mean squares and the means of `_counting`, of unit fields."""
    row = {"strain_rms": rms, "strain_product": rms**3 * means[6]}
    row |= _named("", rms * means[:3], "_mean")
    return row | _named("stretching_", rms * vorticity**2 * means[3:6])


def _directions(
    layout: Layout, fields: models.Fields, scalars: Sequence[str]
) -> list[SpectralVector]:
    """The vectors whose alignment is measured: vorticity, magnetic field, gradients of scalars."""
    directions = [operators.curl(layout, fields["velocity"])]
    if "magnetic" in fields:
        directions.append(fields["magnetic"])
    return directions + [operators.gradient(layout, fields[name]) for name in scalars]


def _variables(vectors: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The variables of the series, with their dimensions."""
    variables: dict[str, tuple[str, ...]] = {name: ("rate",) for name in EIGENVALUES}
    variables["s_star"] = ("shape",)
    variables |= {f"{name}_{e}": ("cosine",) for name in vectors for e in EIGENVALUES}
    means = [f"{e}_mean" for e in EIGENVALUES]
    stretching = [f"stretching_{e}" for e in EIGENVALUES]
    return variables | dict.fromkeys(["strain_rms", *means, *stretching, "strain_product"], ())


EIGENVALUES = ("alpha", "beta", "gamma")
# Each sweep of a 3 x 3 problem squares the error; round-off is reached after four or five.
_SWEEPS = 6

Vectors: TypeAlias = "tuple[tuple[jax.Array, ...], ...]"


def eigensystem(strain: jax.Array) -> tuple[tuple[jax.Array, ...], Vectors]:
    """The eigenvalues alpha >= beta >= gamma (...) of symmetric matrices (6, ...), in the order of
    `strain_rate`, and the components (3)(...) of the unit eigenvector of each.

    Cyclic Jacobi rotations (Golub and Van Loan, Matrix Computations, section 8.5) are accurate for
    equal eigenvalues too, unlike closed formulas."""
    zero = jnp.zeros_like(strain[0])
    one = jnp.ones_like(strain[0])
    start = (tuple(strain), tuple(one if i == j else zero for i, j in product(range(3), range(3))))

    def sweep(_: jax.Array, carried: Vectors) -> Vectors:
        (xx, yy, zz, xy, xz, yz), flat = carried
        diagonal = [xx, yy, zz]
        v = [list(flat[3 * i : 3 * i + 3]) for i in range(3)]
        off = {(0, 1): xy, (0, 2): xz, (1, 2): yz}
        for p, q in off:
            r = 3 - p - q
            a = off[p, q]
            d = diagonal[q] - diagonal[p]
            size = abs(d) + jnp.sqrt(d * d + 4 * a * a)
            t = jnp.where(d < 0, -2, 2) * a / jnp.where(size == 0, 1, size)
            c = lax.rsqrt(1 + t * t)
            s = t * c
            diagonal[p], diagonal[q] = diagonal[p] - t * a, diagonal[q] + t * a
            first = (min(r, p), max(r, p))
            second = (min(r, q), max(r, q))
            off[p, q] = jnp.zeros_like(a)
            off[first], off[second] = (
                c * off[first] - s * off[second],
                s * off[first] + c * off[second],
            )
            for row in v:
                row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
        return (*diagonal, off[0, 1], off[0, 2], off[1, 2]), tuple(e for row in v for e in row)

    (xx, yy, zz, *_), flat = lax.fori_loop(0, _SWEEPS, sweep, start)
    pairs = [(e, tuple(flat[3 * i + j] for i in range(3))) for j, e in enumerate((xx, yy, zz))]
    for a, b in ((0, 1), (1, 2), (0, 1)):
        (low, u), (high, w) = pairs[a], pairs[b]
        swap = low < high
        pairs[a] = (
            jnp.maximum(low, high),
            tuple(jnp.where(swap, y, x) for x, y in zip(u, w, strict=True)),
        )
        pairs[b] = (
            jnp.minimum(low, high),
            tuple(jnp.where(swap, x, y) for x, y in zip(u, w, strict=True)),
        )
    return tuple(e for e, _ in pairs), tuple(v for _, v in pairs)


def _counting(transform: spectral.Transform, vectors: int, bins: int, reach: float) -> Program:
    """A program of two arrays: values (6 + 3 vectors, x, y, z) of the strain and of vectors, all
    with a root mean square of 1, and a mask (x, y, z) of the points without padding. Its results
    are counts of the eigenvalues (3, bins), of s* (bins) and of the cosines (vectors, 3, bins), and
    sums (7) of the eigenvalues, of their parts in the stretching of the first vector, and of their
    product.

    It visits planes of points one after the other, so that the eigenvectors never exist as
    fields."""
    physical = transform.physical

    def counted(place: jax.Array, counts: jax.Array) -> jax.Array:
        return binned(jnp.where(counts, jnp.clip(place * bins, 0, bins - 1), bins), bins)

    def plane(values: jax.Array, inside: jax.Array) -> tuple[jax.Array, ...]:
        small = 1e3 * jnp.finfo(values.dtype).eps
        rates, frame = eigensystem(values[:6])
        square = reduce(add, (e * e for e in rates))
        triple = rates[0] * rates[1] * rates[2]
        strained = inside & (square > small**2)
        safe = jnp.where(strained, square, 1)
        shape = counted((1 - 3 * sqrt(6) * triple / safe**1.5) / 2, strained)
        placed = [(e / reach + 1) / 2 for e in rates]
        of_rates = jnp.stack([counted(p, inside & (p >= 0) & (p < 1)) for p in placed])
        cosines = []
        stretching = []
        for n in range(vectors):
            v = values[6 + 3 * n : 9 + 3 * n]
            length = jnp.sqrt(v[0] ** 2 + v[1] ** 2 + v[2] ** 2)
            known = strained & (length > small)
            along = [v[0] * e[0] + v[1] * e[1] + v[2] * e[2] for e in frame]
            cosine = [abs(a) / jnp.where(known, length, 1) for a in along]
            cosines.append(jnp.stack([counted(c, known) for c in cosine]))
            if n == 0:
                stretching = [r * a * a for r, a in zip(rates, along, strict=True)]
        summed = jnp.stack([*rates, *stretching, triple]).astype(jnp.float64)
        return of_rates, shape, jnp.stack(cosines), jnp.where(inside, summed, 0).sum((1, 2))

    def local(values: jax.Array, inside: jax.Array) -> tuple[jax.Array, ...]:
        def step(
            totals: tuple[jax.Array, ...], at: jax.Array
        ) -> tuple[tuple[jax.Array, ...], None]:
            parts = plane(lax.dynamic_index_in_dim(values, at, 1, False), inside[at])
            return tuple(a + b for a, b in zip(totals, parts, strict=True)), None

        shapes = ((3, bins), (bins,), (vectors, 3, bins), (7,))
        none = tuple(jnp.zeros(s, jnp.float64) for s in shapes)
        return lax.scan(step, none, jnp.arange(values.shape[1]))[0]

    return physical.summed(local, [physical.spec_of(4), physical.spec], 4, name="strain_frame")
