"""Initial positions of particles, by id, so that one configuration gives one set on any number of
devices."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BeforeValidator, Field

from simulator.errors import UserError, prefixed
from simulator.physics.particles.domain import Domain
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.user_function import FunctionKeys, UserFiles, UserFunction
from simulator.settings import InputPath, Parameters, Positive, PythonFile, Seed, Settings
from simulator.spectral.arrays import ParticleIds, ParticleVectors
from simulator.spectral.random import Stream, particle_key

Positions = Callable[[ParticleIds], Mapping[str, jax.Array]]
"""Ids (n,) to records of the particles with these ids: `position` (3, n), and other records that
the start sets."""


class ParticleFiles(UserFiles, Protocol):
    """Opens the files that a start of particles names."""

    def particles(self, path: str, name: str) -> "StoredParticles":
        """The particles of a snapshot or checkpoint."""
        ...


class StoredParticles(Protocol):
    """Particles on disk; passed in by the run."""

    count: int

    @property
    def records(self) -> Collection[str]:
        """Names of the stored records, without the ids."""
        ...

    def restore(self, domain: Domain, records: Mapping[str, int], capacity: int) -> ParticleSet:
        """The particles in equal parts on the devices, not yet each on the device that owns its
        place. `records` gives the numbers of components (0: a scalar); records that are not stored
        are zero."""
        ...


class RandomPlaces(Settings):
    kind: Literal["random"] = "random"
    seed: Seed = 0
    """Seed of the positions."""


class LatticePlaces(Settings):
    kind: Literal["lattice"] = "lattice"


class PairPlaces(Settings):
    """Pairs around random places, in random directions (of the plane, if the box is one). The
    particles 2 i and 2 i + 1 are a pair; its separation is number i of `separations`, which
    repeat."""

    kind: Literal["pairs"] = "pairs"
    separations: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=100)]
    """Distances of the particles of a pair at the start (length)."""
    seed: Seed = 0
    """Seed of the positions."""

    def vectors(self, pair: ParticleIds, domain: Domain) -> ParticleVectors:
        """(3, n): from the first to the second particle of the pairs with these numbers (n,), at
        the start."""

        def one(number: jax.Array) -> jax.Array:
            key = particle_key(Stream.SEPARATIONS, self.seed, number)
            return jax.random.normal(key, (3,), jnp.float64)

        flat = np.array([n == 1 for n in domain.physical.grid.shape])[:, None]
        towards = jnp.where(flat, 0.0, jax.vmap(one, out_axes=1)(pair))
        length = jnp.asarray(self.separations)[pair % len(self.separations)]
        return length * towards / jnp.linalg.norm(towards, axis=0)

    def positions(self, count: int, domain: Domain) -> Positions:
        """Raises UserError if one of `count` particles is left over, or if pairs are longer than
        half the box."""
        half = (
            min(n for n, m in zip(domain.box, domain.physical.grid.shape, strict=True) if m > 1) / 2
        )
        if count % 2:
            raise UserError(f"count: {count} is odd; pairs need an even number")
        if (longest := max(self.separations)) > half:
            raise UserError(f"start.separations: {longest:g} is more than half the box, {half:g}")
        box = np.asarray(domain.box)[:, None]
        centre = random_positions(self.seed, domain)

        def positions(ids: jax.Array) -> dict[str, jax.Array]:
            pair = ids // 2
            side = jnp.where(ids % 2 == 0, -0.5, 0.5)
            return {
                "position": (centre(pair)["position"] + side * self.vectors(pair, domain)) % box
            }

        return positions


class PythonPlaces(Settings):
    kind: Literal["python"] = "python"
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(id, **parameters) gives the positions (3, n) of the particles with these ids (n,),
    using jax.numpy; or a dict with `position` and, for inertial particles, `velocity`."""
    parameters: Parameters
    """Keyword arguments of the function."""


class StoredPlaces(Settings):
    kind: Literal["snapshot"] = "snapshot"
    path: InputPath
    """A snapshot or checkpoint: RUN/snapshots/00000010."""
    name: str | None = None
    """The name of the particles in that file; by default their name in this run."""


def _as_block(value: object) -> Any:
    return {"kind": value} if isinstance(value, str) else value


