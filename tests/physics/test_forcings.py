"""Lists of forces: each has its power, its random numbers and its memory; and forces with helicity."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import compiled_step, flow, last, marched, measured
from refusals import refusal, rows
from storage_support import save

from simulator import Simulation, load_config
from simulator.archive.stored_state import datasets, load_state
from simulator.errors import UserError
from simulator.simulation.advance import Until
from simulator.spectral.operators import curl, inverse_curl

CONFIGS = Path(__file__).parents[2] / "configs"

NOISE = {"kind": "ornstein_uhlenbeck", "rate": 0.2, "correlation_time": 0.3, "band": [1, 2]}
FORCES = [
    {**NOISE, "helicity": 0.5},
    {**NOISE, "name": "induction", "field": "magnetic"},
    {"kind": "linear", "field": "dye", "coefficient": 0.3},
    {"kind": "constant_power", "rate": 0.1, "band": [1, 3], "helicity": -1},
]
MODEL = {
    "kind": "mhd",
    "viscosity": 0.02,
    "resistivity": 0.03,
    "scalars": [{"name": "dye", "diffusivity": 0.02}],
}
START = {
    "kind": "random",
    "peak": 2,
    "magnetic": {"energy": 0.3, "peak": 2},
    "scalars": {"dye": {"peak": 2}},
}


def driven(forcing=FORCES, count: int = 1, **blocks) -> Simulation:
    model = {"model": MODEL, "initial": START} | blocks
    return flow(8, 8, 8, count=count, forcing=forcing, **model)


@pytest.fixture(scope="module")
def one_device():
    run = driven()
    return run, last(marched(run, 0.02, 3))


@pytest.mark.long
def test_forces_of_one_seed_are_independent_and_the_first_is_that_of_a_single_one(one_device):
    run, state = one_device
    one, other = (state.memory.forcing[f"forcing_{n}"] for n in ("ornstein_uhlenbeck", "induction"))
    # Each is a mean over M modes of 3 components: 1 / sqrt(3 M) of statistical error.
    error = 5 / np.sqrt(one.size)
    assert abs(complex((one.conj() * other).mean())) < error < float((abs(one) ** 2).mean())
    alone = driven(FORCES[0])
    memories = alone.state.memory.forcing, run.state.memory.forcing
    first, same = memories[0]["forcing"], memories[1]["forcing_ornstein_uhlenbeck"]
    assert (first == same).all()
    listed = driven(FORCES[:1])
    assert listed.columns == alone.columns and "power_ornstein_uhlenbeck" not in alone.columns
    states = [last(marched(r, 0.02, 2)) for r in (alone, listed)]
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), *states))


@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.spmd)])
def test_a_restart_continues_every_force_bit_for_bit(one_device, count: int, tmp_path):
    run = one_device[0] if count == 1 else driven(count=count)
    middle, *_, end = list(marched(run, 0.02, 4))[2:]
    save(tmp_path, 2, datasets(middle, run.model, run.populations), {"time": 0.0})
    state = load_state(tmp_path / "00000002", run.template, run.model, run.populations)
    for _ in range(2):
        state = compiled_step(run)(run.placed(state), 0.02)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), state, end))


@pytest.mark.plugins
@pytest.mark.slow
def test_gradients_by_numbers_of_a_list_agree_with_differences(one_device, differentiate):
    run, _ = one_device
    key = "forcing.1.rate"
    gradient = differentiate(run, lambda s: abs(s.fields["magnetic"]).sum(), steps=2, dt=0.02)
    value = {n: gradient({key: jnp.float64(0.2 + n * 1e-4)}) for n in (-1, 0, 1)}
    slope = float(value[1][0] - value[-1][0]) / 2e-4
    # Central differences err by h^2 / rate^2 = 2.5e-7 relative.
    assert float(value[0][1][key]) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("kind", ["ornstein_uhlenbeck", "constant_power"])
@pytest.mark.parametrize("helicity", [1.0, -1.0, 0.5])
def test_a_force_has_its_helicity(kind: str, helicity: float):
    """Re f* . (i k x f) / k relative to |f|^2, summed over the modes: h for a random force, on
    average, and exact for h = 1 and -1."""
    keys = {k: v for k, v in NOISE.items() if k != "kind" and (kind[0] == "o" or "time" not in k)}
    force = {"kind": kind, **keys, "band": [1, 3], "helicity": helicity}
    run = flow(8, 8, 8, initial={"kind": "random", "peak": 2}, forcing=force)
    s = run.state
    f = run.forcing.acceleration(s.fields, s.time, s.memory.forcing)["velocity"]
    layout = run.transform.layout
    turned = curl(layout, f) * jnp.sqrt(layout.inverse_k_squared())
    measured_helicity = float(layout.inner(f, turned).sum() / layout.inner(f, f).sum())
    # 61 pairs of modes: 5 / sqrt(2 x 61) of statistical error; a force along the flow that has (1 +
    # h) u+ + (1 - h) u- has 2 h / (1 + h^2) = 0.8 of a flow without helicity.
    wanted = helicity if kind[0] == "o" else 2 * helicity / (1 + helicity**2)
    error = 1e-13 if abs(helicity) == 1 else 0.3 * (1 - wanted**2) ** 0.5
    assert measured_helicity == pytest.approx(wanted, abs=error)


FLOW = """\
model: {kind: mhd, viscosity: 0.1, resistivity: 0.1, scalars: [{name: dye, diffusivity: 0.1}]}
grid: {shape: [8, 8, 8]}
initial: {kind: taylor_green}
time: {stop: 1, dt: 0.1}
forcing:
  - {kind: linear, coefficient: 0.1}
  - {kind: ornstein_uhlenbeck, name: small, rate: 1, correlation_time: 1}
