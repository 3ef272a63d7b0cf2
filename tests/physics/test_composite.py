"""Gas and waves under one potential: limits of a single model, two-fluid dispersion relation, order, conservation."""

import math
from functools import cache

import gravity_cases as cases
import jax
import numpy as np
import pytest
from gravity_cases import coefficient, marching, measured

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


def source(build: str) -> str:
    path = cases.folder() / f"build_{abs(hash(build))}.py"
    path.write_text("import jax.numpy as jnp\n\ndef build(x, y, z):\n    return " + build + "\n")
    return str(path)


def both(*overrides: str, gas: str = CLUMPS, waves: str = LUMPS, devices: int = 1):
    text = BOTH.replace("GAS", source(gas)).replace("WAVES", source(waves))
    return cases.simulation(text, *overrides, devices=devices)


@cache
def coupled(integrator: str):
    run = both(f"time.integrator={integrator}")
    return run, marching(run)


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
    start = f"{{waves: {{kind: python, path: {source(LUMPS)}, function: build}}}}"
    run = both(f"model.components={part}", f"initial.components={start}")
    assert run.config.time.integrator == "kick_drift_kick"
    ends = [marching(r)(r.state, 0.4, 8) for r in (alone, run)]
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
    exact = np.asarray(marching(alone)(alone.state, 0.5, 80).fields["momentum"])
    start = f"{{gas: {{kind: python, path: {source(CLUMPS)}, function: build}}}}"
    run = both(f"model.components=[{{kind: self_gravitating_gas, {keys}}}]", f"initial.components={start}")
    march = marching(run)
    errors = [
        np.abs(np.asarray(march(run.state, 0.5, n).fields["gas_momentum"]) - exact).max() for n in (10, 20)
    ]
    assert errors[0] < 1e-3 and errors[0] / errors[1] == pytest.approx(4, rel=0.05)


def growing(k2: float, g: float, sound: float, hbar: float, rho: tuple[float, float]):
    """gamma and the growing mode (delta_gas, delta_waves) of
    delta'' = -[[k^2 c^2 - 4 pi G rho_g, -4 pi G rho_w], [-4 pi G rho_g, (hbar k^2 / 2m)^2 - 4 pi G rho_w]] delta."""
    pull = 4 * math.pi * g
    matrix = np.array(
        [
            [k2 * sound**2 - pull * rho[0], -pull * rho[1]],
            [-pull * rho[0], (hbar * k2 / 2) ** 2 - pull * rho[1]],
        ]
    )
    values, vectors = (
        found.real for found in np.linalg.eig(matrix)
    )  # complex or not, as numpy's version has it
    i = int(values.argmin())
    assert values[i] < 0
    return math.sqrt(-values[i]), vectors[:, i] / np.abs(vectors[:, i]).max()


@pytest.mark.smoke
def test_two_fluids_collapse_together() -> None:
    """A wave of which each kind alone would be stable grows at the rate of the 2 x 2 dispersion relation, to 1e-4,
    and keeps the eigenmode's ratio; delta = 1e-6, and the splitting's error is (gamma dt)^2 / 24 = 1e-6."""
    g, sound, hbar, rho = 0.07, 1.0, 1.9, (0.9, 0.8)
    assert sound**2 > 4 * math.pi * g * rho[0] and (hbar / 2) ** 2 > 4 * math.pi * g * rho[1]
    gamma, (gas, waves) = growing(1.0, g, sound, hbar, rho)
    size = 1e-6
    run = both(
        f"model.gravitational_constant={g}",
        "model.components=[{kind: self_gravitating_gas, sound_speed: 1}, "
        "{kind: schrodinger_poisson, hbar_over_m: 1.9}]",
        "grid.shape=8,8,8",
        gas=f'{{"density": {rho[0]} * (1 + {size * gas} * jnp.cos(x)) + 0 * y + 0 * z, '
        f'"velocity": [-{gamma * size * gas} * jnp.sin(x) + 0 * y + 0 * z, 0 * x, 0 * x]}}',
        waves=f'{{"psi": jnp.sqrt({rho[1]} * (1 + {size * waves} * jnp.cos(x))) '
        f"* jnp.exp(1j * {gamma * size * waves / hbar} * jnp.cos(x)) + 0 * y + 0 * z}}",
    )
    march = marching(run)
    state, found = run.state, []
    steps = round(2 / gamma / 0.01)
    for _ in range(2):
        wave = run.model.transform.forward(run.values("waves_density")(state))
        found.append(
            [
                coefficient(run.model.parts["gas"].alone, state.fields["gas_density"], (1, 0, 0)).real,
                coefficient(run.model, wave, (1, 0, 0)).real,
            ]
        )
        state = march(state, 2 / gamma, steps)
    rates = np.log(np.array(found[1]) / found[0]) / (2 / gamma)
    assert np.abs(rates / gamma - 1).max() < 1e-4
    assert found[1][0] / found[1][1] == pytest.approx(rho[0] * gas / (rho[1] * waves), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["kick_drift_kick", "drift_kick_drift"])