_Places = Annotated[
    RandomPlaces | LatticePlaces | PairPlaces | PythonPlaces | StoredPlaces,
    Field(discriminator="kind"),
]
Start = Annotated[_Places, BeforeValidator(_as_block, json_schema_input_type=_Places | str)]


def random_positions(seed: int, domain: Domain, stream: Stream = Stream.POSITIONS) -> Positions:
    """Positions uniformly distributed in the box; each particle has its own random stream, keyed by
    its id."""
    box = np.asarray(domain.box)[:, None]  # no JAX array: a planned run starts no device

    def one(number: jax.Array) -> jax.Array:
        return jax.random.uniform(particle_key(stream, seed, number), (3,), jnp.float64)

    return lambda ids: {"position": jax.vmap(one, out_axes=1)(ids) * box}


def lattice_shape(count: int, domain: Domain) -> tuple[int, int, int]:
    """The numbers of particles along x, y and z of a lattice of cubic cells. Raises UserError if
    `count` particles fill no such lattice."""
    near: list[int] = []
    box = domain.box
    flat = [n == 1 for n in domain.physical.grid.shape]
    first = next(i for i in range(3) if not flat[i])
    n = 0
    while True:
        n += 1
        cells = (max(1, round(n * length / box[first])) for length in box)
        shape = [1 if f else m for f, m in zip(flat, cells, strict=True)]
        total = shape[0] * shape[1] * shape[2]
        if total == count:
            return (shape[0], shape[1], shape[2])
        near.append(total)
        if total > count:
            kinds = " or ".join(f"{m:,}".replace(",", "") for m in dict.fromkeys(near[-2:]))
            raise UserError(
                f"count: {count} does not fill a lattice of cubic cells in this box; the nearest are {kinds}"
            )


def lattice_positions(count: int, domain: Domain) -> Positions:
    """The centres of the cells of a cubic lattice; ids rise fastest along z."""
    nx, ny, nz = lattice_shape(count, domain)

    def positions(ids: jax.Array) -> dict[str, jax.Array]:
        number = jnp.stack([ids // (ny * nz), ids // nz % ny, ids % nz])
        cell = jnp.asarray([length / n for length, n in zip(domain.box, (nx, ny, nz), strict=True)])
        return {"position": (number + 0.5) * cell[:, None]}

    return positions


def python_positions(
    start: FunctionKeys, files: ParticleFiles, takes: Mapping[str, int]
) -> Positions:
    """The records that the user's function, which the settings `start` name, gives for ids.
    `takes`: the records that a start may set, with their numbers of components (0: a scalar)."""
    function = UserFunction.of(files, start, "the ids")

    def positions(ids: jax.Array) -> dict[str, jax.Array]:
        result = function(ids)
        values = dict(result) if isinstance(result, Mapping) else {"position": result}
        unknown = values.keys() - takes.keys()
        if "position" not in values or unknown:
            problem = f"{unknown.pop()!r}" if unknown else "no position"
            raise function.refused(f"gives {problem}; these particles take {', '.join(takes)}")
        records = {}
        for name, value in values.items():
            if not takes[name]:
                records[name] = jnp.broadcast_to(jnp.asarray(value, jnp.float64), ids.shape)
                continue
            parts = list(value)
            if len(parts) != takes[name]:
                raise function.refused(
                    f"{name} has {len(parts)} components; {takes[name]} are needed"
                )
            components = [jnp.broadcast_to(jnp.asarray(p, jnp.float64), ids.shape) for p in parts]
            records[name] = jnp.stack(components)
        return records

    return positions


def positions_of(
    start: RandomPlaces | LatticePlaces | PairPlaces | PythonPlaces,
    count: int,
    domain: Domain,
    files: ParticleFiles,
    takes: Mapping[str, int],
) -> Positions:
    """The positions of `count` particles, and other records that they `take`, which the settings
    describe. Raises UserError, beginning with the key."""
    match start:
        case LatticePlaces():
            return lattice_positions(count, domain)
        case PairPlaces():
            return start.positions(count, domain)
        case PythonPlaces():
            with prefixed("start.function", ": "):
                return python_positions(start, files, takes)
        case RandomPlaces():
            return random_positions(start.seed, domain)
