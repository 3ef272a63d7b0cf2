"""Terms that functions of users give, and what every term has: power, a limit of dt, refusals."""

import jax
import numpy as np
import pytest
from flow_support import compiled_step, flow, measured
from numpy.testing import assert_allclose

from simulator import Simulation, load_config
from simulator.errors import UserError
from simulator.physics.models.tendency import tendency

CODE = """
import jax.numpy as jnp
from simulator.equations import Equation, Field

def rest(values, points, time, strength):
    return {"velocity": -strength * values["velocity"]}

def mixing(values, points, time):
    return {"velocity": values["velocity"] - values["velocity"].mean()}

def unknown(values, points, time):
    return {"temperature": 0.0}

def burnt(values, points, time):
    x, y, z = points
    return {
        "u": -jnp.cos(x) ** 2 * values["u"] * (1 + 0.1 * time),
        "w": (1 - values["w"][0], jnp.sin(x) - values["w"][1], -values["w"][2]),
    }

class Heat(Equation):
    evolved = ("u", Field("w", vector=True, solenoidal=True))

    def linear(self):
        return {"u": -0.1 * self.k_squared}
"""


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return str(path)


def test_an_equation_without_a_budget_has_the_power_of_half_the_mean_squares(code):
    """d<u^2 + w^2>/2 dt of the term alone, from the rates of the fields."""
    model = {"kind": "python", "path": code, "equation": "Heat"}
    initial = {"kind": "random", "fields": {n: {"variance": 1, "peak": 2} for n in ("u", "w")}}
    burnt = {"name": "burnt", "kind": "python", "path": code, "function": "burnt"}
    simulation = flow(
        8, 8, 8, initial=initial, model=model, terms=[burnt], time={"stop": 1, "dt": 0.1}
    )
    state = simulation.state
    row = measured(simulation, state)
    rates, _ = jax.jit(lambda s: tendency(simulation.model, s.fields, s.time))(state)
    inner = simulation.transform.layout.inner
    gained = sum(float(inner(state.fields[n], rates[n]).sum()) for n in ("u", "w"))
    assert row["power_burnt"] == pytest.approx(gained, rel=1e-12)
    divergence = simulation.model.divergence(rates["w"])
    assert abs(divergence).max() < 1e-14


@pytest.mark.parametrize("shape", [(8, 8, 8), (12, 12)])
def test_the_power_and_the_rate_of_a_term_are_those_of_its_function(code, shape):
    """-r u takes 2 r E, and limits dt: cfl / rate = 1 / (r k dx) with k = 3 or 2 of 12 or 8 points."""
    strength = 50.0
    term = {"name": "rest", "kind": "python", "path": code, "function": "rest"}
    term |= {"parameters": {"strength": strength}, "rate": strength}
    start = {"kind": "taylor_green", "amplitude": 1e-3}
    simulation = flow(*shape, initial=start, viscosity=0.02, terms=[term])
    row = measured(simulation)
    assert row["power_rest"] == pytest.approx(-2 * strength * row["energy"], rel=1e-12)
    assert abs(row["budget_residual"]) < 1e-10
    free = measured(flow(*shape, initial=start, viscosity=0.02))
    reach = (shape[0] - 1) // 3 * 2 * np.pi / shape[0]
    assert_allclose(row["rate"] - free["rate"], strength / reach, rtol=1e-9)
    state = compiled_step(simulation)(simulation.state, 0.5 / row["rate"])
    assert measured(simulation, state)["energy"] < row["energy"]


PYTHON = "kind: python, path: OWN, function: rest, parameters: {strength: 1}"
REFUSED = [
    (f"{{name: a, {PYTHON}}}, {{name: a, {PYTHON}}}", "terms.1.name: a is taken; choose another name"),
    (f"{{name: x, {PYTHON}}}", "'x' cannot name a term"),
    ("{name: a, kind: pithon}", "terms.0.kind: unknown kind 'pithon', did you mean python?"),
    ("{name: a, kind: python, path: OWN, function: mixing}", "a term works point by point"),
    ("{name: a, kind: python, path: OWN, function: unknown}", "returned 'temperature'"),
]  # fmt: skip


@pytest.mark.parametrize(("terms", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_term_that_cannot_act_is_refused_in_a_line(terms, message, tmp_path, code):
    (tmp_path / "run.yaml").write_text(
        "model: {kind: navier_stokes, viscosity: 0.1}\n"
        "grid: {shape: [8, 8]}\n"
        "initial: {kind: taylor_green}\n"
        "time: {stop: 1}\n"
        "devices: {platform: cpu}\n"
    )
    with pytest.raises(UserError) as error:
        config = load_config(tmp_path / "run.yaml", [f"terms=[{terms}]".replace("OWN", code)])
        Simulation(config).check_start()
    assert message in str(error.value) and "\n" not in str(error.value)
