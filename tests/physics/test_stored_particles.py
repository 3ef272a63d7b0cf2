"""Particles on disk: restarted on any devices, read by name, checked by their ids; and in slices."""

from dataclasses import replace
from functools import cache

import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import advanced, by_id, simulation
from numpy.testing import assert_allclose, assert_array_equal
from particle_cases import domain, random_positions, shared_out
from run_support import simulate, write_case
from storage_support import save
from tiers import slow

from simulator import open_run
from simulator.archive import stored_state
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.verify import verify
from simulator.errors import RunFailure, UserError
from simulator.physics.particles.migration import settled
from simulator.physics.particles.population import Population

pytestmark = pytest.mark.spmd


@pytest.mark.parametrize(
    "layout",
    [
        "one device",
        "4 slabs, the last with fewer planes",
        slow("3 x 2 pencils"),
    ],
)
def test_every_so_manieth_particle_is_chosen_by_its_id(layout):
    """From where the devices hold them."""
    count = 120
    position = random_positions(count)
    place = domain(layout)
    particles = settled(shared_out(position, place, count), place)
    population = Population("p", {"position": 3}, count, place)
    for stride in (1, 7):
        chosen = population.chosen(particles, particles.records["position"], stride)
        assert_array_equal(chosen, position[:, ::stride])


STORED = """\
model: {kind: navier_stokes, viscosity: 0.02, scalars: [{name: dye, diffusivity: 0.02}]}
grid: {shape: [12, 16, 12]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
time: {stop: 0.2, dt: 0.05, integrator: rk2}
devices: {platform: cpu, count: 2}
particles:
  - {name: tracers, kind: tracer, count: 150}
  - {name: drops, kind: inertial, count: 27, start: lattice, stokes_number: 1.0}
output: {snapshots: {every: 0.1, sample: [velocity, gradient, dye]}, diagnostics: {every_steps: 1}}
"""
TOLERANCE = 1e-12  # sums in another order differ by some eps, which a few steps hardly amplify


@cache
def on(devices: int):
    """The flow on so many devices, which is compiled once for all tests."""
    return simulation(STORED, devices=devices)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The checkpoint of a run on 4 devices, and its state later on."""
    run = on(4)
    folder = tmp_path_factory.mktemp("checkpoints")
    state = advanced(run, run.state, 10.0, 3)
    datasets = stored_state.datasets(state, run.model, run.populations)
    saved = save(folder, 3, datasets, {"time": float(state.time)})
    later = advanced(run, state, 10.0, 3)
    return saved, {name: by_id(found) for name, found in later.particles.items()}, later


@pytest.mark.long
def test_restarted_on_the_same_devices_they_are_the_same_bit_for_bit(saved):
    folder, _, later = saved
    run = on(4)
    found = advanced(run, stored_state.restored_state(run, folder), 10.0, 3)
    for name, particles in later.particles.items():
        valid = np.asarray(particles.valid)
        assert_array_equal(found.particles[name].id, particles.id)
        for record, values in particles.records.items():
            ours = np.asarray(found.particles[name].records[record])
            assert_array_equal(ours[..., valid], np.asarray(values)[..., valid])


def test_buffers_grow_where_a_checkpoint_needs_it(saved):
    """On other devices most particles may live on one; the template follows."""
    folder, _, _ = saved
    run = simulation(STORED, devices=2)
    run.populations["tracers"].capacity = 10
    found = stored_state.restored_state(run, folder)
    assert found.particles["tracers"].capacity == run.template.particles["tracers"].capacity > 10
    assert len(by_id(found.particles["tracers"])["position"][0]) == 150


def test_a_lost_particle_is_noticed_when_a_checkpoint_is_written(saved):
    _, _, later = saved
    run = on(4)
    tracers = later.particles["tracers"]
    for ids in (
        jnp.where(tracers.id == 7, -1, tracers.id),
        jnp.where(tracers.id == 7, 8, tracers.id),
    ):
        broken = replace(later, particles={"tracers": replace(tracers, id=ids)})
        with pytest.raises(RunFailure, match=r"tracers: .* particles are lost or duplicated"):
            stored_state.datasets(broken, run.model, run.populations)


def test_a_start_from_a_snapshot(saved):
    """As many as are stored, at their places; other names have to be given."""
    folder, _, _ = saved
    stored = open_snapshot(folder).particles["drops"]
    start = f"{{name: dust, kind: tracer, start: {{kind: snapshot, path: {folder}, name: drops}}}}"
    run = simulation(STORED, f"particles=[{start}]", devices=2)
    order = np.argsort(stored["id"][...])
    places = by_id(run.state.particles["dust"])["position"]
    assert_array_equal(places, stored["position"][...][:, order])
    with pytest.raises(
        UserError, match=r"particles\.0\.start: .* holds no particles 'dust'; it holds drops"
    ):
        simulation(STORED, f"particles=[{start.replace(', name: drops', '')}]")


@pytest.fixture(scope="module")
def stored_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    assert simulate(write_case(folder, STORED), folder / "run") == 0
    return folder / "run"


@pytest.mark.long
def test_a_snapshot_holds_particles_and_what_they_see_and_others_make_another_run(
    stored_run, capsys
):
    tracers = open_run(stored_run).snapshots[-1].particles["tracers"]
    assert tracers["position"].shape == tracers["fluid_velocity"].shape == (3, 150)
    assert tracers["fluid_gradient"].shape == (9, 150) and tracers["fluid_dye"].shape == (150,)
    assert sorted(tracers["id"][...]) == list(range(150))
    first = open_run(stored_run).snapshots[0].particles["tracers"]
    ways = [
        (s["displacement"][...] - s["position"][...])[:, np.argsort(s["id"][...])]
        for s in (first, tracers)
    ]
    turns = (ways[1] - ways[0]) / (2 * np.pi)
    assert_allclose(turns, turns.round(), rtol=0, atol=1e-12)
    path = open_run(stored_run).snapshots[-1].path
    assert verify(path).ok
    with h5py.File(path.with_suffix(".h5"), locking=False) as file:
        (iteration,) = file["data"].values()
        for name, record in iteration["particles/tracers"].items():
            if name != "particlePatches":  # no record
                assert {"unitDimension", "timeOffset"} <= set(record.attrs), name
    assert simulate(stored_run.parent / "case.yaml", stored_run, "particles.0.count=151") == 2
    assert "particles" in capsys.readouterr().err


@pytest.mark.long
def test_slices_hold_the_particles_next_to_them(stored_run):
    run = open_run(stored_run)
    slices = run.series("slices")
    last = run.snapshots[-1].particles["tracers"]["position"][...]
    across = {"xy": 2, "xz": 1, "yz": 0}
    nx, ny, nz = (12, 16, 12)
    for plane, axis in across.items():
        half = np.pi / (nx, ny, nz)[axis]
        along = ["xyz".index(a) for a in plane]
        expected = last[along][:, abs(last[axis] - np.pi) <= half]
        found = np.stack([slices[f"tracers/near_{plane}_{a}"][-1] for a in plane])
        found = found[:, np.isfinite(found[0])]
        assert expected.shape[1] > 0
        assert_array_equal(found[:, np.argsort(found[0])], expected[:, np.argsort(expected[0])])
