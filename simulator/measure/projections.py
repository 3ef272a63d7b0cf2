"""Mass densities integrated along the three axes: projections.h5."""

from __future__ import annotations

import numpy as np

from simulator.measure.kind import AXES, Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.lazy import jax, jnp, lax, models, spectral
from simulator.measure.profiles import Densities, densities


class Projections(Kind):
    name = "projections"
    description = "Mass densities integrated along x, y and z in projections.h5."

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        if subject.transform.grid.planar:
            raise Unsupported("need three dimensions; output.slices holds the plane", of_model=False)
        if not (mass := densities(subject.model)):
            raise Unsupported("needs a mass density")
        return projections(subject.model.density_transform, mass)


PLANES = {"xy": "z", "xz": "y", "yz": "x"}
"""The axes of a projection, and the axis of the integral."""


def projections(transform: spectral.Transform, given: Densities) -> Measured:
    """`NAME/xy`, `NAME/xz`, `NAME/yz`: integrals of a density along the third axis (mass / length^2)."""
    grid, physical = transform.grid, transform.physical
    whole = jax.sharding.NamedSharding(physical.mesh, jax.sharding.PartitionSpec())

    def compute(state: models.State) -> dict[str, jax.Array]:
        planes = {}
        for name, values in given.items():
            inside = jnp.where(physical.inside(), values(state), 0)
            for plane, along in PLANES.items():
                i = AXES.index(along)
                total = inside.sum(i) * grid.spacing[i]
                if physical.devices > 1:
                    total = lax.with_sharding_constraint(total, whole)
                a, b = (grid.shape[AXES.index(axis)] for axis in plane)
                planes[f"{name}/{plane}"] = total[:a, :b]
        return planes

    coordinates = {a: np.arange(n) * h for a, n, h in zip(AXES, grid.shape, grid.spacing, strict=True)}
    return Measured(coordinates, {f"{n}/{p}": tuple(p) for n in given for p in PLANES}, compute)
