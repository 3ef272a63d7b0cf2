"""Cosmological starts and solitons that cannot be a run: one line with the place and the cure."""

import pytest
from gravity_cases import GAS, MATTER, WAVE, simulation
from refusals import refusal, rows

from simulator.errors import UserError
from simulator.simulation.initial_state import outlook

EXPANDING = WAVE.replace("poisson}", "poisson, cosmology: {start: 0.02, matter: 1.0}}")
BOSON = WAVE.replace(
    "poisson}",
    "poisson, units: kpc_km_s_msun, boson_mass: 1, "
    "cosmology: {start: 0.01, hubble: 0.068, matter: 0.3}}",
)
HALF = MATTER.replace("jeans_wave, amplitude: 0.2, mode: [1, 1, 0]", "cosmological, amplitude: 1")
BOTH = """\
model: {kind: composite, components: [{kind: self_gravitating_gas, sound_speed: 1}]}
grid: {shape: [8, 8, 8]}
initial: {kind: composite, components: {gas: {kind: uniform}}}
time: {stop: 1.0, dt: 0.01}
"""
CASES = {"boson": BOSON, "both": BOTH, "expanding": EXPANDING, "gas": GAS, "half": HALF}
CASES["waves"] = WAVE
REFUSED = """
half | model.units=kpc_km_s_msun & model.background={start: 0.02, hubble: 0.07} & initial.components.dark.h=0.68
    initial.components.dark.h: 0.68 contradicts model.background.hubble, which means h = 0.7
half | model.units=mpc_h_km_s_msun_h & model.background={start: 0.02, hubble: 100} & initial.components.dark.h=68
    initial.components.dark.h: 
waves | initial={kind: soliton, core_radius: 1, mass: 2}
    give one of core_radius, mass, central_density
waves | initial={kind: soliton, phase: 0}
    give one of core_radius, mass, central_density
waves | initial={kind: soliton, solitons: [{core_radius: 1}], core_radius: 1}
    core_radius: belongs into the entries of
waves | initial={kind: soliton, core_radius: 8}
    does not fit into the box
waves | initial={kind: soliton, core_radius: 1} & model.gravitational_constant=0
    held by gravity
expanding | initial={kind: cosmological, amplitude: 1e7}
    beyond the linear regime
waves | initial={kind: cosmological, amplitude: 1}
    cosmological needs model.cosmology
expanding | initial={kind: cosmological}
    give one of table
expanding | initial={kind: cosmological, transfer: eisenstein_hu}
    transfer: eisenstein_hu nee
boson | initial={kind: cosmological, transfer: eisenstein_hu, boson_mass: 2}
    initial: boson_mass: 2 contradicts the model's waves, of 1; make them equal
gas | initial={kind: soliton, core_radius: 1}
    needs model.kind: schrodinger_poisson
both | initial.components.gas={kind: soliton, core_radius: 1}
    initial: components.gas: kind: soliton gives
waves | grid.shape=[12, 12] & initial={kind: soliton, mass: 1}
    kind: soliton is made for t
"""


@pytest.mark.parametrize("case, changes, words", rows(REFUSED))
def test_a_refusal_is_one_line(case, changes, words):
    assert words in refusal(lambda: simulation(CASES[case], *changes).state)


def test_a_start_says_what_it_lacks():
    """The cutoff of the waves' mass, and a part of the matter."""
    run = simulation(BOSON, "initial={kind: cosmological, transfer: eisenstein_hu}")
    *_, line = outlook(run.config, run.model, run.inputs)
    assert line.startswith("warning: transfer: eisenstein_hu starts the waves as cold matter")
    cured = run.config.changed(
        initial={"boson_mass": float(line.split("boson_mass: ")[1].split()[0])}
    )
    assert "cold matter" not in str(outlook(cured, run.model, run.inputs))
    run = simulation(
        HALF,
        "model.background={start: 0.02}",
        "initial.components.dark.share=0.8",
    )
    assert (
        "add up to 0.8 of the background's matter" in outlook(run.config, run.model, run.inputs)[0]
    )


def test_the_library_is_not_installed(monkeypatch):
    monkeypatch.setattr("simulator.plugins.cosmology.linear_power.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^[^\n]*camb is not installed; pip install[^\n]*$"):
        _ = simulation(EXPANDING, "initial={kind: cosmological, library: camb, sigma8: 0.8}").state
