"""Equations from a user's file: what they may be, what is refused, and that they run as shipped
models do."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import last, marched, measured
from numpy.testing import assert_allclose
from run_support import simulation

from simulator import Simulation
from simulator.cli import main
from simulator.errors import UserError
from simulator.physics.models import outputs
from simulator.physics.models.tendency import fastest
from simulator.physics.user_function import POINTS, mixing
from simulator.simulation.advance import Until
from simulator.study.batch import BatchedStep, varied_numbers
from simulator.study.sweep import open_sweep

BURGERS = """\
from simulator.equations import Equation, Field, Local, Positive
import jax.numpy as jnp
import numpy as np


class Burgers(Equation):
    evolved = ("u",)
    viscosity: Positive = 0.01
    growth: float = 0.0

    def linear(self):
        return {"u": self.growth - self.viscosity * self.k_squared}

    def products(self, values):
        return {"square": values["u"] ** 2}

    def advection(self, values):
        return values["u"], 0 * values["u"], 0 * values["u"]

    def combine(self, products, fields):
        return {"u": -0.5 * self.gradient(products["square"])[0]}
"""
CASE = """\
model:
  kind: python
  path: own.py
  equation: Burgers
  parameters: {viscosity: 0.05}
grid: {shape: [16, 8, 8]}
initial: {kind: python, path: start.py, function: wave}
time: {stop: 0.1, dt: 0.01, integrator: rk2}
devices: {count: 2, platform: cpu}
output: {diagnostics: {every_steps: 5}}
"""
START = "import jax.numpy as jnp\ndef wave(x, y, z):\n    return {'u': jnp.sin(x) + 0 * y * z}\n"


def written(folder: Path, *changes: tuple[str, str], code: str = BURGERS, case: str = CASE) -> Path:
    for old, new in changes:
        assert old in code + case
        code = code.replace(old, new, 1)
        case = case.replace(old, new, 1)
    (folder / "own.py").write_text(code)
    (folder / "start.py").write_text(START)
    (folder / "case.yaml").write_text(case)
    return folder / "case.yaml"


COMBINE = BURGERS[BURGERS.index("    def combine") :]
REFUSED = [
    ("0.05}", "-1}", "case.yaml:5: model.parameters.viscosity: must be greater than 0, not -1"),
    ("0.05}", "yes}", "case.yaml:5: model.parameters.viscosity: 'yes' is not a number"),
    (
        "viscosity: 0.05",
        "viscosty: 1",
        "case.yaml:5: model.parameters.viscosty: unknown key, did you mean",
    ),
    (
        "Positive = 0.01",
        "Positive\n    speed: float",
        "case.yaml:5: model.parameters.speed: missing",
    ),
    (
        "equation: Burgers",
        "equation: Burger",
        "own.py: has no class 'Burger', did you mean Burgers? it has ",
    ),
    (
        "class Burgers(Equation)",
        "class Burgers",
        "own.py: Burgers: is not an equation; derive the class",
    ),
    ('evolved = ("u",)', "evolved = ()", "own.py: Burgers: names no field; give it e.g."),
    ('evolved = ("u",)', 'evolved = ("u")', "own.py: Burgers: evolved is a tuple of names or"),
    ('evolved = ("u",)', "evolved = 1", "own.py: Burgers: evolved is a tuple of names or Fields"),
    ('evolved = ("u",)', 'evolved = ("time",)', "own.py: Burgers: 'time' cannot name a field"),
    (
        '("u",)',
        '("u", Field("v", complex=True))',
        "own.py: Burgers: real and complex fields cannot be mixed",
    ),
    (
        "growth: float",
        "divergence: float",
        "own.py: Burgers: a parameter cannot be called 'divergence'",
    ),
    (
        "class Burgers",
        "x = unknown\nclass Burgers",
        "own.py:6: cannot be run: NameError: name 'unknown'",
    ),
    ('{"u": self.growth', '{"w": self.growth', "own.py:11: linear: returned 'w'; the fields are u"),
    ('["square"])[0]', '["square"])', "own.py:20: combine: u has shape (3, "),
    ('["square"])[0]', '["cube"])[0]', "own.py:21: combine: KeyError: 'cube'"),
    (
        'values["u"] ** 2',
        'values["u"] - values["u"].mean()',
        "own.py:15: products: uses a sum, mean or maximum",
    ),
    (
        'values["u"] ** 2',
        'jnp.roll(values["u"], 1, -1)',
        "own.py:15: products: uses values at other points",
    ),
    (
        'values["u"] ** 2',
        'jnp.fft.fft(values["u"]).real',
        "own.py:15: products: uses a Fourier transform",
    ),
    ('values["u"] ** 2', 'np.sin(values["u"])', "own.py:15: products: uses numpy, or an if"),
    ('values["u"] ** 2', 'values["u"][..., 0]', "own.py:14: products: returned shape"),
    (
        'return values["u"], 0 * values["u"], 0 * values["u"]',
        'return values["u"]',
        "own.py:17: advection: returned an array of shape (101, 103, 107); a component for each axis "
        "is needed, x, y, z",
    ),
    (
        ', 0 * values["u"], 0 * values["u"]',
        ', 0 * values["u"]',
        "own.py:17: advection: returned 2 components of shapes (101, 103, 107), (101, 103, 107); a component",
    ),
    (
        'return values["u"], 0',
        'return values["u"].mean(), 0',
        "own.py:18: advection: uses a sum, mean or maximum over points",
    ),
    (
        "    def linear",
        "    def quantities(self, fields, tim):\n        return {}\n\n    def linear",
        "own.py:11: Burgers: quantities cannot ask for 'tim', did you mean time?",
    ),
    (
        "    def linear",
        "    def quantities(self, fields):\n        return {'first': fields['u'][0]}\n\n    def linear",
        "own.py:11: quantities: first has shape (",
    ),
    (
        "    def linear",
        "    def spectral_energies(self, fields):\n        return fields\n\n    def linear",
        "own.py:11: spectral_energies: u has shape (",
    ),
    (
        "    def linear",
        "    dimensions = 2\n\n    def linear",
        "case.yaml:6: grid.shape: Burgers is solved in two dimensions; [16, 8] is a plane",
    ),
    (
        "shape: [16, 8, 8]",
        "shape: [16, 8]",
        "own.py:17: advection: returned 3 components of shapes (101, 103, 107), (101, 103, 107), (101, 103, 107); "
        "a component for each axis is needed, x, y\n",
    ),
    *(
        (
            "    def linear",
            f"    def quantities(self, fields):\n        return {{{name!r}: 1.0 + self.k_squared[0, 0, 0]}}"
            "\n\n    def linear",
            f"own.py:11: quantities: {name!r} is another column already; rename it",
        )
        for name in ("u_mean", "time", "power_equation")
    ),
    (COMBINE, "", "own.py:14: products: returned 'square'; the fields are u"),
    (
        COMBINE,
        "    def combine(self, products, fields):\n        return {}\n\n"
        "    def inputs(self, fields):\n        return fields\n\n"
        "    def products(self, values):\n        return {'u': values['u'] ** 2}\n",
        "own.py:20: combine: returned no rate of u, which products has",
    ),
    (
        "self.gradient",
        "self.divergence",
        "own.py:21: combine: ValueError: divergence needs a vector of two or three components, not an "
        "array of shape (",
    ),
    (
        "self.gradient",
        "self.curl",
        "own.py:21: combine: ValueError: curl needs a vector of three components, not an",
    ),
    (
        '("u",)',
        '(Field("u", vector=True),)',
        "own.py:17: advection: returned 3 components of shapes (3, 101, ",
    ),
    (
        COMBINE,
        "    evolved = ('u', Field('m', vector=True))\n\n"
        "    def combine(self, products, fields):\n        return {'m': products['square']}\n",
        "own.py:22: combine: m has shape (4, 5, 11), which does not fit the field's (3, 4, 5, 11)",
    ),
    (
        "def products",
        "def product",
        "own.py:14: Burgers: product is no part of an equation, and nothing in the class uses it; "
        "did you mean products?",
    ),
    ("def advection", "def advect", "own.py:17: Burgers: advect is no part of an equation"),
    (
        "products(self, values)",
        "products(self, values, point)",
        "own.py:14: Burgers: products cannot ask for 'point', did you mean points? known besides its "
        "first: points and time",
    ),
    (
        "    def linear",
        "    def forcing(self, fields):\n        return {}\n\n    def linear",
        "own.py:11: forcing: TypeError: Burgers.forcing() takes 2 positional arguments but 3 were given",
    ),
    (
        "    def linear",
        "    def forcing(self, fields, time):\n        return {'w': fields['u']}\n\n    def linear",
        "own.py:11: forcing: returned 'w'; the fields are u",
    ),
    (
        "    def linear",
        "    def forcings(self, fields, time):\n        return {}\n\n    def linear",
        "own.py:11: Burgers: forcings is no part of an equation, and nothing in the class uses it; did "
        "you mean forcing?",
    ),
    (
        "    def linear",
        "    budgets = None\n\n    def linear",
        "own.py:11: Burgers: budgets is no part of an equation",
    ),
]


def test_a_helper_that_a_method_uses_may_be_called_like_a_part(tmp_path, monkeypatch):
    """`product` of the class is mentioned in `products`; `source`, of no similar name, nowhere."""
    monkeypatch.chdir(tmp_path)
    helper = "    def product(self, u):\n        return u * u\n\n    source = 1.0\n\n"
    own = 'self.product(values["u"])'
    file = written(
        tmp_path, ("    def products", helper + "    def products"), ('values["u"] ** 2', own)
    )
    assert main(["check", str(file)]) == 0


@pytest.mark.parametrize(("old", "new", "message"), REFUSED)
def test_a_file_that_cannot_be_solved_is_refused_with_its_line(
    tmp_path, capsys, monkeypatch, old, new, message
):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, (old, new))
    said = []
    for command in ("check", "run"):
        assert main([command, "case.yaml"]) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.count("\n") == 1
        said.append(shown.err)
    assert message in said[0] and said[0].startswith("case.yaml:"), said[0]
    assert said[0] == said[1]
    assert not (tmp_path / "outputs").exists()


def test_growth_that_a_step_does_not_follow_is_refused_and_no_advection_needs_a_step(
    tmp_path, monkeypatch, capsys
):
    """growth - viscosity k^2 is largest at k = 0: 25, of which a step of 0.01 follows 1 / 0.01 =
    100, one of 0.1 does not. So is an integrator that does not solve the equation."""
    monkeypatch.chdir(tmp_path)
    config = written(tmp_path, ("viscosity: 0.05", "growth: 25, viscosity: 0.05"))
    simulation(config).check_start()
    with pytest.raises(
        UserError, match=r"command line: time.dt: .* up to 25 .*; at most 0.04 is needed"
    ):
        simulation(config, "time.dt=0.1").check_start()
    with pytest.raises(
        UserError, match=r"time.integrator: drift_kick_drift does not solve Burgers; rk4 or"
    ):
        simulation(config, "time.integrator=drift_kick_drift")
    code = BURGERS.replace("def advection", "def _unused")
    config = written(tmp_path, ("viscosity: 0.05", "growth: 25, viscosity: 0.05"), code=code)
    assert main(["check", str(config), "time={stop: 1, cfl: 0.5}"]) == 2
    assert "time.max_dt: is required: the equation states no advection" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"time.max_dt: is required: the equation states no"):
        simulation(config, "time={stop: 1, cfl: 0.5}").check_start()
    simulation(config, "time={stop: 1, cfl: 0.5, max_dt: 0.01}").check_start()


def test_the_rate_of_advection_counts_the_spacing_of_each_axis(tmp_path):
    case = written(
        tmp_path, ("grid: {shape: [16, 8, 8]}", "grid: {shape: [16, 8, 8], box: [2, 3, 4]}")
    )
    run = simulation(case)
    rate = fastest(run.model, run.state.fields, run.state.time)  # u = sin x, v = w = 0
    assert float(rate) == pytest.approx(
        np.abs(np.asarray(run.fields["u"])).max() / (2 / 16), rel=1e-12
    )


def test_means_and_variances(tmp_path):
    """Of a scalar and of each component of a vector, whose means are neither 0 nor 1."""
    code = BURGERS.replace('("u",)', '("u", Field("m", vector=True))')
    case = written(tmp_path, code=code)
    (tmp_path / "start.py").write_text(
        "import jax.numpy as jnp\n\ndef wave(x, y, z):\n    u = 2 + jnp.sin(x) + 0 * y * z\n"
        "    return {'u': u, 'm': jnp.stack([3 * u, 0 * u - 4, 1 - u])}\n"
    )
    row = measured(simulation(case))
    wanted = {"u": (2, 0.5), "m_x": (6, 4.5), "m_y": (-4, 0), "m_z": (-1, 0.5)}
    for name, (mean, variance) in wanted.items():
        assert row[f"{name}_mean"] == pytest.approx(mean, abs=1e-13)
        assert row[f"{name}_variance"] == pytest.approx(variance, abs=1e-13)


def test_a_linear_equation_is_solved_exactly(tmp_path):
    """Without products: u_t = (growth + i c k^3 - nu k^2) u has modes exp(L t), growing and
    dispersive ones alike. Each of ten steps multiplies by exp(L dt) to round-off."""
    damping = "self.viscosity * self.k_squared"
    code = BURGERS.replace(damping, f"{damping} + 1j * self.k[0]**3")
    start = code.index("    def products")
    end = code.index("    def advection")
    code = code[:start] + code[end : code.index("    def combine")]
    code += "    def combine(self, products, fields):\n        return {}\n"
    code = code.replace("    def advection", "    def _unused")
    config = written(tmp_path, ("viscosity: 0.05", "growth: 2, viscosity: 0.05"), code=code)
    found = simulation(config)
    found.state = last(marched(found, 0.01, 10))
    x = np.arange(16) * 2 * np.pi / 16
    wanted = np.exp((2 - 0.05) * 0.1) * np.sin(x + 0.1)
    assert_allclose(found.fields["u"][:, 0, 0], wanted, rtol=0, atol=1e-13)


def test_parameters_of_a_sweep_are_batched(tmp_path, monkeypatch):
    """The numbers of `model.parameters` differ within one program, in products too; each run is
    what it is alone."""
    monkeypatch.chdir(tmp_path)
    code = BURGERS.replace('values["u"] ** 2', '(1 - 5 * self.viscosity) * values["u"] ** 2')
    written(tmp_path, ("count: 2", "count: 1"), code=code)
    study = "base: case.yaml\nsweep: {grid: {model.parameters.viscosity: [0.02, 0.05]}}\n"
    (tmp_path / "study.yaml").write_text(study)
    runs = [run.config for run in open_sweep("study.yaml").runs]
    keys = ("model.parameters.viscosity",)
    until = Until(np.float64(0.1), np.float64(np.inf), np.int64(100))
    alone = [Simulation(run, report=lambda line: None) for run in runs]
    batch = BatchedStep(alone[0], keys)
    states = tuple(Simulation(run).state for run in runs)
    wanted = [one.advance(one.state, until) for one in alone]
    found = batch.together(
        tuple(batch.values(varied_numbers(run)) for run in runs), states, (until, until)
    )
    for one, other in zip(found, wanted, strict=True):
        assert_allclose(one.fields["u"], other.fields["u"], rtol=0, atol=1e-14)
    assert abs(wanted[0].fields["u"] - wanted[1].fields["u"]).max() > 1e-4


@pytest.mark.plugins
def test_a_gradient_by_a_parameter(differentiate, tmp_path):
    """Parameters are varied as `model.parameters.NAME`, those that the configuration leaves out as
    well. Another key, which would have no effect, is refused and the true one named: a slope of
    zero would be wrong."""
    code = BURGERS.replace("    viscosity:", "    speed: float = 1.0\n    viscosity:")
    code = code.replace("-0.5 *", "-0.5 * self.speed *")
    own = simulation(written(tmp_path, code=code), "devices.count=1")
    square = lambda state: own.transform.layout.inner(*2 * [state.fields["u"]])  # noqa: E731
    slopes = differentiate(own, square, steps=3, dt=0.1)
    for name in ("viscosity", "speed"):
        with pytest.raises(
            UserError, match=f"^model.{name}: .* did you mean model.parameters.{name}\\?"
        ):
            slopes({f"model.{name}": 0.1})
    found = slopes({f"model.parameters.{name}": 0.1 for name in ("viscosity", "speed")})[1]
    assert all(float(slope) != 0 for slope in found.values())
    with pytest.raises(UserError, match=r"did you mean model\.parameters\.viscosity"):
        own.varied({"model.parameters.viscocity": 0.1})


POINTWISE = [
    lambda v: {"a": v[0] * v[1], "b": v},
    lambda v: jnp.einsum("ij,j...->i...", np.arange(9.0).reshape(3, 3), v),
    lambda v: jnp.cross(v, v, axis=0),
    lambda v: jnp.linalg.norm(v, axis=0) + v.sum(0),
    lambda v: jnp.where(v > 0, jnp.exp(v), jnp.sinh(v)),
    lambda v: v[::-1] + v[jnp.array([2, 0, 1])] + jnp.roll(v, 1, 0) + jnp.cumsum(v, 0),
    lambda v: v.at[0].set(v[1] ** 3),
    lambda v: jax.lax.fori_loop(0, 3, lambda i, u: u * v, v),
]
MIXING = [
    lambda v: v - v.max(),
    lambda v: v[..., ::-1],
    lambda v: jnp.sort(v, -1),
    lambda v: jnp.cumsum(v, 1),
    lambda v: jnp.swapaxes(v, 1, 2).swapaxes(1, 2),
    lambda v: v + jnp.arange(v.shape[-1]),
    lambda v: v[..., jnp.arange(POINTS[2])[::-1]],
    lambda v: jax.lax.fori_loop(0, 3, lambda i, u: u + jnp.roll(u, 1, 1), v),
    lambda v: v + jax.random.normal(jax.random.key(0), v.shape),
    lambda v: jnp.einsum("axyz,axyz->a", v, v)[:, None, None, None] * v,
    lambda v: jnp.gradient(v, axis=1),
]


@pytest.mark.parametrize(("functions", "pointwise"), [(POINTWISE, True), (MIXING, False)])
def test_what_is_pointwise(functions, pointwise: bool):
    block = jax.ShapeDtypeStruct((3, *POINTS), jnp.float64)
    for number, function in enumerate(functions):
        assert (mixing(jax.make_jaxpr(function)(block)) is None) == pointwise, number


PHASE = """\
from simulator.equations import Field, SplitEquation


