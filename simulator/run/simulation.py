"""A configured simulation: its devices, transform, model and state, without any files of a run."""

import difflib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.cluster import discover
from simulator.cluster.cache import base_folder
from simulator.cluster.start import Cluster
from simulator.config import RunConfig
from simulator.diagnostics.budget import RESIDUAL, closes, injection, momentary, residual_now
from simulator.errors import UserError
from simulator.forcing import FORCINGS, Forcing
from simulator.initial import INITIALS, start_of
from simulator.models import MODELS, Fields, Model, Remembering, SplitModel, State, own_transforms
from simulator.models.model import Budgeted, Force, Troubled
from simulator.run import provenance
from simulator.run.inputs import Inputs
from simulator.run.memory import Memory, compiled_loop, free_everywhere
from simulator.run.sharing import (
    CUSTOM_PARTITIONING,
    check_devices,
    connect,
    grid_of,
    modes_of,
    transform_of,
)
from simulator.spectral import Transform
from simulator.spectral.measure import measured
from simulator.spectral.operators import project
from simulator.stepping import INTEGRATORS, TimeStep, Until, advance_of, beginning, rate_of, step_of

Report = Callable[[str], None]

ROOM = 64
"""A step that finds room for so many copies of the state is not compiled just to see whether it fits."""
SMALL = 1 << 30
"""Bytes that are free on any device: a step that surely takes less is not held against what is free."""


