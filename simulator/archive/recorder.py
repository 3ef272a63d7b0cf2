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
from simulator.archive.reader import Snapshot, open_snapshot
from simulator.archive.series import Series
from simulator.archive.shard import Dataset
from simulator.archive.states import field_dataset, restored_field, whole
from simulator.files import UNRECORDED, Journal
from simulator.measure import Kind, Measured, Subject, Unsupported, requested
from simulator.measure.kind import ParticleSubject
from simulator.physics.models import State
from simulator.simulation import quantities
from simulator.simulation.compiling import Compilable
from simulator.simulation.simulation import Simulation

Memory = Mapping[str, jax.Array]


TOGETHER = 30.0  # Seconds for which rows of frequent series wait to be written together.


class Recorded:
    """One series of a run: its measurement, the arrays that it carries from row to row, and the rows that wait to be
    written. In a checkpoint the names of the arrays begin with `series_NAME_`."""

    def __init__(self, name: str, measured: Measured, simulation: Simulation, *, frequent: bool):
        self.measured, self._frequent, self._prefix = measured, frequent, f"series_{name}_"
        everywhere = NamedSharding(simulation.transform.layout.mesh, PartitionSpec())
        carried = measured.carried
        self._places = {} if carried is None else carried.places
        self.template: dict[str, jax.ShapeDtypeStruct] = {}  # Shapes, types and shardings of the arrays.
        for key, array in {} if carried is None else jax.eval_shape(carried.begin).items():
            sharding = self._places[key].sharding(array.ndim) if key in self._places else everywhere
            self.template[key] = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
        self._shardings = {key: array.sharding for key, array in self.template.items()}
        self.program = jax.jit(self.row, donate_argnums=1, out_shardings=(everywhere, self._shardings))
        self.compiled: Callable[..., Any] = self.program
        fields = carried.fields if carried is not None else None
        self.fields = None if fields is None else jax.jit(fields)
        self._memory: Memory | None = None
        self._beside = measured.beside()
        self._waiting: list[tuple[int, float, Mapping[str, np.ndarray]]] = []
        self._written, self._last_step = time.monotonic(), -1
        self._file: Series | None = None

    def row(self, state: State, memory: Memory) -> tuple[Any, Memory]:
        """From a state and the arrays to a row, which is replicated, and the arrays after it; can be compiled."""
        if self.measured.carried is None:
            return self.measured.compute(state), memory
        memory = self.measured.carried.update(state, memory)
        memory = {n: jax.lax.with_sharding_constraint(memory[n], s) for n, s in self._shardings.items()}
        return self.measured.compute(state, memory), memory

    def begin(self) -> Memory:
        """The arrays at the first row of a run."""
        carried = self.measured.carried
        return {} if carried is None else jax.jit(carried.begin, out_shardings=self._shardings)()

    @property
    def memory(self) -> Memory:
        """The arrays."""
        if self._memory is None:
            self._memory = self.begin()
        return self._memory

    def datasets(self) -> list[Dataset]:
        """The arrays as a checkpoint stores them."""
        return [
            field_dataset(self._prefix + name, array, self._places[name])
            if name in self._places
            else Dataset(self._prefix + name, np.asarray(array))
            for name, array in self.memory.items()
        ]

    def restore(self, snapshot: Snapshot) -> None:
        """Continue with the arrays in a checkpoint, or begin anew if it was written without this series."""
        self._memory = None
        if all(self._prefix + name in snapshot for name in self.template):
            self._memory = {
                name: restored_field(snapshot, self._prefix + name, like, self._places[name])
                if name in self._places
                else whole(snapshot, self._prefix + name, like.shape, like.sharding, like.dtype)
                for name, like in self.template.items()
            }

    def take(self, state: State) -> bool:
        """Measure one row, unless this step has its row already; returns whether rows are to be written now."""
        step = int(state.step)
        if self._last_step == step:
            return False
        self._last_step = step
        computed: Mapping[str, jax.Array] = {}
        if self.measured.variables:
            computed, self._memory = self.compiled(state, self.memory)
        self._waiting.append((step, float(state.time), {name: np.asarray(v) for name, v in computed.items()}))
        return not self._frequent or time.monotonic() - self._written >= TOGETHER

    def waiting(self) -> list[tuple[int, float, Mapping[str, np.ndarray]]]:
        """The rows that wait to be written, which the caller writes."""
        rows, self._waiting, self._written = self._waiting, [], time.monotonic()
        return rows

    def file(self, path: Path, journal: Journal) -> Series:
        """The series, opened for writing."""
        if self._file is None:
            m = self.measured
            self._file = Series(path, m.coordinates, m.variables, m.attributes, self._beside, journal=journal)
        return self._file


def subject_of(simulation: Simulation) -> Subject:
    """What the series of a run measure."""
    carried = None
    if simulation.populations:
        model, forcing, swarm = simulation.model, simulation.forcing, simulation.swarm
        motion = partial(quantities.motion, model, forcing, swarm)
        sampled, names = partial(quantities.sampled, model, forcing, swarm), quantities.sampled_names(model)
        carried = ParticleSubject(simulation.populations, swarm, motion, sampled, names)
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
        self._state = simulation.placed_template
        kinds = {name: kind for name, kind, _ in requested(simulation.config.output)}
        together = not simulation.config.run.sync
        self._series = {
            name: Recorded(name, measured, simulation, frequent=kinds[name].frequent or together)
            for name, measured in series_of(simulation).items()
        }
        self.with_snapshots = tuple(name for name, kind in kinds.items() if kind.with_snapshots)
        """The series that get a row with every snapshot."""

    def programs(self) -> dict[str, Compilable]:
        """The programs that compute the rows, by series, which the caller compiles and gives to `use`."""
        measured = {name: series for name, series in self._series.items() if series.measured.variables}
        return {name: Compilable(s.program, (self._state, s.template)) for name, s in measured.items()}

    def use(self, ready: Mapping[str, Callable[..., Any]]) -> None:
        """Use these compiled programs, by name, from now on; a missing program is compiled at its first call."""
        for name, series in self._series.items():
            series.compiled = ready.get(name, series.program)

    def restore(self, checkpoint: Path) -> None:
        """Continue with the arrays that the series carried when `checkpoint` was written. All processes call this."""
        snapshot = open_snapshot(checkpoint)
        for series in self._series.values():
            series.restore(snapshot)

    def datasets(self) -> list[Dataset]:
        """The carried arrays of all series, for a checkpoint."""
        return [dataset for series in self._series.values() for dataset in series.datasets()]

    def fields(self) -> dict[str, jax.Array]:
        """The fields that series add to snapshots."""
        made = [series.fields(series.memory) for series in self._series.values() if series.fields is not None]
        return {name: field for fields in made for name, field in fields.items()}

    def take(self, name: str, state: State) -> None:
        """Measures one row of `NAME.h5`, unless this step has its row already, and writes it. The rows of a frequent
        series are kept until `flush` is called or a row comes after `TOGETHER`."""
        if self._series[name].take(state):
            self._write_rows(name)

    def _write_rows(self, name: str) -> None:
        if rows := self._series[name].waiting():
            finish = self._series[name].measured.finish
            self._write(lambda: self._file(name).extend((step, time, finish(row)) for step, time, row in rows))

    def flush(self) -> None:
        """Write the rows that frequent series have collected."""
        for name in self._series:
            self._write_rows(name)

    def _file(self, name: str) -> Series:
        return self._series[name].file(self._folder / f"{name}.h5", self._journal)

    def files(self) -> Iterator[Series]:
        """All series, opened for writing. Called on process 0."""
        return map(self._file, self._series)
