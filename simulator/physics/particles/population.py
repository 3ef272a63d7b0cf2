"""Particles of one kind in the buffers of the devices: their start, their devices, the growth of
the buffers."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from simulator.errors import RunFailure, UserError
from simulator.physics.particles.domain import Domain
from simulator.physics.particles.migration import settled
from simulator.physics.particles.particle_set import (
    EACH_MOST,
    NOBODY,
    ParticleSet,
    capacity_for,
    grown,
)
from simulator.physics.particles.particle_start import Positions, StoredParticles
from simulator.spectral.arrays import Truth
from simulator.spectral.native.particles import restore

Sets = dict[str, ParticleSet]


class Population:
    """Particles of one kind. `records` are the names of a particle's records, with their numbers of
    components (0: a scalar)."""

    def __init__(self, name: str, records: Mapping[str, int], count: int, domain: Domain):
        """Raises UserError, beginning with the key `count`, if the buffers cannot hold so many
        particles."""
        self.name = name
        self.records = dict(records)
        self.count = count
        self.domain = domain
        owners = int(domain.owners.sum())
        self.capacity = capacity_for(count, owners)
        """The number of entries of each device's buffer; `homed` increases it if a device needs
        more."""
        if self.capacity > EACH_MOST:
            raise UserError(
                f"count: {count} are too many for {owners} devices, whose buffers hold up to {EACH_MOST} each"
            )

    @property
    def template(self) -> ParticleSet:
        """Shapes and types of the particles, in buffers of the present `capacity`."""
        devices = self.domain.devices
        entries = devices * self.capacity

        def empty() -> ParticleSet:
            shapes = {r: (n, entries) if n else (entries,) for r, n in self.records.items()}
            return ParticleSet(
                {r: jnp.zeros(shape, jnp.float64) for r, shape in shapes.items()},
                jnp.zeros(entries, jnp.int64),
                jnp.zeros(devices, jnp.int32),
                jnp.int32(0),
            )

        return jax.eval_shape(empty)

    # ---- the beginning
    # -----------------------------------------------------------------------------------

    def placed(self, positions: Positions) -> ParticleSet:
        """The particles with the records that `positions` gives, each on the device that owns its
        place. Raises UserError if a particle lies outside the box."""
        return self._inside(self._shared_out(positions))

    def adopted(self, stored: StoredParticles, records: Mapping[str, int]) -> ParticleSet:
        """The particles of a file with the given records. Raises UserError if a particle lies
        outside the box."""
        return self._inside(stored.restore(self.domain, records, self.capacity))

    def restored(self, stored: StoredParticles) -> ParticleSet:
        """The particles of a checkpoint of this run, with all records."""
        return self.homed(stored.restore(self.domain, self.records, self.capacity))

    def _inside(self, particles: ParticleSet) -> ParticleSet:
        if not bool(jax.jit(partial(_in_box, domain=self.domain))(particles)):
            box = " x ".join(f"{length:g}" for length in self.domain.box)
            raise UserError(
                f"some particles begin outside the box of {box}, which reaches from 0; move them inside"
            )
        try:
            return self.homed(particles)
        except RunFailure as error:
            raise UserError(f"{error}, or particles that begin farther apart") from error

    def _shared_out(self, positions: Positions) -> ParticleSet:
        """Every owner of planes makes an equal share of the particles, by id."""
        domain = self.domain
        capacity = self.capacity
        counts = np.array(domain.shared_out(self.count), np.int64)
        first = np.cumsum(counts) - counts

        def make() -> ParticleSet:
            place = jnp.arange(capacity)
            ids = jnp.asarray(first)[:, None] + place
            ids = jnp.where(place < jnp.asarray(counts)[:, None], ids, NOBODY).reshape(-1)
            ids = jax.lax.with_sharding_constraint(ids, domain.sharding(1)) if domain.cuts else ids
            records = positions(jnp.maximum(ids, 0))
            return ParticleSet(dict(records), ids, jnp.asarray(counts, jnp.int32), jnp.int32(0))

        return jax.jit(make, out_shardings=particle_shardings(jax.eval_shape(make), domain))()

    # ---- a part of the particles
    # -------------------------------------------------------------------------

    def chosen(
        self, particles: ParticleSet, values: Float[Array, "component particle"], stride: int
    ) -> Float[Array, "component chosen"]:
        """The `values` of the particles with the ids 0, stride, 2 stride, ..., in this order,
        replicated on every device."""
        domain = self.domain
        most = -(-self.count // stride)

        def local(ids: jax.Array, values: jax.Array) -> jax.Array:
            place = jnp.where((ids >= 0) & (ids % stride == 0), ids // stride, most)
            return (
                jnp.zeros((1, values.shape[0], most), values.dtype)
                .at[0, :, place]
                .set(values.T, mode="drop")
            )

        if domain.devices == 1:
            return local(particles.id, values)[0]
        specs = domain.spec(1), domain.spec(2)
        parts = domain.mapped(local, specs, PartitionSpec(domain.names))(particles.id, values)
        return parts.sum(0)

    # ---- undoing a step
    # ----------------------------------------------------------------------------------

    def either(self, holds: Truth, new: ParticleSet, old: ParticleSet) -> ParticleSet:
        """The new particles if they hold, else the old ones."""
        if not self.domain.native:
            return jax.tree.map(lambda a, b: jnp.where(holds, a, b), new, old)
        leaves, tree = jax.tree.flatten(new)
        return tree.unflatten(
            self.domain.on_devices(
                partial(restore, self.domain.threads), holds, *leaves, *jax.tree.leaves(old)
            )
        )

    # ---- growing
    # -----------------------------------------------------------------------------------------

    def homed(self, particles: ParticleSet) -> ParticleSet:
        """The particles, each on the device that owns its place, in larger buffers if the present
        ones are too small; updates `capacity`."""
        settle = jax.jit(partial(settled, domain=self.domain))
        if not bool(particles.crowded):
            particles = settle(particles)
        while bool(particles.crowded):
            needed = min(int(particles.needed), self.count)
            larger = partial(grown, capacity=self.room(needed))
            try:
                particles = jax.jit(
                    larger, out_shardings=particle_shardings(particles, self.domain)
                )(particles)
                particles = settle(particles)
            except (jax.errors.JaxRuntimeError, MemoryError) as error:
                raise self._too_many(needed, "and has no memory for them") from error
        self.capacity = particles.capacity
        return particles

    def room(self, needed: int) -> int:
        """The number of entries of a buffer that needs to be larger. Raises RunFailure if none can
        be so large."""
        if needed > EACH_MOST:
            raise self._too_many(needed, f"and {EACH_MOST} are the most")
        return min(self.count, needed + needed // 8 + 16, EACH_MOST)

    def _too_many(self, needed: int, why: str) -> RunFailure:
        return RunFailure(
            f"{self.name}: a device would have to hold {needed} particles, {why}; more devices are needed"
        )


Populations = Mapping[str, Population]  # The keys name the particles.


def particle_shardings(particles: ParticleSet, domain: Domain) -> ParticleSet:
    """The shardings of the arrays of particles."""
    return jax.tree.map(lambda array: domain.sharding(len(array.shape)), particles)


def crowded(sets: Mapping[str, ParticleSet]) -> str | None:
    """The name of a set of particles whose buffers have to grow before the next step; None if there
    is none."""
    return next((name for name, particles in sets.items() if bool(particles.crowded)), None)


def lost(sets: Mapping[str, ParticleSet]) -> str | None:
    """The name of a set in which a record of a particle is not finite; None if there is none."""
    return next(
        (name for name, particles in sets.items() if not bool(jax.jit(records_finite)(particles))),
        None,
    )


def records_finite(particles: ParticleSet) -> Truth:
    """Whether all records of all particles are finite."""
    finite = [
        jnp.isfinite(jnp.where(particles.valid, a, 0)).all() for a in particles.records.values()
    ]
    return jnp.stack(finite).all()


def _in_box(particles: ParticleSet, domain: Domain) -> jax.Array:
    position = particles.records["position"]
    box = jnp.asarray(domain.box)[:, None]
    inside = ((position >= 0) & (position < box)).all(0)
    return (inside | ~particles.valid).all()
