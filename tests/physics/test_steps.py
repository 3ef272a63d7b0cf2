"""Particles in the steps of a flow: conserved stream functions, devices, buffers, statistics of turbulence."""

import numpy as np
import pytest
from gravity_cases import advanced, by_id, simulation, source

from simulator.physics.particles.population import crowded
from simulator.spectral.collectives import collectives

WAVES = """\
model: {kind: navier_stokes, viscosity: 0}
grid: {shape: [8, 8, 8]}
initial: {kind: abc, C: 0}
time: {stop: 10, dt: 0.05}
particles: [{name: tracers, kind: tracer, count: 64}]
"""
TURBULENCE = """\
model: {kind: navier_stokes, viscosity: 0.02, scalars: [{name: dye, diffusivity: 0.02}]}
grid: {shape: [16, 18, 12]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
time: {stop: 10, dt: 0.04, integrator: rk2}
particles:
  - {name: tracers, kind: tracer, count: 300}
  - {name: drops, kind: inertial, count: 200, stokes_number: 1.0, density_ratio: 10, gravity: [0, 0, -1]}
"""
MEAN_FLOW = """\
model: {kind: navier_stokes, viscosity: 0}
grid: {shape: [8, 16, 16]}
initial: {kind: python, path: FLOW, function: flow}
time: {stop: 10, dt: 0.2, integrator: rk2}
particles: [{name: tracers, kind: tracer, count: 400, start: {kind: python, path: FLOW, function: clump}}]
"""
FLOW = """\
def flow(x, y, z):
    return {"velocity": [0 * x + 0 * y + 0 * z, 1 + 0 * x + 0 * y + 0 * z, 0 * x + 0 * y + 0 * z]}

def clump(id):
    return [3.0 + 0 * id, 2.3 + 1.2 * id / 400, 1.0 + 0 * id]
"""


def drift_of_stream_function(n, interpolation):
    """The largest change of psi = cos z + sin x along tracers in u = (sin z, sin x + cos z, cos x), which is steady.
    The step's own error, (u dt)^4, lies far below the interpolation's."""
    run = simulation(WAVES, f"grid.shape={n},{n},{n}", f"particles.0.interpolation={interpolation}")

    def psi(state):
        x, _, z = by_id(state.particles["tracers"])["position"]
        return np.cos(z) + np.sin(x)

    start = psi(run.state)
    return abs(psi(advanced(run, run.state, 1.0)) - start).max()


@pytest.mark.parametrize(("interpolation", "order"), [("cubic_spline", 4), ("linear", 2)])
def test_tracers_in_a_steady_flow_keep_its_stream_function(interpolation, order):
    """The error of the interpolation alone falls at least with its order: along a path it changes its sign and in
    part cancels."""
    errors = [drift_of_stream_function(n, interpolation) for n in (8, 16)]
    assert np.log2(errors[0] / errors[1]) > order
    assert errors[1] > 1e-9  # it is not round-off that is compared


@pytest.mark.spmd
def test_devices_do_not_matter_and_a_step_gathers_nothing():
    """Beside the transforms there are ghost planes, messages and sums of a few numbers."""
    ends = []
    for devices in (1, 4):
        run = simulation(TURBULENCE, devices=devices)
        ends.append(advanced(run, run.state, 10.0, 12).particles)
    for name, particles in ends[0].items():
        ours, alone = by_id(ends[1][name]), by_id(particles)
        for record, values in alone.items():
            np.testing.assert_allclose(ours[record], values, rtol=0, atol=1e-12, err_msg=f"{name} {record}")
    found = collectives(run.compiled_loop())
    kinds = {kind for kind, c in found.items() if c.count}
    assert kinds == {"all-to-all", "collective-permute", "all-reduce"} and found["all-reduce"].bytes < 2000


@pytest.mark.spmd
def test_a_step_waits_for_larger_buffers_and_loses_nobody():
    """All particles are carried from two devices to one, beyond what its buffer holds."""
    text = MEAN_FLOW.replace("FLOW", str(source(FLOW)))
    run = simulation(text, devices=4)
    state, grew, end = run.state, 0, 1.2
    had = state.particles["tracers"].capacity
    while float(state.time) < end - 1e-9:
        state = advanced(run, state, end)
        if crowded(state.particles):
            state, grew = run.grow(state), grew + 1
    found = state.particles["tracers"]
    assert grew >= 1 and found.capacity > had and not bool(found.crowded)
    assert np.asarray(found.count).tolist() == [0, 0, 400, 0]
    position = by_id(found)["position"]
    start = np.stack([np.full(400, 3.0), 2.3 + 1.2 * np.arange(400) / 400, np.full(400, 1.0)])
    np.testing.assert_allclose(position, start + np.array([[0], [end], [0]]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(by_id(found)["displacement"][1], end, rtol=0, atol=1e-12)


@pytest.mark.spmd
def test_a_particle_that_goes_too_far_stops_the_run():
    """dt carries particles over eight planes; the device sees two."""
    text = MEAN_FLOW.replace("FLOW", str(source(FLOW)))
    run = simulation(text, "time.dt=3.2", devices=4)
    run.state = advanced(run, run.state, 10.0, 1)
    assert np.isnan(float(run.state.dt))
    what, cure = run.trouble()
    assert "tracers moved farther in a step than its device can see" in what and "time.dt" in cure


def test_sampled_scalars_and_gradients_are_those_of_the_fields():
    """At the points of the grid the spline passes through the values; the trace of the gradient is the divergence."""
    run = simulation(TURBULENCE, "particles.0.start=lattice", "grid.shape=8,8,8", "particles.0.count=64")
    seen = run.sampled("tracers", ("velocity", "gradient", "dye"))(run.state)
    assert seen["fluid_velocity"].shape == (3, 64) and seen["fluid_dye"].shape == (64,)
    trace = np.asarray(seen["fluid_gradient"]).reshape(3, 3, -1).trace()
    assert abs(trace).max() < 1e-12 * abs(np.asarray(seen["fluid_gradient"])).max()
