"""Configurations of every registered model, and what XLA reports about their compiled loop over
steps."""

from functools import cache
from pathlib import Path

import jax

from simulator import Simulation
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import RunConfig, load_config
from simulator.physics.models import MODELS
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.compiling import Memory

CONFIGS = Path(__file__).parents[2] / "configs"


@cache
def shipped() -> dict[str, Path]:
    """By kind of model, a configuration that the repository ships, of fields alone: they grow with
    the grid."""
    found: dict[str, Path] = {}
    for path in [
        *sorted(CONFIGS.glob("*.yaml")),
        CONFIGS / "equations" / "surface_quasi_geostrophic.yaml",
    ]:
        text = path.read_text()
        if "sweep:" not in text and "kind: particles" not in text:
            found.setdefault(load_config(path).model.kind, path)
    return found


def integrators(kind: str) -> list[str]:
    """Of a model of fields alone: steps of linear growth take only particles."""
    model = MODELS[kind]
    split = model.numerics.split
    named = model.numerics.integrators or [n for n, c in INTEGRATORS.items() if c.split == split]
    return [n for n in named if not INTEGRATORS[n].growing]


def config_of(kind: str, *overrides: str) -> RunConfig:
    return load_config(shipped()[kind], ["time.cfl=0.4", *overrides])


def reported(config: RunConfig, devices: int, threads: int = 1) -> int:
    """Bytes of a device, by XLA, that the loop over steps of a run needs."""
    cluster = Cluster(discover({}), "cpu", tuple(jax.devices()[:devices]), threads=threads)
    return Memory.of(
        Simulation(config, cluster=cluster, report=lambda _: None).compiled_loop()
    ).total