class Turned(SplitEquation):
    evolved = (Field("psi", complex=True),)

    def flow(self, values, points, time, duration):
        return values

    def phase_rate(self, values, points, time):
        return {"psi": abs(values["psi"])}
"""


def test_a_rate_of_phases_is_one_number_a_point(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = CASE.replace("Burgers\n  parameters: {viscosity: 0.05}", "Turned")
    written(tmp_path, code=PHASE, case=case.replace("rk2", "drift_kick_drift"))
    assert main(["check", "case.yaml"]) == 2
    wanted = "own.py:10: phase_rate: returned a dict; one array of numbers at points"
    assert wanted in capsys.readouterr().err


DECAY = """\
from simulator.equations import Balance, Budget, Equation, FieldMoments, Local


class Decayed(Budget):
    def momentary(self, model):
        return True

    def balance(self, model, fields):
        def local(values, points, parameters):
            return Local({}, means={"energy": values["u"] ** 2 / 2 + values["u"] ** 4 / 4,
                                    "lost": (values["u"] + values["u"] ** 3) ** 2})
        means = model.transform.evaluate({"u": fields["u"]}, local).means
        return Balance(means["energy"], 0.0, means["lost"])

    def work(self, model, fields, forces):
        def local(values, points, parameters):
            return Local({}, means={"work": (values["u"] + values["u"] ** 3) * values["force"]})
        return model.transform.evaluate({"u": fields["u"], "force": forces["u"]}, local).means["work"]


