"""Starts and steps do not know the units: in units of length, time and density that are smaller by
a power of 4, every number of a state is multiplied by a power of 2."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from flow_support import flow
from numpy.testing import assert_allclose

from simulator import Simulation
from simulator.physics.models import State
from simulator.physics.terms import TERMS
from simulator.simulation.advance import Until

POWERS = {
    "velocity": (1, -1, 0),
    "magnetic": (1, -1, 0),
    "buoyancy": (1, -2, 0),
    "position": (1, 0, 0),
    "displacement": (1, 0, 0),
    "mass": (3, 0, 1),
    "density": (0, 0, 1),
    "momentum": (1, -1, 1),
    "psi": (0, 0, 0.5),
    "dt": (0, 1, 0),
}
"""Powers of length, time and density; scalars have no unit."""
SHAPE, BOX = (16, 12, 10), (6.0, 5.0, 4.0)
OTHER = 2.0**8, 2.0**20, 2.0**6


def forced_flow(length: float, time: float, density: float) -> dict[str, Any]:
    speed, diffusivity = length / time, 0.02 * length**2 / time
    body = {"kind": "sphere", "center": [3 * length, 2 * length, 2 * length], "radius": length}
    return {
        "model": {
            "kind": "navier_stokes",
            "viscosity": diffusivity,
            "hyperviscosity": {"order": 2, "coefficient": 1e-4 * length**4 / time},
            "drag": {"coefficient": 0.1 / time, "below": 2.5 / length},
            "rotation": [0, 0, 1 / time],
            "subgrid": {"kind": "smagorinsky"},
            "scalars": [{"name": "dye", "diffusivity": diffusivity}],
        },
        "initial": {
            "kind": "random",
            "peak": 2 / length,
            "energy": 0.5 * speed**2,
            "scalars": {"dye": {"peak": 2 / length}},
        },
        "forcing": [
            {
                "kind": "ornstein_uhlenbeck",
                "rate": 0.1 * speed**2 / time,
                "band": [1 / length, 2 / length],
                "correlation_time": time,
            },
            {
                "kind": "constant_power",
                "rate": 0.2 * speed**2 / time,
                "band": [2 / length, 3 / length],
            },
        ],
        "terms": [
            {
                "name": "body",
                "kind": "relax",
                "target": {"velocity": "body"},
                "relaxation_time": 0.05 * time,
                "mask": {**body, "smoothing": length},
            }
        ]
        * ("relax" in TERMS),  # of a plugin, which may be absent
        "particles": [
            {"name": "tracers", "kind": "tracer", "count": 20},
            {"name": "drops", "kind": "inertial", "count": 20, "relaxation_time": 0.5 * time},
        ],
    }


def stratified(length: float, time: float, density: float) -> dict[str, Any]:
    diffusivity = 0.02 * length**2 / time
    return {
        "model": {
            "kind": "boussinesq",
            "viscosity": diffusivity,
            "diffusivity": diffusivity / 2,
            "stratification": 4 / time**2,
            "rotation": [0, 1 / time, 2 / time],
        },
        "initial": {"kind": "random", "peak": 2 / length, "energy": 0.5 * (length / time) ** 2},
        "time": {"waves": "exact"},
    }


def magnetic(length: float, time: float, density: float) -> dict[str, Any]:
    diffusivity = 0.02 * length**2 / time
    energy = 0.25 * (length / time) ** 2
    return {
        "model": {
            "kind": "mhd",
            "viscosity": diffusivity,
            "resistivity": diffusivity / 2,
            "ion_length": 0.1 * length,
            "shear": -1 / time,
        },
        "initial": {
            "kind": "random",
            "peak": 2 / length,
            "energy": energy,
            "magnetic": {
                "peak": 2 / length,
                "energy": energy,
                "mean_field": [0, 0, 0.5 * length / time],
            },
        },
    }


def gas(length: float, time: float, density: float) -> dict[str, Any]:
    speed, diffusivity = length / time, 0.02 * length**2 / time
    return {
        "model": {
            "kind": "self_gravitating_gas",
            "sound_speed": 1.5 * speed,
            "polytropic_exponent": 1.4,
            "gravitational_constant": 0.05 / (density * time**2),
            "background_density": density,
            "viscosity": diffusivity,
            "bulk_viscosity": diffusivity,
            "external_acceleration": [0.1 * speed / time, 0, 0],
        },
        "initial": {"kind": "random", "peak": 2 / length, "energy": 0.1 * speed**2},
        "forcing": {
            "kind": "ornstein_uhlenbeck",
            "rate": 0.05 * speed**2 / time,
            "band": [1 / length, 2 / length],
            "correlation_time": time,
            "solenoidal_weight": 0.6,
        },
    }


def waves(length: float, time: float, density: float) -> dict[str, Any]:
    return {
        "model": {
            "kind": "schrodinger_poisson",
            "hbar_over_m": 0.3 * length**2 / time,
            "gravitational_constant": 0.2 / (density * time**2),
        },
        "initial": {"kind": "jeans_wave", "amplitude": 0.2, "density": density},
    }


def matter(length: float, time: float, density: float) -> dict[str, Any]:
    return {
        "model": {
            "kind": "composite",
            "gravitational_constant": 0.25 / (density * time**2),
            "cosmology": {"start": 0.05, "matter": 0.3, "hubble": 2 / time},
            "components": [
                {"kind": "particles", "name": "dark", "count": 560},
                {"kind": "schrodinger_poisson", "hbar_over_m": 0.02 * length**2 / time},
            ],
        },
        "initial": {
            "kind": "composite",
            "components": {
                "dark": {"kind": "zeldovich_wave", "amplitude": 0.02, "density": 0.3 * density},
                "waves": {"kind": "jeans_wave", "amplitude": 0.02, "density": 0.27 * density},
            },
        },
    }


CASES = (forced_flow, stratified, magnetic, gas, waves, matter)


def in_units(case: Callable[..., dict[str, Any]], *units: float):
    length, time, _ = units
    blocks = case(*units)
    marching = {"stop": 10.0 * time, "cfl": 0.4, "max_dt": 0.2 * time, **blocks.pop("time", {})}
    box = [length * extent for extent in BOX]
    return flow(*SHAPE, **blocks, grid={"box": box}, time=marching)


def numbers(simulation: Simulation, state: State) -> dict[str, np.ndarray]:
    """All numbers of a state by name; particles in the order of their identities."""
    found = {name: np.asarray(field) for name, field in state.fields.items()}
    for name, species in state.particles.items():
        valid = np.asarray(species.valid)
        order = np.argsort(np.asarray(species.id)[valid])
        for record, values in species.records.items():
            found[f"{name} {record}"] = np.asarray(values)[..., valid][..., order]
    return {**found, "dt": np.asarray(state.dt)}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_start_and_steps_have_dimensions(case):
    plain, other = in_units(case, 1.0, 1.0, 1.0), in_units(case, *OTHER)
    three = Until(np.float64(np.inf), np.float64(np.inf), np.int64(3))
    for moved in (False, True):
        expected, found = (
            numbers(run, run.advance(run.state, three) if moved else run.state)
            for run in (plain, other)
        )
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            quantity = next((q for q in POWERS if name.endswith(q)), None)
            powers = POWERS[quantity] if quantity else (0, 0, 0)
            scaled = found[name] / np.prod(np.power(OTHER, powers))
            close = 1e-12 * np.abs(values).max()
            assert_allclose(scaled, values, rtol=0, atol=close, err_msg=name)


def test_exact_waves_keep_single_precision():
    model = {"kind": "navier_stokes", "viscosity": 0.1, "rotation": [0, 0, 5]}
    run = flow(
        8,
        8,
        8,
        initial={"kind": "taylor_green"},
        model=model | {"scalars": [{"name": "dye", "diffusivity": 0.1}]},
        time={"stop": 1.0, "waves": "exact", "integrator": "etdrk4"},
        precision="single",
    )
    after = jax.eval_shape(run.step, run.template, 0.01)
    assert {array.dtype for array in after.fields.values()} == {np.dtype(np.complex64)}
