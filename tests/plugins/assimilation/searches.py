"""Searches for the start of small flows."""

from pathlib import Path
from typing import Any

from simulator import Simulation
from simulator.config import load_config
from simulator.errors import UserError
from simulator.plugins.assimilation.background import background
from simulator.plugins.assimilation.observations import Observed, read_observations
from simulator.plugins.assimilation.settings import BackgroundSettings, ObservationSettings


def opened(file: Path, *overrides: str) -> Simulation:
    return Simulation(load_config(file, overrides), report=lambda line: None)


def read(simulation: Simulation, *tables: ObservationSettings) -> list[Observed]:
    """The observations in tables. Raises UserError where a table is refused."""
    return read_observations(tables, simulation, lambda key, text: UserError(text))


def prior_of(simulation: Simulation, field: str, file: Path) -> Any:
    return background(BackgroundSettings(spectrum={field: file}), simulation)


def search(folder: Path, simulation: Simulation, method: Any, field: str, **own: Any) -> Any:
    """A search by the observations in table.npz, with the prior in e.txt."""
    observed = read(simulation, ObservationSettings(table=folder / "table.npz"))
    return method(observed, prior_of(simulation, field, folder / "e.txt"), **own)
