"""Checks whether `run` may start a run, for all commands, also on a login node.

The checks build an abstract simulation, on devices that cannot compute: model, forcing, outputs and
initial condition raise the same errors as in a run. Checks that depend on values, such as an
initial state at rest, are left to the run."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from simulator.archive.manifest import committed
from simulator.archive.run_state import CONFIG
from simulator.archive.series_recorder import measured_series
from simulator.archive.stored_state import RunInputs, StoredFields
from simulator.config import RunConfig, diff_configs
from simulator.physics.initial.initial import ForeignParticles, StoredParticles
from simulator.physics.models import MODELS, SplitEquation
from simulator.physics.particles import Domain, ParticleSet
from simulator.physics.stored_values import StoredValues
from simulator.plan.capacity import NICE
from simulator.run.folder import (
    USUAL,
    Action,
    Choices,
    Decision,
    FolderContent,
    RunFolder,
    computed_with,
    decide,
    read_state,
)
from simulator.simulation.abstract_run import paper_simulation, virtual_devices
from simulator.simulation.compiling import bytes_of
from simulator.simulation.initial_state import check_growth, check_limit, outlook
from simulator.simulation.placement import check_devices
from simulator.simulation.simulation import Simulation
from simulator.spectral import Transform
from simulator.spectral.layout import PhysicalLayout
from simulator.spectral.staged import NAME
from simulator.words import counted, size

# The largest grid whose linear term is evaluated on a login node.
MOST_POINTS = 1 << 26


def may_run(
    config: RunConfig,
    processes: int = 1,
    choices: Choices = USUAL,
) -> Decision:
    """Whether `run` would start or continue the run, or find it finished. Raises UserError, with
    the place, if `run` would refuse the folder, or the configuration on any devices. Needs no
    device and writes nothing."""
    decision = decision_of(config, choices)
    decision.raise_if_refused()
    if decision.action is not Action.FINISHED:
        folder = Path(config.output.directory) / "inputs"
        inputs = check_configuration(config, processes, None if decision.clear else folder)
        if decision.action is Action.CONTINUE:
            inputs.compare(folder)
    return decision


def decision_of(config: RunConfig, choices: Choices = USUAL) -> Decision:
    """The decision of `run` for `config` and the present contents of its folder."""
    folder = RunFolder(Path(config.output.directory))
    content = folder.content()
    file = folder.path / CONFIG
    old = (
        content in (FolderContent.PREPARED, FolderContent.UNFINISHED, FolderContent.FINISHED)
        and not choices.overwrite
    )
    differences = diff_configs(computed_with(file), config) if old else ()
    state = read_state(folder.path)
    return decide(
        folder.path,
        content,
        state,
        differences,
        stop=config.time.stop,
        choices=choices,
    )


def check_configuration(
    config: RunConfig,
    processes: int = 1,
    copies: Path | None = None,
) -> RunInputs:
    """The input files of a configuration. Raises UserError, with the place, if `run` would refuse
    it on any devices.

    `copies` is the folder with a continued run's copies of its input files."""
    count = config.devices.count
    check_devices(config, count, processes)
    known = count if count != "auto" and config.fft.backend == NAME else 1
    inputs = _InputsOnPaper(copies)
    simulation = paper_simulation(config, inputs, known)
    measured_series(simulation)
    check_limit(config, simulation.model, simulation.time_step)
    if copies is not None and committed(copies.parent / "checkpoints"):
        return inputs  # the start, whose files may be elsewhere by now, is not needed any more
    # The initial condition may reach a branch that depends on values.
    with contextlib.suppress(jax.errors.JAXTypeError):
        jax.eval_shape(simulation.start)
    return inputs


def outlook_of(config: RunConfig) -> list[str]:
    """Lines about the resolution that the run needs, from formulas alone."""
    inputs = _InputsOnPaper(None)
    return outlook(config, paper_simulation(config, inputs).model, inputs)


def check_linear_growth(config: RunConfig, copies: Path | None = None) -> None:
    """Raises UserError if a user's equation has modes that grow too fast for the fixed dt, on grids
    that are not too large for a login node.

    Computes the linear term on a virtual CPU device. It is for commands that start no run, because
    a run makes the same check before it makes its folder. `copies` as in `check_configuration`."""
    if config.time.dt is None or MODELS[config.model.kind].numerics.decays:
        return
    if prod(config.grid.shape) > MOST_POINTS:
        return
    simulation = paper_simulation(config, _InputsOnPaper(copies), virtual_devices()[:1])
    check_growth(config, simulation.model, simulation.time_step)


