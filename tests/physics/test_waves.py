"""Linear terms that couple fields: their matrix functions against dense ones of each mode; waves at
any dt; the order where nonlinear terms act too; budgets and layouts; and equations of users.

The exponential of a matrix for one mode is exact to a few ulp of its norm times the number of
squarings, which with |L dt| < 60 is at most 7; 1e-13 leaves a factor of 30."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import assert_slopes, flow, last, marched, measured, order
from run_support import simulation
from scipy.linalg import expm

from simulator import Simulation
from simulator.errors import UserError
from simulator.physics.models import State
from simulator.physics.models.tendency import (
    added,
    coupling,
    exact_waves,
    linear_rates,
    linear_terms,
    linearized,
    tendency,
)
from simulator.physics.stepping import INTEGRATORS
from simulator.physics.stepping.coupled import Coupled, phi_matrices
from simulator.physics.stepping.evolved import Evolved
from simulator.spectral.operators import hermitian

ROTATION = [0.4, -1.0, 2.0]
FLUID = {"viscosity": 0.05}
STRATIFIED = {"kind": "boussinesq", **FLUID, "stratification": 4.0}
TILTED = {"gravity": [0.2, 0.5, -1.0], "rotation": ROTATION}
MAGNETIC = {"kind": "mhd", **FLUID, "resistivity": 0.3}
MODELS: dict[str, dict[str, Any]] = {
    "inertial": {"kind": "navier_stokes", **FLUID, "rotation": ROTATION},
    "gravity": {**STRATIFIED, "diffusivity": 0.3},
    "inertia-gravity": {**STRATIFIED, "diffusivity": 0.05, **TILTED},
    "inertia-gravity of another Prandtl number": {**STRATIFIED, "diffusivity": 0.3, **TILTED},
    "alfven": MAGNETIC,
    "magneto-coriolis and whistlers": {**MAGNETIC, "rotation": ROTATION, "ion_length": 0.3},
}
PLANES = {"gravity": MODELS["gravity"], "alfven": MODELS["alfven"]}
BRIEF = ("inertial", "gravity", "alfven", "magneto-coriolis and whistlers")
"""The cases of the default tier."""


def tier(name: Any, *values: Any, brief: bool) -> Any:
    """A case, whose name comes first, of the default tier or of the slow one."""
    return pytest.param(name, *values, marks=() if brief else pytest.mark.slow)


CASES = [tier(n, m, 3, brief=n in BRIEF) for n, m in MODELS.items()]
CASES += [tier(n, m, 2, brief=False) for n, m in PLANES.items()]
ALIKE = {**MAGNETIC, "resistivity": FLUID["viscosity"]}
"""One diffusivity for both fields, where the eigenvalues are known."""
SLOW = {**MODELS["inertia-gravity"], "stratification": 0.01, "rotation": [0.01, -0.02, 0.04]}
"""Waves that turn by less than one in a step."""
MATRICES = [
    *CASES,
    tier("alfven of one diffusivity", ALIKE, 3, brief=True),
    tier("slow inertia-gravity", SLOW, 3, brief=True),
    tier(
        "magneto-coriolis of one diffusivity",
        {**ALIKE, "rotation": ROTATION, "ion_length": 0.3},
        3,
        brief=True,
    ),
]
EXACT = {"stop": 1.0, "dt": 0.1, "waves": "exact"}


def waved(model: Mapping[str, Any], dimensions: int = 3, **blocks: Any) -> Simulation:
    """A flow of 6 points along each axis."""
    start: dict[str, Any] = {"kind": "random", "peak": 2, "seed": 1}
    if model["kind"] == "mhd":
        start["magnetic"] = {"peak": 2, "seed": 2, "mean_field": [0.3, -0.2, 1.0][:dimensions]}
    return flow(*[6] * dimensions, initial=start, model=dict(model), **{"time": EXACT, **blocks})


def anything(sim: Simulation) -> Evolved:
    """Random solenoidal fields of real means."""
    layout = sim.transform.layout
    random = np.random.default_rng(2)
    fields = {}
    for name, lead in sim.model.shapes.items():
        parts = random.standard_normal((2, *lead, *layout.shape))
        field = jnp.where(layout.mask, jax.lax.complex(*jnp.asarray(parts)), 0)
        field = hermitian(layout, sim.model.project(field) if lead else field)
        fields[name] = jnp.where(layout.zero, field.real, field)
    return Evolved(fields)


def components(fields: Mapping[str, jax.Array]) -> np.ndarray:
    """(component of any field, mode), the fields in the order of their names."""
    arrays = [np.asarray(fields[name]) for name in sorted(fields)]
    parts = [a.reshape(-1, *a.shape[-3:]) for a in arrays]
    return np.concatenate(parts).reshape(sum(map(len, parts)), -1)


def coupled_part(sim: Simulation, fields: Evolved) -> Coupled:
    """L about the mean state of the fields."""
    waves = exact_waves(sim.model, fields)
    assert waves is not None
    return Coupled(linear_terms(sim.model), waves)


def matrices(sim: Simulation, fields: Evolved) -> np.ndarray:
    """L of each mode, (mode, row, column), from the rates of unit vectors without divergence."""
    columns = []
    for name in sorted(fields):
        for index in np.ndindex(fields[name].shape[:-3]):
            unit = {n: jnp.zeros_like(f) for n, f in fields.items()}
            unit[name] = unit[name].at[index].set(1)
            unit = {n: sim.model.project(f) if f.ndim > 3 else f for n, f in unit.items()}
            # The mean field of the waves is that of `fields`.
            waves = coupling(linearized(sim.model, fields))
            assert waves is not None
            damped = {n: rate * unit[n] for n, rate in linear_terms(sim.model).items()}
            columns.append(components(added(damped, waves.rates(unit))))
    return np.moveaxis(np.array(columns), (0, 1, 2), (2, 1, 0))


@pytest.mark.parametrize("name, model, dimensions", MATRICES)
def test_functions_of_the_matrices(name, model, dimensions):
    """exp(L dt), phi_1, phi_2 and phi_3, from exp of [[z, 1, 0, 0], [0, 0, 1, 0], ...]."""
    sim = waved(model, dimensions)
    fields = anything(sim)
    dt = jnp.float64(7)
    L = coupled_part(sim, fields)
    operators = [L.exponential(dt), *L.functions(dt, phi_matrices)]
    applied = [components({n: (f * fields)[n] for n in fields}) for f in operators]
    vectors = components(fields)
    matrix = matrices(sim, fields)
    size = matrix.shape[-1]
    filled = np.flatnonzero(abs(vectors).sum(0))
    for mode in (0, *np.random.default_rng(0).choice(filled, 12)):
        blocks = np.kron(np.eye(4, k=1), np.eye(size)).astype(complex)
        blocks[:size, :size] = float(dt) * matrix[mode]
        row = expm(blocks)[:size].reshape(size, 4, size)
        for operator, wanted in zip(applied, (0, 0, 1, 2, 3), strict=True):
            assert abs(operator[:, mode] - row[:, wanted] @ vectors[:, mode]).max() < 2e-13


@pytest.mark.parametrize("name, model, dimensions", CASES)
def test_the_rest_and_the_waves_are_the_equation(name, model, dimensions):
    """N + L u does not depend on which of both holds the waves."""
    rates = []
    for waves in ("exact", "explicit"):
        sim = waved(model, dimensions, time={**EXACT, "waves": waves})
        fields = anything(sim)
        explicit, _ = tendency(linearized(sim.model, fields), fields, jnp.float64(0))
        rates.append(components(added(explicit, linear_rates(sim.model, fields))))
    assert abs(rates[0] - rates[1]).max() < 1e-12 * abs(rates[1]).max()


WAVES: dict[str, dict[str, Any]] = {
    "inertial": {"kind": "navier_stokes", "viscosity": 0.0, "rotation": [0.0, 0.0, 1.0]},
    "gravity": {**STRATIFIED, "viscosity": 0.0, "diffusivity": 0.0},
    "alfven": {**MAGNETIC, "viscosity": 0.0, "resistivity": 0.0},
    "mixed": {**STRATIFIED, "viscosity": 0.0, "diffusivity": 0.0, **TILTED},
}


@pytest.mark.long
@pytest.mark.parametrize("integrator", ["rk4", tier("etdrk4", brief=False)])
@pytest.mark.parametrize("name", [tier(n, brief=n in ("alfven", "mixed")) for n in WAVES])
def test_waves_are_exact_at_any_dt(name, integrator):
    """dt = 10 / omega, a wave of amplitude 1e-6: the error per period in phase and amplitude. Waves
    of all modes interact, at the relative rate 1e-6 k / omega; hence one mode alone, which the
    nonlinear terms leave alone."""
    time = {**EXACT, "integrator": integrator}
    sim = waved(WAVES[name], time=time)
    layout = sim.transform.layout
    x, y, z = (layout.integers(axis) for axis in "xyz")
    at = (x == 1) & (y == -1) & (z == 1)
    fields = {n: jnp.where(at, 1e-6 * f, 0) for n, f in anything(sim).items()}
    if "magnetic" in fields:
        mean = jnp.array([0.3, -0.2, 1.0]).reshape(-1, 1, 1, 1)
        fields["magnetic"] += jnp.where(layout.zero, mean, 0)
    start = sim.begin(sim.state.fields | fields)
    mode = int(np.flatnonzero(np.asarray(at).ravel())[0])
    matrix = matrices(sim, Evolved(fields))[mode]
    omega = abs(np.linalg.eigvals(matrix).imag).max()
    steps = 20
    dt = 10 / omega
    sim.state = start
    end = components(last(marched(sim, dt, steps)).fields)[:, mode]
    wanted = expm(matrix * dt * steps) @ components(fields)[:, mode]
    periods = omega * dt * steps / (2 * np.pi)
    assert np.linalg.norm(end - wanted) < 1e-12 * periods * np.linalg.norm(wanted)
    # Waves exchange energy, but do not change it.
    energies = [measured(sim, state)["energy"] for state in (start, last(marched(sim, dt, 1)))]
    assert energies[1] == pytest.approx(energies[0], rel=1e-12)


@pytest.mark.parametrize(
    "integrator, expected",
    [("rk2", 2), tier("rk3", 3, brief=False), ("rk4", 4), ("etdrk4", 4)],
)
@pytest.mark.parametrize(
    "name", ["gravity", *(tier(n, brief=False) for n in ("inertial", "alfven"))]
)
def test_order_beside_nonlinear_terms(name, integrator, expected):
    """Errors against a step eight times smaller, with omega dt < 1: the order shows, within 0.2."""
    sim = waved(MODELS[name], time={**EXACT, "integrator": integrator})
    fields = {n: 0.3 * f for n, f in anything(sim).items()}
    ends = []
    for steps in (8, 16, 64):
        sim.state = sim.begin(sim.state.fields | fields)
        ends.append(components(last(marched(sim, 0.4 / steps, steps)).fields))
    errors = [float(abs(end - ends[-1]).max()) for end in ends[:-1]]
    assert order(errors)[0] == pytest.approx(expected, abs=0.25)


@pytest.mark.long
def test_exact_waves_do_not_limit_dt():
    """The rate of a step is that of advection alone, with the fluctuating field but without B."""
    rates = {}
    for waves in ("exact", "explicit"):
        start = {"kind": "random", "peak": 2, "seed": 1}
        start["magnetic"] = {"energy": 1e-6, "mean_field": [0.0, 0.0, 100.0]}
        time = {"stop": 1.0, "cfl": 0.5, "waves": waves}
        sim = flow(*[6] * 3, initial=start, model={**MAGNETIC, "rotation": [0, 0, 50]}, time=time)
        rates[waves] = measured(sim)["rate"]
    spacing = 2 * np.pi / 6
    assert rates["explicit"] - rates["exact"] == pytest.approx(100 + 100 / spacing, rel=1e-2)


OWN = """\
from simulator.equations import Equation


