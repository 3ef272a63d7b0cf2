"""Models, starts, forcings, particles and series that cannot be a run: one line with the place and
the cure."""

import jax.numpy as jnp
import pytest
from flow_support import flow
from gravity_cases import MATTER, by_id, simulation, source
from refusals import refusal, rows

from simulator.archive.series_recorder import measured_series
from simulator.errors import RunFailure, UserError
from simulator.physics.particles import population

FLOW = """\
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8, 8], box: [1, 1, 2]}
initial: {kind: taylor_green}
time: {stop: 1}
"""
TRACERS = (
    FLOW
    + "particles: [{name: tracers, kind: tracer, count: 64}, {name: a, kind: inertial, count: 8, "
    + ("relaxation_time: 0.5}]\n")
)
FUNCTIONS = """
from simulator.equations import Equation

def outside(id): return [0.5 + 0 * id, 0.5 + 0 * id, 2.0 + 0 * id]
def flat(id): return [0.5 + 0 * id, 0.5 + 0 * id]
def other(id): return {"position": [0.5 + 0 * id] * 3, "mass": id}
def beyond(id): return {"position": jnp.full((3, id.size), -1.0), "mass": 1.0}
def wind(x, y, z, t): return {"wind": x}
def short(x, y, z, t): return {"velocity": (x, y)}
def broken(x, y, z, t): return {"velocity": (x, y, nothing)}
def mixing(velocity, gradient, width): return [velocity[0].mean() * gradient[0, 0]] * 6
def branching(velocity, gradient, width): return [0.0] * 6 if velocity[0].max() > 0 else [1.0] * 6
def flatless(x, y, z): return {"velocity": (y, 0 * x)}
def textless(x, y, z, t): raise ValueError
def strange(x, y, z, t): raise GeneratorExit
class Mute(BaseException):
    def __str__(self): raise RuntimeError
def mute(x, y, z, t): raise Mute
def five(velocity, gradient, width): return list(gradient[0]) + list(gradient[1])[:2]
def fine(x, y, z): return {"velocity": (jnp.sin(6 * jnp.pi * y) + 0 * z, 0 * x, 0 * x)}
def short_of(x, y, radius): return {"velocity": (radius * y, 0 * x, 0 * x)}
class Hilbert(Equation):
    evolved = ("c",)
    def linear(self): return {"c": -self.k_squared**-0.5}
class NotANumber(Equation):
    evolved = ("c",)
    def linear(self): return {"c": -self.k[0] ** 2 / self.k_squared}
def scaled(velocity, gradient, width, coefficient): return [coefficient * gradient[0, 0]] * 6
"""
CASES = {
    "flow": FLOW,
    "plane": FLOW.replace("[8, 8, 8], box: [1, 1, 2]", "[12, 12]"),
    "mhd": FLOW.replace("navier_stokes,", "mhd, resistivity: 1,"),
    "stratified": FLOW.replace("navier_stokes,", "boussinesq, diffusivity: 1, stratification: 1,"),
    "tracers": TRACERS,
    "matter": MATTER,
    "expanding": MATTER.replace(
        "composite,", "composite, cosmology: {start: 0.02, matter: 1.0},", 1
    ),
}
REFUSED = """
flow | grid.shape=[3, 8, 8] & initial={kind: taylor_green}
    initial: kind: needs wavenumber 1 along x; this grid of 3 points keeps up to 0
flow | initial={kind: python, path: F, function: fine}
    initial: velocity: this grid keeps none of its modes
flow | initial={kind: python, path: F, function: short_of, parameters: {radius: 1}}
    short_of: takes (x, y, radius), and is called with 3 arguments (the coordinates x, y and z) and the parameters
flow | model={kind: python, path: F, equation: Hilbert} & initial={kind: random, fields: {c: {variance: 1}}}
    model: Hilbert: linear and waves have to be finite for all modes
flow | model={kind: python, path: F, equation: NotANumber} & initial={kind: random, fields: {c: {variance: 1}}}
    model: NotANumber: linear and waves have to be finite for all modes
matter | model.units=mpc_h_km_s_msun_h & model.background={start: 0.02, hubble: 67.7}
    model.background.hubble: has to be 100 in units: mpc_h_km_s_msun_h
matter | model.units=kpc_km_s_msun & model.cosmology={start: 0.02}
    model.cosmology.hubble: means h = 10, not between 0.2 and 2: 100 km/s/Mpc are 0.1 in
matter | model.units=kpc_km_s_msun & model.gravitational_constant=1
    model.gravitational_constant: is 4.30092e-06 in units: kpc_km_s_msun; leave it out
expanding | time.stop={redshift: 99}
    time.stop: redshift: 99 is a = 0.01, outside of 0.02 (the
matter | model.cosmology={start: {redshift: -2}}
    model.cosmology.start: a redshift above 0 is needed, not -2
matter | model.background={start: {z: 2}}
    model.background.start: a scale factor or {redshift: Z} is needed, not {'z': 2}
expanding | model.background={start: 0.1}
    model.background: is the same as model.cosmology; keep
expanding | model.cosmology.neutrinos=0.1
    cosmology.neutrinos: massive neutrinos are not followed
expanding | model.cosmology.curvature=-3
    cosmology.curvature: the expansion stands still at a =
matter | output.snapshots.every=[2, 1]
    output.snapshots.every: one or more times in increasing order are needed
matter | time.integrator=fastpm
    fastpm takes steps of linear growth: it needs particles and an expanding box
matter | time.steps=4
    time.steps: needs an expanding box, model.background; give time.dt
expanding | time.spacing=growth
    time.spacing: needs time.steps; leave the key out
expanding | time={stop: 1, steps: 3, dt: 1}
    time.steps: excludes time.dt; keep one of the two
flow | time.stop={redshift: 0}
    time.stop: redshift needs an expanding box, model.background; give a time
flow | initial={kind: composite, components: {gas: {kind: uniform}}}
    kind: composite needs model.kind: compo
matter | model.components=[]
    model.components: an empty list
matter | model.components=[{kind: navier_stokes}]
    model.components.0.kind: unknown kind 'navier_stokes'
matter | model.components.0.gravitational_constant=1
    unknown key, did you mean model.gravitational_constant?
matter | time.integrator=composition4
    composition4 does not solve composite; kick_drift_kick or
matter | initial={kind: uniform}
    initial: kind: uniform gives one kind of matter
matter | model.components.0.count=500
    components.dark: count: 500 does not fill a lattice of cubic cells in this box; the nearest are 343 or 512
matter | model.components.0.assignment=ngp
    model.components.0.assignment:
matter | initial.components.dark={kind: taylor_green}
    dark: kind: taylor_green gives fields; particles begin
matter | initial.components.dark={kind: python, path: F, function: beyond}
    dark: some particles begin outside
matter | model.components.0.count=1e14
    model.components.0.count:
matter | output={trajectories: {every: 1, sample: [velocity]}}
    sample: dark is matter itself and
matter | output={trajectories: {every: 1, particles: [tracers]}}
    particles: unknown 'tracers'; known: dark
flow | particles=[{name: a, kind: tracer}]
    particles.0.count: missing
flow | particles=[{name: a, count: 3}]
    particles.0.kind: missing; one of tracer, inertial
flow | particles=[{name: 1 a, kind: tracer, count: 3}]
    cannot name particles
flow | particles=[{name: a, kind: inertial, count: 3}]
    give one of relaxation_time and stokes_number
flow | particles=[{name: a, kind: tracer, count: 3, start: lattic}]
    unknown kind 'lattic', did you mean lat
flow | particles=[{name: a, kind: tracer, count: 100, start: lattice}]
    count: 100 does not fill a lattice o
flow | particles=[{name: a, kind: tracer, count: 3, start: {kind: pairs, separations: [4]}}]
    particles.0.count: 3 is odd; pairs need an even number
flow | particles=[{name: a, kind: tracer, count: 4, start: {kind: pairs, separations: [4]}}]
    start.separations: 4 is more than half the box
flow | particles=[{name: a, kind: tracer, count: 3}, {name: a, kind: tracer, count: 3}]
    1.name: a is taken
flow | particles=[{name: a, kind: tracer, count: 3, start: {kind: python, path: F, function: outside}}]
    particles.0.start: some particles begin outside the box of 1 x 1 x 2
flow | particles=[{name: a, kind: tracer, count: 3, start: {kind: python, path: F, function: flat}}]
    position has 2 components; 3 are needed
flow | particles=[{name: a, kind: tracer, count: 3, start: {kind: python, path: F, function: other}}]
    gives 'mass'; these particles take position
flow | particles=[{name: a, kind: inertial, count: 3, stokes_number: 1}] & initial.amplitude=0 & time.dt=1
    particles.0.stokes_number: the fluid is at rest
flow | output={particle_statistics: {every: 1}}
    output.particle_statistics: there are no particles
tracers | output={trajectories: {every: 1, sample: [heat]}}
    sample: unknown 'heat'; known: velocity, accele
tracers | output={snapshots: {sample: [heat]}}
    output.snapshots.sample: unknown 'heat'
flow | forcing={kind: constant_power, rate: 1, band: [0.2, 0.5]}
    forcing.band: [0.2, 0.5] holds no mode
flow | forcing={kind: ornstein_uhlenbeck, rate: 1, correlation_time: 1, band: [0, 0.1]}
    forcing.band: [0, 0.1] holds no mode
flow | forcing={kind: ornstein_uhlenbeck, rate: 1, correlation_time: 1, solenoidal_weight: 0.5, band: [0, 10]}
    solenoidal_weight: velocity is free of divergence: 1 is needed
flow | forcing={kind: kolmogorov, wavenumber: 4}
    wavenumber 4 along y; this grid keeps up to 2
flow | forcing={kind: python, path: F, function: wind}
    returned 'wind'; accelerations of velocity
flow | forcing={kind: python, path: F, function: textless}
    textless: ValueError
flow | forcing={kind: python, path: F, function: strange}
    strange: GeneratorExit
flow | forcing={kind: python, path: F, function: mute}
    mute: Mute
flow | model.scalars=[{name: é, diffusivity: 1}]
    'é' cannot name
flow | particles=[{name: 日本, kind: tracer, count: 3}]
    '日本' cannot name
flow | forcing={kind: python, path: F, function: short}
    3 components are needed, not 2
flow | forcing={kind: python, path: F, function: broken}
    NameError
flow | model={kind: mhd, viscosity: 0, resistivity: 1, kinematic: true} & forcing={kind: abc}
    forcing: has no effect: model.kinematic
flow | model={kind: mhd, viscosity: 0, resistivity: 1, kinematic: true, rotation: [0, 0, 1]}
    rotation: has no effect: model.kinematic
flow | initial={kind: abc, magnetic: {}}
    magnetic is not a field of this model; its fields are velocity
flow | initial={kind: orszag_tang}
    orszag_tang gives magnetic
mhd | model.subgrid={kind: spectral}
    spectral closes no magnetic field; mhd takes smagorinsky
mhd | model.subgrid={kind: smagorinsky}
    is required in mhd
stratified | model.subgrid={kind: smagorinsky, resistive_coefficient: 1}
    without a magnetic field
stratified | model.subgrid={kind: python, path: F, function: five}
    is required, a function for the
flow | model.subgrid={kind: python, path: F, function: mixing}
    mixing: uses a sum, mean or maximum over points, but it sees the points of one
flow | model.subgrid={kind: python, path: F, function: branching}
    branching: uses numpy, or an if, on values
flow | model.subgrid={kind: python, path: F, function: five}
    five: returned 5 components; 6 are needed: xx, yy, zz
flow | model.subgrid={kind: python, path: F, function: scaled}
    scaled: TypeError:
flow | output={cospectra: {every: 1}}
    a magnetic field, gas or waves, which navier_stokes does not have
flow | output={probes: {every: 1}}
    no points to probe are given; set points or lines
flow | output={probes: {every: 1, points: [[1, 2]]}}
    probes.points.0: [x, y, z] is needed, not [1.0, 2.0]
flow | output={probes: {every: 1, points: [[1, 2, 3]], fields: [speed]}}
    fields: speed is not an evolved
flow | output={probes: {every: 1, lines: [{axis: x, through: [0, 0, 0], name: time}]}}
    time is taken
flow | fft.exchange=single & precision=single
    has no effect with precision: single
flow | fft.exchange=half_scaled & fft.backend=jaxdecomp
    needs fft.backend
flow | fft.exchange=half_scaled & fft.backend=auto
    needs fft.backend
flow | run.memory=low & fft.backend=jaxdecomp
    run.memory: low needs fft.backend: custom_partitioning
matter | grid.shape=12,12
    grid.shape: composite is solved in three dimensions; [12, 12, 1]
plane | model.rotation=[0, 0, 1]
    model.rotation: has no effect in two dimensions
plane | model.subgrid={kind: smagorinsky}
    model.subgrid: smagorinsky closes the three-dim
plane | model.scalars=[{name: dye, diffusivity: 1, mean_gradient: [1, 0, 0]}]
    model.scalars.0.mean_gradient: two numbers are needed, one for each axis of the grid, not [1.0, 0.0, 0.0]
plane | initial={kind: python, path: F, function: fine}
    fine: takes (x, y, z), and is called with 2 arguments (the coordinates x and y
plane | forcing={kind: python, path: F, function: flatless}
    flatless: takes (x, y, z); there is no z, but the coordinates x and y of a plane, and the time
plane | initial={kind: abc}
    initial: kind: abc is made for three dimensions
plane | initial={kind: random, helicity: 1}
    initial: helicity: is zero in two dimensions
plane | forcing={kind: abc}
    forcing.kind: abc is made for three dimensions
plane | output={spectra: {every: 1, axis: z}}
    output.spectra.axis: the grid has no z; give x or y
plane | particles=[{name: a, kind: tracer, count: 8}]
    particles: move in three dimensions
matter | forcing={kind: linear, coefficient: 1}
    forcing: composite cannot be forced; leave
matter | grid.dealias=none
    grid.dealias: composite takes two_thirds only, not none
matter | particles=[{name: a, kind: tracer, count: 3}]
    particles: move with the velocity of a fluid, which composite
matter | model.components=[{kind: particles, count: 8}, {kind: particles, count: 8}]
    components.1.name: particles
matter | initial.components={}
    initial: components.dark: missing
matter | initial.components={stars: {kind: uniform}}
    initial: components.dark: missing
matter | initial.components.dark={kind: jeans_wave, mode: [9, 0, 0]}
    initial: components.dark: mode: (9, 0, 0) is beyond
"""


