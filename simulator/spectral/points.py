"""The coordinates of grid points as pointwise functions get them."""

from typing import NamedTuple

import jax

from simulator.spectral.grid import Grid


class Points(NamedTuple):
    """Coordinates of points, which broadcast against their values."""

    x: jax.Array
    y: jax.Array
    z: jax.Array


class PlanePoints(NamedTuple):
    """Coordinates of points of a plane."""

    x: jax.Array
    y: jax.Array

    @property
    def z(self) -> jax.Array:
        """0, so that a function of points in space also serves a plane."""
        return 0 * self.x


class LinePoints(NamedTuple):
    """Coordinates of points of a line."""

    x: jax.Array

    @property
    def y(self) -> jax.Array:
        """0, as z of a plane."""
        return 0 * self.x

    z = y


SeenPoints = Points | PlanePoints | LinePoints


def seen_points(grid: Grid, points: Points) -> SeenPoints:
    """The coordinates by the user's names of the axes."""
    return named_points(*grid.seen(points))


def named_points(*coordinates: jax.Array) -> SeenPoints:
    """One to three coordinates by their names."""
    kind = (LinePoints, PlanePoints, Points)[len(coordinates) - 1]
    return kind(*coordinates)
