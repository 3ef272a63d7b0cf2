"""Measures every series that the configuration of a run requests, and writes the series row by row."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.archive.gadget import gadget_problem
from simulator.archive.manifest import Axis
from simulator.archive.reader import open_snapshot
from simulator.archive.restore import restore
from simulator.archive.series import Series
from simulator.archive.shard import Dataset
from simulator.archive.states import component_names, physical_axes, spectral_axes, whole
from simulator.files import UNRECORDED, Journal
from simulator.measure import Kind, Measured, Subject, Unsupported, requested
from simulator.measure.kind import Carried, ParticleSubject
from simulator.physics.models import State
from simulator.simulation import quantities
from simulator.simulation.compiling import Compilable
from simulator.simulation.simulation import Simulation
from simulator.spectral import Layout, Transform

Memory = Mapping[str, jax.Array]


class CarriedArrays:
    """The arrays that one series carries from row to row. `prefix` distinguishes their names in a checkpoint from
    those of other series."""

    def __init__(self, carried: Carried, transform: Transform, prefix: str):
        self._carried, self._transform, self._prefix = carried, transform, prefix
        template = jax.eval_shape(carried.begin)
        self.template = {
            name: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=self._sharding(name, a.ndim))
            for name, a in template.items()
        }
        """Shapes, types and shardings."""

    def _sharding(self, name: str, rank: int) -> NamedSharding:
        place = self._carried.places.get(name)
        everywhere = NamedSharding(self._transform.layout.mesh, PartitionSpec())
        return everywhere if place is None else place.sharding(rank)

    def _axes(self, name: str) -> tuple[Axis, ...]:
        place = self._carried.places[name]
        return spectral_axes(place) if isinstance(place, Layout) else physical_axes(place)

    def begin(self) -> Memory:
        """The arrays at the first row of a run."""
        return jax.jit(self._carried.begin, out_shardings={n: a.sharding for n, a in self.template.items()})()

    def placed(self, memory: Memory) -> dict[str, jax.Array]:
        """The arrays constrained to the shardings of `template`, inside a compiled function."""
        return {n: jax.lax.with_sharding_constraint(memory[n], a.sharding) for n, a in self.template.items()}

    def datasets(self, memory: Memory) -> list[Dataset]:
        """The arrays as a checkpoint stores them."""
        datasets = []
        for name, array in memory.items():
            place = self._carried.places.get(name)
            if place is None:
                datasets.append(Dataset(self._prefix + name, np.asarray(array)))
                continue
            hermitian = isinstance(place, Layout) and place.half
            components = component_names(array.shape[:-3])
            datasets.append(Dataset(self._prefix + name, array, self._axes(name), components, hermitian=hermitian))
        return datasets

    def load(self, folder: Path) -> Memory:
        """The arrays in a checkpoint; the arrays at a first row if the checkpoint was written without this series."""
        snapshot = open_snapshot(folder)
        if not all(self._prefix + name in snapshot for name in self.template):
            return self.begin()
        memory = {}
        for name, like in self.template.items():
            stored = self._prefix + name
            place = self._carried.places.get(name)
            if place is None:
                memory[name] = whole(snapshot, stored, like.shape, like.sharding, like.dtype)
            else:
                memory[name] = restore(
                    snapshot, stored, like.sharding, self._axes(name), place.shape, dtype=like.dtype
                )
        return memory


TOGETHER = 10.0
"""Seconds for which rows of frequent series wait to be written together."""


def subject_of(simulation: Simulation) -> Subject:
    """What the series of a run measure."""
    carried = None
    if simulation.populations:
        model, forcing, swarm = simulation.model, simulation.forcing, simulation.swarm
        carried = ParticleSubject(
            simulation.populations,
            swarm,
            partial(quantities.motion, model, forcing, swarm),
            partial(quantities.sampled, model, forcing, swarm),
            quantities.sampled_names(model),
        )
    files = cast(Any, simulation.inputs)
    return Subject(simulation.model, simulation.transform, simulation.template, files, carried)


def series_of(simulation: Simulation) -> dict[str, Measured]:
    """The measurement of each series of a run, by name. Raises UserError if the model does not allow one of them."""
    if simulation.config.output.gadget is not None:
        problem = gadget_problem(simulation.config, simulation.model)
        if problem is not None:
            raise simulation.config.error("output.gadget", problem)
    subject = subject_of(simulation)
    return {
        name: _measured(simulation, subject, kind, settings)
        for name, kind, settings in requested(simulation.config.output)
    }


def _measured(simulation: Simulation, subject: Subject, kind: Kind, settings: Any) -> Measured:
    try:
        return kind.measured(subject, settings)
    except Unsupported as error:
        key = f"output.{kind.name}" + (f".{error.key}" if error.key else "")
        message = str(error)
        if not error.key and error.of_model:
            message += f", which {simulation.config.model.kind} does not have"
        raise simulation.config.error(key, message) from None


class Recorder:
    """Measures rows of a run's series on every process; `write` calls its argument, which writes, on process 0."""

    def __init__(
        self,
        simulation: Simulation,
        folder: Path,
        write: Callable[[Callable[[], object]], None],
        journal: Journal = UNRECORDED,
    ):
        self._folder, self._write, self._journal = folder, write, journal
        self._transform = simulation.transform
        self._measured = series_of(simulation)
        self._carried = {
            name: CarriedArrays(m.carried, simulation.transform, f"series_{name}_")
            for name, m in self._measured.items()
            if m.carried is not None
        }
        self._made = {
            name: jax.jit(m.carried.fields)
            for name, m in self._measured.items()
            if m.carried is not None and m.carried.fields is not None
        }
        self._memory: dict[str, Memory] = {}
        self._template = simulation.placed_template
        self._jitted = {name: self._row(name, m) for name, m in self._measured.items() if m.variables}
        self._functions = self._jitted
        self.with_snapshots = tuple(
            name for name, kind, _ in requested(simulation.config.output) if kind.with_snapshots
        )
        """The series that get a row with every snapshot."""
        self._beside = {name: m.beside() for name, m in self._measured.items()}
        together = not simulation.config.run.sync
        self._frequent = {n for n, kind, _ in requested(simulation.config.output) if kind.frequent or together}
        self._waiting: dict[str, list[tuple[int, float, Mapping[str, np.ndarray]]]] = {}
        self._written: dict[str, float] = {}
        self._files: dict[str, Series] = {}
        self._last_step: dict[str, int] = {}

    def _row(self, name: str, measured: Measured) -> Callable[[State, Memory], tuple[Any, Memory]]:
        """The compiled function from a state and the carried arrays to a row, which is replicated, and the carried
        arrays after it."""
        everywhere = NamedSharding(self._transform.layout.mesh, PartitionSpec())
        carried = {n: a.sharding for n, a in self._carried[name].template.items()} if name in self._carried else {}

        def row(state: State, memory: Memory) -> tuple[Any, Memory]:
            if measured.carried is None:
                return measured.compute(state), memory
            memory = self._carried[name].placed(measured.carried.update(state, memory))
            return measured.compute(state, memory), memory

        return jax.jit(row, donate_argnums=1, out_shardings=(everywhere, carried))

    def programs(self) -> dict[str, Compilable]:
        """The programs that compute the rows, by series, which the caller compiles and gives to `use`."""
        arguments = {name: self._carried[name].template if name in self._carried else {} for name in self._functions}
        return {name: Compilable(f, (self._template, arguments[name])) for name, f in self._jitted.items()}

    def use(self, ready: Mapping[str, Callable[..., Any]]) -> None:
        """Use these compiled programs, by name, from now on; a missing program is compiled at its first call."""
        self._functions = {name: ready.get(name, f) for name, f in self._jitted.items()}

    def restore(self, checkpoint: Path) -> None:
        """Continue with the arrays that the series carried when `checkpoint` was written. All processes call this."""
        self._memory = {name: arrays.load(checkpoint) for name, arrays in self._carried.items()}

    def datasets(self) -> list[Dataset]:
        """The carried arrays of all series, for a checkpoint."""
        return [d for name, arrays in self._carried.items() for d in arrays.datasets(self._arrays(name))]

    def fields(self) -> dict[str, jax.Array]:
        """The fields that series add to snapshots."""
        fields: dict[str, jax.Array] = {}
        for name, compiled in self._made.items():
            fields |= compiled(self._arrays(name))
        return fields

    def _arrays(self, name: str) -> Memory:
        if name in self._carried and name not in self._memory:
            self._memory[name] = self._carried[name].begin()
        return self._memory.get(name, {})

    def take(self, name: str, state: State) -> None:
        """Measures one row of `NAME.h5`, unless this step has its row already, and writes it. The rows of a frequent
        series are kept until `flush` is called or a row comes after `TOGETHER`."""
        step = int(state.step)
        if self._last_step.get(name) == step:
            return
        self._last_step[name] = step
        computed: Mapping[str, jax.Array] = {}
        if name in self._functions:
            computed, self._memory[name] = self._functions[name](state, self._arrays(name))
        row = {variable: np.asarray(values) for variable, values in computed.items()}
        self._waiting.setdefault(name, []).append((step, float(state.time), row))
        now = time.monotonic()
        if name not in self._frequent or now - self._written.get(name, -TOGETHER) >= TOGETHER:
            self._write_rows(name)

    def _write_rows(self, name: str) -> None:
        rows, finish = self._waiting.pop(name), self._measured[name].finish
        self._written[name] = time.monotonic()
        self._write(lambda: self._file(name).extend((step, time, finish(row)) for step, time, row in rows))

    def flush(self) -> None:
        """Write the rows that frequent series have collected."""
        for name in tuple(self._waiting):
            self._write_rows(name)

    def _file(self, name: str) -> Series:
        if name not in self._files:
            m = self._measured[name]
            self._files[name] = Series(
                self._folder / f"{name}.h5",
                m.coordinates,
                m.variables,
                m.attributes,
                self._beside[name],
                journal=self._journal,
            )
        return self._files[name]

    def files(self) -> Iterator[Series]:
        """All series, opened for writing. Called on process 0."""
        return (self._file(name) for name in self._measured)
