"""Gas and waves under one potential: limits of a single model, two-fluid dispersion relation, order, conservation."""

import math

import gravity_cases as cases
import jax
import numpy as np
import pytest
from gravity_cases import measured, stepped

from simulator import load_config
from simulator.errors import UserError
from simulator.run.refusals import check

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
CLUMPS = (
    '{"density": 1 + 0.2 * jnp.cos(x) * jnp.sin(y + z), '
    '"velocity": [0.2 * jnp.sin(y) + 0 * z + 0 * x, 0.1 * jnp.cos(x + z) + 0 * y, 0 * x]}'
)
LUMPS = '{"psi": (1 + 0.3 * jnp.cos(x + y) * jnp.sin(z)) * jnp.exp(0.2j * jnp.cos(z + x)) + 0 * y}'


def both(*overrides: str, gas: str = CLUMPS, waves: str = LUMPS, devices: int = 1):
    text = BOTH.replace("GAS", str(cases.fields(gas))).replace("WAVES", str(cases.fields(waves)))
    return cases.simulation(text, *overrides, devices=devices)


def test_waves_alone_are_the_single_model() -> None:
    """Kick for kick the same, to round-off; so the composite's potential is the model's own."""
    alone = cases.simulation(
        cases.WAVE,
        "model={kind: schrodinger_poisson, hbar_over_m: 0.8, self_interaction: 0.2, gravitational_constant: 0.3}",
        "time.integrator=kick_drift_kick",
        "grid.shape=12,12,12",
        python=LUMPS,
    )
    part = "[{kind: schrodinger_poisson, hbar_over_m: 0.8, self_interaction: 0.2}]"
    start = f"{{waves: {{kind: python, path: {cases.fields(LUMPS)}, function: build}}}}"
    run = both(f"model.components={part}", f"initial.components={start}")
    assert run.config.time.integrator == "kick_drift_kick"
    ends = [stepped(r, r.state, 0.4, 8) for r in (alone, run)]
    a, b = ends[0].fields["psi"], ends[1].fields["waves_psi"]
    assert np.abs(np.asarray(a - b)).max() < 1e-14
    rows = measured(alone, ends[0]), measured(run, ends[1])
    assert rows[1]["energy"] == pytest.approx(rows[0]["energy"], rel=1e-12)
    assert rows[1]["waves_potential_energy"] == pytest.approx(rows[0]["potential_energy"], rel=1e-12)


@pytest.mark.slow
def test_gas_alone_follows_the_single_model() -> None:
    """Against rk4 with a fine step: an error of order 2, the splitting's."""
    keys = "sound_speed: 1.0, viscosity: 0.02"
    alone = cases.simulation(
        cases.GAS,
        f"model={{kind: self_gravitating_gas, {keys}, gravitational_constant: 0.3}}",
        "grid.shape=12,12,12",
        python=CLUMPS,
    )
    exact = np.asarray(stepped(alone, alone.state, 0.5, 80).fields["momentum"])
    start = f"{{gas: {{kind: python, path: {cases.fields(CLUMPS)}, function: build}}}}"
    run = both(f"model.components=[{{kind: self_gravitating_gas, {keys}}}]", f"initial.components={start}")
    ends = [np.asarray(stepped(run, run.state, 0.5, n).fields["gas_momentum"]) for n in (10, 20)]
    errors = [np.abs(end - exact).max() for end in ends]
    assert errors[0] < 1e-3 and errors[0] / errors[1] == pytest.approx(4, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["kick_drift_kick", "drift_kick_drift"])
