"""Joint probability densities and conditional means of two quantities at a point: joint_histograms.h5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from simulator.measure.helicity import check_flow
from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.lazy import Program, curl, jax, jnp, lax, models, spectral
from simulator.measure.slices import check_scalar
from simulator.settings import Integer, Ratio


class JointHistogramSettings(SeriesCadence):
    pairs: Annotated[tuple[tuple[str, str], ...], Field(min_length=1, max_length=20)] = (("R", "Q"),)
    """Pairs of quantities: scalar fields, and Q and R, the invariants of the velocity gradient."""
    bins: Annotated[Integer, Field(ge=2, le=1000)] = 100
    """Number of bins along each axis."""
    range: Ratio = 10.0
    """The histograms extend by this many units to both sides."""


class JointHistograms(Kind):
    name = "joint_histograms"
    description = (
        "Joint probability densities and conditional means of pairs of quantities, such as Q and R, in "
        "joint_histograms.h5."
    )
    Settings = JointHistogramSettings

    def measured(self, subject: Subject, settings: JointHistogramSettings) -> Measured:
        for number, pair in enumerate(settings.pairs):
            if pair in settings.pairs[:number] or pair[0] == pair[1]:
                raise Unsupported(f"{pair[0]}, {pair[1]} is no pair, or there twice", key=f"pairs.{number}")
            for name in pair:
                if name in INVARIANTS:
                    check_flow(subject)
                    if subject.transform.grid.planar:
                        raise Unsupported(
                            "Q and R are invariants of gradients in three dimensions; name scalar fields",
                            "pairs",
                        )
                else:
                    check_scalar(name, subject, key=f"pairs.{number}")
        return joint_histograms(subject.model, settings.pairs, settings.bins, settings.range)


INVARIANTS = ("Q", "R")


class _Quantity(NamedTuple):
    """Values (x, y, z), and the centre and the scale in whose units they are counted."""

    values: jax.Array
    centre: jax.Array
    scale: jax.Array


def invariants(transform: spectral.Transform, velocity: jax.Array) -> dict[str, jax.Array]:
    """Values (x, y, z) of Q = -A_ij A_ji / 2 and R = -det A with A_ij = du_i/dx_j of a velocity without divergence
    (Chong, Perry and Cantwell 1990, Phys. Fluids A 2, 765)."""
    k = transform.layout.wavenumbers(velocity.real.dtype)
    a = [transform.inverse(jnp.stack([1j * k[j] * velocity[i] for j in range(3)])) for i in range(3)]
    q = -0.5 * sum(a[i][j] * a[j][i] for i in range(3) for j in range(3))
    cofactors = [
        a[1][(j + 1) % 3] * a[2][(j + 2) % 3] - a[1][(j + 2) % 3] * a[2][(j + 1) % 3] for j in range(3)
    ]
    return {
        "Q": jnp.asarray(q),
        "R": -(a[0][0] * cofactors[0] + a[0][1] * cofactors[1] + a[0][2] * cofactors[2]),
    }


def joint_histograms(
    model: models.Model, pairs: Sequence[tuple[str, str]], bins: int, reach: float
) -> Measured:
    """`A_B` (first, second): probability density of the quantities A and B of each pair. Quantities are scalar
    fields, in standard deviations from their means, and `Q` and `R`, in units of <omega^2> / 4 and its power 3/2.
    Values beyond +-reach units are in no bin.

    `B_given_A` (first) and `A_given_B` (second): the mean of one quantity over the points where the other is in a
    bin, nan where there are none. They are in the run's units like `A_mean` and `A_scale`, its mean and its unit."""
    transform = model.transform
    names = tuple(dict.fromkeys(name for pair in pairs for name in pair))
    program, averaging = _counting(transform, bins), _averaging(transform, bins)
    area = (2 * reach / bins) ** 2

    def quantities(fields: models.Fields) -> dict[str, _Quantity]:
        physical, found = transform.physical, {}
        if set(names) & set(INVARIANTS):
            u = fields["velocity"]
            omega = curl(transform.layout, u)
            enstrophy = transform.layout.inner(omega, omega).sum() / 4
            for name, values in invariants(transform, u).items():
                scale = enstrophy if name == "Q" else enstrophy**1.5
                found[name] = _Quantity(values, jnp.zeros_like(scale), scale)
        for name in names:
            if name not in found:
                values = model.whole_values(name, fields)
                mean = physical.mean(values)
                found[name] = _Quantity(values, mean, jnp.sqrt(physical.mean((values - mean) ** 2)))
        return found

    def place(quantity: _Quantity) -> jax.Array:
        """From 0 to `bins` within the reach; beyond every bin in padding."""
        physical = transform.physical
        units = (quantity.values - quantity.centre) / jnp.where(quantity.scale > 0, quantity.scale, 1)
        return physical.constrain(jnp.where(physical.inside(), (units / reach + 1) / 2 * bins, jnp.inf))

    def compute(state: models.State) -> dict[str, jax.Array]:
        found, row = quantities(state.fields), {}
        for first, second in pairs:
            (counts,) = program(place(found[first]), place(found[second]))
            row[f"{first}_{second}"] = counts / (transform.grid.points * area)
            for name, given in ((second, first), (first, second)):
                values = transform.physical.constrain(found[name].values)
                points, sums = averaging(place(found[given]), values)
                row[f"{name}_given_{given}"] = jnp.where(points > 0, sums / jnp.maximum(points, 1), jnp.nan)
        for name in names:
            row[f"{name}_mean"] = transform.physical.mean(found[name].values)
            row[f"{name}_scale"] = found[name].scale
        return row

    centres = (np.arange(bins) + 0.5) / bins * 2 * reach - reach
    variables: dict[str, tuple[str, ...]] = {f"{a}_{b}": ("first", "second") for a, b in pairs}
    variables |= {f"{b}_given_{a}": ("first",) for a, b in pairs}
    variables |= {f"{a}_given_{b}": ("second",) for a, b in pairs}
    variables |= {f"{name}_{kind}": () for name in names for kind in ("mean", "scale")}
    attributes = {"pairs": [f"{a} {b}" for a, b in pairs]}
    return Measured({"first": centres, "second": centres}, variables, compute, attributes)