class Decay(Equation):
    \"\"\"u_t = -(u + u^3), the gradient descent of <u^2 / 2 + u^4 / 4>.\"\"\"

    evolved = ("u",)
    budget = Decayed()
    has = (FieldMoments(), budget)

    def products(self, values):
        return {"u": -values["u"] - values["u"] ** 3}
"""
FORCED = """
forcing: {kind: python, path: start.py, function: push}
"""


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("count", ["count: 1", "count: 2"])
def test_a_momentary_budget_needs_no_row(tmp_path, forced: bool, count: str):
    """The energy is the box mean of a function of u = sin x at a point, which is no sum over modes.
    The grid holds u^3, so that dE/dt of the equations is to round-off the work, of which <s^2> + <s^4>
    = 1/2 + 3/8 is that of sin x, less the dissipation <s^2> + 2 <s^4> + <s^6>."""
    case = CASE.replace("  parameters: {viscosity: 0.05}\n", "").replace("Burgers", "Decay")
    push = "def push(x, y, z, t):\n    return {'u': 0.3 * jnp.sin(x) + 0 * y * z}\n"
    path = written(
        tmp_path, ("count: 2", count), code=DECAY, case=case + (FORCED if forced else "")
    )
    (tmp_path / "start.py").write_text(START + push)
    decay = simulation(path)
    row = decay.diagnostics(decay.state)
    assert abs(float(row["budget_residual"])) < 1e-14
    if forced:
        assert float(row["injection"]) == pytest.approx(0.3 * (1 / 2 + 3 / 8), rel=1e-14)
    *_, change, balance = outputs.budget_row(decay.model, decay.state.fields, 0.0, None)
    assert float(balance.dissipation) == pytest.approx(1 / 2 + 2 * 3 / 8 + 5 / 16, rel=1e-14)
    assert float(change) == pytest.approx(-float(balance.dissipation), rel=1e-14)


def test_a_momentary_budget_of_split_steps_defines_its_row(tmp_path, capsys):
    code = DECAY.replace("import Balance,", "import SplitEquation, Balance,")
    code = code.replace("class Decay(Equation)", "class Decay(SplitEquation)").replace(
        '    def products(self, values):\n        return {"u": -values["u"] - values["u"] ** 3}\n',
        "    def flow(self, values, points, time, duration):\n        return {}\n",
    )
    case = CASE.replace("  parameters: {viscosity: 0.05}\n", "").replace("Burgers", "Decay")
    case = case.replace("rk2", "kick_drift_kick").replace("8, 8]}", "8, 8], dealias: none}")
    assert main(["check", str(written(tmp_path, code=code, case=case))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a momentary budget of a SplitEquation has to define row, because the rates" in line


PLACED = """\
from simulator.equations import Balance, Budget, Equation, FieldMoments
import jax.numpy as jnp


