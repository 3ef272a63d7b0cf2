"""Gas and waves under one potential: limits of a single model, order, conservation."""

import math

import gravity_cases as cases
import jax
import numpy as np
import pytest
from flow_support import measured
from gravity_cases import CLUMPS, GAS, WAVE, stepped, stored

from simulator import load_config
from simulator.archive.series_recorder import measured_series
from simulator.errors import UserError
from simulator.physics.models import outputs
from simulator.run.refusals import check_configuration

BOTH = """\
model:
  kind: composite
  gravitational_constant: 0.3
  components:
    - {kind: self_gravitating_gas, sound_speed: 1.0, viscosity: 0.02}
    - {kind: schrodinger_poisson, hbar_over_m: 0.8, self_interaction: 0.2}
grid: {shape: [12, 12, 12]}
initial:
  kind: composite
  components:
    gas: {kind: python, path: GAS, function: build}
    waves: {kind: python, path: WAVES, function: build}
time: {stop: 1.0, dt: 0.01}
"""
GENTLE = (
    '{"density": 1 + 0.2 * jnp.cos(x) * jnp.sin(y + z), '
    '"velocity": [0.2 * jnp.sin(y) + 0 * z + 0 * x, 0.1 * jnp.cos(x + z) + 0 * y, 0 * x]}'
)
LUMPS = '{"psi": (1 + 0.3 * jnp.cos(x + y) * jnp.sin(z)) * jnp.exp(0.2j * jnp.cos(z + x)) + 0 * y}'


def both(*overrides: str, gas: str = GENTLE, waves: str = LUMPS, devices: int = 1):
    text = BOTH.replace("GAS", str(cases.fields(gas))).replace("WAVES", str(cases.fields(waves)))
    return cases.simulation(text, *overrides, devices=devices)


def alone(text: str, name: str, component: str, start: str, *overrides: str):
    """A model by itself, and as the only component."""
    model = f"model={{{component}, gravitational_constant: 0.3}}"
    single = cases.simulation(text, model, "grid.shape=12,12,12", *overrides, python=start)
    starts = f"{{{name}: {{kind: python, path: {cases.fields(start)}, function: build}}}}"
    return single, both(f"model.components=[{{{component}}}]", f"initial.components={starts}")


def test_waves_alone_are_the_single_model():
    """Kick for kick the same, to round-off; so the composite's potential is the model's own."""
    component = "kind: schrodinger_poisson, hbar_over_m: 0.8, self_interaction: 0.2"
    single, run = alone(cases.WAVE, "waves", component, LUMPS, "time.integrator=kick_drift_kick")
    assert run.config.time.integrator == "kick_drift_kick"
    ends = [stepped(r, r.state, 0.4, 8) for r in (single, run)]
    a = ends[0].fields["psi"]
    b = ends[1].fields["waves_psi"]
    assert np.abs(np.asarray(a - b)).max() < 1e-14
    rows = measured(single, ends[0]), measured(run, ends[1])
    assert rows[1]["energy"] == pytest.approx(rows[0]["energy"], rel=1e-12)
    assert rows[1]["waves_potential_energy"] == pytest.approx(
        rows[0]["potential_energy"], rel=1e-12
    )


def test_the_slope_of_the_energy_of_waves_in_an_expanding_box():
    """By the scale factor, while no matter moves, against central differences of the energy."""
    waves = "kind: schrodinger_poisson, hbar_over_m: 0.8, self_interaction: 0.2"
    starts = f"{{waves: {{kind: python, path: {cases.fields(LUMPS)}, function: build}}}}"
    cosmology = "model.cosmology={start: 0.5, matter: 1.0, hubble: 1.0}"
    run = both(f"model.components=[{{{waves}}}]", f"initial.components={starts}", cosmology)
    model, fields = run.model, outputs.contents(run.model, run.state)
    times = [model.background.time_of(a) for a in (0.599, 0.6, 0.601)]
    before, _, after = (outputs.diagnostics(model, fields, t)["energy"] for t in times)
    slope = model.energy_slope(model.moment(fields, times[1]), times[1])
    assert float(slope) == pytest.approx(float(after - before) / 0.002, rel=1e-4)


@pytest.mark.slow
def test_gas_alone_follows_the_single_model():
    """Against rk4 with a fine step: an error of order 2, the splitting's."""
    component = "kind: self_gravitating_gas, sound_speed: 1.0, viscosity: 0.02"
    single, run = alone(cases.GAS, "gas", component, GENTLE)
    exact = np.asarray(stepped(single, single.state, 0.5, 80).fields["momentum"])
    ends = [np.asarray(stepped(run, run.state, 0.5, n).fields["gas_momentum"]) for n in (10, 20)]
    errors = [np.abs(end - exact).max() for end in ends]
    assert errors[0] < 1e-3 and errors[0] / errors[1] == pytest.approx(4, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["kick_drift_kick", "drift_kick_drift"])