def _counting(transform: spectral.Transform, bins: int) -> Program:
    """Counts (bins, bins) of points by their places along both axes."""
    physical = transform.physical
    axes = tuple(dict.fromkeys(physical.sharded.values()))

    def local(first, second):
        a, b = jnp.floor(first).ravel(), jnp.floor(second).ravel()
        inside = (a >= 0) & (a < bins) & (b >= 0) & (b < bins)
        index = jnp.where(inside, a * bins + b, bins * bins).astype(jnp.int32)
        counts = jnp.zeros(bins * bins + 1, jnp.float64).at[index].add(1.0)[:-1].reshape(bins, bins)
        return (lax.psum(counts, axes) if physical.devices > 1 else counts,)

    return Program(
        local,
        physical.mesh,
        [physical.spec, physical.spec],
        [jax.sharding.PartitionSpec()],
        name="joint_histogram",
    )


def _averaging(transform: spectral.Transform, bins: int) -> Program:
    """The number of points in each bin of their places, and the sum of values over them: (bins,) both."""
    physical = transform.physical
    axes = tuple(dict.fromkeys(physical.sharded.values()))

    def local(place, values):
        index = jnp.floor(place).ravel()
        index = jnp.where((index >= 0) & (index < bins), index, bins).astype(jnp.int32)
        values = jnp.where(index < bins, values.ravel(), 0).astype(jnp.float64)
        none = jnp.zeros(bins + 1, jnp.float64)
        found = none.at[index].add(1.0)[:-1], none.at[index].add(values)[:-1]
        return tuple(lax.psum(v, axes) for v in found) if physical.devices > 1 else found

    both = [jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec()]
    return Program(local, physical.mesh, [physical.spec, physical.spec], both, name="conditional_mean")
