"""A configured simulation: its devices, transform, model and state, without the files of a run."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from simulator.cluster.start import Cluster
from simulator.config import RunConfig
from simulator.measure.python_series import PhysicalFields
from simulator.physics.forcing import Forcings
from simulator.physics.models import MODELS, Equation, Fields, State, outputs
from simulator.physics.models.closures import varied_arrays
from simulator.physics.models.split_equation import background_of, populations_of
from simulator.physics.particles import population
from simulator.physics.particles.population import Populations
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation import error_control, initial_state, quantities
from simulator.simulation.advance import NO_STEPS, TimeStep, Until, advance_of, rate_of
from simulator.simulation.compiling import shortage
from simulator.simulation.equation import make_forcings, make_model, make_swarm
from simulator.simulation.inputs import Inputs
from simulator.simulation.placement import (
    Axes,
    Placement,
    place,
    stack_members,
    together,
    unstack_members,
)
from simulator.simulation.steps import step_of
from simulator.simulation.system import System
from simulator.simulation.varied import with_values
from simulator.spectral.arrays import Number, Spectrum, Truth

Report = Callable[[str], None]


class Simulation:
    """A configuration on the devices of a cluster; `simulator.Simulation` takes the available devices
    and can also run it, with all output.

        simulation = Simulation(load_config("run.yaml", ["time.stop=1"]))
        simulation.state                      # the spectral state, a pytree of sharded jax arrays
        simulation.fields["velocity"]         # values (3, x, y, z) on the grid
        step = jax.jit(simulation.step)       # the pure function (state, dt) -> state

    With `members=M` the devices are divided into M equal parts, on each of which the grid is
    distributed: see `together`. `earlier`: the transform that an earlier start of the run chose.

    Raises UserError if configuration and devices are incompatible."""

    def __init__(
        self,
        config: RunConfig,
        *,
        cluster: Cluster,
        inputs: Inputs,
        report: Report = print,
        members: int = 1,
        earlier: Mapping[str, Any] | None = None,
    ):
        self.config = config
        self.report = report
        self.cluster = cluster
        self.inputs = inputs
        placement = place(config, self.cluster, report, members, earlier)
        self._build(placement)
        if config.run.memory == "auto" and placement.saves_memory and self.shortage():
            self._build(placement.with_low_memory())
        quantities.check_snapshot_names(config, self.model)

    def varied(self, values: Mapping[str, Any]) -> "Simulation":
        """The same simulation on the same devices, with other values of numbers (`model.viscosity`)
        or of a closure's arrays (`model.subgrid.arrays`). Numbers are not validated: values may be
        traced, so that one program serves many values or is differentiated by them.

        Raises UserError for a key that does not exist or is no number of `model`, `forcing`,
        `initial` or `time`, and for arrays of other names or shapes."""
        other = Simulation.__new__(Simulation)
        equation = self.model.settings if MODELS[self.config.model.kind].numerics.open else None
        other.config = with_values(self.config, values, equation, varied_arrays(self.model))
        other.report = self.report
        other.cluster = self.cluster
        other.inputs = self.inputs
        other._build(self.placement)
        return other

    def _build(self, placement: Placement) -> None:
        self._compiled: dict[Any, Callable[[State], Any]] = {}
        self._state: State | None = None
        self._template: State | None = None
        time = self.config.time
        self.integrator = INTEGRATORS[time.integrator]()
        self.placement = placement
        self.grid = placement.grid
        self.model: Equation = make_model(self.config, placement, self.inputs)
        background = background_of(self.model)
        cfl = time.cfl
        if time.error is not None:  # the stability of explicit terms
            cfl = self.integrator.max_cfl.get(self.config.grid.dealias)
        self.time_step = TimeStep(time.dt, cfl, time.max_dt, error=time.error)
        if time.steps is not None and background is not None and not background.traced:
            ends = background.ends(self.first_time, time.stop, time.steps, time.spacing or "growth")
            self.time_step = self.time_step._replace(ends=ends)
        self.transform = self.model.transform
        self.dtype = self.transform.dtype
        self.forcing: Forcings | None = make_forcings(self.config, self.model, self.inputs)
        self.swarm = make_swarm(self.config, self.model, self.inputs)
        self.system = System(self.model, self.forcing, self.swarm)
        self.step: Callable[[State, Any], State] = step_of(self.system, self.integrator)
        """The pure function (state, dt) -> state, to be jitted, differentiated or looped over."""
        self.advance: Callable[[State, Until], State] = self._loop()
        """The compiled loop over steps; it donates its state."""

    @property
    def state(self) -> State:
        """The current state; at first the state of the initial condition."""
        if self._state is None:
            if isinstance(jnp.zeros(()), Tracer):  # within jit; another thread traces nothing
                with ThreadPoolExecutor(1) as thread:
                    self._state = thread.submit(lambda: self.placed(self.start())).result()
            else:
                self._state = self.placed(self.start())
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state

    def rewind(self) -> None:
        """Drop the current state; the next one is that of the initial condition."""
        self._state = None

    @property
    def fields(self) -> Mapping[str, jax.Array]:
        """Values of the current state's evolved and derived fields on the grid, by name."""
        return PhysicalFields(
            self.field_names,
            self.config.grid.shape,
            lambda name: self.field_program(name)(self.state),
        )

    def start(self) -> State:
        """The initial condition as a state. Raises UserError if it cannot be built."""
        warn = self.report if self.cluster.is_first else lambda line: None
        # Arrays that name no device belong to this simulation's, not to a GPU that is there, too.
        device = self.cluster.local_devices[0]
        with jax.default_device(device if isinstance(device, jax.Device) else None):
            fields = initial_state.initial_fields(self.config, self.model, self.inputs, warn)
            state = jax.jit(self.begin)(fields)
            return self.completed(initial_state.with_particles(self.config, state, self.swarm))

    def state_from(self, values: Mapping[str, Any]) -> State:
        """The state at the start whose fields have the given values on the grid:

            simulation.state = simulation.state_from({"velocity": array})

        `values`: arrays (component, x, y, z), (x, y, z) for scalars, without z in two dimensions,
        in the units of the run; they may be traced or sharded. Fields that are not given are zero.
        Modes that dealiasing does not keep and the divergence of solenoidal fields are removed.
        Raises UserError for a wrong name or shape."""
        state = self.begin(initial_state.fields_from(self.model.at(self.first_time), values))
        state = self.completed(initial_state.with_particles(self.config, state, self.swarm))
        return self.placed(state)

    def begin(self, start: Mapping[str, Any]) -> State:
        """The state that a run begins with, from its spectral fields and the particles that are
        matter."""
        return self._begin(start, self.first_time)

    def _begin(self, start: Mapping[str, Any], time: float = 0.0) -> State:
        state = initial_state.begin(start, self.system, self.integrator, time)
        return error_control.with_controller(state, self.config.time.stop, self.time_step.error)

    @cached_property
    def first_time(self) -> float:
        """The time of the initial condition."""
        return initial_state.first_time(self.config, self.model, self.inputs)

    @property
    def populations(self) -> Populations:
        """All particles, by name: particles that are matter of the model, and particles that move
        with the fluid."""
        return {**populations_of(self.model), **self.swarm.populations}

    def check_start(self) -> None:
        """Refuses an initial condition that cannot be built, or for which no dt can be chosen."""
        initial_state.check_start(self.config, self.state, self.system, self.time_step, self._rate)

    def _rate(self, state: State) -> jax.Array:
        """The largest rate of the model (1/time)."""
        return self.transform.layout.once(partial(rate_of, self.model), state)

    @property
    def template(self) -> State:
        """Shapes and types of a state, without computing one."""
        if self._template is None:
            state = jax.eval_shape(self._begin, initial_state.templates(self.model))
            state = initial_state.with_term_arrays(state, initial_state.term_shapes(self.model))
            self._template = initial_state.with_particle_templates(state, self.swarm)
        return self._template

    @property
    def placed_template(self) -> State:
        """The template with shardings: the argument of the compiled loop, without its arrays."""
        return jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s),
            self.template,
            self.shardings(self.template),
        )

    def shardings(self, state: State) -> State:
        """The shardings with which the compiled loop returns the arrays of a state."""
        return initial_state.state_shardings(self.model, self.populations, state)

    def placed(self, state: State) -> State:
        """The state with the shardings with which the compiled loop returns it, so that the loop
        compiles once."""
        return jax.jit(lambda s: s, out_shardings=self.shardings(state))(state)

    @cached_property
    def diagnostics(self) -> Callable[[State], dict[str, Number]]:
        """The compiled function from a state to the scalars of diagnostics.csv."""
        return jax.jit(self._row)

    def _row(self, state: State) -> dict[str, Number]:
        row = quantities.diagnostics_of(self.system, state)
        self.columns = tuple(row)
        return row

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the diagnostics, in the model's order (a compiled function sorts them)."""
        jax.eval_shape(self._row, self.template)
        return self.columns

    @cached_property
    def spectra(self) -> Callable[[State], dict[str, Spectrum]]:
        """The compiled function from a state to its shell spectra."""
        return jax.jit(
            lambda state: outputs.spectra(
                self.model.at(state.time), outputs.contents(self.model, state)
            )
        )

    def sampled(self, name: str, names: tuple[str, ...]) -> Callable[[State], dict[str, jax.Array]]:
        """The compiled function from a state to the fluid's quantities `names` at the positions of
        the particles `name`, as records `fluid_velocity` and so on."""
        if (name, names) not in self._compiled:
            self._compiled[name, names] = jax.jit(
                lambda state: quantities.sampled(self.system, state, name, names)
            )
        return self._compiled[name, names]

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """The fields that output may request."""
        return tuple(outputs.field_specs(self.model))

    def values(self, name: str) -> jax.Array:
        """The values (component, x, y, z) of an evolved or derived field of the current state:
        `simulation.fields[name]`."""
        return self.fields[name]

    def field_program(self, name: str) -> Callable[[State], jax.Array]:
        """The compiled function from a state to the values of one field, evolved or derived, (...,
        x, y, z) or, in two dimensions, (..., x, y), zero in padding."""
        if name not in self.field_names:
            outputs.field_spec(self.model, name)
        if name not in self._compiled:
            self._compiled[name] = jax.jit(
                lambda state: outputs.field_values(
                    self.model.at(state.time), name, outputs.contents(self.model, state)
                )
            )
        return self._compiled[name]

    @cached_property
    def are_finite(self) -> Callable[[Fields], dict[str, Truth]]:
        """The compiled function that tells for each field whether it is finite everywhere."""
        return jax.jit(quantities.are_finite)

    def together(self, function: Callable[..., Any], in_axes: Axes = 0) -> Callable[..., Any]:
        """`function` of one member as a compiled function of many: arguments and results have a new
        leading axis for the members, as `jax.vmap` gives them, laid over the `members` parts of the
        devices, which divide the number of members. Members on different parts do not communicate,
        except where a loop asks whether any member is unfinished.

            simulation = Simulation(load_config("run.yaml", ["devices.count=4"]), members=2)
            states = simulation.stack([simulation.state] * 6)
            states = simulation.together(simulation.step, in_axes=(0, None))(states, 0.01)

        `in_axes` is that of `jax.vmap`. The result can be differentiated and jitted again."""
        return together(function, self.transform.layout.mesh, in_axes)

    def stack(self, states: Sequence[State]) -> State:
        """The states of the members as one, with a leading axis laid over the parts of the devices.
        Raises UserError if `members` does not divide their number."""
        return stack_members(states, self.shardings(states[0]), self.placement.members)

    def unstack(self, states: State) -> list[State]:
        """The states of the members one by one, each on every part of the devices."""
        one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), states)
        return unstack_members(states, self.shardings(one))

    def grow(self, state: State) -> State:
        """The state with each particle on the device that owns its place, in larger buffers if the
        present ones are too small.

        `template` is then made anew; programs compiled for smaller buffers do not accept the new
        state. Raises RunFailure if the buffers cannot grow."""
        particles = {
            name: self.populations[name].homed(particle_set)
            for name, particle_set in state.particles.items()
        }
        self._template = None
        return replace(state, particles=particles)

    def completed(self, state: State) -> State:
        """A new or restored state with the arrays that terms read from files. `template` is made
        anew, because buffers of particles may have grown."""
        self._template = None
        return initial_state.with_term_arrays(
            state, initial_state.term_arrays(self.config, self.model)
        )

    def _loop(self, name: str | None = None) -> Any:
        return advance_of(self.system, self.integrator, self.time_step, name)

    def lowered_loop(self, name: str | None = None) -> Any:
        """The loop over steps, lowered without a state. `name` distinguishes it from the program of
        a run."""
        advance: Any = self.advance if name is None else self._loop(name)
        return advance.lower(self.placed_template, NO_STEPS)

    def compiled_loop(self, name: str | None = None) -> Any:
        """The compiled loop over steps, without a state. `name` distinguishes it from the program
        of a run."""
        return self.lowered_loop(name).compile()

    def shortage(self) -> tuple[float, float, float] | None:
        """On a device whose memory is too small for a step the bytes of the state, the needed and
        the free bytes; None if a step fits."""
        return shortage(self.cluster, self.template, self.compiled_loop)

    def nonfinite(self) -> str | None:
        """The name of a field of the current state that is not finite; None if all are."""
        finite = jax.device_get(self.are_finite(self.state.fields))
        return next((name for name in self.model.fields if not finite[name]), None)

    def trouble(self) -> tuple[str, str]:
        """The reason why no further step can be taken from the current state, and a remedy."""
        cure = "A smaller time.cfl or time.dt"
        name = self.nonfinite()
        if name is None:
            if (lost := population.lost(self.state.particles)) is not None:
                return (
                    f"one of the {lost} moved farther in a step than its device can see, "
                    "or its rate is not finite"
                ), cure
            if self.time_step.error is not None:
                return error_control.TROUBLE
            contents = outputs.contents(self.model, self.state)
            if (reason := outputs.step_trouble(self.model, contents)) is not None:
                return reason
        cure = f"{cure}, more viscosity or a finer grid"
        return f"{name or 'the rate of change'} is not finite", cure