"""
WRONG = """
name: small | name: linear
    :7: forcing.1.name: linear is taken; choose another
name: small | name: s-1
    :7: forcing.1.name: 's-1' cannot name a column; take a word
rate: 1, correlation | correlation
    :7: forcing.1.rate: missing; it is required
rate: 1 | rate: -1
    :7: forcing.1.rate: must be greater than 0, not -1
rate: 1 | rate: 1, rates: 1
    :7: forcing.1.rates: unknown key, did you mean forcing.1.rate?
ornstein_uhlenbeck | ornstein
    :7: forcing.1.kind: unknown kind 'ornstein'
small | small, field: dy
    :7: forcing.1.field: 'dy' cannot be driven, did you mean dye?
small | small, helicity: 2
    :7: forcing.1.helicity: must be at most 1, not 2
small | small, field: dye, helicity: 1
    forcing.1.helicity: dye needs three components
kind: ornstein_uhlenbeck, name: small, rate: 1, correlation_time: 1 | kind: kolmogorov, field: dye
    forcing.1.field: dye is a scalar; this force needs a vector
small | small, field: dye, solenoidal_weight: 0.5
    forcing.1.solenoidal_weight: dye is a scalar; leave the key out
small | small, field: magnetic, solenoidal_weight: 0.5
    forcing.1.solenoidal_weight: magnetic is free of divergence: 1 is needed, not 0.5
kind: ornstein_uhlenbeck, name: small, rate: 1, correlation_time: 1 | kind: constant_power, field: magnetic, rate: 1
    :7: forcing.1: is not finite at the start (constant_power needs energy in its band)
"""


@pytest.mark.parametrize("old, new, words", rows(WRONG))
def test_a_wrong_force_in_a_list_is_one_line_with_its_place(old, new, words, tmp_path):
    path = tmp_path / "run.yaml"
    assert old in FLOW
    path.write_text(FLOW.replace(old, *new))
    assert words in refusal(lambda: Simulation(load_config(path)).check_start())


def test_overrides_reach_the_forces_of_a_list(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(FLOW)
    config = load_config(path, ["forcing.1.rate=0.5", "forcing.0.kind=abc"])
    assert [f.kind for f in config.forcing] == ["abc", "ornstein_uhlenbeck"]
    assert config.forcing[1].rate == 0.5
    assert load_config(path, ["forcing=[]"]).forcings == {}
    assert list(load_config(path, ["forcing={kind: abc}"]).forcings) == ["abc"]
    with pytest.raises(UserError, match=r"forcing\.2\.rate: forcing has 2 entries, counted from 0"):
        load_config(path, ["forcing.2.rate=0.5"])


@pytest.mark.slow
@pytest.mark.parametrize("helicity", [1, -1])
def test_the_large_scale_dynamo_grows_with_the_helicity_opposite_to_that_of_the_force(
    helicity: int,
):
    """The alpha effect of a flow of helicity h is -h tau <u . omega> / 3: of the fields with curl b =
    +-b in the shell |k| = 1, that with -h grows, exponentially while the field is weak (here by a
    factor of 50 from t = 8 to 24), and has the helicity <a . b> = -h <b^2>."""
    overrides = [f"forcing.helicity={helicity}", "devices.count=1"]
    run = Simulation(
        load_config(CONFIGS / "helical_dynamo.yaml", overrides), report=lambda line: None
    )
    layout = run.transform.layout

    @jax.jit
    def large(fields):
        b = jnp.where(layout.k_squared() < 1.5, fields["magnetic"], 0)
        a = inverse_curl(layout, b)
        return layout.inner(b, b).sum(), layout.inner(a, b).sum()

    found = []
    for time in (8.0, 24.0):
        run.state = run.advance(run.state, Until(time, time, np.int64(2**40)))
        found.append([float(value) for value in large(run.state.fields)])
    (before, _), (after, topology) = found
    assert after > 10 * before
    assert -helicity * topology > 0.5 * after
    assert measured(run)["helicity"] * helicity > 0