def test_order_and_conservation(integrator: str) -> None:
    """Errors and the drift of energy fall as dt^2. Mass to round-off; momentum up to the aliasing of the waves:
    the whole keeps what its parts exchange."""
    run = both(f"time.integrator={integrator}")
    free = both(f"time.integrator={integrator}", "model.components.0.viscosity=0")
    start, names, errors = run.state, ("gas_momentum", "waves_psi"), []
    exact = stepped(run, start, 0.5, 160)
    for n in (10, 20):
        end = stepped(run, start, 0.5, n)
        errors.append([np.abs(np.asarray(end.fields[f] - exact.fields[f])).max() for f in names])
    for coarse, fine in zip(*errors, strict=True):
        assert coarse < 1e-3 and abs(math.log2(coarse / fine) - 2) < 0.04
    before, after = measured(run, start), measured(run, exact)
    shares = [before[f"{name}_potential_energy"] for name in ("gas", "waves")]
    assert before["potential_energy"] == pytest.approx(sum(shares), rel=1e-12) and shares[0] != shares[1]
    parts = {name.partition("_")[2] for name in before if name.startswith(("gas_", "waves_"))} - {"edge_energy"}
    energies = [before.get(f"{n}_{p}", 0) for n in ("gas", "waves") for p in parts if p.endswith("_energy")]
    assert before["energy"] == pytest.approx(sum(energies), rel=1e-12)
    assert after["gas_mass"] == before["gas_mass"]
    assert after["waves_mass"] == pytest.approx(before["waves_mass"], rel=160e-15)
    for axis in "xyz":
        exchanged = abs(after[f"gas_mean_momentum_{axis}"] - before[f"gas_mean_momentum_{axis}"])
        drift = abs(after[f"mean_momentum_{axis}"] - before[f"mean_momentum_{axis}"])
        assert drift < 1e-10 < exchanged
    begun = measured(free)["energy"]
    lost = [measured(free, stepped(free, free.state, 0.5, n))["energy"] - begun for n in (10, 20, 80)]
    assert abs(math.log2((lost[0] - lost[2]) / (lost[1] - lost[2])) - 2) < 0.15


@pytest.mark.slow
@pytest.mark.spmd
def test_layouts_agree() -> None:
    """1 and 4 devices; 12 planes of y and 5 of kz are padded."""
    ends = []
    for devices in (1, 4):
        run = both(devices=devices)
        end = stepped(run, run.state, 0.1, 5)
        ends.append([np.asarray(run.values(f)(end))[..., :12, :12, :12] for f in run.model.fields])
    for a, b in zip(*ends, strict=True):
        assert np.abs(a - b).max() < 1e-12 * np.abs(a).max()


@pytest.mark.slow
@pytest.mark.spmd
def test_gradient_of_the_final_density() -> None:
    """d(waves' density(t)) / d(gas' density_0) on 4 devices, through the potential alone, against differences."""
    run = both(devices=4)
    state = run.state

    @jax.jit
    def measure(density):
        s = state.__class__(**{**vars(state), "fields": {**state.fields, "gas_density": density}})
        for _ in range(2):
            s = run.step(s, 0.05)
        rho = run.values("waves_density")(s)
        return (rho**2).mean()

    gas = run.model.parts["gas"].transform
    rho = state.fields["gas_density"]
    x, y, z = gas.physical.coordinates()
    wave = gas.forward(np.cos(x + y) * np.sin(z))  # as the waves' density, which another would not feel at first
    slope = jax.jit(jax.grad(measure))(rho)
    e = 1e-4
    difference = float((measure(rho + e * wave) - measure(rho - e * wave)) / (2 * e))
    assert abs(difference) > 1e-6
    assert float((slope * wave).real.sum()) == pytest.approx(difference, rel=1e-5)


@pytest.mark.slow
def test_gas_that_cannot_go_on_says_so() -> None:
    thin = '{"density": 1 + 1.5 * jnp.cos(x) + 0 * y + 0 * z}'
    run = both("time.dt=null", "time.cfl=0.5", "grid.shape=8,8,8", gas=thin)
    run.state = cases.advanced(run, run.state, 1.0, 3)
    assert np.isnan(float(run.state.dt)) and int(run.state.step) == 0
    assert "gas: the density lost its sign (least value -0.5)" in run.trouble()[0]


@pytest.mark.parametrize(
    "first", ["gas, kind: self_gravitating_gas, sound_speed: 1", "dark, kind: particles, count: 64"]
)
def test_a_check_refuses_the_start_of_every_component(first: str) -> None:
    """Also of those after a component whose start needs values, which a run that is only checked does not have."""
    name = first.partition(",")[0]
    starts = f"{{{name}: {{kind: uniform}}, waves: {{kind: zeldovich_wave}}}}"
    path = cases.folder() / "checked.yaml"
    path.write_text(BOTH)
    parts = f"model.components=[{{name: {first}}}, {{kind: schrodinger_poisson}}]"
    with pytest.raises(UserError, match=r"^[^\n]*components\.waves: kind: zeldovich_wave needs model\.kind: self_gr"):
        check(load_config(path, [parts, f"initial.components={starts}"]))


def test_an_unknown_field_is_refused_with_the_fields_that_exist() -> None:
    run = both()
    for read in (run.values, lambda name: run.model.field_values(name, {}), run.fields.__getitem__):
        with pytest.raises(KeyError, match="'wind' is not a field of this model; its fields are gas_density, gas_"):
            read("wind")
