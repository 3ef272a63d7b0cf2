"""What bad input about particles gets: one line with the place and the cure."""

from dataclasses import replace

import jax.numpy as jnp
import pytest
from particle_cases import simulation, source

from simulator.errors import RunFailure, UserError

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


def test_buffers_that_cannot_grow_at_the_start(monkeypatch):
    """All particles in one cell of two devices, whose buffers may hold most of them, but not all."""
    from simulator.physics.particles import population

    monkeypatch.setattr(population, "EACH_MOST", 350)
    code = source("def heap(id):\n    return [0.5 + 0 * id, 0.5 + 0 * id, 0.5 + 0 * id]\n")
    start = f"{{kind: python, path: {code}, function: heap}}"
    tracers = f"{{name: a, kind: tracer, count: 400, start: {start}}}"
    with pytest.raises(
        UserError, match=r"particles\.0\.start: a: a device would have to hold 400 .*, and 350 are"
    ):
        _ = simulation(RUN.replace("PARTICLES", tracers), devices=2).state


def test_buffers_that_cannot_grow_in_a_run(monkeypatch):
    from simulator.physics.particles import population

    run = simulation(RUN.replace("PARTICLES", "{name: a, kind: tracer, count: 400}"), devices=2)
    held = run.populations["a"].homed(run.state.particles["a"])
    monkeypatch.setattr(population, "EACH_MOST", held.capacity)
    crowded = replace(held, needed=jnp.int32(held.capacity + 1))
    with pytest.raises(RunFailure, match=f"a: a device would have to hold {held.capacity + 1} particles"):
        run.populations["a"].homed(crowded)


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