@pytest.mark.parametrize("case, changes, words", rows(REFUSED))
def test_a_refusal_is_one_line(case, changes, words):
    path = source(FUNCTIONS)
    given = [change.replace("path: F,", f"path: {path},") for change in changes]

    def begin():
        run = simulation(CASES[case], *given)
        return run.state, measured_series(run)

    said = refusal(begin)
    assert words in said
    # "..., which MODEL does not have" ends only the messages about what a model lacks.
    assert "output." not in said or "which" in words or "does not have" not in said


def test_what_only_a_start_shows_is_refused():
    forcing = {"kind": "constant_power", "rate": 1, "band": [1, 2]}
    still = flow(8, 8, 8, initial={"kind": "abc", "amplitude": 0}, forcing=forcing)
    with pytest.raises(UserError, match="forcing: is not finite at the start"):
        still.check_start()
    run = simulation(TRACERS, "time.dt=0.6")
    with pytest.raises(UserError, match=r"time\.dt: 0\.6 .* relaxation time 0\.5 of a"):
        run.check_start()


def test_buffers_that_cannot_grow(monkeypatch):
    """All particles lie in one cell of two devices, whose buffers may hold most of them, but not
    all."""
    monkeypatch.setattr(population, "EACH_MOST", 350)
    code = source("def heap(id):\n    return [0.5 + 0 * id, 0.5 + 0 * id, 0.5 + 0 * id]\n")
    heap = f"particles=[{{name: a, kind: tracer, count: 400, start: {{kind: python, path: {code}, function: heap}}}}]"
    with pytest.raises(
        UserError, match=r"particles\.0\.start: a: a device would have to hold 400 .*, and 350 are"
    ):
        _ = simulation(FLOW, heap, devices=2).state
    run = simulation(FLOW, "particles=[{name: a, kind: tracer, count: 400}]", devices=2)
    held = run.populations["a"].homed(run.state.particles["a"])
    assert len(by_id(held)["position"][0]) == 400
    monkeypatch.setattr(population, "EACH_MOST", held.capacity)
    crowded = held.__class__(**{**vars(held), "needed": jnp.int32(held.capacity + 1)})
    with pytest.raises(
        RunFailure, match=f"a: a device would have to hold {held.capacity + 1} particles"
    ):
        run.populations["a"].homed(crowded)
