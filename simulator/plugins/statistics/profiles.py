"""Radial profiles of mass densities about the densest point, and integrals along the axes:
profiles.h5 and projections.h5."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator import spectral
from simulator.measure.kind import (
    AXES,
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
)
from simulator.measure.slices import values_of
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.physics.models.split_equation import density_transform
from simulator.plugins.statistics.lengths import Lengths, spacing_to_half_box
from simulator.settings import Points
from simulator.spectral.layout import PhysicalLayout


class ProfileSettings(SeriesCadence):
    bins: Points = 32
    """Number of spherical shells."""
    range: Lengths | None = None
    """Smallest and largest radius; by default the grid spacing and half the box."""


class Profiles(Kind):
    name = "profiles"
    description = "Radial profiles of mass densities about the densest point in profiles.h5."
    Settings = ProfileSettings

    def measured(self, subject: Subject, settings: ProfileSettings) -> Measured:
        """`NAME` (r,): means of densities over spherical shells (in two dimensions rings) about the
        densest point of the first density, at periodic distances; nan for shells without grid
        points.

        `r` is the geometric middle of a shell, `radius` the mean distance of its `points`;
        `enclosed_mass` (r_outer,) is the mass of the first density within the shell's outer edge.
        `center_x`, `center_y`, `center_z` and `peak_density` are the position and the value of the
        maximum, which may lie between grid points."""
        if not (mass_densities := densities(subject.model)):
            raise Unsupported("needs a mass density")
        transform = density_transform(subject.model)
        bins = settings.bins
        grid = transform.grid
        layout = transform.layout
        physical = transform.physical
        edges = profile_edges(grid, bins, settings.range)
        main = next(iter(mass_densities))
        cell = grid.volume / grid.points

        def compute(state: models.State) -> dict[str, jax.Array]:
            values = {name: density(state) for name, density in mass_densities.items()}
            place, peak = densest(layout, physical, values[main], transform.forward(values[main]))
            distance = _distance(physical, place)
            # The first shell extends to the second edge; distant points and padding are in none.
            shell = jnp.searchsorted(jnp.asarray(edges[1:]), distance, side="right")
            shell = jnp.where(physical.inside(), shell, bins).astype(jnp.int32)
            one = jnp.ones(physical.shape, jnp.float64)
            stack = jnp.stack([one, distance, *(v.astype(jnp.float64) for v in values.values())])
            sums = physical.binned(shell, stack, bins)
            points = sums[0]
            means = jnp.where(points > 0, sums / jnp.maximum(points, 1), jnp.nan)
            row = dict(zip(("radius", *mass_densities), means[1:], strict=True))
            row |= {
                "points": points,
                "enclosed_mass": jnp.cumsum(sums[2]) * cell,
                "peak_density": peak,
            }
            centre = jnp.mod(place, jnp.asarray(grid.box))
            return row | {
                f"center_{name}": centre[AXES.index(axis)] for axis, name in grid.names.items()
            }

        middles = np.sqrt(edges[:-1] * edges[1:])
        scalars = (*(f"center_{axis}" for axis in grid.names.values()), "peak_density")
        variables = dict.fromkeys((*mass_densities, "radius", "points"), ("r",))
        variables |= {"enclosed_mass": ("r_outer",), **dict.fromkeys(scalars, ())}
        attributes = {"spacing": max(grid.seen(grid.spacing))}
        return Measured({"r": middles, "r_outer": edges[1:]}, variables, compute, attributes)


def _distance(physical: PhysicalLayout, place: jax.Array) -> jax.Array:
    """The distances (x, y, z) of the points from a place in the periodic box."""
    away = [x - c for x, c in zip(physical.coordinates(), place, strict=True)]
    x, y, z = (
        a - length * jnp.rint(a / length) for a, length in zip(away, physical.grid.box, strict=True)
    )
    return jnp.sqrt(x**2 + y**2 + z**2)


_NEWTON_STEPS = 3
Densities: TypeAlias = "Mapping[str, Callable[[models.State], jax.Array]]"
"""Functions of the state to values (x, y, z) of mass densities, by name."""


def densities(model: models.Equation) -> dict[str, Callable[[models.State], jax.Array]]:
    """The mass densities of a model: its field `density`, then its fields `NAME_density`."""
    names = (
        name
        for name in outputs.field_specs(model)
        if name == "density" or name.endswith("_density")
    )
    ordered = sorted(names, key=lambda name: (name != "density", name))
    return {name: values_of(model, name) for name in ordered}


def densest(
    layout: spectral.Layout, physical: PhysicalLayout, values: jax.Array, modes: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The position (x, y, z) and the value of the maximum of a density, from its `values` and its
    coefficients `modes`.

    Starting from the densest grid point (the first of several), Newton's method finds the maximum
    of the Fourier series between the points. If the iteration moves by more than a grid spacing
    along an axis, or ends at a lower density, the result is the grid point."""
    shape = physical.shape
    spacing = physical.grid.spacing
    values = jnp.where(physical.inside(), values, -jnp.inf)
    number = jnp.zeros((), jnp.int64)
    for i, n in enumerate(shape):
        number = number * n + lax.broadcasted_iota(jnp.int64, shape, i)
    top = values.max()
    first = jnp.where(values == top, number, np.prod(shape)).min()
    start = jnp.stack(jnp.unravel_index(first, shape)) * jnp.asarray(spacing)
    k = layout.wavenumbers(modes.real.dtype)

    def around(place: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Density, gradient and Hessian of the series at a point."""
        shifted = modes
        for q, x in zip(k, place, strict=True):
            shifted = shifted * jnp.exp(1j * (q * x.astype(q.dtype))).astype(modes.dtype)
        slope = jnp.stack([layout.sum((1j * q * shifted).real) for q in k])
        hessian = jnp.stack(
            [jnp.stack([layout.sum(-(p * q * shifted).real) for q in k]) for p in k]
        )
        return layout.sum(shifted.real), slope.astype(jnp.float64), hessian.astype(jnp.float64)

    def step(_: jax.Array, place: jax.Array) -> jax.Array:
        _, slope, hessian = around(place)
        # Along a ridge, or an axis of one point, the curvature is 0 and the position must not
        # change.
        shift = 1e-9 * abs(hessian).max() + jnp.finfo(jnp.float64).tiny
        return place - jnp.linalg.solve(hessian - shift * jnp.eye(3), slope)

    maximum = lax.fori_loop(0, _NEWTON_STEPS, step, start)
    density = around(maximum)[0]
    near = (abs(maximum - start) <= jnp.asarray(spacing)).all() & (density >= top)
    return jnp.where(near, maximum, start), jnp.where(near, density, top)


def profile_edges(
    grid: spectral.Grid, bins: int, reach: tuple[float, float] | None = None
) -> np.ndarray:
    """Edges (bins + 1,) of the spherical shells, equally spaced in the logarithm; the first shell
    extends to the centre. By default `reach` is from the smallest grid spacing to half the shortest
    side of the box."""
    return np.geomspace(*(reach or spacing_to_half_box(grid)), bins + 1)


# The axes of a projection, and the axis of the integral.
PLANES = {
    "xy": "z",
    "xz": "y",
    "yz": "x",
}


class Projections(Kind):
    name = "projections"
    description = "Mass densities integrated along x, y and z in projections.h5."

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        """`NAME/xy`, `NAME/xz`, `NAME/yz`: integrals of a density along the third axis (mass /
        length^2)."""
        if subject.transform.grid.dimensions < 3:
            raise Unsupported("needs three dimensions; use output.slices", of_model=False)
        if not (mass_densities := densities(subject.model)):
            raise Unsupported("needs a mass density")
        transform = density_transform(subject.model)
        grid = transform.grid
        physical = transform.physical

        def compute(state: models.State) -> dict[str, jax.Array]:
            planes = {}
            for name, values in mass_densities.items():
                inside = jnp.where(physical.inside(), values(state), 0)
                for plane, along in PLANES.items():
                    i = AXES.index(along)
                    total = physical.replicated(inside.sum(i) * grid.spacing[i])
                    a, b = (grid.shape[AXES.index(axis)] for axis in plane)
                    planes[f"{name}/{plane}"] = total[:a, :b]
            return planes

        coordinates = {
            a: np.arange(n) * h for a, n, h in zip(AXES, grid.shape, grid.spacing, strict=True)
        }
        return Measured(
            coordinates, {f"{n}/{p}": tuple(p) for n in mass_densities for p in PLANES}, compute
        )
