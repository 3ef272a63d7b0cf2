"""Gradients through a run, in reverse mode and in bounded memory.

    from simulator import differentiate

    gradient = differentiate(simulation, loss, steps=50, dt=0.01)
    value, slopes = gradient({"fields": simulation.state.fields, "model.viscosity": 0.01})

`loss(state)` is any real function of the last state, written with jax.numpy. A loss with a parameter
`simulation` gets the simulation with the values of the variables, so that it can return
`simulation.diagnostics(state)["drag_disc"]`. JAX differentiates the step, every array stays sharded,
and physical space is visited in blocks as in a run.

The backward pass of a step needs the state before the step and the tendencies of its stages. If
they fit into `HELD` bytes for all steps, the forward pass stores them; otherwise it stores all
states, and the backward pass computes the tendencies again. If the states do not fit either, or if
`kept` is set, the run is divided into `kept` segments. The forward pass stores the first state of
each segment, and the backward pass runs one segment after the other again; long segments are
divided in the same way. With `kept` = sqrt(steps) the memory holds 2 sqrt(steps) states, and the
steps are computed three times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from inspect import signature
from itertools import pairwise
from math import isqrt
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.core import Tracer

from simulator.errors import UserError, did_you_mean, prefixed
from simulator.physics.models import Equation, State
from simulator.plugins.gradients.variables import PARTICLES, START
from simulator.simulation import initial_state
from simulator.simulation.compiling import SMALL, bytes_of
from simulator.simulation.simulation import Simulation
from simulator.simulation.steps import step_of
from simulator.simulation.varied import BLOCKS, check_bounds
from simulator.spectral.arrays import Number
from simulator.spectral.transform import Tree

Tendency = Callable[..., tuple[Tree, Tree]]

HELD = SMALL // 2
"""Bytes of a device for the stored states, with or without tendencies, if `kept` is not set."""
RATES = "rates"  # The name of the tendencies of a step's stages, for `jax.checkpoint`.


def holding(tendency: Tendency) -> Tendency:
    """The tendency, of which the reverse computes everything again but the rates."""
    again = jax.checkpoint(tendency)

    def named(rate: jax.Array) -> jax.Array:
        # JAX 0.10 cannot hold complex numbers that a computation goes on with.
        if jnp.isrealobj(rate):
            return checkpoint_name(rate, RATES)
        return lax.complex(checkpoint_name(rate.real, RATES), checkpoint_name(rate.imag, RATES))

    def with_named_rates(*arguments: Any) -> tuple[Tree, Tree]:
        rates, maxima = again(*arguments)
        return jax.tree.map(named, rates), maxima

    return with_named_rates


def checkpointed_steps(
    step: Callable[[Tree], Tree],
    state: Tree,
    count: int,
    kept: int,
    shardings: Tree,
    rates: bool = False,
) -> Tree:
    """The state after `count` steps, which are divided into `kept` parts, and these into parts
    again: the reverse holds the first state of each part, and repeats one part after the other.
    With `rates` it also holds the rates of the steps of a part. `shardings` are those of the
    state's arrays; without them XLA would gather some arrays."""

    def one(state: Tree, _: None) -> tuple[Tree, None]:
        return lax.with_sharding_constraint(step(state), shardings), None

    policy = jax.checkpoint_policies.save_only_these_names(RATES) if rates else None
    one_again = jax.checkpoint(one, prevent_cse=False, policy=policy)

    def steps(state: Tree, number: int) -> Tree:
        part = one_again
        each = 1
        while each * kept < number:
            part = jax.checkpoint(partial(_part, part, kept), prevent_cse=False)
            each = each * kept
        state = lax.scan(part, state, None, number // each)[0]
        return steps(state, number % each) if number % each else state

    return steps(state, count)


def _part(
    inner: Callable[[Tree, None], tuple[Tree, None]], kept: int, state: Tree, _: None
) -> tuple[Tree, None]:
    return lax.scan(inner, state, None, kept)[0], None


FIELDS = "fields"


def of_particles():
    """The gradients through particles, which need the plugin `gravity` as their runs do."""
    from simulator.plugins.gradients import particle_adjoint

    return particle_adjoint


Loss = Callable[..., jax.Array]


def term_targets(model: Equation) -> dict[str, str]:
    """The keys in the configuration of arrays of files by which a run can be differentiated, with
    their names in `StateMemory.terms`."""
    return {
        f"terms.{index}.{key}": name
        for index, term in enumerate(model.terms)
        for key, name in term.array_keys().items()
    }


class Gradient:
    """The value of a loss after a run and its gradient, as a function of the run's variables.

    Variables are a mapping: `fields` are the spectral fields at the beginning, by name;
    `model.viscosity`, `forcing.amplitude`, `initial.energy` and so on are numbers of the
    configuration; `model.subgrid.arrays` are the arrays of a python closure, a tree like
    `simulation.model.varied_arrays["model.subgrid.arrays"]`; `terms.0.target.velocity` are the
    coefficients (snapshot, component, modes) of a target of files, like
    `simulation.state.memory.terms["NAME/velocity"]`. Everything else is as in the
    configuration. `fields` and `initial` exclude each other. For a composite of particles variables
    are `particles`, the records position, velocity and mass at the beginning by name and in the
    order of `simulation.state`, or numbers of `initial`, and numbers of the cosmology and of
    gravity; `dt` may be left out where the configuration has `time.steps`, and no states are kept.
    In place of the `seed` of a cosmological start a variable may be its random modes, complex
    coefficients like `simulator.spectral.random.gaussian(layout, seed)[0]`.

    The gradient has the same keys. For complex arrays it is the direction of ascent: fields - rate
    * gradient lowers the loss. Functions are compiled once for each set of keys."""

    def __init__(
        self,
        simulation: Simulation,
        loss: Loss,
        *,
        steps: int | Sequence[int],
        dt: float | None = None,
        kept: int | None = None,
    ):
        """`steps`: the number of steps, or the rising step numbers after which `loss` gets a state
        each. `kept`: the number of states that the forward pass keeps. The reverse holds as many
        again between two of them; with fewer, it computes steps more often. By default it keeps all
        states, with all tendencies if there is room, in at most half a gigabyte of each device; if
        the states need more, the square root of the number of steps."""
        ends = (steps,) if isinstance(steps, int) else tuple(steps)
        if not ends or ends[0] < 1 or any(b <= a for a, b in pairwise(ends)):
            raise UserError(f"steps: whole numbers from 1 on, rising, are needed, not {steps}")
        if kept is not None and kept < 2:
            raise UserError(f"kept: a number of states, 2 or more, is needed, not {kept}")
        if moving := simulation.swarm.populations:
            raise UserError(
                f"particles: gradients do not go through particles of a flow ({', '.join(moving)})"
            )
        if simulation.populations:
            of_particles().check_model(simulation, dt)
        elif dt is None:
            raise UserError("dt: the size of the steps is needed")
        self._simulation = simulation
        self._loss = loss
        self._takes_simulation = "simulation" in signature(loss).parameters
        self._ends = ends
        self._dt = dt
        self._kept = kept
        self._room = 0

    def __call__(self, variables: Mapping[str, Any]) -> tuple[Number, dict[str, Any]]:
        """The loss, and its gradient with the keys of `variables`."""
        return self._with_room(self._compiled, variables)

    def value(self, variables: Mapping[str, Any]) -> Number:
        """The loss, without its gradient; JAX differentiates it with the same checkpoints."""
        return self._with_room(self._forward, variables)

    def lower(self, variables: Mapping[str, Any]) -> Any:
        """The program of value and gradient, lowered, to inspect its memory or communication."""
        return self._compiled.lower(self._checked(variables), self.begin(variables), self._room)

    def begin(self, variables: Mapping[str, Any]) -> State:
        """The state from which `states` starts; particles, if numbers of their start vary, are
        undisturbed in it."""
        starts = self._simulation.populations and any(key.startswith(START) for key in variables)
        return self._places if starts else self._simulation.state

    @cached_property
    def _places(self) -> State:
        return of_particles().places(self._simulation)

    def _with_room(self, program: Callable[..., Any], variables: Mapping[str, Any]) -> Any:
        """The result of a program, which is compiled anew as long as particles have no room on a
        device."""
        simulation = self._simulation
        values = self._checked(variables)
        begin = self.begin(variables)
        while True:
            result, needed = program(values, begin, self._room)
            capacities = {name: max(self._room, begin.particles[name].capacity) for name in needed}
            traced = any(isinstance(number, Tracer) for number in needed.values())
            small = [] if traced else [n for n, k in needed.items() if int(k) > capacities[n]]
            if not small:
                return result
            name = small[0]
            self._room = simulation.populations[name].room(int(needed[name]))
            if simulation.cluster.is_first:
                simulation.report(
                    f"{name} crowd on a device; buffers grow to {self._room} particles each"
                )

    def states(self, variables: Mapping[str, Any], begin: State) -> tuple[State, ...]:
        """The states that `loss` gets. The run starts from `begin` unless a variable defines the
        start. Pure; so positions are NaN if a device has no room for its particles, which calls of
        the gradient mend. Raises UserError for a number by whose value the program itself
        differs."""
        try:
            return self._states(variables, begin)
        except jax.errors.JAXTypeError as error:
            others = {key: {k: v for k, v in variables.items() if k != key} for key in variables}
            keys = [key for key in variables if not self._traceable({key: variables[key]}, begin)]
            keys = keys or [key for key in variables if self._traceable(others[key], begin)]
            named = ", ".join(keys or variables)
            problem = "no gradient by this: the program itself depends on its value"
            raise UserError(f"variables: {named}: {problem}") from error

    def _traceable(self, variables: Mapping[str, Any], begin: State) -> bool:
        """Whether a program follows from these variables whatever their values are."""
        try:
            jax.eval_shape(lambda v: self._states(v, begin), variables)
        except jax.errors.JAXTypeError:
            return False
        return True

    def _states(self, variables: Mapping[str, Any], begin: State) -> tuple[State, ...]:
        if self._simulation.populations:
            return of_particles().states(
                self._simulation, variables, begin, self._ends, self._dt, self._room
            )
        targets = term_targets(self._simulation.model)
        simulation = self._varied(variables)
        state = begin
        if FIELDS in variables:
            state = simulation.begin({**begin.fields, **variables[FIELDS]})
        elif any(key.startswith("initial.") for key in variables):
            start, *_ = initial_state.traced_start(
                simulation.config, simulation.model, simulation.inputs
            )
            state = simulation.begin(start)
        # The residual of the energy budget influences no step, and its reverse would hold several
        # fields.
        varied = {name: variables[key] for key, name in targets.items() if key in variables}
        terms = begin.memory.terms | varied
        memory = replace(state.memory, residual=None, terms=terms)
        state = replace(state, memory=memory)
        step = step_of(simulation.system, simulation.integrator, holding)
        states = []
        shardings = initial_state.state_shardings(simulation.model, simulation.populations, state)
        for before, end in pairwise((0, *self._ends)):
            count = end - before
            kept, rates = self._held(state, count)
            state = checkpointed_steps(
                lambda s: step(s, cast(float, self._dt)), state, count, kept, shardings, rates
            )
            states.append(state)
        return tuple(states)

    def _varied(self, variables: Mapping[str, Any]) -> Simulation:
        others = {FIELDS, *term_targets(self._simulation.model)}
        numbers = {key: value for key, value in variables.items() if key not in others}
        varies = numbers and not self._simulation.populations
        return self._simulation.varied(numbers) if varies else self._simulation

    def _held(self, state: State, count: int) -> tuple[int, bool]:
        """The number of states that the forward pass keeps in `count` steps, and whether it keeps
        their rates too."""
        if self._kept is not None:
            return self._kept, False
        simulation = self._simulation
        steps = self._ends[-1]
        one = bytes_of(state) / simulation.transform.layout.devices
        if steps * one > HELD:
            count = steps = isqrt(count - 1) + 1
        return count, steps * one * (1 + simulation.integrator.order) <= HELD

    def _total(
        self, variables: Mapping[str, Any], begin: State, room: int
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss, and the largest number of particles on a device. `room` distinguishes
        programs."""
        states = self.states(variables, begin)
        needed = {
            n: jnp.stack([s.particles[n].needed for s in states]).max() for n in begin.particles
        }
        simulation = {"simulation": self._varied(variables)} if self._takes_simulation else {}
        return self._loss(*states, **simulation), needed

    @cached_property
    def _forward(self) -> Any:
        return jax.jit(self._total, static_argnums=2)

    @cached_property
    def _compiled(self) -> Any:
        def value_and_gradient(
            variables: Mapping[str, Any], begin: State, room: int
        ) -> tuple[Any, Any]:
            (value, needed), slopes = jax.value_and_grad(self._total, has_aux=True)(
                variables, begin, room
            )
            size = sum(abs(s).sum() for s in jax.tree.leaves(slopes))
            # A device may have no room on the way back, too.
            for name, particles in begin.particles.items():
                capacity = max(room, particles.capacity)
                lost = jnp.isfinite(value) & jnp.isnan(size) & (capacity < populations[name].count)
                needed[name] = jnp.where(lost, 2 * capacity, needed[name])
            return (value, jax.tree.map(jnp.conj, slopes)), needed

        populations = self._simulation.populations
        return jax.jit(value_and_gradient, static_argnums=2)

    def _checked(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        simulation = self._simulation
        trees = (FIELDS, PARTICLES)
        for key, value in variables.items():
            if simulation.populations:
                of_particles().check_variable(simulation, key, value)
            elif key == FIELDS:
                _check_fields(value, simulation.template.fields)
            elif (first := key.partition(".")[0]) not in BLOCKS:
                meant = did_you_mean(first, (FIELDS, *BLOCKS))
                problem = "fields, and numbers of model, forcing and initial, can vary, and model.subgrid.arrays"
                raise UserError(f"variables: {key!r}{meant} {problem}")
            if key not in trees:
                with prefixed("variables", ": "):
                    check_bounds(simulation.config, key, value)
        if any(key.startswith("initial.") for key in variables) and (
            others := variables.keys() & trees
        ):
            raise UserError(
                f"variables: {others.pop()} and initial exclude each other; both give the start"
            )
        # Clocks and spectra are double.
        kind = jnp.float64 if simulation.populations else simulation.dtype
        in_type = partial(
            jax.tree.map, lambda a: a if jnp.iscomplexobj(a) else jnp.asarray(a, kind)
        )
        return {k: v if k in trees else in_type(v) for k, v in variables.items()}


def _check_fields(fields: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raises UserError for a name or a shape that the initial fields do not have."""
    for name, field in fields.items():
        if name not in known:
            meant = did_you_mean(name, known)
            raise UserError(f"variables: fields: unknown {name!r}{meant} known: {', '.join(known)}")
        if (shape := jnp.shape(field)) != known[name].shape:
            needed = f"the spectral field has the shape {known[name].shape}"
            raise UserError(f"variables: fields: {name}: {needed}, not {shape}")


differentiate = Gradient  # `differentiate(simulation, loss, steps=..., dt=...)`: see `Gradient`.
