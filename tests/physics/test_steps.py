"""Particles in flows: exact solutions through every integrator, stream functions, buffers, samples
of fields."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gravity_cases import advanced, by_id, simulation, source
from numpy.testing import assert_allclose
from peers.collectives import collectives
from tiers import slow

from simulator.physics.particles.population import crowded
from simulator.physics.particles.species import Inertial, InertialSettings, Tracers, TracerSettings
from simulator.physics.stepping import INTEGRATORS
from simulator.physics.stepping.evolved import Evolved
from simulator.simulation.quantities import velocity_rate
from simulator.spectral.operators import gradient

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
    """The largest change of psi = cos z + sin x along tracers in u = (sin z, sin x + cos z, cos x),
    which is steady. The step's own error, (u dt)^4, lies far below the interpolation's."""
    run = simulation(WAVES, f"grid.shape={n},{n},{n}", f"particles.0.interpolation={interpolation}")

    def psi(state):
        x, _, z = by_id(state.particles["tracers"])["position"]
        return np.cos(z) + np.sin(x)

    start = psi(run.state)
    return abs(psi(advanced(run, run.state, 1.0)) - start).max()


@pytest.mark.parametrize(
    ("interpolation", "order"),
    [("cubic_spline", 4), slow("linear", 2)],
)
def test_tracers_in_a_steady_flow_keep_its_stream_function(interpolation, order):
    """The interpolation's error falls at least with its order: along a path it in part cancels."""
    errors = [drift_of_stream_function(n, interpolation) for n in (8, 16)]
    assert np.log2(errors[0] / errors[1]) > order
    assert errors[1] > 1e-9  # it is not round-off that is compared


@pytest.mark.slow
@pytest.mark.spmd
def test_a_step_gathers_nothing():
    """Beside the transforms there are ghost planes, messages and sums of a few numbers."""
    found = collectives(simulation(TURBULENCE, devices=4).compiled_loop())
    kinds = {kind for kind, c in found.items() if c.count}
    assert (
        kinds == {"all-to-all", "collective-permute", "all-reduce"}
        and found["all-reduce"].bytes < 2000
    )


@pytest.mark.long
@pytest.mark.spmd
def test_a_step_waits_for_larger_buffers_and_loses_nobody():
    """All particles are carried from two devices to one, beyond what its buffer holds."""
    text = MEAN_FLOW.replace("FLOW", str(source(FLOW)))
    run = simulation(text, devices=4)
    state = run.state
    grew = 0
    end = 1.2
    had = state.particles["tracers"].capacity
    while float(state.time) < end - 1e-9:
        state = advanced(run, state, end)
        if crowded(state.particles):
            state = run.grow(state)
            grew += 1
    found = state.particles["tracers"]
    assert grew >= 1 and found.capacity > had and not bool(found.crowded)
    assert np.asarray(found.count).tolist() == [0, 0, 400, 0]
    position = by_id(found)["position"]
    start = np.stack([np.full(400, 3.0), 2.3 + 1.2 * np.arange(400) / 400, np.full(400, 1.0)])
    assert_allclose(position, start + np.array([[0], [end], [0]]), rtol=0, atol=1e-12)
    assert_allclose(by_id(found)["displacement"][1], end, rtol=0, atol=1e-12)


@pytest.mark.spmd
def test_a_particle_that_goes_too_far_stops_the_run():
    """dt carries particles over eight planes; the device sees two."""
    text = MEAN_FLOW.replace("FLOW", str(source(FLOW)))
    run = simulation(text, "time.dt=3.2", devices=4)
    run.state = advanced(run, run.state, 10.0, 1)
    assert np.isnan(float(run.state.dt))
    what, cure = run.trouble()
    assert "tracers moved farther in a step than its device can see" in what and "time.dt" in cure


def test_at_grid_points_particles_sample_the_fields_themselves():
    """The spline passes through the values: velocity, its gradient, a scalar, and Du/Dt = du/dt +
    (u . grad) u."""
    run = simulation(
        TURBULENCE, "particles.0.start=lattice", "grid.shape=8,8,8", "particles.0.count=64"
    )
    names = ("velocity", "gradient", "dye", "acceleration")
    seen = [np.asarray(run.sampled("tracers", names)(run.state)[f"fluid_{name}"]) for name in names]
    place = np.asarray(run.state.particles["tracers"].records["position"]) * 8 / (2 * np.pi)
    assert_allclose(place, np.rint(place), rtol=0, atol=1e-12)

    @jax.jit
    def fields(state):
        u = state.fields["velocity"]
        layout = run.transform.layout
        slopes = jnp.stack([gradient(layout, u[i]) for i in range(3)])
        parts = u, slopes, state.fields["dye"], velocity_rate(run.system, state)
        return [run.transform.inverse(part) for part in parts]

    u, slopes, dye, rate = (
        np.asarray(v)[(..., *np.rint(place).astype(int))] for v in fields(run.state)
    )
    expected = u, slopes.reshape(9, 64), dye, rate + (slopes * u).sum(1)
    for found, values in zip(seen, expected, strict=True):
        assert_allclose(found, values, rtol=0, atol=1e-12 * abs(values).max())


ROTATION = 0.7


def still(names, position):
    """A fluid at rest."""
    return {name: jnp.zeros_like(position) for name in names}


def solid_rotation(names, position):
    """u = Omega x r about z; Du/Dt = -Omega^2 r."""
    x, y, z = position
    values = {
        "velocity": ROTATION * jnp.stack([-y, x, 0 * z]),
        "acceleration": -(ROTATION**2) * jnp.stack([x, y, 0 * z]),
    }
    return {name: values[name] for name in names}


