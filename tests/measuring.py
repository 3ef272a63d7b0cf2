"""The rows of series, without a run."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from flow_support import flow

from simulator import Simulation
from simulator.archive.series_recorder import measured_series
from simulator.physics.models import State

MODELS = {
    "navier_stokes": {"viscosity": 0.02, "scalars": [{"name": "dye", "diffusivity": 0.01}]},
    "mhd": {"viscosity": 0.02, "resistivity": 0.01},
    "boussinesq": {"viscosity": 0.02, "diffusivity": 0.01, "stratification": 2.0},
}
STARTS = {
    "navier_stokes": {"scalars": {"dye": {"peak": 2, "seed": 9}}},
    "mhd": {"magnetic": {"energy": 0.3, "helicity": 0.5, "seed": 4}},
    "boussinesq": {"scalars": {"buoyancy": {"peak": 2, "seed": 9}}},
}
"""What a random start has beside the velocity."""
DAMPED = {"hyperviscosity": {"order": 2, "coefficient": 1e-4}, "rotation": [0, 0, 1]}
WIND = (2.0, -0.5, 0.25)


def random_flow(kind: str, output: dict[str, dict]) -> Simulation:
    """A random flow of an equation in `MODELS`, on two devices, with these series."""
    more = DAMPED if kind == "navier_stokes" else {}
    return flow(
        *(12, 10, 9),
        initial={"kind": "random", "peak": 2, **STARTS[kind]},
        model={"kind": kind, **MODELS[kind], **more},
        grid={"box": [2 * np.pi, 5.0, 4.0]},
        output={name: {"every": 1, **settings} for name, settings in output.items()},
        count=2,
    )


def moved(simulation, state: State, name: str, wind: tuple[float, ...] = WIND) -> State:
    """The state with a constant vector added to a field."""
    layout = simulation.transform.layout
    field = state.fields[name]
    shifted = field + np.where(layout.zero, np.reshape(wind, (3, 1, 1, 1)), 0)
    return State(**{**vars(state), "fields": {**state.fields, name: layout.constrain(shifted)}})


def row(simulation: Simulation, kind: str, state: State | None = None) -> dict[str, np.ndarray]:
    """The values of a series that the simulation's configuration names, by default at the start."""
    compute = jax.jit(measured_series(simulation)[kind].compute)
    return {
        name: np.asarray(v)
        for name, v in compute(simulation.state if state is None else state).items()
    }


def with_values(simulation: Simulation, **values: np.ndarray) -> State:
    """The initial state with other values (..., x, y, z) of some fields."""
    forward = simulation.transform.forward
    fields = {name: forward(jnp.asarray(np.asarray(v, float))) for name, v in values.items()}
    return replace(simulation.state, fields={**simulation.state.fields, **fields})


def on_grid(simulation: Simulation, *names: str) -> list[np.ndarray]:
    """The values of fields at the start, without padding."""
    cut = (..., *(slice(n) for n in simulation.grid.shape))
    return [np.asarray(simulation.field_program(name)(simulation.state))[cut] for name in names]


def slopes(simulation: Simulation, values: np.ndarray) -> np.ndarray:
    """The derivatives (..., 3, x, y, z) of values (..., x, y, z) on the grid along the axes, by
    numpy."""
    grid = simulation.grid
    each = (2 * np.pi * np.fft.fftfreq(n, h) for n, h in zip(grid.shape, grid.spacing, strict=True))
    modes = np.fft.fftn(values, axes=(-3, -2, -1))
    along = [
        np.fft.ifftn(1j * k * modes, axes=(-3, -2, -1)).real
        for k in np.meshgrid(*each, indexing="ij")
    ]
    return np.stack(along, axis=-4)
