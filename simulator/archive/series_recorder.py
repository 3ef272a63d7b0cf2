"""Measures every series that the configuration of a run requests, and opens their files."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from simulator.archive.series_file import Series
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_reader import Snapshot
from simulator.archive.stored_state import field_dataset, restored_field, small_array
from simulator.config.compare import Change, Difference
from simulator.files import Journal
from simulator.measure import Kind, Measured, Subject, Unsupported, requested, snapshot_files
from simulator.measure.kind import ParticleSubject
from simulator.measure.rows import measurement
from simulator.physics.models import State
from simulator.simulation import quantities
from simulator.simulation.equation import model_name
from simulator.simulation.simulation import Simulation

Memory = Mapping[str, jax.Array]


TOGETHER = 30.0  # Seconds for which rows of frequent series wait to be written together.


class Recorded:
    """One series of a run: its measurement, the arrays that it carries from row to row, and the
    rows that wait to be written. In a checkpoint the names of the arrays begin with
    `series_NAME_`."""

    def __init__(self, name: str, measured: Measured, simulation: Simulation, kind: Kind):
        self.measured = measured
        self._name = name
        self._key = f"output.{kind.name}"
        self._prefix = f"series_{name}_"
        self.with_snapshots = kind.with_snapshots  # Whether every snapshot adds a row.
        self._frequent = kind.frequent or not simulation.config.run.sync
        everywhere = simulation.transform.layout.everywhere
        carried = measured.carried
        self._places = {} if carried is None else carried.places
        # Shapes, types and shardings of the arrays.
        self.template: dict[str, jax.ShapeDtypeStruct] = {}
        for key, array in {} if carried is None else jax.eval_shape(carried.begin).items():
            sharding = self._places[key].sharding(array.ndim) if key in self._places else everywhere
            self.template[key] = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
        self._shardings = {key: array.sharding for key, array in self.template.items()}
        self.program = jax.jit(
            self.row, donate_argnums=1, out_shardings=(everywhere, self._shardings)
        )
        # The row of a series of samples at a state that adds no sample.
        self._without_sample = jax.jit(measured.compute) if carried and carried.samples else None
        fields = carried.fields if carried is not None else None
        self.fields = None if fields is None else jax.jit(fields)
        self._memory: Memory | None = None
        self._beside = measured.beside()
        self._waiting: list[tuple[int, float, Mapping[str, np.ndarray]]] = []
        self._written = time.monotonic()
        self._last_step = -1
        self._file: Series | None = None

    def row(self, state: State, memory: Memory) -> tuple[Any, Memory]:
        """From a state and the arrays to a row, which is replicated, and the arrays after it; can
        be compiled."""
        if self.measured.carried is None:
            return self.measured.compute(state), memory
        memory = self.measured.carried.update(state, memory)
        memory = {
            n: jax.lax.with_sharding_constraint(memory[n], s) for n, s in self._shardings.items()
        }
        return self.measured.compute(state, memory), memory

    @property
    def memory(self) -> Memory:
        """The arrays; at the first row of a run those with which they begin."""
        if self._memory is None:
            carried = self.measured.carried
            begin = (
                dict if carried is None else jax.jit(carried.begin, out_shardings=self._shardings)
            )
            self._memory = begin()
        return self._memory

    def datasets(self) -> list[Dataset]:
        """The arrays as a checkpoint stores them."""
        arrays: list[Dataset] = []
        for name, array in self.memory.items():
            stored = self._prefix + name
            if name in self._places:
                arrays.append(field_dataset(stored, array, self._places[name]))
            else:
                arrays.append(Dataset(stored, np.asarray(array)))
        return arrays

    def restore(
        self,
        snapshot: Snapshot,
        differences: Sequence[Difference],
        state: State,
        planned: Collection[str],
    ) -> str | None:
        """Continue with the arrays in a checkpoint, or begin them anew, with a line, if it holds
        none for this series or if one of the `differences` from its configuration defines them.

        The `state` of the checkpoint is then the first sample, if a row is `planned` there."""
        self._memory = None
        carried = self.measured.carried
        if carried is None or not self.template:
            return None
        changed = () if carried.independent else differences
        problem = self._unusable(snapshot, changed)
        if problem is None:
            self._memory = {
                name: self._restored(snapshot, name, like) for name, like in self.template.items()
            }
            return None
        if carried.samples and self._name in planned:
            self._memory = self.program(state, self.memory)[1]
        return f"{self._name}: begins anew at t = {snapshot.time:g}, because {problem}"

    def _unusable(self, snapshot: Snapshot, differences: Sequence[Difference]) -> str | None:
        """The reason why the arrays of a checkpoint are not those of this series."""
        stored = {name: snapshot.get(self._prefix + name) for name in self.template}
        if all(array is None for array in stored.values()):
            return "the checkpoint holds no sums of it"
        for key, old, new, change in differences:
            if key == self._key or key.startswith(f"{self._key}.") or change is Change.FROZEN:
                return f"{key} was {old} and is now {new}"
        for name, like in self.template.items():
            array = stored[name]
            if array is None or (name not in self._places and array.shape != like.shape):
                return "the checkpoint holds sums of other quantities"
        return None

    def _restored(self, snapshot: Snapshot, name: str, like: jax.ShapeDtypeStruct) -> jax.Array:
        stored = self._prefix + name
        if name in self._places:
            return restored_field(snapshot, stored, like, self._places[name])
        return small_array(snapshot, stored, like.shape, like.sharding, like.dtype)

    def take(self, state: State, planned: bool, program: Callable[..., Any]) -> bool:
        """Measure one row by the compiled `program`, unless this step has its row already; returns
        whether rows are to be written now. A row that is not `planned` stands at the end of a run:
        it adds no sample, because a longer run would not have taken one there."""
        step = int(state.step)
        if self._last_step == step:
            return False
        self._last_step = step
        computed: Mapping[str, jax.Array] = {}
        if self._without_sample is not None and not planned:
            computed = self._without_sample(state, self.memory)
        elif self.measured.variables:
            computed, self._memory = program(state, self.memory)
        self._waiting.append(
            (step, float(state.time), {name: np.array(v) for name, v in computed.items()})
        )
        return not self._frequent or time.monotonic() - self._written >= TOGETHER

    def waiting(self) -> list[tuple[int, float, Mapping[str, np.ndarray]]]:
        """The rows that wait to be written, which the caller writes."""
        rows = self._waiting
        self._waiting = []
        self._written = time.monotonic()
        return rows

    def file(self, path: Path, journal: Journal) -> Series:
        """The series, opened for writing."""
        if self._file is None:
            m = self.measured
            self._file = Series(
                path, m.coordinates, m.variables, m.attributes, self._beside, journal=journal
            )
        return self._file


def subject_of(simulation: Simulation) -> Subject:
    """The subject that the series of a run measure: its model, transform and particles."""
    carried = None
    if simulation.populations:
        system = simulation.system
        carried = ParticleSubject(
            simulation.populations,
            simulation.swarm,
            partial(quantities.motion, system),
            partial(quantities.sampled, system),
            quantities.sampled_names(simulation.model),
        )
    files = cast(Any, simulation.inputs)
    row = partial(quantities.diagnostics_of, simulation.system)
    return Subject(simulation.model, simulation.template, files, row, carried)


def measured_series(simulation: Simulation) -> dict[str, Measured]:
    """The measurement of each series of a run, by name. Raises UserError if the model does not
    allow one of its outputs."""
    config = simulation.config
    for name, kind in snapshot_files(dict(config.output)).items():
        problem = kind.problem(config.model_dump(), simulation.model)
        if problem is not None:
            raise config.error(f"output.{name}", problem)
    subject = subject_of(simulation)
    return {
        name: _measured(simulation, subject, kind, settings)
        for name, kind, settings in requested(config.output)
    }


def _measured(simulation: Simulation, subject: Subject, kind: Kind, settings: Any) -> Measured:
    try:
        return measurement(kind, subject, settings)
    except Unsupported as error:
        key = f"output.{kind.name}" + (f".{error.key}" if error.key else "")
        message = str(error)
        if not error.key and error.of_model:
            message += f", which {model_name(simulation.config)} does not have"
        raise simulation.config.error(key, message) from None


def recorders(simulation: Simulation) -> dict[str, Recorded]:
    """The series of a run, by name. Raises UserError if the model does not allow one of them."""
    kinds = {name: kind for name, kind, _ in requested(simulation.config.output)}
    return {
        name: Recorded(name, m, simulation, kinds[name])
        for name, m in measured_series(simulation).items()
    }