def check_memory(simulation: Simulation) -> None:
    """Raises UserError, before any array is allocated, if the steps need more memory than the
    devices have free now. If the free memory is unknown, no run is refused. All processes call
    this."""
    if (short := simulation.shortage()) is None:
        return
    config = simulation.config
    devices = len(simulation.cluster.devices)
    (state, needs, free) = short
    shape = config.grid.shape
    side = next((n for n in reversed(NICE) if (n / max(shape)) ** len(shape) * needs <= free), None)
    smaller = [] if side is None else [max(1, n * side // max(shape)) for n in shape]
    key = "grid.shape"
    least = f"{size(needs)} or more"
    of = f"{' x '.join(map(str, shape))} in {config.precision} precision needs {least}"
    cures = [f"grid.shape: {smaller}"] if smaller else []
    if (crowd := _crowd(simulation, state)) is not None:
        key, name, count, bytes_ = crowd
        # The memory of a step is proportional to the arrays that it advances.
        fit = int(count * (free * state / needs - (state - bytes_)) / bytes_)
        of = f"{count} {name} are most of the {least} that a step needs"
        cures = [f"count: {fit}"] if fit > 0 else []
    cures.append(f"{counted(ceil(needs / free * devices), 'device')} like these")
    have = f"on each of {counted(devices, 'device')}, which {'has' if devices == 1 else 'have'} {size(free)} free"
    raise config.error(
        key, f"{of} {have}; what would fit: {', or '.join(cures)} (see simulator plan)"
    )


MOST_BYTES = 2**31 - 1
"""The largest message of JAX's MPI, whose counts are 32-bit numbers; it wraps larger ones."""
_MESSAGES = 8
"""Bound of the messages from one process to another, in states of a device over the number of
processes: twice the fields, and (3/2)^2 for axes that are not truncated yet, are 4.5."""


def check_messages(simulation: Simulation) -> None:
    """Raises UserError if processes might send messages that are too large for MPI."""
    cluster = simulation.cluster
    most = _MESSAGES * bytes_of(simulation.template) / len(cluster.devices) ** 2
    if cluster.transport.name == "mpi" and most > MOST_BYTES:
        between = f"{cluster.num_processes} processes may send messages of {size(most)}"
        raise simulation.config.error(
            "run.transport",
            f"{between}, and MPI sends at most {size(MOST_BYTES)} at once; use more processes, or gloo",
        )


def _crowd(simulation: Simulation, state: float) -> tuple[str, str, int, float] | None:
    """If particles are most of the `state` (bytes): the key of the largest species' number, its
    name, that number, and its bytes on a device."""
    sets = simulation.template.particles
    sizes = {name: bytes_of(particles) / sets[name].devices for name, particles in sets.items()}
    if 2 * sum(sizes.values()) < state:
        return None
    name = max(sizes, key=lambda name: sizes[name])
    block, names = "particles", tuple(sets)
    if isinstance(model := simulation.model, SplitEquation) and name in model.populations:
        block, names = "model.components", tuple(model.parts)
    return (
        f"{block}.{names.index(name)}.count",
        name,
        simulation.populations[name].count,
        sizes[name],
    )


class _InputsOnPaper(RunInputs):
    """Reads the input files of a configuration without the arrays of snapshots, for which zeros
    stand."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self.compares = True

    def snapshot(self, path: str) -> "_FieldsOnPaper":
        return _FieldsOnPaper(self.opened(path))

    def array(self, path: str, dataset: str | None) -> Any:
        return _ArrayOnPaper(super().array(path, dataset))

    def particles(self, path: str, name: str) -> Any:
        return _ParticlesOnPaper(super().particles(path, name))

    def foreign(self, particles: ForeignParticles) -> Any:
        return _ParticlesOnPaper(super().foreign(particles))


class _FieldsOnPaper(StoredFields):
    def coefficients(self, name: str, transform: Transform) -> jax.Array:
        shape = (*self.components[name], *transform.layout.shape)
        return jnp.zeros(shape, transform.complex_dtype)


@dataclass(frozen=True)
class _OnPaper:
    """A file of which all but the values is known."""

    stored: StoredParticles | StoredValues

    def __getattr__(self, name: str) -> object:
        return getattr(self.stored, name)


class _ArrayOnPaper(_OnPaper):
    def values(self, place: PhysicalLayout, lead: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return jnp.zeros((*lead, *place.shape), np.dtype(dtype))


class _ParticlesOnPaper(_OnPaper):
    def restore(self, domain: Domain, records: Mapping[str, int], capacity: int) -> ParticleSet:
        entries = domain.devices * capacity
        values = {name: jnp.zeros((*([n] if n else []), entries)) for name, n in records.items()}
        ids = jnp.zeros(entries, jnp.int64)
        counts = jnp.zeros(domain.devices, jnp.int32)
        return ParticleSet(values, ids, counts, jnp.int32(0))
