"""The start of a run: the initial condition as a state, checked."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from simulator.config import RunConfig
from simulator.errors import UserError, did_you_mean
from simulator.physics.initial import INITIALS, start_of
from simulator.physics.initial.initial import coefficients, completed
from simulator.physics.initial.python_start import field_array
from simulator.physics.models import Equation, Fields, SplitEquation, State, StateMemory, outputs
from simulator.physics.models.limits import Advective
from simulator.physics.models.split_equation import populations_of
from simulator.physics.models.tendency import with_arrays
from simulator.physics.particles.population import Populations, Sets, particle_shardings
from simulator.physics.particles.swarm import Swarm
from simulator.physics.stepping.evolved import Evolved
from simulator.physics.stepping.integrator import Integrator, Multistep
from simulator.simulation.advance import TimeStep, beginning
from simulator.simulation.inputs import Inputs
from simulator.simulation.quantities import are_finite
from simulator.simulation.system import System
from simulator.spectral import Transform
from simulator.spectral.arrays import Number, Numbers, SpectralVector, Truth


def initial_fields(
    config: RunConfig, model: Equation, inputs: Inputs, warn: Callable[[str], None]
) -> dict[str, Any]:
    """The initial condition: fields in spectral space, and particles that are matter of the model.

    Solenoidal fields are projected; `warn` gets a line if the projection removes energy. Raises
    UserError if the condition cannot be built or is not finite."""
    model = model.at(first_time(config, model, inputs))
    initial = INITIALS[config.initial.kind](config.initial)
    try:
        fields = start_of(initial, model, cast(Any, inputs))
    except UserError as error:
        raise config.error("initial", str(error)) from error
    kept, energies, finite = model.transform.layout.once(partial(_solenoidal, model), fields)
    judge(config, model, energies, finite, warn)
    return {name: (fields | kept)[name] for name in (*model.fields, *populations_of(model))}


def outlook(config: RunConfig, model: Equation, inputs: Inputs) -> list[str]:
    """Lines about the resolution that the run needs, from formulas alone."""
    return [*outlook_of_start(config, model, inputs), *outlook_of_terms(model)]


def outlook_of_start(config: RunConfig, model: Equation, inputs: Inputs) -> list[str]:
    """Lines about the resolution that the initial condition needs."""
    initial = INITIALS[config.initial.kind](config.initial)
    return _marked(initial.outlook(model, config.time.stop, cast(Any, inputs)))


def outlook_of_terms(model: Equation) -> list[str]:
    """Lines about the resolution that the terms need."""
    return [line for term in model.terms for line in _marked(term.outlook())]


def _marked(lines: Mapping[str, bool]) -> list[str]:
    return [line if resolved else f"warning: {line}" for line, resolved in lines.items()]


def judge(
    config: RunConfig,
    model: Equation,
    energies: Mapping[str, tuple[Number, Number]],
    finite: Mapping[str, Truth],
    warn: Callable[[str], None],
) -> None:
    """Warns of energy that the projection has removed. Raises UserError for fields that are not
    finite."""
    for name, (removed, total) in jax.device_get(energies).items():
        share = removed / total if total > 0 else 0.0
        if share > 1e4 * float(np.finfo(model.transform.dtype).eps) ** 2:
            warn(f"warning: initial {name} has divergence: {share:.2%} of its energy was removed")
    if bad := [name for name, is_finite in jax.device_get(finite).items() if not is_finite]:
        raise config.error("initial", f"{' and '.join(bad)} has values that are not finite")


def traced_start(
    config: RunConfig, model: Equation, inputs: Inputs
) -> tuple[dict[str, Any], Any, Any]:
    """`initial_fields` for settings whose numbers may be traced, and what `judge` needs."""
    model = model.at(first_time(config, model, inputs))
    fields = start_of(INITIALS[config.initial.kind](config.initial), model, cast(Any, inputs))
    kept, energies, finite = _solenoidal(model, fields)
    return (
        {name: (fields | kept)[name] for name in (*model.fields, *populations_of(model))},
        energies,
        finite,
    )


def first_time(config: RunConfig, model: Equation, inputs: Inputs) -> float:
    """The time of the initial condition. Raises UserError if the run ends before it."""
    try:
        time = INITIALS[config.initial.kind](config.initial).start_time(model, cast(Any, inputs))
    except UserError as error:
        raise config.error("initial", str(error)) from error
    if time >= config.time.stop:
        raise config.error(
            "time.stop", f"{config.time.stop:g} is not beyond the start, whose time is {time:g}"
        )
    return time


def fields_from(model: Equation, values: Mapping[str, Any]) -> Fields:
    """The spectral fields of `Simulation.state_from`, of a model with its time. Raises UserError for
    a wrong name, shape or type."""

    def refused(text: str) -> UserError:
        return UserError(f"state_from: {text}")

    shapes = model.initial_shapes
    if isinstance(model, SplitEquation) and model.parts:
        raise refused(
            "this model has particles or several kinds of matter; it starts from its initial condition"
        )
    if unknown := [name for name in values if name not in shapes]:
        meant = did_you_mean(unknown[0], shapes)
        raise refused(
            f"unknown field {unknown[0]!r}{meant} this model's fields are {', '.join(shapes)}"
        )
    arrays = {n: field_array(v, shapes[n], model.transform, n, refused) for n, v in values.items()}
    fields = completed(model, jax.jit(partial(coefficients, model.transform))(arrays))
    for name in model.solenoidal:
        fields[name] = without_divergence(model, fields[name])
    return {name: fields[name] for name in model.fields}


def without_divergence(model: Equation, field: SpectralVector) -> SpectralVector:
    layout = model.transform.layout
    return layout.constrain(jnp.where(layout.mask, model.project(field), 0))


def _solenoidal(
    model: Equation, fields: Mapping[str, Any]
) -> tuple[Fields, dict[str, tuple[Number, Number]], dict[str, Truth]]:
    """The solenoidal parts of the solenoidal fields, for each of them the energy that the
    projection removed and its energy before, and for every field whether it is finite."""
    inner = model.transform.layout.inner
    kept = {}
    energies = {}
    for name in model.solenoidal:
        field = fields[name]
        kept[name] = without_divergence(model, field)
        gone = field - kept[name]
        energies[name] = inner(gone, gone).sum(), inner(field, field).sum()
    return kept, energies, are_finite({**fields, **kept})


def begin(
    start: Mapping[str, Any], system: System, integrator: Integrator, time: float = 0.0
) -> State:
    """The state at the beginning of a run, with the memory and history that its steps need. `start`
    are the fields and the particles that are matter of the model."""
    model = system.model
    memory = StateMemory()
    if isinstance(model, SplitEquation):
        memory = StateMemory.of_model(model.memory(dict(start), jnp.float64(time)))
    if system.forcing is not None:
        memory = replace(memory, forcing=system.forcing.memory())
    if outputs.in_every_step(model):
        memory = replace(memory, residual=jnp.float64(0))
    if system.sheared is not None:
        memory = replace(memory, lost=jnp.float64(0))
    fields = {name: start[name] for name in model.fields}
    particles = {name: start[name] for name in populations_of(model)}
    several = isinstance(integrator, Multistep)
    history = integrator.begin(Evolved(system.changing(fields))) if several else {}
    return beginning(fields, memory, history, particles, time)


def with_particles(config: RunConfig, state: State, swarm: Swarm) -> State:
    """The state with the particles at their start. Raises UserError if they cannot start there."""
    with config.blaming("particles"):
        return with_swarm(state, *swarm.start(state.fields))


def with_particle_templates(state: State, swarm: Swarm) -> State:
    """The shapes and types of a state, including its particles."""
    numbers = jax.eval_shape(swarm.memory, jax.ShapeDtypeStruct((), jnp.float64))
    templates = {name: population.template for name, population in swarm.populations.items()}
    return with_swarm(state, templates, numbers)


def with_swarm(state: State, sets: Sets, numbers: Numbers) -> State:
    """The state with particles that move with its flow, and the numbers that their steps need."""
    memory = replace(state.memory, particles=numbers)
    return replace(state, particles=state.particles | sets, memory=memory)


def templates(model: Equation) -> dict[str, Any]:
    """Shapes and types of a model's spectral fields, and of the particles that are its matter."""
    kind = model.transform.complex_dtype
    fields = {
        name: jax.ShapeDtypeStruct((*lead, *model.transforms[name].layout.shape), kind)
        for name, lead in model.shapes.items()
    }
    return fields | {
        name: population.template for name, population in populations_of(model).items()
    }


