"""The radial distribution function of particles: pair_correlation.h5."""

from __future__ import annotations

from functools import cached_property, partial
from itertools import product
from math import pi, prod
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from simulator.measure.kind import Kind, Lengths, Measured, SeriesCadence, Subject, Unsupported, distinct
from simulator.measure.lazy import Cut, Domain, ParticleSet, Whole, after, jax, jnp, lax, models
from simulator.measure.particles import ready_after
from simulator.settings import Integer


class PairCorrelationSettings(SeriesCadence):
    range: Lengths | None = None
    """The smallest and the largest distance (length); by default from 1/16 to 4 grid spacings."""
    bins: Annotated[Integer, Field(ge=1, le=1000)] = 24
    """Number of bins of the distance, of equal width in its logarithm."""
    count: Annotated[Integer, Field(ge=2, le=10**8)] = 100000
    """The largest number of particles of each species to use, with evenly spaced ids."""
    particles: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Names of the species; by default all."""


class PairCorrelation(Kind):
    name = "pair_correlation"
    description = "Radial distribution function g(r) of particles in pair_correlation.h5: how much they cluster."
    Settings = PairCorrelationSettings

    def measured(self, subject: Subject, settings: PairCorrelationSettings) -> Measured:
        """`NAME/g`, the radial distribution function of at most `count` particles of each species, with
        evenly spaced ids, in bins between `edges`; and `NAME/pairs`, the number of pairs in each bin."""
        particles, grid = subject.particles, subject.transform.grid
        names = particles.species(settings.particles)
        long = [i for i in (0, 1, 2) if grid.shape[i] > 1]
        spacing = min(grid.spacing[i] for i in long)
        low, high = settings.range or (spacing / 16, 4 * spacing)
        half = min(grid.box[i] for i in long) / 2
        if high > half:
            raise Unsupported(
                f"distances reach {high:g}; periodic distances are unique only up to half the box, {half:g}", "range"
            )
        edges = np.geomspace(low, high, settings.bins + 1)
        populations, most = particles.populations, settings.count
        strides = {name: -(-populations[name].count // most) for name in names}
        counters = {name: PairCounter(populations[name].domain, edges) for name in names}

        def compute(state: models.State) -> dict[str, jax.Array]:
            row: dict[str, jax.Array] = {}
            last = None
            for name in names:
                population, counter = populations[name], counters[name]
                moving = ready_after(population, state, last).particles[name]
                last = counter(moving, population.count, strides[name])
                n = -(-population.count // strides[name])
                expected = 0.5 * n * (n - 1) * counter.volumes
                row |= {f"{name}/pairs": last, f"{name}/g": last / np.maximum(expected, np.finfo(float).tiny)}
            return row

        return Measured(
            {"r": np.sqrt(edges[1:] * edges[:-1])},
            {f"{name}/{quantity}": ("r",) for name in names for quantity in ("g", "pairs")},
            compute,
            {"edges": edges, **{f"{n}_particles": -(-populations[n].count // strides[n]) for n in names}},
        )


TOGETHER = 1 << 15  # The number of pairs whose distances are computed together.
MOST_CELLS = 1024  # Along each axis, so that a cell's number is a 32-bit integer.


def turns(cut: Cut, reach: float) -> tuple[int, ...]:
    """The numbers of hops along the ring of a cut axis that lead from some device to one whose planes are less than
    `reach` planes away."""

    def gap(one: int, other: int) -> float:
        firsts = [device * cut.extent for device in (one, other)]
        ends = [min(first + cut.extent, cut.planes) for first in firsts]
        return min((firsts[1] - ends[0]) % cut.planes, (firsts[0] - ends[1]) % cut.planes)

    ring = range(cut.owners)
    return tuple(
        turn for turn in ring[1:] if any(gap(device, (device + turn) % cut.owners) < reach for device in ring)
    )


class PairCounter:
    """Counts the pairs of some particles by their distance, up to the last of `edges`.

    Each device sorts its particles into cells as large as the longest distance, and compares each of its particles
    with those in the 27 cells around it. Particles of the other devices within the longest distance arrive one device
    after the other. Every pair is counted exactly once from each of its two particles, so that the numbers are the
    same on any number of devices.
    """

    def __init__(self, domain: Domain, edges: np.ndarray):
        self.domain, self.edges = domain, edges
        grid = domain.physical.grid
        self.axes = tuple(i for i in range(3) if grid.shape[i] > 1)
        """The axes of more than one point."""
        self.cells = tuple(
            min(MOST_CELLS, int(length / edges[-1])) if i in self.axes else 1 for i, length in enumerate(grid.box)
        )

    @cached_property
    def around(self) -> np.ndarray:
        """(offsets, 3): the cells around a cell, without repetition along axes of fewer than 3 cells."""
        return np.array(list(product(*[range(-1, 2) if n > 2 else range(n) for n in self.cells])), np.int32)

    @cached_property
    def volumes(self) -> np.ndarray:
        """(bins,): volumes between spheres (areas between circles) of the radii `edges`, as fractions of the box."""
        n = len(self.axes)
        unit = {1: 2.0, 2: pi, 3: 4 * pi / 3}[n]
        return unit * np.diff(self.edges**n) / prod(self.domain.box[i] for i in self.axes)

    def __call__(self, particles: ParticleSet, count: int, stride: int) -> jax.Array:
        """(bins,): the number of pairs between particles with the ids 0, stride, 2 stride, ... below `count`."""
        position = particles.records["position"]
        chosen = particles.valid & (particles.id % stride == 0)
        most = min(particles.capacity, -(-count // stride))
        if not self.domain.cuts:
            held = gathered(position, chosen, most)
            return self._between(*held, *held) // 2
        spec = (self.domain.spec(2), self.domain.spec(1))
        counts = jax.shard_map(
            partial(self._of_device, most=most),
            mesh=self.domain.physical.mesh,
            in_specs=spec,
            out_specs=jax.sharding.PartitionSpec(),
            check_vma=False,
        )(position, chosen)
        return counts // 2

    def _of_device(self, position: jax.Array, chosen: jax.Array, most: int) -> jax.Array:
        """(bins,): ordered pairs of all particles; this device counts those whose first particle it holds."""
        ours = gathered(position, chosen, most)
        met, before = [ours], position
        for cut in self.domain.cuts:
            reach = self.edges[-1] / self.domain.physical.grid.spacing[cut.axis]
            for theirs, are in tuple(met):
                sent = jnp.concatenate([theirs, are[None].astype(theirs.dtype)])
                for turn in turns(cut, reach):
                    pairs = [(device, (device + turn) % cut.owners) for device in range(cut.owners)]
                    came = before = lax.ppermute(after(sent, before), cut.name, pairs)
                    met.append((came[:3], came[3] > 0))
        all_theirs, all_are = (jnp.stack(parts) for parts in zip(*met, strict=True))

        def visit(i: jax.Array, counts: jax.Array) -> jax.Array:
            return counts + self._between(*ours, all_theirs[i], all_are[i])

        counts = jnp.zeros(len(self.edges) - 1, jnp.int64)
        return lax.psum(lax.fori_loop(0, len(met), visit, counts), self.domain.names)

    def _between(self, position: jax.Array, chosen: jax.Array, others: jax.Array, theirs: jax.Array) -> jax.Array:
        """(bins,): ordered pairs between two sets of particles; a particle forms no pair with itself."""
        cells = jnp.asarray(self.cells)[:, None]
        box = np.asarray(self.domain.box)[:, None]
        many = prod(self.cells)

        def cell(place: jax.Array) -> jax.Array:
            return jnp.minimum((place / box * cells).astype(jnp.int32), cells - 1)

        def number(cell: jax.Array) -> jax.Array:
            return (cell[0] * self.cells[1] + cell[1]) * self.cells[2] + cell[2]

        theirs_in = jnp.where(theirs, number(cell(others)), many)
        order = jnp.argsort(theirs_in)
        sorted_cells, others = theirs_in[order], others[:, order]
        mine = cell(position)

        def look(step: Whole, counts: jax.Array) -> jax.Array:
            near = number((mine + jnp.asarray(self.around)[step][:, None]) % cells)
            first = jnp.searchsorted(sorted_cells, near, side="left").astype(jnp.int32)
            last = jnp.searchsorted(sorted_cells, near, side="right").astype(jnp.int32)
            return counts + self._counted(position, others, first, jnp.where(chosen, last - first, 0))

        counts = jnp.zeros(len(self.edges) - 1, jnp.int64)
        return lax.fori_loop(0, len(self.around), look, counts)

    def _counted(self, position: jax.Array, others: jax.Array, first: jax.Array, number: jax.Array) -> jax.Array:
        """(bins,): pairs of each particle (3, n) with the `number` (n,) of `others` from index `first` (n,) on."""
        n = number.shape[0]
        # Particles with others nearby come first, so that a bounded part of the list covers each batch.
        some = jnp.argsort(number == 0, stable=True)
        ends = jnp.cumsum(number[some].astype(jnp.int64))
        begins = ends - number[some]
        total = ends[-1]
        squares = jnp.asarray(self.edges**2)
        box = np.asarray(self.domain.box)[list(self.axes), None]
        reach = min(TOGETHER, n)

        def batch(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            begun, counts = carry
            start = jnp.clip(jnp.searchsorted(ends, begun, side="right"), 0, n - reach)
            marks = lax.dynamic_slice(begins, (start,), (reach,)) - begun
            # The row of a pair is the last row that begins at or before the pair.
            rows = jnp.zeros(TOGETHER, jnp.int32)
            steps = jnp.arange(reach, dtype=jnp.int32)
            rows = rows.at[jnp.where(marks > 0, marks, 0)].max(steps, mode="drop")
            here = jnp.searchsorted(marks, 0, side="right").astype(jnp.int32) - 1
            rows = lax.cummax(rows.at[0].set(here))
            place = begun + jnp.arange(TOGETHER)
            row = jnp.clip(start + rows, 0, n - 1)
            one = some[row]
            other = jnp.clip(first[one] + (place - begins[row]), 0, others.shape[1] - 1)
            away = position[np.array(self.axes)][:, one] - others[np.array(self.axes)][:, other]
            away = away - box * jnp.round(away / box)
            square = (away * away).sum(0)
            bin_ = jnp.searchsorted(squares, square, side="right") - 1
            bin_ = jnp.where((place < total) & (bin_ >= 0), bin_, len(squares))
            return begun + TOGETHER, counts.at[bin_].add(1, mode="drop")

        counts = jnp.zeros(len(self.edges) - 1, jnp.int64)
        return lax.while_loop(lambda carry: carry[0] < total, batch, (jnp.int64(0), counts))[1]


def gathered(position: jax.Array, chosen: jax.Array, most: int) -> tuple[jax.Array, jax.Array]:
    """The positions (3, most) of one device's chosen particles, and a mask (most,) of the entries that are used."""
    (place,) = jnp.nonzero(chosen, size=most, fill_value=chosen.shape[0])
    return jnp.take(position, place, axis=1, mode="fill", fill_value=0), place < chosen.shape[0]
