"""The radial distribution function of particles: pair_correlation.h5."""

from collections.abc import Mapping
from math import pi, prod
from typing import Annotated

import jax
import numpy as np
from pydantic import AfterValidator, Field

from simulator.measure.kind import (
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
    distinct,
)
from simulator.physics import models
from simulator.plugins.statistics.lengths import Lengths, spacing_to_half_box
from simulator.plugins.statistics.particles import ready_after
from simulator.settings import Integer


class PairCorrelationSettings(SeriesCadence):
    range: Lengths | None = None
    """The smallest and the largest distance (length); by default from 1/16 to 4 grid spacings."""
    bins: Annotated[Integer, Field(ge=1, le=1000)] = 24
    """Number of bins of the distance, of equal width in its logarithm."""
    count: Annotated[Integer, Field(ge=2, le=10**6)] = 100000
    """The largest number of particles of each species to use, with evenly spaced ids."""
    particles: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Names of the species; by default all."""


class PairCorrelation(Kind):
    name = "pair_correlation"
    description = "Radial distribution function g(r) of particles in pair_correlation.h5: how much they cluster."
    Settings = PairCorrelationSettings

    def measured(self, subject: Subject, settings: PairCorrelationSettings) -> Measured:
        """`NAME/g`, the radial distribution function of at most `count` particles of each species,
        with evenly spaced ids, in bins between `edges`; and `NAME/pairs`, the number of pairs in
        each bin."""
        particles = subject.particles
        grid = subject.transform.grid
        names = particles.species(settings.particles)
        long = [i for i in (0, 1, 2) if grid.shape[i] > 1]
        box = np.array([grid.box[i] for i in long])
        edges = _edges(settings, *spacing_to_half_box(grid))
        populations = particles.populations
        strides = {name: -(-populations[name].count // settings.count) for name in names}
        # Volumes between spheres, areas between circles, as fractions of the box.
        volumes = (
            {1: 2.0, 2: pi, 3: 4 * pi / 3}[len(long)] * np.diff(edges ** len(long)) / prod(box)
        )

        def compute(state: models.State) -> dict[str, jax.Array]:
            row: dict[str, jax.Array] = {}
            last = None
            for name in names:
                moving = ready_after(populations[name], state, last, replicated=True).particles[
                    name
                ]
                row[name] = last = populations[name].chosen(
                    moving, moving.records["position"], strides[name]
                )
            return row

        def finish(row: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            finished = dict[str, np.ndarray]()
            for name in names:
                pairs = pairs_between(row[name][long].T, box, edges)
                n = row[name].shape[1]
                expected = np.maximum(0.5 * n * (n - 1) * volumes, np.finfo(float).tiny)
                finished |= {f"{name}/pairs": pairs, f"{name}/g": pairs / expected}
            return finished

        return Measured(
            {"r": np.sqrt(edges[1:] * edges[:-1])},
            {f"{name}/{quantity}": ("r",) for name in names for quantity in ("g", "pairs")},
            compute,
            {
                "edges": edges,
                **{f"{n}_particles": -(-populations[n].count // strides[n]) for n in names},
            },
            finish=finish,
        )


def _edges(settings: PairCorrelationSettings, spacing: float, half: float) -> np.ndarray:
    """The edges of the bins. Refuses distances above `half` the box."""
    low, high = settings.range or (spacing / 16, 4 * spacing)
    if high > half:
        raise Unsupported(
            f"distances reach {high:g}; periodic distances are unique only up to half the box, {half:g}",
            "range",
        )
    return np.geomspace(low, high, settings.bins + 1)


def pairs_between(position: np.ndarray, box: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(bins,): the number of pairs of `position` (n, dimension) with periodic distances between
    rising `edges`."""
    from scipy.spatial import KDTree

    place = np.mod(position, box)
    tree = KDTree(np.where(place >= box, 0, place), boxsize=box)
    return np.diff(tree.count_neighbors(tree, edges)) // 2