def test_order_and_conservation(integrator: str):
    """Errors and the drift of energy fall as dt^2. The whole keeps mass, and momentum but for the
    waves' aliasing."""
    run = both(f"time.integrator={integrator}")
    free = both(f"time.integrator={integrator}", "model.components.0.viscosity=0")
    start = run.state
    names = ("gas_momentum", "waves_psi")
    errors = []
    exact = stepped(run, start, 0.5, 160)
    for n in (10, 20):
        end = stepped(run, start, 0.5, n)
        errors.append([np.abs(np.asarray(end.fields[f] - exact.fields[f])).max() for f in names])
    for coarse, fine in zip(*errors, strict=True):
        assert coarse < 1e-3 and abs(math.log2(coarse / fine) - 2) < 0.04
    before = measured(run, start)
    after = measured(run, exact)
    shares = [before[f"{name}_potential_energy"] for name in ("gas", "waves")]
    assert (
        before["potential_energy"] == pytest.approx(sum(shares), rel=1e-12)
        and shares[0] != shares[1]
    )
    parts = {name.partition("_")[2] for name in before if name.startswith(("gas_", "waves_"))} - {
        "edge_energy"
    }
    energies = [
        before.get(f"{n}_{p}", 0) for n in ("gas", "waves") for p in parts if p.endswith("_energy")
    ]
    assert before["energy"] == pytest.approx(sum(energies), rel=1e-12)
    assert after["gas_mass"] == before["gas_mass"]
    assert after["waves_mass"] == pytest.approx(before["waves_mass"], rel=160e-15)
    for axis in "xyz":
        exchanged = abs(after[f"gas_mean_momentum_{axis}"] - before[f"gas_mean_momentum_{axis}"])
        assert (
            abs(after[f"mean_momentum_{axis}"] - before[f"mean_momentum_{axis}"])
            < 1e-10
            < exchanged
        )
    begun = measured(free)["energy"]
    lost = [
        measured(free, stepped(free, free.state, 0.5, n))["energy"] - begun for n in (10, 20, 80)
    ]
    assert abs(math.log2((lost[0] - lost[2]) / (lost[1] - lost[2])) - 2) < 0.15


def test_mass_that_an_absorber_takes_is_not_declared_as_conserved():
    assert outputs.conserved(both().model) == ["mass", "gas_mass", "waves_mass"]
    run = both("model.components.1.absorber={width: 1, rate: 1}")
    assert outputs.conserved(run.model) == ["gas_mass"]


def test_spectra_reach_as_far_as_their_transform():
    """Waves keep all modes up to that at the Nyquist plane, gas alone two thirds of them."""
    gas = cases.simulation(GAS, "grid.shape=12,12,12", python=GENTLE)
    for run, most in ((both(), 6), (gas, 3)):
        attributes = measured_series(run)["spectra"].attributes
        assert attributes["largest_wavenumber"] == most == run.model.transform.layout.reach("x")


def test_the_rate_of_a_row_is_that_of_a_kick():
    gas = "{kind: self_gravitating_gas, sound_speed: 1}"
    waves = "{kind: schrodinger_poisson}"
    parts = f"[{gas}, {waves}, {{kind: particles, name: dark, count: 512}}]"
    starts = (
        "gas: {kind: jeans_wave, amplitude: 0.2}",
        "waves: {kind: jeans_wave, amplitude: 0.2}",
    )
    start = f"{{{', '.join(starts)}, dark: {{kind: zeldovich_wave, amplitude: 0.3}}}}"
    run = both(f"model.components={parts}", f"initial.components={start}", "grid.shape=8,8,8")
    state = run.state
    kicked = jax.jit(
        lambda s: run.model.kick(outputs.contents(run.model, s), s.time, np.float64(0))
    )
    assert measured(run, state)["rate"] == pytest.approx(float(kicked(state)[1]), rel=1e-12)


@pytest.mark.slow
def test_gas_that_cannot_go_on_says_so():
    thin = '{"density": 1 + 1.5 * jnp.cos(x) + 0 * y + 0 * z}'
    run = both("time.dt=null", "time.cfl=0.5", "grid.shape=8,8,8", gas=thin)
    run.state = cases.advanced(run, run.state, 1.0, 3)
    assert np.isnan(float(run.state.dt)) and int(run.state.step) == 0
    assert "gas: the density lost its sign (least value -0.5)" in run.trouble()[0]


@pytest.mark.parametrize(
    "first", ["gas, kind: self_gravitating_gas, sound_speed: 1", "dark, kind: particles, count: 64"]
)
def test_a_check_refuses_the_start_of_every_component(first: str):
    """Also of those after a component whose start needs values, which a run that is only checked
    does not have."""
    name = first.partition(",")[0]
    starts = f"{{{name}: {{kind: uniform}}, waves: {{kind: zeldovich_wave}}}}"
    path = cases.folder() / "checked.yaml"
    path.write_text(BOTH)
    parts = f"model.components=[{{name: {first}}}, {{kind: schrodinger_poisson}}]"
    with pytest.raises(
        UserError,
        match=r"^[^\n]*components\.waves: kind: zeldovich_wave needs model\.kind: self_gr",
    ):
        check_configuration(load_config(path, [parts, f"initial.components={starts}"]))


def test_gas_takes_density_and_velocity_too_and_what_does_not_fit_is_refused(tmp_path):
    first = cases.simulation(GAS, python=CLUMPS)
    other = cases.simulation(GAS, stored(first, tmp_path, "snapshot", "density", "velocity"))
    for name, field in first.state.fields.items():
        assert np.abs(np.asarray(field - other.state.fields[name])).max() < 1e-14
    start = stored(cases.simulation(GAS, python=CLUMPS), tmp_path, "snapshot")
    with pytest.raises(UserError, match="holds density, momentum; this model's fields are psi"):
        _ = cases.simulation(WAVE, start).state
    with pytest.raises(UserError, match=r"its box is .* set grid\.box"):
        _ = cases.simulation(GAS, start, "grid.box=1,1,1").state
