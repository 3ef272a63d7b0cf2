"""The states of a run, rebuilt from its snapshots on the available devices."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp

from simulator.config import load_config
from simulator.config.overrides import Override
from simulator.diagnostics.budget import RESIDUAL
from simulator.errors import UserError
from simulator.models import State
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
            stored = StoredFields(str(snapshot.path))
            given = {name: stored.coefficients(name, model.transform_of(name)) for name in model.fields}
            given |= {
                name: population.restored(particles_in(str(snapshot.path), name))
                for name, population in model.populations.items()
            }
            state = make(given)
            time, dt = jnp.float64(snapshot.time), jnp.float64(snapshot.attributes.get("dt", 0.0))
            memory = {
                name: jnp.float64(jnp.nan) if name == RESIDUAL else m for name, m in state.memory.items()
            }
            yield simulation.placed(
                replace(state, time=time, origin=time, step=jnp.int64(snapshot.step), dt=dt, memory=memory)
            )
