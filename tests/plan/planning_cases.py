"""Configurations of every registered model, and what XLA reports about their compiled loop over
steps."""

from functools import cache
from pathlib import Path

import jax
import pytest
from shipped_runs import CONFIGS, shipped_runs

from simulator import Simulation
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import RunConfig, load_config
from simulator.physics.models import MODELS
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.compiling import Memory


@cache
def shipped() -> dict[str, Path]:
    """A shipped configuration of fields alone, which grow with the grid, by kind of model."""
    found: dict[str, Path] = {}
    for path in [*shipped_runs(), CONFIGS / "equations" / "surface_quasi_geostrophic.yaml"]:
        text = path.read_text()
        if "kind: particles" not in text:
            found.setdefault(load_config(path).model.kind, path)
    return found


def integrators(kind: str) -> list[str]:
    """The integrators of a model of fields alone: steps of linear growth take only particles."""
    model = MODELS[kind]
    split = model.numerics.split
    named = model.numerics.integrators or [n for n, c in INTEGRATORS.items() if c.split == split]
    return [n for n in named if not INTEGRATORS[n].growing]


def config_of(kind: str, *overrides: str) -> RunConfig:
    if kind not in shipped():
        pytest.skip(f"no shipped run of {kind} without the plugins")
    return load_config(shipped()[kind], ["time.cfl=0.4", *overrides])


def reported(config: RunConfig, devices: int, threads: int = 1) -> int:
    """Bytes of a device, by XLA, that the loop over steps of a run needs."""
    cluster = Cluster(discover({}), "cpu", tuple(jax.devices()[:devices]), threads=threads)
    return Memory.of(
        Simulation(config, cluster=cluster, report=lambda _: None).compiled_loop()
    ).total