class Square(Budget):
    def balance(self, model, fields):
        energy = model.mean_of(fields["u"], fields["u"]) / 2
        return Balance(energy, 0.0, 2 * model.rate * energy)

    def work(self, model, fields, forces):
        return model.mean_of(fields["u"], forces["u"])


class Placed(Equation):
    \"\"\"u_t = 2 t sin(x) cos(2 y) - r u + (r + cos t) u\"\"\"

    evolved = ("u",)
    rate: float = 0.5
    budget = Square()
    has = (FieldMoments(),)

    def linear(self):
        return {"u": -self.rate}

    def products(self, values, points, time):
        return {"u": 2 * time * jnp.sin(points.x) * jnp.cos(2 * points.y) + 0 * values["u"]}

    def forcing(self, fields, time):
        return {"u": (self.rate + jnp.cos(time)) * fields["u"]}
"""


@pytest.mark.parametrize("shape", ["[12, 10, 6]", "[12, 10]"])
@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.spmd)])
@pytest.mark.parametrize(
    "dealias", ["two_thirds", pytest.param("spherical", marks=pytest.mark.slow)]
)
def test_products_know_place_and_time_and_an_equation_forces_itself(
    tmp_path, shape: str, count: int, dealias: str
):
    """v = u exp(-sin t) obeys v_t = 2 t exp(-sin t) sin(x) cos(2 y), which Simpson's rule sums here
    in 4000 parts; RK4 with dt = 1/40 errs by 1e-8. The power of the equation's force is 2 (r + cos
    t) times the energy."""
    case = CASE.replace("[16, 8, 8]", f"{shape}, dealias: {dealias}").replace("Burgers", "Placed")
    case = case.replace("viscosity: 0.05", "rate: 0.25").replace("rk2", "rk4")
    case = case.replace("count: 2", f"count: {count}")
    case = case.replace("function: wave", "function: rest")
    path = written(tmp_path, code=PLACED, case=case)
    (tmp_path / "start.py").write_text("def rest(*points):\n    return {'u': 0 * sum(points)}\n")
    placed = simulation(path)
    end = last(marched(placed, 0.025, 40))
    t = np.linspace(0, 1, 4001)
    integrand = 2 * t * np.exp(-np.sin(t))
    weights = np.array([1, *([4, 2] * 1999), 4, 1]) / 12000
    amplitude = np.exp(np.sin(1)) * (weights * integrand).sum()
    x = 2 * np.pi * np.arange(12)[:, None] / 12
    y = 2 * np.pi * np.arange(10) / 10
    wave = amplitude * np.sin(x) * np.cos(2 * y)
    values = np.asarray(placed.field_program("u")(end))[:12, :10]
    expected = wave if values.ndim == 2 else np.broadcast_to(wave[..., None], (12, 10, 6))
    assert_allclose(values[..., : expected.shape[-1]], expected, atol=1e-7)
    row = placed.diagnostics(end)
    energy = amplitude**2 / 8
    assert float(row["injection"]) == pytest.approx(2 * (0.25 + np.cos(1)) * energy, rel=1e-6)


def test_the_force_of_an_equation_is_one_of_a_list(tmp_path):
    case = CASE.replace("Burgers", "Placed").replace("viscosity: 0.05", "rate: 0.25")
    forces = "forcing: [{kind: linear, field: u, coefficient: 0.1}]\n"
    placed = simulation(written(tmp_path, code=PLACED, case=case + forces))
    row = {name: float(value) for name, value in placed.diagnostics(placed.state).items()}
    # <sin^2> = 1/2
    assert row["power_linear"] == pytest.approx(0.1 / 2)
    assert row["power_equation"] == pytest.approx(1.25 / 2)
    assert row["injection"] == pytest.approx(1.35 / 2)
    named = forces.replace("linear,", "linear, name: equation,")
    with pytest.raises(UserError, match=r"forcing\.0\.name: equation is the equation's own force"):
        simulation(written(tmp_path, code=PLACED, case=case + named))
    without = PLACED.replace("def work", "def _work")
    with pytest.raises(UserError, match="Square: the budget of an equation with a forcing has to"):
        simulation(written(tmp_path, code=without, case=case))
    split = PLACED.replace("Equation,", "SplitEquation,").replace("(Equation)", "(SplitEquation)")
    split = split.replace("def products(self, values, points, time)", "def flow(self, *all)")
    with pytest.raises(UserError, match="a SplitEquation cannot be forced; add the force to flow"):
        simulation(written(tmp_path, code=split, case=case))


TRAPPED = """\
import jax.numpy as jnp
from simulator.equations import Field, SplitEquation