class Three(Equation):
    evolved = ("a", "b", "c")
    growth: float = 0.0

    def linear(self):
        return {"a": self.growth - 0.1 * self.k_squared, "b": -0.02 * self.k_squared}

    def waves(self):
        kx, ky = 1j * self.k[0], 1j * self.k[1]
        return {("a", "b"): 3 * kx, ("b", "a"): 2 * kx, ("b", "c"): ky, ("c", "a"): 1 + 0 * ky}
"""
OWN_CASE = """\
model: {kind: python, path: own.py, equation: Three, parameters: {growth: 0.0}}
grid: {shape: [8, 6]}
initial: {kind: random, fields: {a: {variance: 1}, b: {variance: 1}, c: {variance: 1}}}
time: {stop: 1.0, dt: 0.5, integrator: rk2, waves: exact}
devices: {platform: cpu, count: 1}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A configuration of three coupled fields."""
    (tmp_path / "own.py").write_text(OWN)
    path = tmp_path / "run.yaml"
    path.write_text(OWN_CASE)
    return path


@pytest.mark.long
def test_an_own_equation_couples_its_fields(own):
    """One mode against the exponential of its matrix, in which (c, a) lets modes grow."""
    sim = simulation(own)
    layout = sim.transform.layout
    largest = sim.model.linear_growth.largest
    assert isinstance(largest, float) and largest > 0
    # The layout calls the axes x and y of a plane y and z.
    at = np.asarray((layout.integers("y") == 1) & (layout.integers("z") == 1))
    mode = tuple(int(i) for i in np.argwhere(at)[0])
    L = np.array([[-0.2, 3j, 0], [2j, -0.04, 1j], [1, 0, 0]])
    end = last(marched(sim, 0.5, 2))
    got = np.array([end.fields[name][mode] for name in sim.state.fields])
    wanted = expm(L) @ np.array([field[mode] for field in sim.state.fields.values()])
    assert abs(got - wanted).max() < 1e-13 * abs(wanted).max()
    assert sim.model.linear_growth.largest >= max(np.linalg.eigvals(L).real) * (1 - 1e-12)
    explicit = simulation(own, "time.waves=explicit", "time.integrator=rk4")
    end = last(marched(explicit, 0.002, 500))
    got = np.array([end.fields[name][mode] for name in explicit.state.fields])
    # RK4: |L|^5 dt^4 / 120, |L| < 8 at the mode.
    assert abs(got - wanted).max() < 1e-7 * abs(wanted).max()


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('("c", "a")', '("c", "d")', "own.py:11: waves: returned .* two of the fields a, b, c"),
        ("1 + 0 * ky", "1 / ky", "model: Three: linear and waves have to be finite"),
        ("ky}", "self.transform.layout.mask[None]}", "own.py:11: waves: .* one number a mode"),
    ],
)
def test_a_wrong_matrix_is_refused(own, old, new, message):
    (own.parent / "own.py").write_text(OWN.replace(old, new))
    with pytest.raises(UserError, match=message):
        _ = simulation(own).state


@pytest.mark.long
def test_growth_that_dt_does_not_resolve_is_refused(own):
    with pytest.raises(UserError, match=r"time\.dt: modes grow linearly at up to"):
        simulation(own, "time.dt=20", "time.stop=40").check_start()


@pytest.mark.parametrize(
    "model, message",
    [
        ({"kind": "navier_stokes", "viscosity": 1.0}, "time.waves: navier_stokes with these"),
        ({**MAGNETIC, "kinematic": True}, "time.waves: mhd with these parameters has no waves"),
        ({**STRATIFIED, "diffusivity": 0.1, "stratification": -1.0}, "time.waves: boussinesq with"),
    ],
)
def test_waves_that_do_not_exist_are_refused(model, message):
    with pytest.raises(UserError, match=message):
        waved(model)


def test_an_integrator_without_matrices_is_refused(monkeypatch):
    monkeypatch.setattr(INTEGRATORS["rk3"], "couples", False)
    with pytest.raises(
        UserError, match=r"time\.waves: rk3 takes no linear terms that couple fields; expl"
    ):
        waved(MODELS["inertial"], time={**EXACT, "integrator": "rk3"})
    time = {"stop": 1.0, "dt": 0.1, "integrator": "rk3"}
    assert not waved(MODELS["inertial"], time=time).model.integrated


VARIED = {
    "gravity": ("viscosity",),
    "alfven": ("resistivity",),
    "inertia-gravity": ("diffusivity", "rotation.2"),
    "magneto-coriolis and whistlers": ("viscosity", "ion_length"),
}
"""Numbers by which members of an ensemble and gradients differ, with their own functions of L."""


def number(name: str, key: str) -> float:
    key, _, place = key.partition(".")
    value = MODELS[name][key]
    return value[int(place)] if place else value


@pytest.mark.long
@pytest.mark.parametrize("name", [tier(n, brief="whistlers" in n) for n in VARIED])
def test_members_of_an_ensemble_are_the_runs_alone(name):
    """With the eigenvalues of equal damping alone, and without them in the ensemble: to a few ulp
    times the number of squarings."""
    time = {**EXACT, "integrator": "rk2"}
    keys = [f"model.{key}" for key in VARIED[name]]
    sim = waved(MODELS[name], time=time)
    own = {key: number(name, key.removeprefix("model.")) for key in keys}
    others = {key: 3 * value for key, value in own.items()}

    def moved(values: dict[str, Any], state: State) -> State:
        return sim.varied(values).step(state, 0.25)

    values = {key: jnp.array([own[key], others[key]]) for key in keys}
    members = jax.jit(jax.vmap(moved, in_axes=(0, None)))(values, sim.state)
    alone = [jax.jit(sim.step)(sim.state, 0.25), jax.jit(moved)(others, sim.state)]
    for i, state in enumerate(alone):
        for n, field in state.fields.items():
            assert abs(members.fields[n][i] - field).max() < 1e-13 * abs(field).max()


@pytest.mark.plugins
@pytest.mark.long
@pytest.mark.parametrize("name", [tier(n, brief="whistlers" in n) for n in VARIED])
def test_gradients_go_through_exact_waves(name, differentiate):
    """By numbers of the model, and by the mean field, against central differences: their error is
    h^2 / 6 times the third derivative, and round-off 1e-16 / h."""
    sim = waved(MODELS[name], time={**EXACT, "integrator": "rk2"})
    layout = sim.transform.layout

    def loss(state: State) -> jax.Array:
        weight = jnp.cos(layout.k_squared())
        parts = (layout.sum((1 + f.real) ** 2 * weight).sum() for f in state.fields.values())
        return jnp.stack(list(parts)).sum()

    gradient = differentiate(sim, loss, steps=1, dt=0.25)
    at = {f"model.{key}": number(name, key) for key in VARIED[name]}
    if "magnetic" in sim.state.fields:
        at["initial.magnetic.mean_field.0"] = 0.3
    assert_slopes(gradient, at, 1e-4)