def test_order_and_conservation(integrator: str) -> None:
    """Errors and the drift of energy fall as dt^2. Mass to round-off; momentum up to the aliasing of the waves:
    the whole keeps what its parts exchange."""
    run, march = coupled(integrator)
    free = both(f"time.integrator={integrator}", "model.components.0.viscosity=0")
    start = run.state
    exact = march(start, 0.5, 160)
    errors = []
    for n in (10, 20):
        end = march(start, 0.5, n)
        errors.append(
            [np.abs(np.asarray(end.fields[f] - exact.fields[f])).max() for f in ("gas_momentum", "waves_psi")]
        )
    for coarse, fine in zip(*errors, strict=True):
        assert coarse < 1e-3 and abs(math.log2(coarse / fine) - 2) < 0.04
    before, after = measured(run, start), measured(run, exact)
    assert after["gas_mass"] == before["gas_mass"]
    assert after["waves_mass"] == pytest.approx(before["waves_mass"], rel=160e-15)
    for axis in "xyz":
        exchanged = abs(after[f"gas_mean_momentum_{axis}"] - before[f"gas_mean_momentum_{axis}"])
        drift = abs(after[f"mean_momentum_{axis}"] - before[f"mean_momentum_{axis}"])
        assert drift < 1e-10 < exchanged
    march = marching(free)
    begun = measured(free)["energy"]
    lost = [measured(free, march(free.state, 0.5, n))["energy"] - begun for n in (10, 20, 80)]
    assert abs(math.log2((lost[0] - lost[2]) / (lost[1] - lost[2])) - 2) < 0.15


@pytest.mark.slow
def test_columns() -> None:
    """Totals against numpy; shares of the potential energy add up."""
    run = both()
    found = measured(run)
    rho = np.asarray(run.fields["density"])
    gas, waves = (np.asarray(run.fields[f"{n}_density"]) for n in ("gas", "waves"))
    assert np.abs(rho - gas - waves).max() < 1e-13
    phi = np.asarray(run.fields["potential"])
    assert found["potential_energy"] == pytest.approx(0.5 * (rho * phi).mean(), rel=1e-12)
    for name, own in (("gas", gas), ("waves", waves)):
        assert found[f"{name}_potential_energy"] == pytest.approx(0.5 * (own * phi).mean(), rel=1e-11)
    assert found["energy"] == pytest.approx(
        sum(found[c] for c in found if c.endswith("_energy") and c.startswith(("gas_", "waves_")))
        - found["gas_edge_energy"]
        - found["waves_edge_energy"],
        rel=1e-12,
    )
    assert found["max_density"] == pytest.approx(rho.max(), rel=1e-12)
    spectra = run.spectra(run.state)
    assert {"density_power", "gas_kinetic_energy", "waves_density_power"} <= set(spectra)
    assert len({s.shape for s in spectra.values()}) == 1


@pytest.mark.slow
@pytest.mark.spmd
def test_layouts_agree() -> None:
    """1 and 4 devices; 12 planes of y and 5 of kz are padded."""
    ends = []
    for devices in (1, 4):
        run = both(devices=devices)
        end = marching(run)(run.state, 0.1, 5)
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
    wave = gas.forward(
        np.cos(x + y) * np.sin(z)
    )  # as the waves' density, which another would not feel at first
    slope = jax.jit(jax.grad(measure))(rho)
    e = 1e-4
    difference = float((measure(rho + e * wave) - measure(rho - e * wave)) / (2 * e))
    assert abs(difference) > 1e-6
    assert float((slope * wave).real.sum()) == pytest.approx(difference, rel=1e-5)


