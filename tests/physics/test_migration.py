"""Particles move to the devices where they live: nobody is lost, and more room is asked for where it is needed."""

from functools import cache

import jax
import numpy as np
import pytest
from gravity_cases import by_id
from hypothesis import given, settings
from hypothesis import strategies as st
from particle_cases import LAYOUTS, domain, random_positions, shared_out

from simulator.physics.particles.migration import settled
from simulator.physics.particles.particle_set import capacity_for, grown, id_sum

pytestmark = pytest.mark.spmd


@cache
def settle(layout):
    return jax.jit(lambda particles: settled(particles, domain(layout)))


def homes(particles, home):
    """The device of every entry, and the one that owns its planes."""
    here = np.repeat(np.arange(home.devices), particles.capacity)
    mesh = home.physical.mesh
    index = [np.zeros(len(here), int) for _ in mesh.axis_names]
    for cut in home.cuts:
        position = np.asarray(particles.records["position"][cut.axis])
        plane = np.minimum(position / home.physical.grid.spacing[cut.axis], cut.planes - 1).astype(int)
        index[mesh.axis_names.index(cut.name)] = plane // cut.extent
    return here, np.ravel_multi_index(index, mesh.devices.shape)


@pytest.mark.parametrize("layout", list(LAYOUTS)[2::2])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), spread=st.floats(0.05, 1.0))
def test_everybody_gets_home_with_all_records(layout, seed, spread):
    """From any devices to any others, clumps included; 150 particles need more than one round of messages."""
    position = random_positions(150, seed) * spread
    home = domain(layout)
    found = settle(layout)(shared_out(position, home, 150))
    assert int(found.needed) <= 150
    here, lives = homes(found, home)
    valid = np.asarray(found.valid)
    np.testing.assert_array_equal(here[valid], lives[valid])
    ordered = by_id(found)
    np.testing.assert_array_equal(ordered["position"], position)
    np.testing.assert_array_equal(ordered["tag"], 0.5 + np.arange(150))
    counts = np.asarray(found.count)
    np.testing.assert_array_equal(valid.reshape(home.devices, -1), np.arange(150) < counts[:, None])


@pytest.mark.parametrize(("layout", "devices"), [("2 slabs", 2), ("2 x 2 pencils", 4)])
def test_where_there_is_no_room_nobody_is_lost_and_larger_buffers_cure_it(layout, devices):
    position = random_positions(120) * 0.4  # most of them in one corner
    home = domain(layout)
    start = shared_out(position, home, 120 // devices + 10)
    found = settle(layout)(start)
    assert bool(found.crowded)
    np.testing.assert_array_equal(by_id(found)["position"], position)
    if len(home.cuts) == 1:  # one round of messages, for which there was no room
        np.testing.assert_array_equal(start.id, found.id)
    again = found
    while bool(again.crowded):  # each time a quarter more room
        again = settle(layout)(grown(again, int(again.needed)))
    assert again.capacity <= 160
    np.testing.assert_array_equal(by_id(again)["position"], position)


def test_only_neighbours_exchange_and_no_device_sees_all_particles():
    """Collectives of the compiled program: permutations of messages and sums of a few numbers."""
    from simulator.spectral.collectives import collectives

    layout, count = "4 slabs, the last with fewer planes", 4096
    home = domain(layout)
    particles = shared_out(random_positions(count), home, capacity_for(count, 4))
    found = collectives(settle(layout).lower(particles).compile())
    assert {kind for kind, c in found.items() if c.count} == {"collective-permute", "all-reduce"}
    record = 8 * (3 + 1 + 1)  # position, tag, id
    message = particles.capacity // 64 + 16
    assert found["collective-permute"].bytes == 2 * message * record
    assert found["all-reduce"].bytes < 1000


def test_the_sum_of_ids_is_that_of_the_first_whole_numbers():
    assert id_sum(1000) == sum(range(1000))
    assert id_sum(10**12) == int(np.array(10**12 * (10**12 - 1) // 2 % 2**64, np.uint64).astype(np.int64))
