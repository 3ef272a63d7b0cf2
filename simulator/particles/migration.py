"""Migration of particles to the devices where they live, by hops between neighbours.

Along every cut axis the owners of planes form a ring. In a round every device sends up to `message` particles up and
as many down, each the shorter way, and takes in the particles of its neighbours; rounds follow until every particle
is on its device. A step moves few particles by one hop, a start or a restart may move all of them by many: both use
the same code and bounded buffers. If a device has no room, no particle moves, and the set states how much room is
needed.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from simulator.particles.domain import Cut, Domain, after
from simulator.particles.particle_set import NOBODY, ParticleSet


class _Travellers(NamedTuple):
    """Migrating particles. Their destinations travel with them, so that all devices agree."""

    records: dict[str, jax.Array]
    home: tuple[jax.Array, ...]
    """For each cut axis the owner of each particle's plane, (entries,)."""
    id: jax.Array
    held: jax.Array
    """(devices,): the number of particles on each device."""


_Round = tuple[_Travellers, jax.Array, jax.Array]
"""Travellers, whether some device had no room, and the number of particles not yet on their device."""


def settled(particles: ParticleSet, domain: Domain) -> ParticleSet:
    """The particles, whose positions lie in the box, on the devices where they live; or, if `needed` exceeds the
    capacity, all of them in place."""
    if not domain.cuts:
        return particles
    position = particles.records["position"]
    home = tuple(cut.owner(domain.plane(position, cut.axis)) for cut in domain.cuts)
    start = _Travellers(particles.records, home, particles.id, particles.count)
    travellers, full = start, jnp.zeros((), bool)
    for number, cut in enumerate(domain.cuts):
        travellers, full = _along(travellers, full, number, cut, domain)

    def moved() -> tuple[_Travellers, jax.Array]:
        return travellers, travellers.held.max()

    def stayed() -> tuple[_Travellers, jax.Array]:
        residents = _residents(home, particles.valid, domain)
        return start, jnp.maximum(residents, particles.capacity + particles.capacity // 4 + 1)

    result, needed = lax.cond(full, stayed, moved)
    return replace(particles, records=result.records, id=result.id, count=result.held, needed=needed)


def _residents(home: tuple[jax.Array, ...], valid: jax.Array, domain: Domain) -> jax.Array:
    """The number of particles that live on the device with the most."""
    number, total = jnp.zeros_like(home[0]), 1
    for h, cut in zip(home, domain.cuts, strict=True):
        number, total = number * cut.parts + h, total * cut.parts

    def local(number: jax.Array, valid: jax.Array) -> jax.Array:
        return jnp.zeros(total, jnp.int32).at[jnp.where(valid, number, total)].add(1, mode="drop")[None]

    counts = jax.shard_map(
        local,
        mesh=domain.physical.mesh,
        in_specs=(domain.spec(1), domain.spec(1)),
        out_specs=PartitionSpec(domain.names),
        check_vma=False,
    )(number, valid)
    return counts.sum(0).max().astype(jnp.int32)


def _along(
    travellers: _Travellers, full: jax.Array, number: int, cut: Cut, domain: Domain
) -> tuple[_Travellers, jax.Array]:
    """All particles on their device along one axis, or `full`: some device has no room."""
    specs = jax.tree.map(lambda array: domain.spec(array.ndim), travellers)
    shared = partial(jax.shard_map, mesh=domain.physical.mesh, check_vma=False)
    per_device = domain.spec(1)
    look = shared(partial(_far_away, number=number, cut=cut), in_specs=(specs,), out_specs=per_device)
    hop = shared(
        partial(_hop, number=number, cut=cut), in_specs=(specs,), out_specs=(specs, per_device, per_device)
    )

    def unfinished(carry: _Round) -> jax.Array:
        _, full, left = carry
        return (left > 0) & ~full

    def round_(carry: _Round) -> _Round:
        # Sums over devices are taken outside of shard_map, where they cannot be confused with other collectives.
        new, over, left = hop(carry[0])
        return new, over.any(), left.sum(dtype=jnp.int32)

    travellers, full, _ = lax.while_loop(
        unfinished, round_, (travellers, full, look(travellers).sum(dtype=jnp.int32))
    )
    return travellers, full


def _hops(travellers: _Travellers, number: int, cut: Cut) -> jax.Array:
    """Upward hops from each particle to its device, modulo the ring; 0 for particles in place and empty entries."""
    device = lax.axis_index(cut.name)
    return jnp.where(travellers.id >= 0, (travellers.home[number] - device) % cut.owners, 0)


def _far_away(travellers: _Travellers, number: int, cut: Cut) -> jax.Array:
    return (_hops(travellers, number, cut) > 0).sum(dtype=jnp.int32)[None]


def _hop(travellers: _Travellers, number: int, cut: Cut) -> tuple[_Travellers, jax.Array, jax.Array]:
    """One device's part of a round: its new particles, whether it had no room, and how many are not in place yet."""
    capacity, ring = travellers.id.shape[0], cut.owners
    message = min(capacity, capacity // 16 + 16)
    hops = _hops(travellers, number, cut)
    above = (hops > 0) & (2 * hops <= ring)
    going_up = jnp.nonzero(above, size=message, fill_value=capacity)[0]
    going_down = jnp.nonzero((hops > 0) & ~above, size=message, fill_value=capacity)[0]
    packed = _packed(travellers)

    def sent(index: jax.Array, step: int, before: jax.Array | None) -> jax.Array:
        messages = jnp.take(packed, index, axis=-1, mode="fill", fill_value=NOBODY)
        messages = messages if before is None else after(messages, before)
        return lax.ppermute(messages, cut.name, [(i, (i + step) % ring) for i in range(ring)])

    from_below = sent(going_up, 1, None)
    from_above = sent(going_down, -1, from_below)
    received = jnp.concatenate([from_below, from_above], axis=-1)
    # Devices that own no plane are not in the ring; ppermute gives them zeros.
    in_ring = lax.axis_index(cut.name) < ring
    received = received.at[0].set(jnp.where(in_ring, received[0], NOBODY))
    left = jnp.sort(jnp.concatenate([going_up, going_down]))
    packed, count, over = _exchanged(packed, travellers.held[0], left, received)
    new = _unpacked(packed, count[None], travellers)
    return new, over[None], _far_away(new, number, cut)


def _packed(travellers: _Travellers) -> jax.Array:
    """All data of the particles as (rows, entries) of int64, ids first: one message instead of many."""
    bits = [lax.bitcast_convert_type(r, jnp.int64) for r in travellers.records.values()]
    rows = [travellers.id, *(h.astype(jnp.int64) for h in travellers.home)]
    return jnp.concatenate([jnp.stack(rows), *(b if b.ndim > 1 else b[None] for b in bits)])


def _unpacked(packed: jax.Array, count: jax.Array, like: _Travellers) -> _Travellers:
    at = 1 + len(like.home)
    home = tuple(row.astype(h.dtype) for row, h in zip(packed[1:at], like.home, strict=True))
    records: dict[str, Any] = {}
    for name, record in like.records.items():
        rows = record.shape[0] if record.ndim > 1 else 1
        values = lax.bitcast_convert_type(packed[at : at + rows], jnp.float64)
        records[name], at = values.reshape(record.shape), at + rows
    return _Travellers(records, home, packed[0], count)


def _exchanged(
    packed: jax.Array, count: jax.Array, left: jax.Array, received: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A device's particles without the entries `left` (ascending; padded with the capacity) and with the received
    ones, which fill the gaps and then the end; remaining gaps are filled by the last entries. Also the new number of
    particles, and whether there was no room."""
    capacity, most = packed.shape[-1], left.shape[0]
    arrived = received[0] >= 0
    gone, came = (left < capacity).sum(dtype=jnp.int32), arrived.sum(dtype=jnp.int32)
    new_count = count - gone + came
    rank = jnp.cumsum(arrived) - 1
    slot = jnp.where(rank < gone, left[jnp.clip(rank, 0, most - 1)], count + rank - gone)
    slot = jnp.where(arrived, slot, capacity)
    # The entries beyond the new end, except those that left, move into the remaining gaps.
    tail = new_count + jnp.arange(most)
    gap = jnp.zeros(capacity, bool).at[left].set(True, mode="drop")
    stays = (tail < count) & ~jnp.take(gap, tail, mode="clip")
    source = jnp.where(stays, tail, capacity)[jnp.argsort(~stays, stable=True)]
    open_gaps = jnp.roll(left, -jnp.minimum(came, gone))
    target = jnp.where(jnp.arange(most) < stays.sum(), open_gaps, capacity)
    moved = jnp.take(packed, source, axis=-1, mode="clip")
    packed = packed.at[:, target].set(moved, mode="drop").at[:, slot].set(received, mode="drop")
    ids = jnp.where(jnp.arange(capacity) < new_count, packed[0], NOBODY)
    return packed.at[0].set(ids), new_count, new_count > capacity
