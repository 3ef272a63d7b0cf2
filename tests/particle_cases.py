"""Particles and flows that the tests of particles share."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from simulator.physics.particles import Domain, ParticleSet
from simulator.spectral import Grid, make_transform

GRID = Grid((16, 10, 12), (6.0, 5.0, 4.0))
LAYOUTS = {
    "one device": (1, {}),
    "2 slabs": (2, {}),
    "4 slabs, the last with fewer planes": (4, {}),
    "2 x 2 pencils": (4, {"decomposition": "pencil"}),
    "5 x 1 pencils, the last empty": (5, {}),
    "3 x 2 pencils": (6, {"decomposition": "pencil"}),
}


@cache
def domain(layout: str) -> Domain:
    return Domain.of(transform(layout))


@cache
def transform(layout: str):
    count, choice = LAYOUTS[layout]
    return make_transform(GRID, jax.devices()[:count], np.float64, **choice)


def random_positions(count: int, seed: int = 0, grid: Grid = GRID) -> np.ndarray:
    return np.random.default_rng(seed).random((3, count)) * np.array(grid.box)[:, None]


def shared_out(position: np.ndarray, domain: Domain, capacity: int) -> ParticleSet:
    """Particles in equal shares on the owners of planes, wherever they live; `tag` follows the
    id."""
    count = position.shape[1]
    owners = domain.owners
    ids = np.full((domain.devices, capacity), -1)
    records = {
        "position": np.zeros((3, domain.devices, capacity)),
        "tag": np.zeros((domain.devices, capacity)),
    }
    counts = np.zeros(domain.devices, np.int32)
    parts = np.array_split(np.arange(count), owners.sum())
    for device, part in zip(np.flatnonzero(owners), parts, strict=True):
        counts[device] = len(part)
        ids[device, : len(part)] = part
        records["position"][:, device, : len(part)] = position[:, part]
        records["tag"][device, : len(part)] = 0.5 + part
    return ParticleSet(
        {
            "position": jax.device_put(records["position"].reshape(3, -1), domain.sharding(2)),
            "tag": jax.device_put(records["tag"].ravel(), domain.sharding(1)),
        },
        jax.device_put(ids.ravel(), domain.sharding(1)),
        jax.device_put(counts, domain.sharding(1)),
        jax.device_put(jnp.int32(0), domain.everywhere),
    )


HARD = 150
"""The number of points inside each device's box."""


def transform_of(layout, dtype, kernels="native"):
    count, choice = LAYOUTS[layout]
    return make_transform(GRID, jax.devices()[:count], dtype, kernels=kernels, **choice)


def hard_positions(domain):
    """(3, entries): points in each device's box, on cell borders, outside, beyond what it sees, and
    no number."""
    rng = np.random.default_rng(1)
    box = np.array(GRID.box)[:, None]
    spacing = np.array(GRID.spacing)[:, None]
    inside = rng.random((3, HARD)) * box
    borders = rng.integers(0, GRID.shape, (HARD, 3)).T * spacing
    outside = (rng.random((3, HARD)) * 3 - 1) * box
    faces = np.nextafter(box, 0) * rng.integers(0, 2, (3, HARD))
    lost = np.full((3, 3), 1.0)
    lost[np.arange(3), np.arange(3)] = (np.nan, np.inf, 1e30)
    one = np.concatenate([inside, borders, outside, faces, lost], axis=1)
    every = np.concatenate([one] * domain.devices, axis=1)
    return jax.device_put(every, domain.sharding(2))
