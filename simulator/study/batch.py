"""Divides runs into groups that are stepped together, and compiles one step for each group.

The runs of a group share shapes and physics and differ only in numbers of the configuration, which
become arrays, batched with `vmap`: the simulation is rebuilt inside the traced function. If a model
branches on the values of its numbers, its runs cannot be compiled together, and run alone."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.cluster.hardware import physical_memory
from simulator.config import RunConfig, as_mapping
from simulator.config.compare import TIME_STEP, VARIED, leaves, programs
from simulator.errors import UserError
from simulator.physics.models import State
from simulator.simulation import initial_state
from simulator.simulation.advance import Until
from simulator.simulation.compiling import ROOM
from simulator.simulation.simulation import Simulation
from simulator.study.runs import CACHE, Group, SweepRun

Values = dict[str, Any]  # Scalars by key: `model.viscosity`, `time.dt`.
Measure = Callable[[Values, State], Any]
MOST_MEMBERS = 64


def groups(runs: Sequence[SweepRun], parts: int = 1, most: int = MOST_MEMBERS) -> list[Group]:
    """All runs in groups of at most `most`, ordered by their first run.

    Large groups are divided so that the groups keep `parts` processes busy and fit in the
    memory."""
    alike: dict[str, list[SweepRun]] = defaultdict(list)
    for run in runs:
        # The measurement of fft.backend: auto may choose another transform for each run.
        alone = str(run.config.output.directory) if run.config.fft.backend == "auto" else None
        alike[json.dumps([programs(as_mapping(run.config)), alone])].append(run)
    divided = []
    for members in alike.values():
        values = [varied_numbers(member.config) for member in members]
        differing = tuple(key for key in values[0] if len({row[key] for row in values}) > 1)
        divided += [Group(part, differing) for part in _divided(members, parts, most)]
    return sorted(divided, key=lambda group: group.runs[0].index)


def varied_numbers(config: RunConfig) -> dict[str, float]:
    """The numbers that may differ within a group, by key (`model.viscosity`, `time.dt`)."""
    mapping = as_mapping(config)
    numbers = {
        f"{block}.{key}": item for block in VARIED for key, item in leaves(mapping.get(block))
    }
    varied = {key: item for key, item in numbers.items() if isinstance(item, float)}
    return varied | {
        f"time.{key}": mapping["time"][key] for key in TIME_STEP if key in mapping["time"]
    }


def on_one_device(config: RunConfig) -> RunConfig:
    """The configuration of an ensemble: with `devices.count: auto` it runs on one device."""
    count = 1 if config.devices.count == "auto" else config.devices.count
    return config.changed(devices={"count": count})


def _divided(group: Sequence[SweepRun], parts: int, most: int) -> list[tuple[SweepRun, ...]]:
    needed = max(ROOM * run.estimate.state for run in group)
    most = max(1, min(most, physical_memory() // (parts * needed), -(-len(group) // parts)))
    number = -(-len(group) // most)
    return [
        tuple(group[i * len(group) // number : (i + 1) * len(group) // number])
        for i in range(number)
    ]


UNTRACEABLE = (TypeError, ValueError, NotImplementedError, UserError, jax.errors.JAXTypeError)
"""Errors of a function that cannot be traced with arrays in the place of numbers."""


def compilable(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any] | None:
    """The function, compiled; None if it cannot be traced with these arguments."""
    try:
        jax.eval_shape(function, *arguments)
    except UNTRACEABLE:
        return None
    return jax.jit(function)


class BatchedStep:
    """The functions of `simulation` for other values of the configuration's `keys`, their first
    argument."""

    def __init__(self, simulation: Simulation, keys: Sequence[str]):
        self._simulation = simulation
        self.keys = tuple(keys)
        self._measures: dict[str, Measure | None] = {}
        self._starts: dict[str, Callable[[Values], Any] | None] = {}

    def values(self, numbers: Mapping[str, float]) -> Values:
        """The values of one run in the types of the step: the precision of the fields, double for
        the clock."""
        dtype = self._simulation.dtype
        return {
            key: np.asarray(numbers[key], np.float64 if key.startswith("time.") else dtype)
            for key in self.keys
        }

    @cached_property
    def in_turn(self) -> bool:
        """Whether the runs share the program of one run, because stepping them together would not
        be faster."""
        size = sum(
            leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._simulation.template)
        )
        return size > CACHE and self._simulation.cluster.devices[0].platform == "cpu"

    @cached_property
    def alone(self) -> Callable[[Values, State, Until], State]:
        """The compiled function from the values, the state and the limits of one run to its new
        state."""

        def advance_alone(values: Values, state: State, until: Until) -> State:
            return self._simulation.varied(values).advance(state, until)

        self._name(advance_alone)
        return jax.jit(advance_alone, donate_argnums=1)

    def _name(self, program: Callable[..., Any]) -> None:
        """Adds model and layout to the name, by which the compile cache finds the program."""
        simulation = self._simulation
        program.__name__ += f"_{type(simulation.model).__name__}_{simulation.transform.name}"

    @cached_property
    def together(self) -> Callable[..., tuple[State, ...]]:
        """The compiled function from (values, states, untils), each a tuple over the runs, to the
        new states."""

        def advance_together(
            values: tuple[Values, ...], states: tuple[State, ...], untils: tuple[Until, ...]
        ) -> tuple[State, ...]:
            stacked = (
                jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
                for each in (values, states, untils)
            )
            result = jax.vmap(lambda v, *pair: self._simulation.varied(v).advance(*pair))(*stacked)
            return tuple(
                jax.tree.map(lambda leaf, i=i: leaf[i], result) for i in range(len(states))
            )

        self._name(advance_together)
        return jax.jit(advance_together)

    def measure(self, name: str) -> Measure | None:
        """The compiled function that computes the diagnostics, the spectra, or the values of the
        field `name`; None if one program cannot serve all runs, because it cannot be traced with
        arrays for `keys`."""
        if name not in self._measures:

            def measured(values: Values, state: State) -> Any:
                run = self._simulation.varied(values)
                programs = {"diagnostics": run.diagnostics, "spectra": run.spectra}
                return (programs[name] if name in programs else run.field_program(name))(state)

            values = self.values(dict.fromkeys(self.keys, 1.0))
            self._measures[name] = compilable(measured, values, self._simulation.template)
        return self._measures[name]

    def start(self, run: Simulation, config: RunConfig) -> State | None:
        """The initial state of `config`, from one program for all runs whose initial conditions
        differ only in seeds, one of which is `run`; None if no program can serve them. Raises
        UserError if the state is not finite."""
        initial = dict(leaves(as_mapping(config)["initial"]))
        seeds = {
            f"initial.{key}": np.int64(item)
            for key, item in initial.items()
            if key.endswith("seed")
        }
        if not seeds or run.populations or initial_state.term_shapes(run.model):
            return None
        signature = json.dumps(
            [(k, None if f"initial.{k}" in seeds else v) for k, v in initial.items()], default=str
        )
        values = self.values(varied_numbers(config)) | seeds
        if signature not in self._starts:

            def started(values: Values) -> Any:
                other = run.varied(values)
                fields, *check = initial_state.traced_start(other.config, other.model, other.inputs)
                return other.begin(fields), check

            started.__name__ = f"start_together_{type(run.model).__name__}_{run.transform.name}"
            self._starts[signature] = compilable(started, values)
        program = self._starts[signature]
        if program is None:
            return None
        state, (energies, finite) = program(values)
        initial_state.judge(config, run.model, energies, finite, run.report)
        return state
