"""Budgets of quadratic quantities: the columns of diagnostics are the rate of change of the
equations, with every kind of term and of force on every field."""

from dataclasses import replace

import jax
import pytest
from flow_support import flow, measured

from simulator import Simulation
from simulator.physics.models.tendency import linear_rates, linearized, tendency
from simulator.physics.terms import TERMS

CODE = """
import jax.numpy as jnp

def burnt(values, points, time, field):
    return {field: -(1 + jnp.cos(points[0]) + time) * values[field]}

def thinned(values, points, time):
    return 0.05 + 0.01 * jnp.cos(points[0])

def push(*points, field, count):
    *places, time = points
    force = jnp.sin(places[0] + places[1] + time)
    return {field: force if count == 1 else (0 * force, force, force)[:count]}
"""
DYE = {"name": "dye", "diffusivity": 0.01, "mean_gradient": [1, 0, 0.2]}
STILL = {"name": "salt", "diffusivity": 0.02}
FLOW = {"viscosity": 0.02, "scalars": [DYE, STILL]}
LAYERS = {"kind": "boussinesq", **FLOW, "diffusivity": 0.01}
MODELS = {
    "navier_stokes": {"kind": "navier_stokes", **FLOW},
    "closed": {"kind": "navier_stokes", **FLOW, "subgrid": {"kind": "smagorinsky"}},
    "dynamic": {"kind": "navier_stokes", **FLOW, "subgrid": {"kind": "dynamic_smagorinsky"}},
    "spectral": {"kind": "navier_stokes", **FLOW, "subgrid": {"kind": "spectral"}},
    "stable": {**LAYERS, "stratification": 2.0},
    "unstable": {**LAYERS, "stratification": -2.0},
    "mhd": {"kind": "mhd", **FLOW, "resistivity": 0.03},
    "sheared": {"kind": "mhd", **FLOW, "resistivity": 0.03, "shear": -1.5},
}


def additions(field: str, vector: bool, diffuses: bool, path: str) -> tuple[list, list]:
    """Terms and forces of every kind on a field, with names that begin with it."""
    value = ["0.1*sin(y)", 0.2, "cos(x)"] if vector else "sin(x)*cos(y)"
    relax = {"kind": "relax", "target": {field: value}, "relaxation_time": 0.7}
    mask = {"kind": "sphere", "center": [2, 3, 1], "radius": 1.5}
    own = {"kind": "python", "path": path, "function": "burnt", "parameters": {"field": field}}
    terms = [relax, {**relax, "mask": mask}, own]
    if diffuses:
        given = {"path": path, "function": "thinned"}
        terms += [{"kind": "viscosity", "coefficients": {field: c}} for c in (0.05, given)]
    band = {"band": [1, 2], "rate": 0.1, "field": field}
    numbers = {"field": field, "count": 3 if vector else 1}
    forces = [
        {"kind": "linear", "coefficient": 0.2, "field": field},
        {"kind": "constant_power", **band},
        {"kind": "ornstein_uhlenbeck", **band, "correlation_time": 0.3},
        {"kind": "python", "path": path, "function": "push", "parameters": numbers},
    ]
    if vector:
        forces += [{"kind": "kolmogorov", "field": field}, {"kind": "abc", "field": field}]
    known = [term for term in terms if term["kind"] in TERMS]  # others are of absent plugins
    return (
        [{**term, "name": f"{field}_t{i}"} for i, term in enumerate(known)],
        [{**force, "name": f"{field}_f{i}"} for i, force in enumerate(forces)],
    )


def driven(kind: str, path: str) -> Simulation:
    """A flow with every addition to every field; a sheared one takes none."""
    model = MODELS[kind]
    further = {"mhd": ["magnetic"], "boussinesq": ["buoyancy"]}.get(model["kind"], [])
    terms = []
    forces = []
    for field in ("velocity", *further, "dye", "salt"):
        vector = field in ("velocity", "magnetic")
        more = additions(field, vector, field != "magnetic", path)
        terms += more[0]
        forces += more[1]
    names = [*further, "dye", "salt"]
    noise = {"variance": 0.3, "peak": 2}
    start = {"kind": "random", "fields": {n: noise for n in ("velocity", *names)}}
    added = {} if kind == "sheared" else {"terms": terms, "forcing": forces}
    return flow(8, 10, 12, initial=start, model=model, **added)


def change_of_columns(run: Simulation) -> dict[str, float]:
    """d column / dt by the equations, by column: a quadratic quantity changes linearly between two states on
    both sides of the present one."""
    state = run.state

    @jax.jit
    def changed(state, h):
        fields = state.fields
        model = run.model.at(state.time)
        forces = run.system.accelerations(fields, state.time, state.memory)
        rates, _ = tendency(linearized(model, fields), fields, state.time, forces, limited=False)
        linear = linear_rates(model, fields)
        return {n: f + h * (rates[n] + linear[n]) for n, f in fields.items()}

    ahead, behind = (measured(run, replace(state, fields=changed(state, h))) for h in (0.5, -0.5))
    return {name: ahead[name] - behind[name] for name in ahead}


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "own.py"
    path.write_text(CODE)
    return str(path)


def budgets(kind: str, row: dict[str, float]) -> dict[str, float]:
    """The rate of change of each quadratic quantity as the reference of columns states it; the
    velocity has no mean."""

    def sums(*names: str) -> float:
        return sum(row.get(name, 0.0) for name in names)

    def power(field: str) -> float:
        return sum(v for n, v in row.items() if n.startswith(f"power_{field}"))

    def variance(name: str) -> float:
        losses = sums(f"{name}_dissipation", f"{name}_subgrid_dissipation")
        return sums(f"{name}_production", f"{name}_injection") - losses

    square = float(MODELS[kind].get("stratification", 0))
    lifted = row["buoyancy_flux"] if kind == "unstable" else 0.0
    energy = power("") + lifted + sums("shear_production") - row["dissipation"]
    changes = {"energy": energy, "dye_variance": variance("dye"), "salt_variance": variance("salt")}
    if kind != "sheared":
        lost = sums("viscous_dissipation", "subgrid_dissipation")
        exchanged = sums("buoyancy_flux", "lorentz_work")
        changes["kinetic_energy"] = power("velocity") + exchanged - lost
    if kind == "mhd":
        lost = sums("ohmic_dissipation", "lorentz_work")
        changes["magnetic_energy"] = power("magnetic") - lost
    if square:
        gain = variance("buoyancy") - 2 * square * row["buoyancy_flux"]
        changes["buoyancy_variance"] = gain
    if kind == "stable":
        lost = row["buoyancy_flux"] + row["buoyancy_dissipation"] / (2 * square)
        changes["potential_energy"] = power("buoyancy") - lost
    return changes


@pytest.mark.long
@pytest.mark.parametrize("kind", MODELS)
def test_columns_are_the_change_of_every_quadratic_quantity(kind, code):
    """With every kind of term and of force on every field, one field each, to round-off."""
    run = driven(kind, code)
    row = measured(run)
    change = change_of_columns(run)
    expected = budgets(kind, row)
    assert {name: change[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    parts = [v for n, v in row.items() if n.startswith("dye_power_")]
    assert len(parts) > 1 or kind == "sheared"
    assert sum(parts) == pytest.approx(row["dye_injection"] if parts else 0, rel=1e-12)
