"""The states of a run, rebuilt from its snapshots on the available devices."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from simulator.config import load_config
from simulator.config.overrides import Override
from simulator.errors import UserError
from simulator.measure.budget import RESIDUAL
from simulator.models import State
from simulator.particles import ParticleSet
from simulator.particles.population import Populations
from simulator.processes import discover
from simulator.read.open import open_run
from simulator.run.folder import CONFIG
from simulator.simulation.inputs import Inputs
from simulator.simulation.placement import connect
from simulator.simulation.simulation import Simulation
from simulator.simulation.start import begin
from simulator.simulation.stored_fields import StoredFields
from simulator.simulation.stored_particles import particles_in


class Recomputed:
    """The snapshots of the run in `path` as states of its own model, on any devices.

    `overrides` replace keys of its configuration, as on the command line (those of `output` and `devices` are
    useful). Snapshots do not hold the memory of a forcing: the states have that of a new start.
    """

    def __init__(self, path: Path, overrides: Sequence[str | Override] = ()) -> None:
        run = open_run(path)
        if not len(run.snapshots):
            raise UserError(f"{path}: has no snapshot to measure")
        self.path = path
        self.snapshots = run.snapshots[:]
        self.config = load_config(path / CONFIG, ["devices.count=auto", *overrides])

    @cached_property
    def simulation(self) -> Simulation:
        """The run's model on the available devices; its initial condition is not computed."""
        cluster = connect(self.config, discover(os.environ))
        return Simulation(
            self.config, cluster=cluster, inputs=Inputs(self.path / "inputs"), report=lambda line: None
        )

    def states(self, steps: Sequence[int] | None = None) -> Iterator[State]:
        """The state of each snapshot, or of those with the given steps, one after the other.

        Raises UserError if a snapshot lacks a field of the model.
        """
        simulation = self.simulation
        model = simulation.model
        make = jax.jit(lambda given: begin(given, model, simulation.integrator, simulation.forcing))
        for snapshot in self.snapshots:
            if steps is not None and snapshot.step not in steps:
                continue
            missing = [name for name in model.fields if name not in snapshot]
            if missing:
                raise UserError(
                    f"{snapshot.path}: holds no {', '.join(missing)}, which the model evolves; a run whose "
                    f"output.snapshots.fields names all of {', '.join(model.fields)} can be measured again"
                )
            given = self._fields(str(snapshot.path)) | self._particles(str(snapshot.path), model.populations)
            state = make(given)
            carried = self._particles(str(snapshot.path), simulation.swarm.populations)
            if carried:
                velocities, memory = self._start_of_particles
                carried = {name: _with_start(found, velocities[name]) for name, found in carried.items()}
                state = replace(state, particles=state.particles | carried, memory=state.memory | memory)
            state = simulation.grow(state)
            time, dt = jnp.float64(snapshot.time), jnp.float64(snapshot.attributes.get("dt", 0.0))
            memory = {
                name: jnp.float64(jnp.nan) if name == RESIDUAL else m for name, m in state.memory.items()
            }
            yield simulation.placed(
                replace(state, time=time, origin=time, step=jnp.int64(snapshot.step), dt=dt, memory=memory)
            )

    def _fields(self, path: str) -> dict[str, Any]:
        """The coefficients of the model's fields in a snapshot."""
        stored, model = StoredFields(path), self.simulation.model
        return {name: stored.coefficients(name, model.transform_of(name)) for name in model.fields}

    def _particles(self, path: str, populations: Populations) -> dict[str, ParticleSet]:
        """The particles in a snapshot, on the devices where they live."""
        return {name: found.restored(particles_in(path, name)) for name, found in populations.items()}

    @cached_property
    def _start_of_particles(self) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """The velocities (3, count) by id with which the particles in the fluid started, on every device, and the
        numbers that their steps need. Both follow from the first flow, which the snapshot of step 0 holds."""
        swarm = self.simulation.swarm
        first = self.snapshots[0]
        if first.step != 0:
            raise UserError(
                f"{self.path}: has no snapshot of step 0, from which the start of its particles would follow; "
                "a run without it cannot be measured again"
            )
        sets, memory = swarm.start(self._fields(str(first.path)))
        velocities = {
            name: swarm.populations[name].chosen(found, found.records["start_velocity"], 1)
            for name, found in sets.items()
        }
        return velocities, memory


def _with_start(particles: ParticleSet, velocities: jax.Array) -> ParticleSet:
    """The particles with their velocities at the start, which are given by id."""
    start = jnp.where(particles.valid, velocities[:, jnp.maximum(particles.id, 0)], 0)
    return particles.with_records({"start_velocity": start})
