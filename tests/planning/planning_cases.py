"""Configurations of every registered model, and what XLA reports about their compiled loop over steps."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.config import RunConfig, load_config
from simulator.models import MODELS
from simulator.run.simulation import Simulation
from simulator.stepping import INTEGRATORS, Until

CONFIGS = Path(__file__).parents[2] / "configs"


@dataclass(frozen=True)
class Cluster:
    devices: tuple[Any, ...]
    num_processes: int = 1
    process_id: int = 0
    is_first: bool = True


@cache
def shipped() -> dict[str, Path]:
    """By kind of model, a configuration that the repository ships."""
    found: dict[str, Path] = {}
    for path in sorted(CONFIGS.glob("*.yaml")):
        text = path.read_text()
        if "sweep:" not in text:
            found.setdefault(load_config(path).model.kind, path)
    return found


def integrators(kind: str) -> list[str]:
    if known := getattr(MODELS[kind], "integrators", ()):
        return list(known)
    split = getattr(MODELS[kind], "split", False)
    return [n for n, c in INTEGRATORS.items() if getattr(c, "split", False) == split]


def config_of(kind: str, *overrides: str) -> RunConfig:
    return load_config(shipped()[kind], ["time.cfl=0.4", *overrides])


def reported(config: RunConfig, devices: int) -> int:
    """Bytes of a device, by XLA, that the compiled loop over steps needs."""
    simulation = Simulation(
        config, cluster=cast(Any, Cluster(tuple(jax.devices()[:devices]))), report=lambda _: None
    )
    layout = simulation.transform.layout

    def placed(array: Any) -> jax.ShapeDtypeStruct:
        spectral = array.ndim >= 3 and array.shape[-3:] == layout.shape
        where = layout.sharding(array.ndim) if spectral else NamedSharding(layout.mesh, PartitionSpec())
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)

    state = jax.tree.map(placed, simulation.template)
    until = Until(np.float64(1), np.float64(1), np.int64(5))
    compiled = cast(Any, simulation.advance).lower(state, until).compile()
    memory = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    return held - memory.alias_size_in_bytes