def integrated(species, fluid, start, duration, steps, integrator="rk4"):
    """The records (3, 1) after `steps` steps."""
    method = INTEGRATORS[integrator]()
    memory = species.memory(jnp.float64(2.0))
    linear = {name: species.linear(memory).get(name, jnp.zeros(())) for name in species.advanced}
    dt = jnp.float64(duration / steps)

    def step(_, records):
        def rates(records, time):
            return Evolved(species.rates(records, fluid, memory))

        return method.step(records, jnp.float64(0), dt, rates(records, 0), rates, Evolved(linear))

    found = jax.jit(lambda r: jax.lax.fori_loop(0, steps, step, r))(Evolved(start))
    return {name: np.asarray(value)[:, 0] for name, value in found.items()}


def at(x, v=None):
    start = {"position": jnp.array(x, float)[:, None]}
    return start if v is None else {**start, "velocity": jnp.array(v, float)[:, None]}


def inertial(**keys):
    return Inertial(InertialSettings(name="particles", count=1, **keys))


def test_a_particle_relaxes_to_rest_in_a_time_of_its_own_or_of_the_flow():
    """v = v_0 exp(-t / tau), x = v_0 tau (1 - exp(-t / tau)): the drag is solved exactly."""
    tau = 0.4
    t = 1.0
    v = np.array([1.0, -2.0, 0.5])
    found = integrated(inertial(relaxation_time=tau), still, at([0, 0, 0], v), t, 200)
    assert_allclose(found["velocity"], v * np.exp(-t / tau), rtol=0, atol=1e-14)
    assert_allclose(found["position"], v * tau * (1 - np.exp(-t / tau)), rtol=0, atol=1e-8)
    # tau = St / rms vorticity, here 2.
    species = inertial(stokes_number=0.5)
    assert float(species.relaxation_time(species.memory(jnp.float64(2.0)))) == 0.25


def test_a_particle_settles():
    """v = tau (1 - beta) g (1 - exp(-t / tau)), with beta = 3 / (2 rho + 1)."""
    tau = 0.5
    t = 1.0
    ratio = 4.0
    g = np.array([0.0, 0.3, -2.0])
    species = inertial(relaxation_time=tau, density_ratio=ratio, gravity=tuple(g))
    found = integrated(species, still, at([0, 0, 0], [0, 0, 0]), t, 200)
    terminal = tau * (1 - 3 / (2 * ratio + 1)) * g
    relaxed = 1 - np.exp(-t / tau)
    assert_allclose(found["velocity"], terminal * relaxed, rtol=0, atol=1e-8)
    assert_allclose(found["position"], terminal * (t - tau * relaxed), rtol=0, atol=1e-8)


@pytest.mark.parametrize("ratio", [None, 0.3, 5.0])
def test_a_particle_in_solid_rotation(ratio):
    """With s = x + i y: s'' = (i Omega s - s') / tau - beta Omega^2 s, a linear equation with two
    exponents."""
    tau = 0.6
    t = 2.0
    species = inertial(relaxation_time=tau, density_ratio=ratio)
    found = integrated(species, solid_rotation, at([1, 0, 0], [0, 0.2, 0.1]), t, 1000)
    roots = np.roots([1, 1 / tau, species.beta * ROTATION**2 - 1j * ROTATION / tau])
    weights = np.linalg.solve([[1, 1], roots], [1.0, 0.2j])
    s = (weights * np.exp(roots * t)).sum()
    v = (weights * roots * np.exp(roots * t)).sum()
    assert_allclose(found["position"][:2], [s.real, s.imag], rtol=0, atol=1e-8)
    assert_allclose(found["velocity"][:2], [v.real, v.imag], rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("integrator", "order"), [("rk2", 2), ("rk3", 3), ("rk4", 4), ("etdrk4", 4)]
)
def test_every_integrator_moves_tracers_at_its_order(integrator, order):
    tracers = Tracers(TracerSettings(name="tracers", count=1))
    t = 3.0
    exact = np.array([np.cos(ROTATION * t), np.sin(ROTATION * t), 0])
    ends = [
        integrated(tracers, solid_rotation, at([1, 0, 0]), t, n, integrator)["position"]
        for n in (10, 20)
    ]
    errors = [abs(end - exact).max() for end in ends]
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.2


DYNAMO = """\
model: {kind: mhd, viscosity: 0.1, resistivity: 0.1, kinematic: true}
grid: {shape: [8, 8, 8]}
initial: {kind: abc, magnetic: {peak: 2, energy: 1e-6, seed: 7}}
time: {stop: 1, dt: 0.05}
particles:
  - {name: tracers, kind: tracer, count: 64}
  - {name: drops, kind: inertial, count: 64, stokes_number: 1.0}
"""


@pytest.mark.parametrize("integrator", ["etdrk4", "rk2", "rk3", "rk4"])
def test_a_prescribed_velocity_is_no_unknown(integrator):
    """It keeps its bits, moves particles and amplifies the magnetic field."""
    run = simulation(DYNAMO, f"time.integrator={integrator}")
    assert "velocity" not in run.system.unknowns(run.state)
    start = jax.tree.map(jnp.copy, run.state)
    end = advanced(run, run.state, 0.2)
    assert np.array_equal(end.fields["velocity"], start.fields["velocity"])
    assert not np.array_equal(end.fields["magnetic"], start.fields["magnetic"])
    for name in start.particles:
        before, after = (by_id(s.particles[name])["position"] for s in (start, end))
        assert abs(after - before).max() > 0