def state_shardings(model: Equation, populations: Populations, state: State) -> State:
    """The shardings with which the compiled loop returns the arrays of a state: fields as their
    layouts say, particles over the devices, all other arrays replicated on every device."""
    everywhere = model.transform.layout.everywhere

    def spectral(fields: Mapping[str, Any]) -> dict[str, NamedSharding]:
        return {n: model.transforms[n].layout.sharding(f.ndim) for n, f in fields.items()}

    particles = {
        name: particle_shardings(particles, populations[name].domain)
        for name, particles in state.particles.items()
    }
    history = {name: spectral(fields) for name, fields in state.history.items()}
    others = jax.tree.map(lambda array: everywhere, state)
    of_terms = {n: array_sharding(model.transform, a) for n, a in state.memory.terms.items()}
    others = replace(others, memory=replace(others.memory, terms=of_terms))
    return replace(others, fields=spectral(state.fields), history=history, particles=particles)


def array_sharding(transform: Transform, array: jax.Array) -> NamedSharding:
    """The sharding of an array of `StateMemory.terms`, or of its shape and type."""
    complex_values = jnp.issubdtype(array.dtype, jnp.complexfloating)
    place = transform.layout if complex_values else transform.physical
    return place.sharding(array.ndim)


def with_term_arrays(state: State, arrays: Mapping[str, Any]) -> State:
    """The state with the arrays that terms read from files, or with their shapes and types."""
    return replace(state, memory=replace(state.memory, terms=dict(arrays)))