class Simulation:
    """What a configuration describes, on the devices at hand.

    As a library:

        from simulator import Simulation, load_config
        simulation = Simulation(load_config("run.yaml", ["time.stop=1"]))
        simulation.state                      # the spectral state, a pytree of sharded jax arrays
        simulation.fields["velocity"]         # values (3, x, y, z) on the grid
        step = jax.jit(simulation.step)       # the pure function (state, dt) -> state
        simulation.run()                      # runs to the end, with all output

    Raises UserError where configuration and devices do not fit together.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        cluster: Cluster | None = None,
        inputs: Inputs | None = None,
        report: Report = print,
    ):
        self.config, self.report = config, report
        self.grid = grid_of(config)
        self.cluster = cluster or connect(config, discover(os.environ))
        check_devices(config, len(self.cluster.devices), self.cluster.num_processes)
        self.inputs = inputs or Inputs()
        self.choice = self._measured_choice() if config.fft.backend == "auto" else None
        self.integrator = INTEGRATORS[config.time.integrator]()
        self.time_step = TimeStep(config.time.dt, config.time.cfl, config.time.max_dt)
        self._build(low=config.run.memory == "low")
        if config.run.memory == "auto" and not self._fits():
            self._build(low=True)
        self._check_output()
        self._state: State | None = None

    def _build(self, *, low: bool) -> None:
        """The model on its transform, and what is made of it."""
        for name in ("step", "advance", "template"):
            self.__dict__.pop(name, None)
        self.low = low
        self.model: Model | SplitModel = self._make_model()
        self.transform = self.model.transform
        self.dtype = self.transform.dtype
        self.forcing = self._make_forcing()

    def _fits(self) -> bool:
        """Whether a fast step fits in the devices' memory; True where there is no other, or nothing tells."""
        held = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(self.template))
        most = ROOM * held / len(self.cluster.devices)
        if most <= SMALL or not self.transform.name.startswith(CUSTOM_PARTITIONING):
            return True
        free = free_everywhere(self.cluster)
        if free is None or most <= free:
            return True
        return Memory.of(compiled_loop(self)).total <= free

    @property
    def state(self) -> State:
        """The current state; at first the initial condition's."""
        if self._state is None:
            self._state = self.placed(jax.jit(self._beginning)(self._initial_fields()))
        return self._state

    def _measured_choice(self) -> dict[str, Any]:
        """What `fft.backend: auto` comes to, with what it holds for: as the run's folder has it from an earlier start
        on the same devices, else measured."""
        cluster, config = self.cluster, self.config
        here = {
            "devices": len(cluster.devices),
            "processes": cluster.num_processes,
            "kind": cluster.devices[0].device_kind,
            "decomposition": config.fft.decomposition,
        }
        earlier = provenance.read(Path(config.output.directory)) if cluster.is_first else {}
        known = cluster.broadcast(earlier.get("mesh", {}).get("choice"))
        if known and all(known.get(key) == value for key, value in here.items()):
            return known
        found = measured(
            modes_of(config),
            cluster.devices,
            np.float64 if config.precision == "double" else np.float32,
            decomposition=config.fft.decomposition,
            folder=base_folder(os.environ),
            broadcast=cluster.broadcast,
            report=self.report if cluster.is_first else lambda line: None,
        )
        return {**here, "backend": found.backend, "plan": found.decomposition}

    def _make_model(self) -> Any:
        kind = MODELS[self.config.model.kind]
        choice = (self.choice["backend"], self.choice["plan"]) if self.choice else None
        make = partial(
            transform_of, self.config, self.cluster.devices, choice, self.low, self.cluster.platform
        )
        try:
            if hasattr(kind, "create"):
                return kind.create(self.config.model, make, self.inputs)
        except UserError as error:
            raise self.config.error("model", str(error)) from error
        return kind(self.config.model, make())

    def _make_forcing(self) -> Forcing | None:
        settings = self.config.forcing
        if settings is None:
            return None
        if getattr(self.config.model, "kinematic", False):
            raise self.config.error("forcing", "has no effect: model.kinematic prescribes the velocity")
        try:
            return FORCINGS[settings.kind](settings, self.transform, self.model, self.inputs)
        except UserError as error:
            key, _, message = str(error).partition(": ")
            raise self.config.error(f"forcing.{key}", message) from error

    def _beginning(self, fields: Fields) -> State:
        """The state at the beginning of a run, with all that its steps carry along."""
        memory = self.model.memory(fields, jnp.float64(0)) if isinstance(self.model, Remembering) else {}
        if self.forcing is not None:
            memory |= self.forcing.memory()
        if closes(self.model):
            memory[RESIDUAL] = jnp.float64(0)
        return beginning(fields, memory)

    def placed(self, state: State) -> State:
        """The state with every array where the compiled loop leaves it, so that the loop compiles once."""
        return jax.jit(lambda s: s, out_shardings=self._shardings(state))(state)

    def _shardings(self, state: State) -> State:
        """Where the compiled loop leaves the arrays of a state."""
        layout = self.transform.layout

        def sharding(array):
            spectral = array.ndim >= 3 and array.shape[-3:] == layout.shape
            return layout.sharding(array.ndim) if spectral else NamedSharding(layout.mesh, PartitionSpec())

        shardings = jax.tree.map(sharding, state)
        fields = {n: self.transform_of(n).layout.sharding(f.ndim) for n, f in state.fields.items()}
        return replace(shardings, fields=fields)

    def transform_of(self, name: str) -> Transform:
        """The transform of an evolved field."""
        return own_transforms(self.model).get(name, self.transform)

    @state.setter
    def state(self, state: State) -> None:
        self._state = state

    @cached_property
    def step(self) -> Callable[[State, Any], State]:
        """The pure function (state, dt) -> state, to be jitted, differentiated or looped over."""
        return step_of(self.model, self.integrator, self.forcing)

    @cached_property
    def advance(self) -> Callable[[State, Until], State]:
        """The compiled loop over steps; it consumes the state that it is given."""
        return self.make_advance()

    def make_advance(self, name: str | None = None) -> Callable[[State, Until], State]:
        """`advance`, not compiled yet; with `name`, apart from the one that a run compiles."""
        return advance_of(self.model, self.integrator, self.time_step, self.forcing, name)

    @property
    def fields(self) -> "PhysicalFields":
        """Values of the current state's fields on the grid, evolved and derived ones, by name."""
        return PhysicalFields(self)

    @cached_property
    def template(self) -> State:
        """Shapes and types of a state, without making one."""
        kind = np.result_type(self.dtype, np.complex64)
        fields = {
            n: jax.ShapeDtypeStruct((*lead, *self.transform_of(n).layout.shape), kind)
            for n, lead in self.model.components.items()
        }
        return jax.eval_shape(self._beginning, fields)

    @property
    def placed_template(self) -> State:
        """The template with shardings: what the compiled loop takes, without making any of it."""
        return jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s),
            self.template,
            self._shardings(self.template),
        )

    @cached_property
    def diagnostics(self) -> Callable[[State], dict[str, jax.Array]]:
        """Compiled: the scalars of diagnostics.csv for a state."""
        return jax.jit(self._diagnostics)

    def _diagnostics(self, state: State) -> dict[str, jax.Array]:
        found = self.model.diagnostics(state.fields, state.time)
        rate = found.pop("rate")
        if self.forcing is not None and isinstance(self.model, Budgeted):
            found["injection"] = injection(self.model, state.fields, state.time, self._force(state))
        if RESIDUAL in state.memory:
            found[RESIDUAL] = state.memory[RESIDUAL]
        elif momentary(self.model):
            found[RESIDUAL] = residual_now(self.model, state.fields, state.time, self._force(state))
        return {**found, "rate": rate}

    def _force(self, state: State) -> Force | None:
        if (forcing := self.forcing) is None:
            return None
        return lambda fields, time: forcing.acceleration(fields, time, state.memory)

    @cached_property
    def spectra(self) -> Callable[[State], dict[str, jax.Array]]:
        """Compiled: the shell spectra of a state."""
        return jax.jit(lambda state: self.model.spectra(state.fields))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the diagnostics, in the model's order (a compiled function sorts them)."""
        names: list[str] = []

        def noted(state: State) -> dict[str, jax.Array]:
            found = self._diagnostics(state)
            names.extend(found)
            return found

        jax.eval_shape(noted, self.template)
        return tuple(names)

    def values(self, name: str) -> Callable[[State], jax.Array]:
        """Compiled: the values of one field, evolved or derived, (..., x, y, z), zero in padding."""
        if name not in self._values:
            derived = self.model.derived()
            if name in self.model.components:
                function = lambda state: self.transform_of(name).inverse(state.fields[name])  # noqa: E731
            elif name in derived:
                function = lambda state: derived[name](state.fields)  # noqa: E731
            else:
                raise KeyError(name)
            self._values[name] = jax.jit(function)
        return self._values[name]

    @cached_property
    def _values(self) -> dict[str, Callable[[State], jax.Array]]:
        return {}

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """Fields that output may ask for."""
        return (*self.model.components, *self.model.derived())

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """Those of the fields that have one real value at a point."""
        state = self.template

        def scalar(name: str) -> bool:
            found = jax.eval_shape(self.values(name), state)
            return found.ndim == 3 and not jnp.issubdtype(found.dtype, jnp.complexfloating)

        return tuple(name for name in self.field_names if scalar(name))

    def _check_output(self) -> None:
        output = self.config.output
        for kind in ("snapshots", "slices"):
            for name in getattr(getattr(output, kind), "fields", None) or ():
                known = self.field_names if kind == "snapshots" else self.scalars
                if name not in known:
                    close = difflib.get_close_matches(name, known, n=1)
                    meant = f", did you mean {close[0]}?" if close else ";"
                    what = f"{name} is no scalar" if name in self.field_names else f"unknown field {name!r}"
                    raise self.config.error(
                        f"output.{kind}.fields", f"{what}{meant} known: {', '.join(known)}"
                    )

    def check_start(self) -> None:
        """Refuses an initial condition that cannot be built, or for which no dt can be chosen."""
        state = self.state
        force = self._force(state)
        if force is not None:
            rates = jax.jit(lambda s: force(s.fields, s.time))(state)
            if not all(bool(jnp.isfinite(rate).all()) for rate in rates.values()):
                raise self.config.error(
                    "forcing",
                    "is not finite at the start (constant_power needs a velocity with energy in the band)",
                )
        if self.time_step.fixed is not None or self.time_step.largest is not None:
            return
        rate = jax.jit(lambda s: rate_of(self.model, s))(state)
        if float(rate) == 0:
            raise self.config.error(
                "time.max_dt", "is required: the initial state is at rest, so cfl gives no time step"
            )

    def trouble(self) -> tuple[str, str]:
        """Why no further step can be taken from the current state, and what may help."""
        name = self.nonfinite()
        if name is None and isinstance(self.model, Troubled):
            found = self.model.trouble(self.state.fields)
            if found is not None:
                return found
        cure = "A smaller time.cfl or time.dt, more viscosity or a finer grid"
        return f"{name or 'the rate of change'} is not finite", cure

    def nonfinite(self) -> str | None:
        """Name of a field of the current state that is not finite."""
        found = jax.device_get(self.are_finite(self.state.fields))
        return next((name for name in self.model.components if not found[name]), None)

    @cached_property
    def are_finite(self) -> Callable[[Fields], dict[str, jax.Array]]:
        return jax.jit(lambda fields: {n: jnp.isfinite(f).all() for n, f in fields.items()})

    def run(self, **options: Any) -> int:
        """Runs to the end (see `simulator.run.execute`), with all output; returns the exit code."""
        from simulator.run.execute import execute

        return execute(self, **options)

    def _initial_fields(self) -> dict[str, jax.Array]:
        initial = INITIALS[self.config.initial.kind](self.config.initial)
        try:
            fields = start_of(initial, self.model, cast(Any, self.inputs))
        except UserError as error:
            raise self.config.error("initial", str(error)) from error
        for name in self.model.solenoidal:
            fields[name] = self._solenoidal(name, fields[name])
        finite = jax.device_get(self.are_finite(fields))
        if bad := [name for name in fields if not finite[name]]:
            raise self.config.error("initial", f"{' and '.join(bad)} has values that are not finite")
        return {name: fields[name] for name in self.model.components}

    def _solenoidal(self, name: str, field: jax.Array) -> jax.Array:
        """The field without its divergence; says what fraction of it was removed."""
        layout = self.transform.layout

        @jax.jit
        def split(f):
            kept = layout.hold(jnp.where(layout.mask, project(layout, f), 0))
            removed = layout.inner(f - kept, f - kept).sum()
            return kept, removed, layout.inner(f, f).sum()

        kept, removed, total = split(field)
        fraction = float(removed) / float(total) if float(total) > 0 else 0.0
        if fraction > 1e4 * float(np.finfo(self.dtype).eps) ** 2 and self.cluster.is_first:
            self.report(f"warning: initial {name} has divergence: {fraction:.2%} of its energy was removed")
        return kept


class PhysicalFields(Mapping[str, jax.Array]):
    """Fields of a simulation's current state by name, (..., x, y, z); each is computed when asked for."""

    def __init__(self, simulation: Simulation):
        self._simulation = simulation

    def __getitem__(self, name: str) -> jax.Array:
        values = self._simulation.values(name)(self._simulation.state)
        nx, ny, nz = self._simulation.grid.shape
        return values[..., :nx, :ny, :nz]

    def __iter__(self) -> Iterator[str]:
        return iter(self._simulation.field_names)

    def __len__(self) -> int:
        return len(self._simulation.field_names)
