"""The three mid-planes of scalar fields, the plane of a run in two dimensions, or the line of one
in one: slices.h5."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pydantic import AfterValidator, Field

from simulator import spectral
from simulator.errors import did_you_mean
from simulator.measure.kind import (
    AXES,
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
    distinct,
)
from simulator.measure.rows import following, in_one_file
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.physics.particles import Domain, ParticleSet
from simulator.physics.particles.population import Populations
from simulator.settings import Integer

T = TypeVar("T")
MOST = 1000


class SliceSettings(SeriesCadence):
    with_snapshots = True
    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Scalar fields, and components of vectors such as vorticity_z, to cut; by default the speed,
    vorticity magnitude and density that the model has, and every scalar of a user's own
    equation."""
    through: Literal["middle", "maximum"] = "middle"
    """Cut through the middle of the box, or through the grid point with the largest value of each
    field at each time, as for matter that moves; particles are then not drawn over the planes."""
    particles: Annotated[Integer, Field(ge=0, le=10**6)] = MOST
    """The largest number of particles of each species to draw over a plane, out of those within
    half a grid spacing of the plane; 0 for none. More particles that are matter are shown by their
    density alone."""


class Slices(Kind):
    sheared = True
    name = "slices"
    description = "Mid-plane slices in slices.h5, in addition to the slices of every snapshot."
    Settings = SliceSettings
    with_snapshots = True

    def measured(self, subject: Subject, settings: SliceSettings | None) -> Measured:
        asked = settings.fields if settings is not None else None
        for name in asked or ():
            check_scalar(name, subject)
        names = asked or outputs.pictured_fields(subject.model)
        moving = settings is not None and settings.through == "maximum"
        if moving and subject.transform.grid.dimensions < 3:
            words = f"all of the box is stored in {subject.transform.grid.in_words}; leave it out"
            raise Unsupported(words, "through", of_model=False)
        planes = mid_planes(
            subject.transform,
            {n: values_of(subject.model, n) for n in names},
            through_maximum=moving,
        )
        if (solids := outputs.solids(subject.model)) and not moving:
            planes = in_one_file(planes, solid_planes(subject.transform, solids))
        most = MOST if settings is None else settings.particles
        if (carried := subject.carried) is None or not most or moving:
            return planes
        # The density shows matter; a few massive particles are shown one by one.
        shown = {
            n: p
            for n, p in carried.populations.items()
            if n in carried.swarm.kinds or p.count <= most
        }
        if not shown:
            return planes
        return in_one_file(planes, near_planes(shown, PLANES, most))


def check_scalar(name: str, subject: Subject, key: str = "fields") -> None:
    """Refuses a name that is no scalar field of the model and no component of a vector; `key` is its place in the
    configuration."""
    known = outputs.scalar_fields(subject.model)
    if name in known:
        return
    if name in outputs.field_specs(subject.model):
        parts = ", ".join(outputs.components_of(subject.model, name))
        of = f"name one of its components {parts}" if parts else f"known: {', '.join(known)}"
        raise Unsupported(f"{name} is not a scalar; {of}", key=key)
    meant = did_you_mean(name, known)
    raise Unsupported(f"unknown field {name!r}{meant} known: {', '.join(known)}", key=key)


PLANES = {"xy": ("x", "y"), "xz": ("x", "z"), "yz": ("y", "z")}
CUTS: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    1: {"x": ("x",)},
    2: {"xy": ("x", "y")},
    3: PLANES,
}
"""The cuts by the number of dimensions, and their axes."""


def values_of(model: models.Equation, name: str) -> Callable[[models.State], jax.Array]:
    """The values (..., x, y, z) of a field as a function of the state."""
    return lambda state: outputs.grid_values(model, name, outputs.contents(model, state))


