"""Rebuilds the states of a run from its snapshots on the available devices, to measure or to render
them."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp

from simulator.archive.open_run import open_run
from simulator.archive.run_state import CONFIG
from simulator.archive.run_writer import Output
from simulator.archive.series_recorder import measured_series
from simulator.archive.snapshot_reader import Snapshot
from simulator.archive.stored_particles import ParticlesOnDisk
from simulator.archive.stored_state import RunInputs, StoredFields
from simulator.cluster import discover
from simulator.config import dump_config, load_config
from simulator.config.overrides import Override
from simulator.errors import RunFailure, UserError
from simulator.files import replace_file, replaced_folder
from simulator.measure import KINDS, requested
from simulator.physics.models import State, StateMemory
from simulator.physics.models.split_equation import populations_of
from simulator.physics.particles import ParticleSet
from simulator.physics.particles.population import Populations
from simulator.simulation.initial_state import begin, term_arrays, with_term_arrays
from simulator.simulation.placement import connect
from simulator.simulation.simulation import Simulation
from simulator.words import counted


class Recomputed:
    """The snapshots of the run in `path` as states of the run's model, on any devices.

    `overrides` replace keys of the run's configuration, as on the command line (useful keys are
    those of `output` and `devices`). Snapshots do not hold the memory of a state, which is therefore
    that of the start at step 0 and NaN later, and so is all that depends on it."""

    def __init__(self, path: Path, overrides: Sequence[str | Override] = ()) -> None:
        run = open_run(path)
        if not len(run.snapshots):
            raise UserError(f"{path}: has no snapshot to measure")
        self.path = path
        self.snapshots = run.snapshots[:]
        self.config = load_config(path / CONFIG, ["devices.count=auto", *overrides])

    @cached_property
    def simulation(self) -> Simulation:
        """The simulation of the run on the available devices, without its initial condition."""
        cluster = connect(self.config, discover(os.environ))
        inputs = RunInputs(self.path / "inputs")
        return Simulation(self.config, cluster=cluster, inputs=inputs, report=lambda line: None)

    def states(self, steps: Sequence[int] | None = None) -> Iterator[State]:
        """The state of each snapshot, or of the snapshots with the given `steps`, one after the
        other.

        Raises UserError if a snapshot lacks a field of the model."""
        simulation = self.simulation
        model = simulation.model
        make = jax.jit(lambda fields: begin(fields, simulation.system, simulation.integrator))
        arrays = term_arrays(simulation.config, model)
        for snapshot in self.snapshots:
            if steps is not None and snapshot.step not in steps:
                continue
            missing = [name for name in model.fields if name not in snapshot]
            if missing:
                raise UserError(
                    f"{snapshot.path}: holds no {', '.join(missing)}, which the model evolves; to measure a "
                    f"run again, output.snapshots.fields must hold {', '.join(model.fields)}"
                )
            fields = self._fields(snapshot)
            state = make(fields | self._particles(snapshot, populations_of(model)))
            state = with_term_arrays(state, arrays)
            carried = self._particles(snapshot, simulation.swarm.populations)
            if carried:
                velocities, memory = self._start_of_particles
                carried = {
                    name: _with_start(particles, velocities[name])
                    for name, particles in carried.items()
                }
                state = replace(
                    state,
                    particles=state.particles | carried,
                    memory=replace(state.memory, particles=memory),
                )
            state = simulation.grow(state)
            time = jnp.float64(snapshot.time)
            dt = jnp.float64(snapshot.attributes.get("dt", 0.0))
            if snapshot.step > 0:
                state = replace(state, memory=_unknown(state.memory))
            yield simulation.placed(
                replace(
                    state,
                    time=time,
                    origin=time,
                    step=jnp.int64(snapshot.step),
                    dt=dt,
                )
            )

    def _fields(self, snapshot: Snapshot) -> dict[str, Any]:
        stored = StoredFields(snapshot)
        model = self.simulation.model.at(snapshot.time)
        return {name: stored.coefficients(name, model.transforms[name]) for name in model.fields}

    def _particles(self, snapshot: Snapshot, populations: Populations) -> dict[str, ParticleSet]:
        return {
            name: population.restored(ParticlesOnDisk(snapshot, name))
            for name, population in populations.items()
        }

    @cached_property
    def _start_of_particles(self) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """The initial velocities (3, count), by id, of the particles in the fluid, on every device,
        and the numbers that the particles' steps need. Both follow from the initial flow, which the
        snapshot of step 0 holds."""
        swarm = self.simulation.swarm
        first = self.snapshots[0]
        if first.step != 0:
            raise UserError(
                f"{self.path}: has no snapshot of step 0, from which the initial state of its particles follows; "
                "a run without this snapshot cannot be measured again"
            )
        sets, memory = swarm.start(self._fields(first))
        known = swarm.populations
        return {
            n: known[n].chosen(particles, particles.records["start_velocity"], 1)
            for n, particles in sets.items()
        }, memory


def _unknown(memory: StateMemory) -> StateMemory:
    """NaN for the numbers of forcing, model and steps; those of particles follow from the start."""

    def nan(name: str, like: jax.Array) -> jax.Array:
        return jnp.full_like(like, jnp.nan) if jnp.issubdtype(like.dtype, jnp.inexact) else like

    return replace(memory.restored(nan), particles=memory.particles)


def _with_start(particles: ParticleSet, velocities: jax.Array) -> ParticleSet:
    start = jnp.where(particles.valid, velocities[:, jnp.maximum(particles.id, 0)], 0)
    return particles.with_records({"start_velocity": start})


FOLDER = "analysis"
EVERY = "{every_steps: 1}"
"""The cadence of kinds that the run's configuration does not request; every snapshot gives a
row."""


def analyze_snapshots(
    path: Path,
    kinds: Sequence[str] | None = None,
    overrides: Sequence[str | Override] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[str, list[str]]:
    """Measure every snapshot of the run in `path` into a new folder RUN/analysis, which replaces an
    earlier one when it is complete. Returns a line about what was written, and one for each kind
    that was left out.

    The diagnostics and the series of the named `kinds` are measured (default: the kinds in the
    run's configuration; `all`: every kind that this run can give). Raises UserError if the run has
    no snapshot, or if a kind does not exist or cannot be measured."""
    known = list(KINDS)
    every = kinds is not None and "all" in kinds
    for kind in kinds or ():
        if kind != "all" and kind not in known:
            raise UserError(f"--what: no kind of output {kind!r}; known: all, {', '.join(known)}")
    wanted = known if every else list(kinds or ())
    plain = Recomputed(path, overrides).config.output
    added = [f"output.{k}={EVERY}" for k in wanted if getattr(plain, k, None) is None]
    refused: list[str] = []
    if every:
        added, refused = _possible(path, overrides, added)
    left_out = [
        k
        for k in known
        if kinds is not None and k not in wanted and getattr(plain, k, None) is not None
    ]
    recomputed = Recomputed(path, [*overrides, *added, *(f"output.{k}=null" for k in left_out)])
    folder = path / FOLDER
    simulation = recomputed.simulation
    series = tuple(name for name, _, _ in requested(recomputed.config.output))
    first = simulation.cluster.is_first
    with replaced_folder(folder) if first else contextlib.nullcontext(folder) as new:
        if first:
            replace_file(new / CONFIG, dump_config(recomputed.config))
        output = Output(simulation, new, cast(Any, None))
        for number, state in enumerate(recomputed.states(), 1):
            for name in ("diagnostics", *series):
                output.take(name, state, {})
            if output.trouble:
                raise RunFailure(output.trouble)
            progress(number, len(recomputed.snapshots))
        output.close()
    written = (
        f"{folder}  {counted(len(recomputed.snapshots), 'row')} of diagnostics, {', '.join(series)}"
    )
    return written + _rounding(recomputed.snapshots), refused


def _rounding(snapshots: Iterable[Snapshot]) -> str:
    """A line about the errors of rounded snapshots; empty if all are exact."""
    errors = [snapshot.error for snapshot in snapshots if snapshot.error]
    if not errors:
        return ""
    asked, measured = map(max, zip(*errors, strict=True))
    return f"\nof rounded snapshots: error in every shell {asked:g} asked, {measured:.3g} measured"


def _possible(
    path: Path, overrides: Sequence[str | Override], added: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The added kinds that this run can give, and a line for each other kind, with the reason."""
    simulation: Simulation | None = None
    allowed = []
    refused = []
    for override in added:
        try:
            recomputed = Recomputed(path, [*overrides, override])
            if simulation is None:
                simulation = recomputed.simulation
            simulation.config = recomputed.config
            measured_series(simulation)
            allowed.append(override)
        except UserError as error:
            said = str(error).partition("\n")[0].removeprefix("command line: ")
            refused.append(f"left out: {said}")
    return allowed, refused
