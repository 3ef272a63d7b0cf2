"""Pseudo-spectral simulations of fluids and self-gravitating matter in a periodic box.

from simulator import Simulation, load_config, open_run

Simulation(load_config("run.yaml", ["time.stop=1"])).run()
open_run("outputs/run").diagnostics["energy"]
"""

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.archive.open_run import open_run
    from simulator.config import load_config
    from simulator.learn.stream import stream
    from simulator.run.runnable import RunnableSimulation as Simulation
    from simulator.simulation.differentiate import differentiate
    from simulator.study.sweep import open_sweep

__all__ = ["Simulation", "differentiate", "load_config", "open_run", "open_sweep", "stream"]

# XLA reads this when JAX is imported. It hides warnings about programs from the compile cache, which
# mean nothing to a user, also in notebooks. JAX 0.10.1, the last for Python 3.11, calls them errors.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if sys.version_info < (3, 12) else "2")

if "jax" in sys.modules:  # a program that may have computed already
    from simulator.jax_versions import fault

    if line := fault():
        warnings.warn(line, stacklevel=2)

_HOME = {
    "Simulation": "simulator.run.runnable",
    "differentiate": "simulator.simulation.differentiate",
    "load_config": "simulator.config",
    "open_run": "simulator.archive.open_run",
    "open_sweep": "simulator.study.sweep",
    "stream": "simulator.learn.stream",
}
_CALLED = {"Simulation": "RunnableSimulation"}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: commands for login nodes stay quick and start no
    JAX."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), _CALLED.get(name, name))
