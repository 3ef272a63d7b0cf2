"""Quantities of a state, as functions to be compiled: its diagnostics, and the values of its fields
on the grid."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from simulator.config import RunConfig
from simulator.errors import did_you_mean
from simulator.physics.models import Equation, SplitEquation, State, outputs
from simulator.physics.models.memory import LOST, RESIDUAL
from simulator.physics.models.navier_stokes import NavierStokes
from simulator.physics.models.observables.budget import imbalance, powers
from simulator.physics.models.observables.scalars import scalar_injections
from simulator.physics.models.observables.terms import term_columns
from simulator.physics.models.tendency import linear_rates, linearized, tendency, with_arrays
from simulator.physics.particles import ParticleSet, population
from simulator.physics.particles.interpolation import ACCELERATION, COMPONENTS
from simulator.simulation.error_control import REJECTED
from simulator.simulation.system import System
from simulator.spectral.arrays import Number, ParticleVectors, SpectralVector, Truth


def diagnostics_of(system: System, state: State) -> dict[str, Number]:
    """The scalars of a row of diagnostics.csv, in the model's order, `rate` last."""
    time = state.time
    model = with_arrays(system.model.at(time), state.memory.terms)
    fields = state.fields
    memory = state.memory
    forces = {} if system.forcing is None else system.forcing.each(fields, time, memory.forcing)
    gained = powers(model, fields, forces)
    added = sum(gained.values(), jnp.float64(0))
    residual = memory.residual
    contents = outputs.contents(model, state)
    terms, rates = term_columns(model, fields, time) if model.terms else ({}, {})
    if model.budget is not None and not outputs.in_every_step(model):
        accelerations = system.accelerations(fields, time, memory)
        row, change, balance = model.budget.row(
            model, fields, time, accelerations
        ) or outputs.budget_row(model, contents, time, accelerations)
        work = sum(terms[f"power_{term.settings.name}"] for term in model.terms)
        supplied = added + balance.production + work
        residual = imbalance(change, supplied, balance.dissipation)
    else:
        row = outputs.diagnostics(model, contents, time)
    rate = row.pop("rate")
    if isinstance(model, NavierStokes):
        row |= scalar_injections(model, fields, {**forces, **rates})
    if gained:
        row["injection"] = added
    if len(gained) > 1:
        row |= {f"power_{name}": power for name, power in gained.items()}
    row |= terms
    if residual is not None:
        row[RESIDUAL] = residual
    if memory.lost is not None:
        row[LOST] = memory.lost
    if memory.control:
        row[REJECTED] = memory.control[REJECTED]
    # The rate at the last kick of a split step, from which dt follows, was computed in the step.
    return {**row, "rate": rate if memory.rate is None else memory.rate}


def check_snapshot_names(config: RunConfig, model: Equation) -> None:
    """Refuses field names in the settings of snapshots that the model does not have."""
    known = tuple(outputs.field_specs(model))
    for name in config.output.snapshots.fields or ():
        if name not in known:
            meant = did_you_mean(name, known)
            raise config.error(
                "output.snapshots.fields",
                f"unknown field {name!r}{meant} known: {', '.join(known)}",
            )
    quantities = sampled_names(model)
    for name in config.output.snapshots.sample:
        if name not in quantities:
            raise config.error(
                "output.snapshots.sample", f"unknown {name!r}; known: {', '.join(quantities)}"
            )


def sampled_names(model: Equation) -> tuple[str, ...]:
    """The quantities of the fluid that particles can sample."""
    return (*COMPONENTS, *(n for n, shape in model.shapes.items() if not shape))


def velocity_rate(system: System, state: State) -> SpectralVector:
    """The partial derivative of the velocity with respect to time (length/time^2)."""
    model = with_arrays(system.model, state.memory.terms)
    accelerations = system.accelerations(state.fields, state.time, state.memory)
    explicit, _ = tendency(
        linearized(model, state.fields), state.fields, state.time, accelerations, limited=False
    )
    return explicit["velocity"] + linear_rates(model, state.fields)["velocity"]


Motion = tuple[ParticleVectors, ParticleVectors]


def motion(system: System, state: State) -> Callable[[str, ParticleSet], Motion]:
    """The function from a name and the particles of this name to their velocity and
    acceleration."""
    model = system.model
    swarm = system.swarm
    change = velocity_rate(system, state) if swarm.kinds else None
    pull = None
    if isinstance(model, SplitEquation) and model.populations:
        pull = model.particle_acceleration(outputs.contents(model, state), state.time)

    def of(name: str, particles: ParticleSet) -> Motion:
        if change is not None and name in swarm.kinds:
            fluid = swarm.fluid(name, state.fields, change)
            species = swarm.kinds[name].species
            return species.motion(particles.records, fluid, state.memory.particles)
        assert pull is not None
        return particles.records["velocity"], pull(name, particles)

    return of


def sampled(
    system: System, state: State, name: str, names: tuple[str, ...]
) -> dict[str, jax.Array]:
    """The fluid's quantities `names` at the particles `name`, as records `fluid_velocity`, ...; a
    scalar has the shape (entries,)."""
    rate = velocity_rate(system, state) if ACCELERATION in names else None
    fluid = system.swarm.fluid(name, state.fields, rate)
    values = fluid(names, state.particles[name].records["position"])
    return {
        f"fluid_{n}": (v if len(v) > 1 else v[0]).astype(jnp.float64) for n, v in values.items()
    }


def are_finite(arrays: Mapping[str, jax.Array | ParticleSet]) -> dict[str, Truth]:
    """For each field whether it is finite everywhere, for each set of particles whether all are
    finite."""
    return {
        name: population.records_finite(a) if isinstance(a, ParticleSet) else jnp.isfinite(a).all()
        for name, a in arrays.items()
    }