class Trapped(SplitEquation):
    \"\"\"i psi_t = (x + 2 y) psi\"\"\"

    dimensions = 2
    evolved = (Field("psi", complex=True),)

    def flow(self, values, points, time, duration):
        x, y = points
        place = points.x + 2 * points.y + points.z + (x - points.x) + (y - points.y)
        return {"psi": values["psi"] * jnp.exp(-1j * place * duration)}

    def quantities(self, fields, time):
        return {"clock": 2 * time}


def ones(x, y):
    return {"psi": 1 + 0 * x * y}
"""


def test_a_flow_knows_its_place_in_a_plane_and_quantities_the_time(tmp_path):
    """psi = exp(-i (x + 2 y) t) exactly: an odd grid keeps all its modes."""
    changes = ("shape: [16, 8, 8]", "shape: [9, 7], dealias: none"), ("Burgers", "Trapped")
    more = (
        ("viscosity: 0.05", ""),
        ("path: start.py, function: wave", "path: own.py, function: ones"),
    )
    path = written(tmp_path, *changes, *more, ("rk2", "composition4"), code=TRAPPED)
    trapped = simulation(path, "devices.count=1")
    trapped.state = last(marched(trapped, 0.01, 10))
    x = 2 * np.pi * np.arange(9)[:, None] / 9
    y = 2 * np.pi * np.arange(7) / 7
    assert_allclose(trapped.fields["psi"], np.exp(-0.1j * (x + 2 * y)), rtol=0, atol=1e-13)
    assert measured(trapped)["clock"] == pytest.approx(0.2, rel=1e-12)
