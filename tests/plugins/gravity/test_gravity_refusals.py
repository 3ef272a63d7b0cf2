"""Gas and waves that cannot be a run: one line with the place and the cure."""

import pytest
from gravity_cases import GAS, WAVE, simulation, source
from refusals import refusal, rows

BOTH = """\
model: {kind: composite, components: [{kind: self_gravitating_gas, sound_speed: 1}, {kind: schrodinger_poisson}]}
grid: {shape: [8, 8, 8]}
initial: {kind: composite, components: {gas: {kind: uniform}, waves: {kind: uniform}}}
time: {stop: 1.0, dt: 0.01}
"""
CASES = {"both": BOTH, "gas": GAS, "waves": WAVE}
MADE = 'def made(x, y, z, t): return {"density": jnp.sin(x)}\n'
REFUSED = """
waves | time.integrator=rk4
    time.integrator: rk4 does not solve schrodinger_poisson
waves | grid.dealias=two_thirds
    grid.dealias: schrodinger_poisson takes none only, not two_thirds
waves | forcing={kind: linear, coefficient: 1}
    forcing: schrodinger_poisson cannot be forced; leave the key
waves | time.cfl=1.5
    time.cfl: must be at most 1 with drift_kick_drift
waves | model.boson_mass=1
    model.boson_mass: needs units: kpc_km_s_msun
waves | model.units=mpc_h_km_s_msun_h & model.hbar_over_m=1 & model.cosmology={start: 0.02}
    model.cosmology.hubble: has to be 100 in units: mpc_h_km_s_msun_h
waves | model.units=kpc_km_s_msun
    model.boson_mass: give either boson_mass
waves | model.particle_mass=1
    model.particle_mass: is now boson_mass, as in initial
waves | model.units=mpc_h_km_s_msun_h & model.boson_mass=1
    model.h: boson_mass in units of Mpc / h needs H0
waves | model.units=kpc_km_s_msun & model.boson_mass=1 & model.h=0.7
    model.h: applies to boson_mass in units of Mpc / h; leave it out
waves | model.cosmology={start: 0.02} & time.steps=4 & time.integrator=bullfrog
    bullfrog does not solve schrodinger_poisson
both | model.cosmology={} & time.integrator=bullfrog
    it needs particles and no self_gravitating_gas
waves | particles=[{name: a, kind: tracer, count: 3}]
    particles: move with the velocity of a fluid, which sc
gas | model.sound_speed=-1
    sound_speed: must be at least 0
gas | initial={kind: jeans_wave, mode: [9, 0, 0]}
    initial: mode: (9, 0, 0) is beyond
gas | forcing={kind: python, path: F, function: made}
    returned 'density'; accelerations of velocity
both | model.components=[{kind: schrodinger_poisson}, {kind: schrodinger_poisson}]
    components.1.name: waves
both | initial.components={gas: {kind: uniform}}
    initial: components.waves: missing
both | initial.components={gas: {kind: uniform}, stars: {kind: uniform}}
    initial: components.waves: missing
both | model.cosmology={start: 0.1}
    model.components.0.polytropic_exponent: in supercomoving variables
waves | fft.exchange=single
    fft.exchange: single would cost wave functions
"""


@pytest.mark.parametrize("case, changes, words", rows(REFUSED))
def test_a_refusal_is_one_line(case, changes, words):
    given = [change.replace("path: F,", f"path: {source(MADE)},") for change in changes]
    assert words in refusal(lambda: simulation(CASES[case], *given).state)
