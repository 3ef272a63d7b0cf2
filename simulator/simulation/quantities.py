"""Quantities of a state, as functions to be compiled: its diagnostics, and the values of its fields
on the grid."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from simulator.config import RunConfig
from simulator.errors import did_you_mean
from simulator.measure.budget import RESIDUAL, imbalance, injection
from simulator.physics.forcing import Forcing
from simulator.physics.models import Force, Model, State
from simulator.physics.particles import ParticleSet, population
from simulator.physics.particles.interpolation import ACCELERATION, COMPONENTS
from simulator.physics.particles.swarm import Swarm
from simulator.spectral.arrays import Number, ParticleVectors, SpectralVector, Truth


def force_of(forcing: Forcing | None, state: State) -> Force | None:
    """The acceleration that a forcing exerts in this state, as a function of fields and time."""
    if forcing is None:
        return None
    return lambda fields, time: forcing.acceleration(fields, time, state.memory)


def diagnostics_of(model: Model, forcing: Forcing | None, state: State) -> dict[str, Number]:
    """The scalars of a row of diagnostics.csv, in the model's order, `rate` last."""
    fields, time, force = state.fields, state.time, force_of(forcing, state)
    added = jnp.float64(0) if model.budget == "none" else injection(model, fields, time, force)
    residual = {RESIDUAL: state.memory[RESIDUAL]} if RESIDUAL in state.memory else {}
    if model.budget == "row":
        row, change, balance = model.with_balance(
            fields, time, None if force is None else force(fields, time)
        )
        residual = {RESIDUAL: imbalance(change, added + balance.production, balance.dissipation)}
    else:
        row = model.diagnostics(model.contents(state), time)
    # The rate at the last kick of a split step, from which dt follows, was computed in the step.
    rate = state.memory.get("rate", row.pop("rate"))
    if forcing is not None and model.budget != "none":
        row["injection"] = added
    row |= residual
    return {**row, "rate": rate}


def check_names(config: RunConfig, model: Model) -> None:
    """Refuses field names in the settings of snapshots that the model does not have."""
    known = tuple(model.specs())
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


def sampled_names(model: Model) -> tuple[str, ...]:
    """The quantities of the fluid that particles can sample."""
    return (*COMPONENTS, *(n for n, shape in model.shapes.items() if not shape))


def velocity_rate(model: Model, forcing: Forcing | None, state: State) -> SpectralVector:
    """The partial derivative of the velocity with respect to time (length/time^2)."""
    force = force_of(forcing, state)
    accelerations = None if force is None else force(state.fields, state.time)
    explicit, _ = model.tendency(state.fields, state.time, accelerations)
    return explicit["velocity"] + model.linear_terms()["velocity"] * state.fields["velocity"]


def motion(
    model: Model, forcing: Forcing | None, swarm: Swarm, state: State
) -> Callable[[str, ParticleSet], tuple[ParticleVectors, ParticleVectors]]:
    """The function from a name and the particles of this name to their velocity and
    acceleration."""
    change = velocity_rate(model, forcing, state) if swarm.kinds else None
    pull = (
        model.particle_acceleration(model.contents(state), state.time)
        if model.populations
        else None
    )

    def of(name: str, particles: ParticleSet) -> tuple[jax.Array, jax.Array]:
        if change is not None and name in swarm.kinds:
            fluid = swarm.fluid(name, state.fields, change)
            return swarm.kinds[name].species.motion(particles.records, fluid, state.memory)
        assert pull is not None
        return particles.records["velocity"], pull(name, particles)

    return of


def sampled(
    model: Model,
    forcing: Forcing | None,
    swarm: Swarm,
    state: State,
    name: str,
    names: tuple[str, ...],
) -> dict[str, jax.Array]:
    """The fluid's quantities `names` at the particles `name`, as records `fluid_velocity`, ...; a
    scalar has the shape (entries,)."""
    rate = velocity_rate(model, forcing, state) if ACCELERATION in names else None
    values = swarm.fluid(name, state.fields, rate)(names, state.particles[name].records["position"])
    return {
        f"fluid_{n}": (v if len(v) > 1 else v[0]).astype(jnp.float64) for n, v in values.items()
    }


def are_finite(given: Mapping[str, jax.Array | ParticleSet]) -> dict[str, Truth]:
    """For each field whether it is finite everywhere, for each set of particles whether all are
    finite."""
    return {
        name: population.are_finite(a) if isinstance(a, ParticleSet) else jnp.isfinite(a).all()
        for name, a in given.items()
    }
