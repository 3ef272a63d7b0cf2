"""The order of particles in a buffer: neighbours in space are neighbours in memory, so that interpolation finds the
values of the grid in cache. Only native code depends on it; the results do not."""

from dataclasses import replace

import jax

from simulator.physics.particles.domain import Domain
from simulator.physics.particles.particle_set import ParticleSet
from simulator.spectral.native import particles as native

ORDER = "yzx"
"""The axis that runs fastest is the one along which native code reads the values of a velocity."""


def sorted_by_cell(particles: ParticleSet, domain: Domain, due: jax.Array) -> ParticleSet:
    """The particles of every device in the order of the cells of the grid, where `due`."""
    if not domain.native:
        return particles
    grid = domain.physical.grid
    names = [name for name in particles.records if name != "position"]

    def local(due: jax.Array, count: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
        return native.sorted_by_cell(
            due, count, arrays[0], arrays[1:], order=ORDER, cells=grid.shape, spacing=grid.spacing
        )

    given = [particles.records["position"], particles.id, *(particles.records[name] for name in names)]
    if domain.cuts:
        specs = tuple(domain.spec(array.ndim) for array in given)
        local = jax.shard_map(
            local,
            mesh=domain.physical.mesh,
            in_specs=(jax.sharding.PartitionSpec(), domain.spec(1), *specs),
            out_specs=specs,
            check_vma=False,
        )
    position, ids, *others = local(due, particles.count, *given)
    records = {"position": position, **dict(zip(names, others, strict=True))}
    return replace(particles, records={name: records[name] for name in particles.records}, id=ids)
