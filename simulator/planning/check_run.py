"""All that `run` refuses before it has devices, found without any: on a login node, by every command alike.

The run is built on paper, with devices that cannot compute: model, forcing, outputs and initial condition refuse
there what they refuse in a run. Refusals that depend on values, such as a start at rest, are left to the run.
"""

import contextlib
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from simulator.config import RunConfig
from simulator.output.recorder import series_of
from simulator.planning.abstract_run import paper_simulation
from simulator.planning.fitting import NICE
from simulator.planning.plan import size
from simulator.simulation.inputs import Inputs
from simulator.simulation.memory import ROOM, SMALL, Memory, free_everywhere
from simulator.simulation.placement import check_devices, check_exchange
from simulator.simulation.simulation import Simulation
from simulator.spectral import Grid, Transform
from simulator.spectral.staged import NAME

AT_LEAST = 2
"""So many times its state are the least that any step holds."""


def check(config: RunConfig, processes: int = 1, copies: Path | None = None) -> None:
    """Raises UserError, with the place, for whatever makes `run` refuse the configuration on any devices. `copies` is
    the folder with a continued run's copies of the files that it names."""
    count, fft = config.devices.count, config.fft
    check_devices(config, count, processes)
    check_exchange(config)
    simulation = paper_simulation(
        config, count if count != "auto" and fft.backend == NAME else 1, inputs=_InputsOnPaper(copies)
    )
    series_of(simulation)
    with contextlib.suppress(jax.errors.JAXTypeError):  # it has come to where values decide
        jax.eval_shape(simulation.start)


def check_memory(simulation: Simulation) -> None:
    """Raises UserError where the run's steps need more memory than its devices have free, before any is taken. All
    processes call.

    Free is what nothing uses at this moment; where nothing tells, nothing is refused.
    """
    cluster, config = simulation.cluster, simulation.config
    devices = len(cluster.devices)
    state = _bytes(simulation.template) / devices
    if ROOM * state <= SMALL:
        return
    free = free_everywhere(cluster)
    if free is None or ROOM * state <= free:
        return
    # A step makes at least one more state; only where that fits it is worth a compilation.
    needs = AT_LEAST * state
    if needs <= free:
        needs = Memory.of(simulation.compiled_loop()).total
    if needs <= free:
        return
    _check_particles(simulation, state, needs, free)
    shape = config.grid.shape
    side = next((n for n in reversed(NICE) if (n / max(shape)) ** len(shape) * needs <= free), None)
    cures = [f"{_counted(ceil(needs / free * devices))} like these"]
    if side is not None:
        smaller = (max(1, n * side // max(shape)) for n in shape)
        cures.insert(0, f"grid.shape: [{', '.join(map(str, smaller))}]")
    raise config.error(
        "grid.shape",
        f"{' x '.join(map(str, shape))} in {config.precision} precision needs {size(needs)} or more on each of "
        f"{_counted(devices)}, which {'has' if devices == 1 else 'have'} {size(free)} free; what would fit: "
        f"{', or '.join(cures)} (simulator plan tells more)",
    )


def _check_particles(simulation: Simulation, state: float, needs: float, free: float) -> None:
    """Raises UserError where the particles are most of a device's `state` (bytes), with the number that would fit."""
    sets = simulation.template.particles
    held = {name: _bytes(particles) / sets[name].devices for name, particles in sets.items()}
    if 2 * sum(held.values()) < state:
        return
    name = max(held, key=lambda name: held[name])
    count = simulation.populations[name].count
    # A step needs memory in proportion to what it advances.
    fit = int(count * (free * state / needs - (state - held[name])) / held[name])
    cures = [f"count: {fit}"] if fit > 0 else []
    devices = len(simulation.cluster.devices)
    cures.append(f"{_counted(ceil(needs / free * devices))} like these")
    of_model = name in simulation.model.populations
    block, names = ("model.components", simulation.model.parts) if of_model else ("particles", sets)
    raise simulation.config.error(
        f"{block}.{list(names).index(name)}.count",
        f"{count} {name} are most of the {size(needs)} or more that a step needs on each of {_counted(devices)}, "
        f"which {'has' if devices == 1 else 'have'} {size(free)} free; what would fit: {', or '.join(cures)}",
    )


def _bytes(tree: Any) -> int:
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(tree))


def _counted(devices: int) -> str:
    return f"{devices} device{'s' * (devices > 1)}"


class _InputsOnPaper(Inputs):
    """Reads what a configuration names, but no arrays."""

    def snapshot(self, path: str) -> Any:
        return _Shapes(super().snapshot(path))


class _Shapes:
    """Of the fields on disk."""

    def __init__(self, stored: Any):
        self.grid: Grid = stored.grid
        self.components: Mapping[str, tuple[int, ...]] = stored.components

    def coefficients(self, name: str, transform: Transform) -> jax.Array:
        kind = np.result_type(cast(Any, transform).dtype, np.complex64)
        return jnp.zeros((*self.components[name], *transform.layout.shape), kind)