def term_shapes(model: Equation) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of `term_arrays`."""
    return {name: a for term in model.terms for name, a in term.array_shapes().items()}


def term_arrays(config: RunConfig, model: Equation) -> dict[str, jax.Array]:
    """The arrays that terms read from files."""
    arrays: dict[str, jax.Array] = {}
    for index, term in enumerate(model.terms):
        with config.blaming(f"terms.{index}"):
            arrays |= term.arrays()
    return arrays


def check_start(
    config: RunConfig,
    state: State,
    system: System,
    time_step: TimeStep,
    rate: Callable[[State], Number],
) -> None:
    """Refuses a start for which no dt can be chosen, or at which the forcing is not finite. `rate`
    gives the largest rate of the model."""
    dt = time_step.fixed
    if dt is not None:
        line = system.swarm.too_slow(dt, state.memory.particles)
        if line is not None:
            raise config.error("time.dt", line)
    check_forces(config, state, system)
    model = with_arrays(system.model, state.memory.terms)
    for index, term in enumerate(model.terms):
        with config.blaming(f"terms.{index}"):
            term.check_start(float(state.time))
    check_growth(config, model, time_step)
    check_limit(config, model, time_step)
    if not time_step.bounded and float(rate(state)) == 0:
        raise _without_limit(config, "the initial state is at rest")


def check_limit(config: RunConfig, model: Equation, time_step: TimeStep) -> None:
    """Refuses a dt by the CFL number in an equation without a velocity, whatever its state is."""
    unstated = type(model).advection is Equation.advection
    limited = model.closure is not None or isinstance(model, SplitEquation)
    unlimited = type(model.step_limit) is Advective and not limited
    if not time_step.bounded and unstated and (model.terms or unlimited):
        raise _without_limit(config, "the equation states no advection")


def _without_limit(config: RunConfig, why: str) -> UserError:
    return config.error("time.max_dt", f"is required: {why}, so cfl gives no time step")


def check_forces(config: RunConfig, state: State, system: System) -> None:
    """Refuses forces that are not finite at the start."""
    if (forcing := system.forcing) is None:
        return
    forces = jax.jit(lambda s: forcing.each(s.fields, s.time, s.memory.forcing))(state)
    for name, force in forces.items():
        if not all(bool(jnp.isfinite(a).all()) for a in force.values()):
            problem = "is not finite at the start (constant_power needs energy in its band)"
            raise config.error(config.forcings[name][0], problem)


def check_growth(config: RunConfig, model: Equation, time_step: TimeStep) -> None:
    """Refuses a fixed dt that is too long for the growth rates of the linear term."""
    longest = model.linear_growth.longest_step
    dt = time_step.fixed
    if longest is not None and dt is not None and dt > longest:
        growth = f"modes grow linearly at up to {1 / longest:.4g} (1/time), which a step of {dt:g} does not follow"
        raise config.error("time.dt", f"{growth}; at most {longest:.3g} is needed")
