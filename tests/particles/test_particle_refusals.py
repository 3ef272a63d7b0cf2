"""What bad input about particles gets: one line with the place and the cure."""

import pytest
from particle_cases import simulation, source

from simulator.errors import UserError

RUN = """\
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8, 8], box: [1, 1, 2]}
initial: {kind: taylor_green}
time: {stop: 1}
particles:
  - PARTICLES
"""
FUNCTIONS = """\
def outside(id):
    return [0.5 + 0 * id, 0.5 + 0 * id, 2.0 + 0 * id]

def flat(id):
    return [0.5 + 0 * id, 0.5 + 0 * id]

def other(id):
    return {"position": [0.5 + 0 * id] * 3, "mass": id}
"""


def refused(particles, *overrides, start=True):
    with pytest.raises(UserError) as caught:
        run = simulation(RUN.replace("PARTICLES", particles), *overrides)
        if start:
            _ = run.state
    return str(caught.value)


@pytest.mark.parametrize(
    ("particles", "line"),
    [
        ("{name: a, kind: tracer}", "particles.0.count: missing"),
        ("{name: a, count: 3}", "particles.0.kind: missing; one of tracer, inertial"),
        ("{name: 1 a, kind: tracer, count: 3}", "cannot name particles"),
        ("{name: a, kind: inertial, count: 3}", "give one of relaxation_time and stokes_number"),
        ("{name: a, kind: tracer, count: 3, start: lattic}", "unknown kind 'lattic', did you mean lattice?"),
        (
            "{name: a, kind: tracer, count: 100, start: lattice}",
            "count: 100 does not fill a lattice of cubic cells",
        ),
        (
            "{name: a, kind: tracer, count: 3}\n  - {name: a, kind: tracer, count: 3}",
            "particles.1.name: a is taken",
        ),
    ],
)
def test_mistakes_in_the_file(particles, line):
    assert line in refused(particles, start=False)


@pytest.mark.parametrize(
    ("function", "line"),
    [
        ("outside", "particles.0.start: some particles begin outside the box of 1 x 1 x 2"),
        ("flat", "position has 2 components; 3 are needed"),
        ("other", "gives 'mass'; these particles take position"),
    ],
)
def test_mistakes_in_a_function(function, line):
    path = source(FUNCTIONS)
    start = f"{{kind: python, path: {path}, function: {function}}}"
    assert line in refused(f"{{name: a, kind: tracer, count: 3, start: {start}}}")


def test_matter_without_a_velocity_carries_no_particles():
    line = refused(
        "{name: a, kind: tracer, count: 3}", "model={kind: schrodinger_poisson}", "initial={kind: uniform}"
    )
    assert "particles: move with the velocity of a fluid, which schrodinger_poisson does not evolve" in line


def test_a_fluid_at_rest_has_no_kolmogorov_time():
    line = refused(
        "{name: a, kind: inertial, count: 3, stokes_number: 1}", "initial.amplitude=0", "time.max_dt=1"
    )
    assert "particles.0.stokes_number: the fluid is at rest" in line