@pytest.mark.slow
def test_gas_that_cannot_go_on_says_so() -> None:
    from simulator.simulation.advance import Until

    thin = '{"density": 1 + 1.5 * jnp.cos(x) + 0 * y + 0 * z}'
    run = both("time.dt=null", "time.cfl=0.5", "grid.shape=8,8,8", gas=thin)
    before = {n: np.asarray(f) for n, f in run.state.fields.items()}
    run.state = run.advance(run.state, Until(1.0, math.inf, 3))
    assert np.isnan(float(run.state.dt)) and int(run.state.step) == 0
    assert all(np.array_equal(np.asarray(f), before[n]) for n, f in run.state.fields.items())
    assert "gas: the density lost its sign (least value -0.5)" in run.trouble()[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.components=[]"], "model.components: an empty list"),
        (
            ["model.components=[{kind: schrodinger_poisson}, {kind: schrodinger_poisson}]"],
            "model.components.1.name: waves is taken",
        ),
        (
            ["model.components=[{kind: navier_stokes}]"],
            "model.components.0.kind: unknown kind 'navier_stokes'",
        ),
        (
            ["model.components.0.gravitational_constant=1"],
            "unknown key, did you mean model.gravitational_constant?",
        ),
        (["time.integrator=composition4"], "composition4 does not solve composite; kick_drift_kick or"),
        (
            ["forcing={kind: linear, coefficient: 1}"],
            "forcing: composite cannot be forced; leave the key out",
        ),
        (["initial={kind: uniform}"], "initial: kind: uniform gives one kind of matter"),
        (["initial.components={gas: {kind: uniform}}"], "initial: components.waves: missing"),
        (
            ["initial.components={gas: {kind: uniform}, stars: {kind: uniform}}"],
            "initial: components.waves: missing",
        ),
        (
            ["initial.components.gas={kind: soliton, core_radius: 1}"],
            "initial: components.gas: kind: soliton gives",
        ),
    ],
)
def test_refusals(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        _ = both(*overrides).state
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_series_that_need_a_flow_are_refused() -> None:
    from simulator.archive.recorder import series_of

    for kind, message in (
        ("structure_functions: {every: 1}", "needs a velocity"),
        ("transfer: {every: 1}", "needs energy transfers"),
    ):
        name = kind.partition(":")[0]
        with pytest.raises(UserError, match=f"output.{name}: {message}.*, which composite does not have"):
            series_of(both(f"output={{{kind}}}"))


@pytest.mark.parametrize(
    "first", ["gas, kind: self_gravitating_gas, sound_speed: 1", "dark, kind: particles, count: 64"]
)
def test_a_check_refuses_the_start_of_every_component(first: str) -> None:
    """Also of those after a component whose start needs values, which a run that is only checked does not have."""
    name = first.partition(",")[0]
    starts = f"{{{name}: {{kind: uniform}}, waves: {{kind: zeldovich_wave}}}}"
    path = cases.folder() / "checked.yaml"
    path.write_text(BOTH)
    config = load_config(
        path,
        [
            f"model.components=[{{name: {first}}}, {{kind: schrodinger_poisson}}]",
            f"initial.components={starts}",
        ],
    )
    with pytest.raises(UserError) as refused:
        check(config)
    assert "components.waves: kind: zeldovich_wave needs model.kind: self_gravitating_gas" in str(
        refused.value
    )
    assert "\n" not in str(refused.value)


def test_an_unknown_field_is_refused_with_the_fields_that_exist() -> None:
    run = both()
    for read in (run.values, lambda name: run.model.field_values(name, {}), run.fields.__getitem__):
        with pytest.raises(
            KeyError, match="'wind' is not a field of this model; its fields are gas_density, gas_"
        ):
            read("wind")


def test_a_composite_start_needs_a_composite() -> None:
    start = "initial={kind: composite, components: {gas: {kind: uniform}}}"
    with pytest.raises(UserError, match=r"initial: kind: composite needs model\.kind: composite"):
        _ = cases.simulation(cases.GAS, start).state
