"""Migration of particles to the devices where they live, by hops between neighbours, and their
order in a buffer.

Along every cut axis the owners of planes form a ring. In a round every device sends up to `message`
particles up and as many down, each the shorter way, and takes in the particles of its neighbours;
rounds follow until every particle is on its device. A step moves few particles by one hop, a start
or a restart may move all particles by many hops: both use the same code and bounded buffers. If a
device has no room for the particles that it is sent, no particle moves in that round or later, and
`ParticleSet.needed` asks for a quarter more room.

A round reads and writes only the entries of particles that move, so that a step does not copy all
entries."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from simulator.physics.particles.domain import Cut, Domain
from simulator.physics.particles.particle_set import NOBODY, ParticleSet
from simulator.spectral.collectives import after
from simulator.spectral.native import particles as native_kernels

_Round = tuple[ParticleSet, jax.Array, jax.Array]
"""Particles, whether some device had no room, and the number of particles not yet on their
device."""


class _Messages(NamedTuple):
    """One device's part of a round, before the particles' buffers change."""

    received: jax.Array
    """(rows, 2 messages): the particles from both neighbours, packed by `_packed`."""
    left: jax.Array
    """(2 messages,): the entries of the particles that were sent, ascending, padded with the
    capacity."""


def settled(particles: ParticleSet, domain: Domain) -> ParticleSet:
    """The particles, whose positions lie in the box, each on the device that owns its place; or, if
    `needed` exceeds the capacity, some particles on a device on the way there."""
    if not domain.cuts:
        return particles
    full = jnp.zeros((), bool)
    for cut in domain.cuts:
        particles, full = _along(particles, full, cut, domain)
    more = particles.capacity + particles.capacity // 4 + 1
    return replace(particles, needed=jnp.where(full, more, particles.count.max()))


def _along(
    particles: ParticleSet, full: jax.Array, cut: Cut, domain: Domain
) -> tuple[ParticleSet, jax.Array]:
    """The particles, each on its device along one axis; and whether this failed because some device
    has no room."""
    specs = jax.tree.map(lambda array: domain.spec(array.ndim), particles)
    per_device = domain.spec(1)
    messages: Any = _Messages(cast(Any, domain.spec(2)), cast(Any, per_device))
    look = domain.mapped(
        partial(_far_away, cut=cut, domain=domain), in_specs=(specs,), out_specs=per_device
    )
    exchange = domain.mapped(
        partial(_exchanged, cut=cut, domain=domain),
        in_specs=(specs,),
        out_specs=(messages, per_device),
    )
    write = domain.mapped(
        partial(_written, cut=cut, domain=domain),
        in_specs=(specs, messages, PartitionSpec()),
        out_specs=(specs, per_device),
    )

    def unfinished(carry: _Round) -> jax.Array:
        _, full, left = carry
        return (left > 0) & ~full

    def round_(carry: _Round) -> _Round:
        # Sums over devices are taken outside of shard_map, where they cannot be confused with other
        # collectives.
        sent, over = exchange(carry[0])
        full = over.any()
        new, left = write(carry[0], sent, full)
        return new, full, left.sum(dtype=jnp.int32)

    left = look(particles).sum(dtype=jnp.int32)
    particles, full, _ = lax.while_loop(unfinished, round_, (particles, full, left))
    return particles, full


def _hops(particles: ParticleSet, cut: Cut, domain: Domain) -> jax.Array:
    """The number of upward hops from each particle to its device around the ring; 0 for particles
    that are on their device, and for empty entries."""
    hops = cut.owner(domain.plane(particles.records["position"], cut.axis)) - lax.axis_index(
        cut.name
    )
    return jnp.where(particles.id >= 0, jnp.where(hops < 0, hops + cut.owners, hops), 0)


def _leaving(particles: ParticleSet, cut: Cut, domain: Domain, most: int) -> tuple[jax.Array, ...]:
    """`leaving` of the native kernels along an axis."""
    ring = (cut.axis, cut.planes, cut.extent)
    spacing = domain.physical.grid.spacing[cut.axis]
    here = lax.axis_index(cut.name).reshape(1)
    return native_kernels.leaving(
        domain.threads, particles.records["position"], particles.count, here, ring, spacing, most
    )


def _far_away(particles: ParticleSet, cut: Cut, domain: Domain) -> jax.Array:
    if domain.native:
        return _leaving(particles, cut, domain, 1)[-1]
    return (_hops(particles, cut, domain) > 0).sum(dtype=jnp.int32)[None]


def _going(particles: ParticleSet, cut: Cut, domain: Domain, most: int) -> tuple[jax.Array, ...]:
    """The places of the first `most` particles that go up, of those that go down, and of both,
    ascending; padded with the capacity."""
    if domain.native:
        return _leaving(particles, cut, domain, most)[:-1]
    hops = _hops(particles, cut, domain)
    above = (hops > 0) & (2 * hops <= cut.owners)
    marks = above, (hops > 0) & ~above
    places = [jnp.nonzero(mark, size=most, fill_value=len(mark))[0] for mark in marks]
    return *places, jnp.sort(jnp.concatenate(places))


def _exchanged(particles: ParticleSet, cut: Cut, domain: Domain) -> tuple[_Messages, jax.Array]:
    """One device's messages of a round, and whether it has no room for what it receives."""
    capacity = particles.id.shape[0]
    ring = cut.owners
    message = min(capacity, capacity // 64 + 16)
    going_up, going_down, left = _going(particles, cut, domain, message)

    def sent(index: jax.Array, step: int, before: jax.Array | None) -> jax.Array:
        messages = _packed(particles, index)
        messages = messages if before is None else after(messages, before)
        return lax.ppermute(messages, cut.name, [(i, (i + step) % ring) for i in range(ring)])

    from_below = sent(going_up, 1, None)
    from_above = sent(going_down, -1, from_below)
    received = jnp.concatenate([from_below, from_above], axis=-1)
    # Devices that own no plane are not in the ring; ppermute gives them zeros.
    in_ring = lax.axis_index(cut.name) < ring
    received = received.at[0].set(jnp.where(in_ring, received[0], NOBODY))
    gone, came = _numbers(left, received, capacity)
    return _Messages(received, left), particles.count - gone + came > capacity


def _numbers(left: jax.Array, received: jax.Array, capacity: int) -> tuple[jax.Array, jax.Array]:
    """The numbers of particles that leave and arrive."""
    return (left < capacity).sum(dtype=jnp.int32), (received[0] >= 0).sum(dtype=jnp.int32)


def _written(
    particles: ParticleSet, messages: _Messages, full: jax.Array, cut: Cut, domain: Domain
) -> tuple[ParticleSet, jax.Array]:
    """A device's particles after a round: arriving particles fill the gaps of particles that left,
    then entries at the end; the last entries fill the remaining gaps. If some device is `full`,
    nothing changes. Also the number of particles that are not on their device yet."""
    capacity = particles.id.shape[0]
    received = messages.received
    left = jnp.where(full, capacity, messages.left)
    received = received.at[0].set(jnp.where(full, NOBODY, received[0]))
    most = left.shape[0]
    arrived = received[0] >= 0
    count = particles.count[0]
    gone, came = _numbers(left, received, capacity)
    new_count = count - gone + came
    rank = jnp.cumsum(arrived) - 1
    slot = jnp.where(rank < gone, left[jnp.clip(rank, 0, most - 1)], count + rank - gone)
    slot = jnp.where(arrived, slot, capacity)
    # The entries beyond the new end, except those that left, move into the remaining gaps.
    tail = new_count + jnp.arange(most)
    end = jnp.searchsorted(left, tail)
    has_left = jnp.take(left, end, mode="clip") == tail
    stays = (tail < count) & ~has_left
    source = (
        jnp.full(most, capacity)
        .at[jnp.where(stays, jnp.cumsum(stays) - 1, most)]
        .set(tail, mode="drop")
    )
    open_gaps = jnp.roll(left, -jnp.minimum(came, gone))
    target = jnp.where(jnp.arange(most) < stays.sum(), open_gaps, capacity)

    def put(array: jax.Array, arriving: jax.Array) -> jax.Array:
        moving = jnp.take(array, source, axis=-1, mode="clip")
        return (
            array.at[..., target].set(moving, mode="drop").at[..., slot].set(arriving, mode="drop")
        )

    emptied = new_count + jnp.arange(most)
    emptied = jnp.where(emptied < count, emptied, capacity)
    ids = put(particles.id, received[0]).at[emptied].set(NOBODY, mode="drop")
    arriving = _unpacked(received, particles)
    records = {name: put(array, arriving[name]) for name, array in particles.records.items()}
    new = replace(particles, records=records, id=ids, count=new_count[None])
    return new, _far_away(new, cut, domain)


def _packed(particles: ParticleSet, index: jax.Array) -> jax.Array:
    """All data of the particles at `index` as (rows, entries) of int64, ids first: one message
    instead of one for each record. Where `index` is beyond the last entry, the id is NOBODY."""
    records = [jnp.take(array, index, axis=-1, mode="clip") for array in particles.records.values()]
    ids = jnp.take(particles.id, index, mode="fill", fill_value=NOBODY)
    bits = [ids, *(lax.bitcast_convert_type(r, jnp.int64) for r in records)]
    return jnp.concatenate([b if b.ndim > 1 else b[None] for b in bits])


def _unpacked(packed: jax.Array, like: ParticleSet) -> dict[str, jax.Array]:
    """The records in `packed`."""
    at = 1
    records = {}
    for name, record in like.records.items():
        rows = record.shape[0] if record.ndim > 1 else 1
        values = lax.bitcast_convert_type(packed[at : at + rows], jnp.float64)
        records[name] = values if record.ndim > 1 else values[0]
        at += rows
    return records


ORDER = "yzx"  # Axis order of cells. Native code reads the values of a velocity along the axis that runs fastest.


def in_cell_order(
    particles: ParticleSet, domain: Domain, due: jax.Array, order: str = ORDER
) -> ParticleSet:
    """If `due`, the particles of every device in the `order` of the cells of the grid: neighbours
    in space are then neighbours in memory, so that interpolation finds the grid's values in cache.
    Only native code needs this order; no result depends on the order but by round-off."""
    if not domain.native:
        return particles
    grid = domain.physical.grid
    names = [name for name in particles.records if name != "position"]

    local = partial(native_kernels.sorted_by_cell, domain.threads, order, grid.shape, grid.spacing)
    arrays = (
        particles.records["position"],
        particles.id,
        *(particles.records[name] for name in names),
    )
    position, ids, *others = domain.on_devices(local, due, particles.count, *arrays)
    records = {"position": position, **dict(zip(names, others, strict=True))}
    return replace(particles, records={name: records[name] for name in particles.records}, id=ids)