def mid_planes(
    transform: spectral.Transform,
    scalars: Mapping[str, Callable[[models.State], jax.Array]],
    *,
    through_maximum: bool,
) -> Measured:
    """`NAME/xy`, `NAME/xz`, `NAME/yz`: values of scalar fields on the planes through the grid point
    N/2 of the third axis, or through the grid point of the field's maximum, whose place is then
    `NAME/place_x` and so on; in two dimensions only `NAME/xy`, in one `NAME/x`. `scalars` are
    functions from the state to values (x, y, z)."""
    grid = transform.grid
    physical = transform.physical
    shape = grid.seen(grid.shape)

    def middle(axes: tuple[str, ...]) -> tuple[slice | int, ...]:
        """The index of the plane of these axes."""
        sides = zip(coordinates, shape, strict=True)
        return tuple(slice(n) if axis in axes else n // 2 for axis, n in sides)

    def compute(state: models.State) -> dict[str, jax.Array]:
        planes = dict[str, jax.Array]()
        for name, values in scalars.items():
            field = physical.as_seen(values(state))
            if through_maximum:
                parts = _cut_at_maximum(field, shape, coordinates)
            else:
                parts = {plane: field[middle(axes)] for plane, axes in cuts.items()}
            # Process 0 writes the planes, which are small enough to be replicated on every device.
            planes |= {f"{name}/{part}": physical.replicated(v) for part, v in parts.items()}
            # Also keeps two whole fields from being in memory together.
            state = following(state, planes)
        return planes

    sizes = zip(grid.names.values(), shape, grid.seen(grid.spacing), strict=True)
    coordinates = {a: np.arange(n) * h for a, n, h in sizes}
    cuts = CUTS[grid.dimensions]
    variables: dict[str, tuple[str, ...]] = {
        f"{n}/{cut}": axes for n in scalars for cut, axes in cuts.items()
    }
    if through_maximum:
        variables |= {f"{n}/place_{axis}": () for n in scalars for axis in coordinates}
    return Measured(coordinates, variables, compute)


def solid_planes(
    transform: spectral.Transform, solids: Mapping[str, Callable[[models.State], jax.Array]]
) -> Measured:
    """The part of each point that is solid on the mid-planes: `NAME/mask_xy` and so on."""
    planes = mid_planes(transform, solids, through_maximum=False)

    def named(by_plane: Mapping[str, T]) -> dict[str, T]:
        return {"/mask_".join(name.rsplit("/", 1)): item for name, item in by_plane.items()}

    return Measured(
        planes.coordinates, named(planes.variables), lambda state: named(planes.compute(state))
    )


def _cut_at_maximum(
    values: jax.Array, shape: tuple[int, ...], coordinates: Mapping[str, np.ndarray]
) -> dict[str, jax.Array]:
    """The planes of values (x, y, z) through the first point of the maximum, and its coordinates.
    Planes are sums, so that no device holds values of others."""

    def inside(array: jax.Array, sides: tuple[int, ...]) -> jax.Array:
        index = [lax.broadcasted_iota(jnp.int32, array.shape, i) < n for i, n in enumerate(sides)]
        return jnp.where(math.prod(index[1:], start=index[0]), array, -jnp.inf)

    def at(array: jax.Array, axis: int, index: jax.Array) -> jax.Array:
        return jnp.where(
            lax.broadcasted_iota(index.dtype, array.shape, axis) == index, array, 0
        ).sum(axis)

    nx, ny, nz = shape
    x = jnp.argmax(inside(values, shape).max((1, 2)))
    yz = at(values, 0, x)
    y = jnp.argmax(inside(yz, (ny, nz)).max(1))
    z = jnp.argmax(at(yz, 0, y)[:nz])
    places = {
        f"place_{a}": jnp.asarray(coordinates[a])[i] for a, i in zip(AXES, (x, y, z), strict=True)
    }
    return {
        "xy": at(values, 2, z)[:nx, :ny],
        "xz": at(values, 1, y)[:nx, :nz],
        "yz": yz[:ny, :nz],
        **places,
    }


_MIXING = 0x1E3779B97F4A7C15


def near_planes(
    populations: Populations, planes: Mapping[str, tuple[str, str]], most: int
) -> Measured:
    """Positions of the particles within half a grid spacing of the mid-planes, for pictures:
    `NAME/near_xy_x` and `NAME/near_xy_y`, ... over the coordinate `near`. If a species has more
    than `most` such particles, those with the smallest hashes of their ids are taken; if it has
    fewer, the remaining entries are NaN."""

    def compute(state: models.State) -> dict[str, jax.Array]:
        row: dict[str, jax.Array] = {}
        for name, population in populations.items():
            # None for a snapshot measured again, without particles of a fluid.
            particles = state.particles.get(name)
            for plane, axes in planes.items():
                there = particles is not None
                places = (
                    _near(particles, population.domain, plane, most)
                    if there
                    else jnp.full((2, most), jnp.nan)
                )
                row |= {f"{name}/near_{plane}_{axis}": places[i] for i, axis in enumerate(axes)}
        return row

    names = [
        f"{n}/near_{plane}_{axis}"
        for n in populations
        for plane, axes in planes.items()
        for axis in axes
    ]
    return Measured({"near": np.arange(most)}, dict.fromkeys(names, ("near",)), compute)


def _near(particles: ParticleSet, domain: Domain, plane: str, most: int) -> jax.Array:
    """(2, most): positions in a mid-plane of particles within half a spacing of it, replicated on
    every device."""
    along = [AXES.index(axis) for axis in plane]
    across = next(i for i in range(3) if i not in along)
    grid = domain.physical.grid
    spacing = grid.spacing[across]
    middle = grid.shape[across] // 2 * grid.spacing[across]
    most_of_device = min(particles.capacity, most)

    def local(ids: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        near = (ids >= 0) & (
            (abs(position[across] - middle) <= spacing / 2) | (grid.shape[across] == 1)
        )
        # A hash: the ids on a lattice rise plane by plane, and a product alone would pick stripes
        # of particles.
        mixed = ids * _MIXING
        mixed = (mixed ^ lax.shift_right_logical(mixed, 32)) * _MIXING & jnp.iinfo(jnp.int64).max
        keys = jnp.where(near, mixed, jnp.iinfo(jnp.int64).max)
        first = jnp.argsort(keys)[:most_of_device]
        return keys[first], jnp.where(near, position[np.array(along)], jnp.nan)[:, first]

    keys, places = domain.on_devices(local, particles.id, particles.records["position"])
    places = domain.physical.replicated(places)[:, jnp.argsort(keys)[:most]]
    return jnp.pad(places, ((0, 0), (0, most - places.shape[1])), constant_values=jnp.nan)
