"""Pseudo-spectral simulations of fluids and self-gravitating matter in a periodic box.

from simulator import Simulation, load_config, open_run

Simulation(load_config("run.yaml", ["time.stop=1"])).run()
open_run("outputs/run").diagnostics["energy"]
"""

import os
import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.archive.open_run import open_run
    from simulator.cluster.memory import keep_freed_memory
    from simulator.config import load_config
    from simulator.registry import Registry
    from simulator.run.runnable import RunnableSimulation as Simulation
    from simulator.study.sweep import open_sweep

__all__ = ["Simulation", "keep_freed_memory", "load_config", "open_run", "open_sweep"]

# XLA reads this when JAX is imported. It hides warnings about programs from the compile cache, which
# mean nothing to a user, also in notebooks. JAX 0.10.1, the last for Python 3.11, calls them errors.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if sys.version_info < (3, 12) else "2")

if "jax" in sys.modules:  # a program that may have computed already
    from simulator.jax_versions import fault

    if line := fault():
        warnings.warn(line, stacklevel=2)

NAMES = {
    "Simulation": "simulator.run.runnable:RunnableSimulation",
    "keep_freed_memory": "simulator.cluster.memory:keep_freed_memory",
    "load_config": "simulator.config:load_config",
    "open_run": "simulator.archive.open_run:open_run",
    "open_sweep": "simulator.study.sweep:open_sweep",
}
"""The public names of the core, each with its place. Plugins add names by entry points of
`simulator.names`."""


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: commands for login nodes stay quick and start no
    JAX."""
    if name.startswith("_") or name not in _names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _names()[name]


@cache
def _names() -> "Registry[Any]":
    from simulator.registry import Registry

    return Registry("simulator.names", NAMES)
