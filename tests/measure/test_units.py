"""Rows do not know the units: in units of length and time that are smaller by a power of two, every
column and every variable of a series is multiplied by an integer power of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flow_support import flow
from measuring import STARTS, row

from simulator import Simulation
from simulator.measure import OUTPUTS
from simulator.physics.models import State

SERIES = tuple(
    name for name in ("spectra", "transfer", "strain", "structure_functions") if name in OUTPUTS
)
"""Those of plugins only where they are."""
POWERS = {
    "velocity": (1, -1),
    "magnetic": (1, -1),
    "buoyancy": (1, -2),
    "dye": (0, 0),
    "density": (0, 0),
    "momentum": (1, -1),
}
"""Powers of length and time; densities and scalars keep their unit."""


def model(kind: str, length: float, time: float) -> dict[str, Any]:
    """The settings of a model in these units."""
    diffusivity = 0.02 * length**2 / time
    damped = {
        "viscosity": diffusivity,
        "hyperviscosity": {"order": 2, "coefficient": 1e-4 * length**4 / time},
        "drag": {"coefficient": 0.1 / time, "below": 2.5 / length},
        "rotation": [0, 0, 1 / time],
    }
    more: dict[str, dict[str, Any]] = {
        "navier_stokes": {**damped, "scalars": [{"name": "dye", "diffusivity": diffusivity}]},
        "boussinesq": {**damped, "diffusivity": diffusivity, "stratification": 2 / time**2},
        "mhd": {**damped, "resistivity": diffusivity / 2, "ion_length": 0.1 * length},
        "self_gravitating_gas": {
            "sound_speed": 1.5 * length / time,
            "gravitational_constant": 0.05 / time**2,
            "background_density": 1.0,
            "viscosity": diffusivity,
            "bulk_viscosity": diffusivity,
        },
    }
    return {"kind": kind, **more[kind]}


def in_units(kind: str, length: float, time: float) -> Simulation:
    initial = {"kind": "random", "peak": 2, "seed": 3, **STARTS.get(kind, {})}
    return flow(
        *(12, 10, 8),
        initial=initial,
        model=model(kind, length, time),
        grid={"box": [6 * length, 5 * length, 4 * length]},
        output={name: {"every": 1} for name in series_of(kind)},
        time={"stop": 1.0, "dt": 0.01},
    )


CLOSE = 1e-12
"""Powers of two scale floating-point numbers exactly, but for roots and exponentials."""
LENGTH, TIME = 5, 61
"""The other units are smaller by 2^LENGTH and 2^TIME: a factor 2^(LENGTH a + TIME b) says what the
powers a and b are, |a| <= 6; odd numbers, so that halves are none."""


def series_of(kind: str) -> tuple[str, ...]:
    return tuple(
        name for name in SERIES if kind != "self_gravitating_gas" or name in ("spectra", "transfer")
    )


def rows(simulation: Simulation, state: State) -> dict[str, np.ndarray]:
    """The row of diagnostics.csv and of each series, by series and variable."""
    found = {f"diagnostics {name}": v for name, v in simulation.diagnostics(state).items()}
    for series in series_of(simulation.config.model.kind):
        found |= {f"{series} {name}": v for name, v in row(simulation, series, state).items()}
    return {name: np.asarray(values, float) for name, values in found.items()}


@pytest.mark.parametrize("kind", ["navier_stokes", "boussinesq", "mhd", "self_gravitating_gas"])
def test_every_quantity_has_a_dimension(kind):
    plain = in_units(kind, 1.0, 1.0)
    state = plain.state
    expected = rows(plain, state)
    length, time = 2.0**LENGTH, 2.0**TIME
    fields = {
        name: field * length ** POWERS[name][0] * time ** POWERS[name][1]
        for name, field in state.fields.items()
    }
    found = rows(in_units(kind, length, time), replace(state, fields=fields))
    for name, values in expected.items():
        some = np.isfinite(values) & (values != 0)
        ratios = np.unique(found[name][some] / values[some])
        power = np.log2(np.abs(ratios))
        assert (power.size == 0 or np.ptp(power) < CLOSE) and (ratios > 0).all(), name
        of_length = power - TIME * np.rint(power / TIME)
        of_both = of_length - LENGTH * np.rint(of_length / LENGTH)
        assert np.allclose(of_both, 0, rtol=0, atol=CLOSE), name
        assert np.array_equal(found[name][~some], values[~some], equal_nan=True), name
