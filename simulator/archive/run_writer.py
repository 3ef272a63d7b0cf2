"""Writes the output of a run: rows of diagnostics and series, snapshots and checkpoints of a
state."""

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.rounded_field import Rounder
from simulator.archive.series_file import Series, Table
from simulator.archive.series_recorder import recorders
from simulator.archive.shard import Dataset
from simulator.archive.snapshot_index import write_time_index
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.snapshot_writer import Options, Writer
from simulator.archive.stored_state import (
    component_labels,
    datasets,
    particle_datasets,
    physical_axes,
)
from simulator.archive.verify import prune_saves
from simulator.config import RunConfig, largest_cfl
from simulator.config.compare import diff_configs
from simulator.errors import RunFailure
from simulator.files import UNRECORDED, Journal, reason
from simulator.measure import snapshot_files
from simulator.physics.models import State, outputs
from simulator.physics.resolution_columns import LARGE_STEP, judged
from simulator.physics.stepping import INTEGRATORS
from simulator.simulation.compiling import Compilable
from simulator.simulation.simulation import Simulation
from simulator.words import counted

INDEX_EVERY = 5.0  # Seconds between two writes of the index of all snapshots, whose length grows with the run.


class Output:
    """Writes the output of a run's events. Every process calls the methods; process 0 writes the
    series, all processes write shards.

    Process 0 calls `check` before each write; `check` raises if another process has taken over the
    folder. An error of process 0 in a series is stored in `trouble`, on which the processes agree
    later: if one process raised the error in the middle of an event, the other processes would wait
    for ever in the event's collectives. `inside` holds attributes of every snapshot."""

    def __init__(
        self,
        simulation: Simulation,
        folder: Path,
        writer: Writer,
        check: Callable[[], None] = lambda: None,
        inside: Mapping[str, Any] | None = None,
        journal: Journal = UNRECORDED,
    ):
        self._journal = journal
        self._simulation = simulation
        self._folder = folder
        self._writer = writer
        self._check = check
        self._inside = dict(inside or {})
        self._first = simulation.cluster.is_first
        self._table: Table | None = None
        # The share that the grid cut off of each field, and 0 of matter, at the last warning.
        self._warned: dict[str, float] = {}
        self.trouble: str | None = None
        self._series = recorders(simulation)
        self._ready: Mapping[str, Callable[..., Any]] = {}
        self._index_due = 0.0
        self._unlisted = False
        asked = simulation.config.output.snapshots.error
        self._rounder = None if asked is None else Rounder(simulation.placement, asked)

    def programs(self) -> dict[str, Compilable]:
        """The programs of the run's events, which the caller compiles before the first step and
        gives to `use`."""
        simulation = self._simulation
        state = simulation.placed_template
        programs = {"diagnostics": Compilable(simulation.diagnostics, (state,))}
        for name, series in self._series.items():
            if series.measured.variables:
                programs[name] = Compilable(series.program, (state, series.template))
        sampled = simulation.config.output.snapshots.sample
        if sampled:
            for name in simulation.swarm.kinds:
                programs[f"particles {name}"] = Compilable(
                    simulation.sampled(name, sampled), (state,)
                )
        return programs | {
            n: Compilable(simulation.field_program(n), (state,)) for n in self._saved
        }

    def use(self, ready: Mapping[str, Callable[..., Any]]) -> None:
        """Use these compiled programs, by name, from now on; a missing program is compiled at its
        first call."""
        self._ready = ready

    def restore(
        self, checkpoint: Path, before: RunConfig | None, planned: Collection[str]
    ) -> list[str]:
        """Continue with the arrays that the series carried when `checkpoint` was written with the
        configuration `before`; returns a line for each series that begins anew. `planned` are the
        events due at the state of the checkpoint."""
        snapshot = open_snapshot(checkpoint)
        simulation = self._simulation
        changed = [] if before is None else diff_configs(before, simulation.config)
        lines = [
            series.restore(snapshot, changed, simulation.state, planned)
            for series in self._series.values()
        ]
        return [line for line in lines if line is not None]

    def _program(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._ready.get(name, function)

    def write(self, action: Callable[[], object]) -> None:
        """Calls `action` on process 0, unless an earlier write has failed."""
        if not self._first or self.trouble:
            return
        try:
            self._check()
            action()
        except RunFailure as error:
            self.trouble = str(error)
        except OSError as error:
            self.trouble = f"{reason(error)}; all earlier output is intact"

    def take(
        self,
        name: str,
        state: State,
        schedule: Mapping[str, Any],
        planned: bool = True,
    ) -> None:
        """Writes the output of the event `name` for `state`. Checkpoints store `schedule`, its
        state. `planned`: the event is due by its cadence, not only because the run ends."""
        match name:
            case "diagnostics":
                self.diagnostics(state)
            case "snapshots":
                for added in (n for n, series in self._series.items() if series.with_snapshots):
                    self._measure(added, state, planned)
                self.snapshot(state)
            case "checkpoints":
                self.checkpoint(state, schedule)
            case _:
                self._measure(name, state, planned)

    def _measure(self, name: str, state: State, planned: bool) -> None:
        """Measures one row of `NAME.h5`, unless this step has its row already, and writes it. Rows
        of a frequent series wait until `flush` or, at most, for a while."""
        series = self._series[name]
        if series.take(state, planned, self._program(name, series.program)):
            self._write_rows(name)

    def _write_rows(self, name: str) -> None:
        if rows := self._series[name].waiting():
            finish = self._series[name].measured.finish
            self.write(
                lambda: self._file(name).extend(
                    (step, time, finish(row)) for step, time, row in rows
                )
            )

    def _file(self, name: str) -> Series:
        return self._series[name].file(self._folder / f"{name}.h5", self._journal)

    def diagnostics(self, state: State) -> None:
        row = self._program("diagnostics", self._simulation.diagnostics)(state)
        values = {k: float(v) for k, v in row.items()}
        dt = float(state.dt)
        clock = {
            "step": int(state.step),
            "time": float(state.time),
            "dt": dt,
            "cfl": dt * values.pop("rate"),
        }
        self.write(lambda: self._rows().append(clock | values))
        if self._first:
            self._warn(clock | values)

    def _warn(self, row: Mapping[str, float]) -> None:
        """Report the model's warnings, once each, and each field that is not resolved: again whenever
        twice the share of the last warning is lost."""
        simulation = self._simulation
        lines = []
        for judgement in judged({name: np.array([value]) for name, value in row.items()}):
            lost = float(judgement.lost[0])
            field = judgement.measure.field
            if judgement.warning and lost >= 2 * self._warned.get(field, 0.0):
                self._warned[field] = lost
                lines.append(judgement.warning)
                if simulation.config.grid.dealias == "phase_shift":
                    lines[-1] += (
                        "; phase_shift leaves aliasing errors there, grid.dealias: spherical none"
                    )
        warnings = outputs.warnings(simulation.model, row)
        for subject, line in (warnings | self._large_step(row["cfl"])).items():
            if subject not in self._warned:
                self._warned[subject] = np.inf
                lines.append(line)
        for line in lines:
            simulation.report(f"warning: {line}")

    def _large_step(self, cfl: float) -> dict[str, str]:
        """The warning of a fixed dt at a CFL number that `time.cfl` refuses, by its subject."""
        config = self._simulation.config
        limit = largest_cfl(INTEGRATORS, config.time.integrator, config.grid.dealias)
        if config.time.dt is None or limit is None or not cfl > limit:
            return {}
        of = f"{limit:g}, the limit of {config.time.integrator} with grid.dealias: {config.grid.dealias}"
        return {
            "dt": f"{LARGE_STEP}{of}, and is {cfl:.3g}; use a smaller time.dt, or time.cfl instead"
        }

    def _rows(self) -> Table:
        if self._table is None:
            names = [name for name in self._simulation.columns if name != "rate"]
            columns = ["step", "time", "dt", *names, "cfl"]
            self._table = Table(self._folder / "diagnostics.csv", columns, self._journal)
        return self._table

    @cached_property
    def _saved(self) -> tuple[str, ...]:
        simulation = self._simulation
        return simulation.config.output.snapshots.fields or outputs.stored_fields(simulation.model)

    def snapshot(self, state: State) -> None:
        """Writes a snapshot, that is, fields in physical space for analysis, in the background."""
        simulation = self._simulation
        output = simulation.config.output
        settings = output.snapshots
        axes = physical_axes(simulation.transform)
        arrays = {n: self._program(n, simulation.field_program(n))(state) for n in self._saved}
        for series in self._series.values():
            arrays |= {} if series.fields is None else series.fields(series.memory)
        specs = outputs.field_specs(simulation.model)
        saved = list[Dataset]()
        for name, array in arrays.items():
            spec = specs.get(name.removesuffix("_mean"))
            units = outputs.units_of(simulation.model, spec) if spec is not None else ""
            components = component_labels(array.shape[: array.ndim - len(axes)])
            saved.append(
                Dataset(name, array, axes, components, attributes={"units": units} if units else {})
            )
        index = settings.index or bool(snapshot_files(dict(output)))
        if self._rounder is not None:
            saved = [self._rounder.rounded(dataset) for dataset in saved]
        elif index and all(dataset.dtype.kind == "c" for dataset in saved):
            saved += [modulus_of(dataset) for dataset in saved]
        saved += self._particles(state)
        clock = {"time": float(state.time), "dt": float(state.dt), "step": int(state.step)}
        attributes = {**clock, "box": list(simulation.config.grid.box), **self._inside}
        single = settings.precision == "single"
        options = Options(output.compression, single, index, sync=simulation.config.run.sync)
        folder = self._folder / "snapshots"
        self._writer.submit(
            folder, clock["step"], saved, attributes, options=options, after=self._indexed
        )

    def _particles(self, state: State) -> list[Dataset]:
        simulation = self._simulation
        fields = simulation.config.output.snapshots.sample
        species = []
        for name, moving in state.particles.items():
            particles = moving.without("start_velocity")
            if fields and name in simulation.swarm.kinds:
                sampled = self._program(f"particles {name}", simulation.sampled(name, fields))
                particles = particles.with_records(sampled(state))
            species += particle_datasets(particles, simulation.populations[name])
        return species

    def checkpoint(self, state: State, schedule: Mapping[str, Any]) -> None:
        """Writes a checkpoint, that is, all arrays that influence the next step, in the
        background."""
        self.flush()
        simulation = self._simulation
        settings = simulation.config.output.checkpoints
        if not simulation.config.run.sync:
            os.sync()  # a run that continues from this checkpoint relies on all earlier files

        def committed(folder: Path) -> None:
            self._journal.kept([folder / MANIFEST])
            prune_saves(folder.parent, settings.keep_last, settings.keep_every, self._journal)

        saved = datasets(state, simulation.model, simulation.populations)
        saved += [dataset for series in self._series.values() for dataset in series.datasets()]
        attributes = {
            "time": float(state.time),
            "box": list(simulation.config.grid.box),
            "schedule": dict(schedule),
            "fixed_dt": simulation.time_step.fixed or 0.0,
            "configuration": self._inside.get("configuration", ""),
            "layout": simulation.transform.name,
            "devices": len(simulation.cluster.devices),
        }
        folder = self._folder / "checkpoints"
        options = Options(index=False)
        self._writer.submit(
            folder, int(state.step), saved, attributes, options=options, after=committed
        )

    def _indexed(self, folder: Path) -> None:
        """Records a new snapshot and adds it to the index of all snapshots, at the latest when the
        run ends."""
        self._journal.kept([folder / MANIFEST])
        self._unlisted = time.monotonic() < self._index_due
        if not self._unlisted:
            write_time_index(folder.parent)
            self._index_due = time.monotonic() + INDEX_EVERY

    def truncate(self, step: int) -> list[str]:
        """Removes the rows later than `step` from table and series; returns a line for each
        shortened file."""
        removed = {"diagnostics.csv": self._rows().truncate(step)}
        for name in self._series:
            removed[f"{name}.h5"] = self._file(name).truncate(step)
        return [f"{counted(count, 'row')} of {name}" for name, count in removed.items() if count]

    def sync(self) -> None:
        if self._table is not None:
            self._table.sync()

    def flush(self) -> None:
        """Write the rows that frequent series have collected."""
        for name in self._series:
            self._write_rows(name)

    def close(self) -> None:
        self.flush()
        if self._unlisted:
            self.write(lambda: write_time_index(self._folder / "snapshots"))
        if self._table is not None:
            self._table.close()
            self._table = None


def modulus_of(field: Dataset) -> Dataset:
    """The modulus of a complex field in single precision, for readers such as VTK and yt, which
    have no complex numbers."""
    modulus = jnp.abs(field.array).astype(jnp.float32)
    return replace(field, name=f"{field.name}_modulus", array=modulus)
