"""Gas and waves that cannot be a run: one line with the place and the cure."""

import pytest
from gravity_cases import GAS, MATTER, WAVE, simulation, source

from simulator.archive.series_recorder import measured_series
from simulator.errors import UserError

BOTH = """\
model: {kind: composite, components: [{kind: self_gravitating_gas, sound_speed: 1}, {kind: schrodinger_poisson}]}
grid: {shape: [8, 8, 8]}
initial: {kind: composite, components: {gas: {kind: uniform}, waves: {kind: uniform}}}
time: {stop: 1.0, dt: 0.01}
"""
EXPANDING = (
    "model={kind: schrodinger_poisson, hbar_over_m: 0.005, cosmology: {start: 0.02, matter: 1.0}}"
)
MADE = 'def made(x, y, z, t): return {"density": jnp.sin(x)}\n'
REFUSED = [
    (WAVE, "time.integrator=rk4", "time.integrator: rk4 does not solve schrodinger_poisson"),
    (
        WAVE,
        "grid.dealias=two_thirds",
        "grid.dealias: schrodinger_poisson takes none only, not two_thirds",
    ),
    (
        WAVE,
        "forcing={kind: linear, coefficient: 1}",
        "forcing: schrodinger_poisson cannot be forced; leave the key",
    ),
    (WAVE, "time.cfl=1.5", "time.cfl: must be at most 1 with drift_kick_drift"),
    (WAVE, "model.boson_mass=1", "model.boson_mass: needs units: kpc_km_s_msun"),
    (
        WAVE,
        ["model.units=mpc_h_km_s_msun_h", "model.hbar_over_m=1", "model.cosmology={start: 0.02}"],
        "model.cosmology.hubble: has to be 100 in units: mpc_h_km_s_msun_h",
    ),
    (WAVE, "model.units=kpc_km_s_msun", "model.boson_mass: give either boson_mass"),
    (WAVE, "model.particle_mass=1", "model.particle_mass: is now boson_mass, as in initial"),
    (
        WAVE,
        ["model.units=mpc_h_km_s_msun_h", "model.boson_mass=1"],
        "model.h: boson_mass in units of Mpc / h needs H0",
    ),
    (
        WAVE,
        ["model.units=kpc_km_s_msun", "model.boson_mass=1", "model.h=0.7"],
        "model.h: applies to boson_mass in units of Mpc / h; leave it out",
    ),
    (
        WAVE,
        [EXPANDING, "time.steps=4", "time.integrator=bullfrog"],
        "bullfrog does not solve schrodinger_poisson",
    ),
    (
        BOTH,
        ["model.cosmology={}", "time.integrator=bullfrog"],
        "it needs particles and no self_gravitating_gas",
    ),
    (
        WAVE,
        "particles=[{name: a, kind: tracer, count: 3}]",
        "particles: move with the velocity of a fluid, which sc",
    ),
    (GAS, "model.sound_speed=-1", "sound_speed: must be at least 0"),
    (GAS, "initial={kind: jeans_wave, mode: [9, 0, 0]}", "initial: mode: (9, 0, 0) is beyond"),
    (
        GAS,
        "forcing={kind: python, path: F, function: made}",
        "returned 'density'; accelerations of velocity",
    ),
    (
        BOTH,
        "model.components=[{kind: schrodinger_poisson}, {kind: schrodinger_poisson}]",
        "components.1.name: waves",
    ),
    (BOTH, "initial.components={gas: {kind: uniform}}", "initial: components.waves: missing"),
    (
        BOTH,
        "initial.components={gas: {kind: uniform}, stars: {kind: uniform}}",
        "initial: components.waves: missing",
    ),
    (
        MATTER,
        [
            "model.cosmology={start: 0.1}",
            "model.components=[{kind: self_gravitating_gas, sound_speed: 1}]",
        ],
        "model.components.0.polytropic_exponent: in supercomoving variables",
    ),
    (WAVE, "fft.exchange=single", "fft.exchange: single would cost wave functions"),
]


@pytest.mark.parametrize("text, overrides, message", REFUSED)
def test_a_refusal_is_one_line(text, overrides, message):
    overrides = [overrides] if isinstance(overrides, str) else overrides
    given = [override.replace("path: F,", f"path: {source(MADE)},") for override in overrides]
    with pytest.raises(UserError) as refused:
        run = simulation(text, *given)
        _ = run.state, measured_series(run)
    assert message in str(refused.value) and "\n" not in str(refused.value)
