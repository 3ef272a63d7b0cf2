"""What a run writes: rows, spectra, slices, snapshots and checkpoints of a state."""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from simulator.errors import RunFailure
from simulator.files import reason
from simulator.models import State, own_transforms
from simulator.run.checkpoint import component_names, datasets, physical_axes
from simulator.run.measuring import KINDS, Measuring
from simulator.run.schedule import Event, Schedule
from simulator.run.series import Series
from simulator.run.simulation import Simulation
from simulator.run.table import Table
from simulator.run.units import attributes
from simulator.storage import Dataset, Options, Writer, prune

SLICED = ("speed", "vorticity_magnitude", "density")
PLANES = {"xy": ("x", "y"), "xz": ("x", "z"), "yz": ("y", "z")}


def events(settings: Any) -> tuple[Event, ...]:
    """The events of a run, in the order in which they are taken."""

    def event(
        name: str, cadence: Any, *, first: bool = True, last: bool = True, align: bool = False
    ) -> Event:
        return Event(
            name,
            getattr(cadence, "every", None),
            cadence.every_steps,
            cadence.every_wall,
            align=align or getattr(cadence, "align", False),
            first=first,
            last=last,
        )

    found = [
        event("diagnostics", settings.diagnostics),
        event("spectra", settings.spectra),
        event("snapshots", settings.snapshots, align=True),
        event("checkpoints", settings.checkpoints, first=False),
    ]
    extra = [name for name in ("slices", *KINDS) if getattr(settings, name) is not None]
    found[2:2] = [event(name, getattr(settings, name)) for name in extra]
    return tuple(found)


class Output:
    """Takes the events of a run. Every process calls; process 0 writes the series, all write shards.

    `check` is called by process 0 before it writes anything: is the run's folder still ours? What goes wrong with
    a series on process 0 is in `trouble`, to be agreed on: to raise it alone, in the middle of an event, would
    leave the others waiting in the event's collectives. `inside` goes into every snapshot. `cost` has the seconds
    that each kind of event has taken, compilation and the start of background writes included.
    """

    def __init__(
        self,
        simulation: Simulation,
        folder: Path,
        writer: Writer,
        check: Callable[[], None] = lambda: None,
        inside: Mapping[str, Any] | None = None,
    ):
        self._simulation, self._folder, self._writer = simulation, folder, writer
        self._check, self._inside = check, dict(inside or {})
        self._first = simulation.cluster.is_first
        self._table: Table | None = None
        self._last_slices = -1
        self.trouble: str | None = None
        self._measuring = Measuring(simulation, folder, self.write)
        self.cost: dict[str, float] = {}

    def write(self, action: Callable[[], object]) -> None:
        """`action` writes something on process 0, unless that has gone wrong before."""
        if not self._first or self.trouble:
            return
        try:
            self._check()
            action()
        except RunFailure as error:
            self.trouble = str(error)
        except OSError as error:
            self.trouble = f"{reason(error)}; what was written before is whole"

    def take(self, names: tuple[str, ...], state: State, schedule: Schedule) -> None:
        """Takes the events `names` of `state`, in order."""
        for name in names:
            began = time.monotonic()
            match name:
                case "diagnostics":
                    self.diagnostics(state)
                case "spectra":
                    self.spectra(state)
                case name if name in KINDS:
                    self._measuring.take(name, state)
                case "slices":
                    self.slices(state)
                case "snapshots":
                    self.slices(state)
                    self.snapshot(state)
                case "checkpoints":
                    self.checkpoint(state, schedule)
            self.cost[name] = self.cost.get(name, 0.0) + time.monotonic() - began

    def diagnostics(self, state: State) -> None:
        """One row of diagnostics.csv."""
        found = {k: float(v) for k, v in self._simulation.diagnostics(state).items()}
        dt = float(state.dt)
        known = {"step": int(state.step), "time": float(state.time), "dt": dt, "cfl": dt * found.pop("rate")}
        self.write(lambda: self._rows().append(known | found))
        if self._first:
            self._warn(found)

    def _warn(self, row: Mapping[str, float]) -> None:
        """What the model finds wrong with a row, said once."""
        warnings = getattr(self._simulation.model, "warnings", None)
        if warnings is not None and not self._warned:
            for line in warnings(row):
                self._simulation.report(f"warning: {line}")
                self._warned = True

    _warned = False

    def _rows(self) -> Table:
        if self._table is None:
            names = [name for name in self._simulation.columns if name != "rate"]
            self._table = Table(self._folder / "diagnostics.csv", ["step", "time", "dt", *names, "cfl"])
        return self._table

    def spectra(self, state: State) -> None:
        """One row of spectra.h5: the energy per wavenumber in shells of width dk."""
        self._measuring.take("spectra", state)

    def slices(self, state: State) -> None:
        """One row of slices.h5: the three mid-planes of scalar fields."""
        if int(state.step) == self._last_slices:
            return
        self._last_slices = int(state.step)
        found: dict[str, np.ndarray] = {}
        for name in self._sliced:
            planes = self._planes[name](state)
            found |= {f"{name}/{cut}": np.asarray(plane) for cut, plane in planes.items()}
        self.write(lambda: self._slices_file().append(int(state.step), float(state.time), found))

    @cached_property
    def _sliced(self) -> tuple[str, ...]:
        settings = self._simulation.config.output.slices
        if settings is not None and settings.fields is not None:
            return settings.fields
        return tuple(name for name in SLICED if name in self._simulation.field_names)

    @cached_property
    def _planes(self) -> Mapping[str, Any]:
        """Compiled: the three mid-planes of a scalar, whole on every device (they are small)."""
        simulation = self._simulation
        whole = NamedSharding(simulation.transform.layout.mesh, PartitionSpec())
        nx, ny, nz = simulation.grid.shape

        def planes(name: str):
            values = simulation.values(name)

            def cut(state: State) -> dict[str, jax.Array]:
                v = values(state)
                return {
                    "xy": v[:nx, :ny, nz // 2],
                    "xz": v[:nx, ny // 2, :nz],
                    "yz": v[nx // 2, :ny, :nz],
                }

            return jax.jit(cut, out_shardings=whole)

        return {name: planes(name) for name in self._sliced}

    def _slices_file(self) -> Series:
        if self._slices_series is None:
            grid = self._simulation.grid
            coordinates = {
                a: np.arange(n) * h for a, n, h in zip("xyz", grid.shape, grid.spacing, strict=True)
            }
            variables = {f"{n}/{cut}": axes for n in self._sliced for cut, axes in PLANES.items()}
            self._slices_series = Series(self._folder / "slices.h5", coordinates, variables)
        return self._slices_series

    _slices_series: Series | None = None

    def snapshot(self, state: State) -> None:
        """Fields for people, in physical space; written in the background."""
        simulation = self._simulation
        output = simulation.config.output
        settings = output.snapshots
        axes = physical_axes(simulation.transform)
        names = settings.fields or tuple(simulation.model.components)
        arrays = {name: simulation.values(name)(state) for name in names}
        self._writer.submit(
            self._folder / "snapshots",
            int(state.step),
            [
                Dataset(
                    n,
                    a,
                    axes,
                    component_names(a.shape[:-3]),
                    attributes=attributes(n, simulation.config.model),
                )
                for n, a in arrays.items()
            ],
            {
                "time": float(state.time),
                "dt": float(state.dt),
                "step": int(state.step),
                "box": list(simulation.grid.box),
                **self._inside,
            },
            options=Options(
                compression=output.compression,
                precision="single" if settings.precision == "single" else "keep",
            ),
        )

    def checkpoint(self, state: State, schedule: Schedule) -> None:
        """Everything that the next step needs; written in the background."""
        simulation = self._simulation
        settings = simulation.config.output.checkpoints
        self._writer.submit(
            self._folder / "checkpoints",
            int(state.step),
            datasets(state, simulation.transform, own_transforms(simulation.model)),
            {
                "time": float(state.time),
                "box": list(simulation.grid.box),
                "schedule": schedule.state(),
                "fixed_dt": simulation.time_step.fixed or 0.0,
                "layout": simulation.transform.name,
                "devices": len(simulation.cluster.devices),
            },
            options=Options(index=False),
            after=lambda folder: prune(folder.parent, settings.keep_last, settings.keep_every),
        )

    def truncate(self, step: int) -> list[str]:
        """Removes the rows later than `step` from all series; what was removed, for people."""
        removed = {"diagnostics.csv": self._rows().truncate(step)}
        for series in (self._slices_file(), *self._measuring.files()):
            removed[series.path.name] = series.truncate(step)
        return [f"{count} rows of {name}" for name, count in removed.items() if count]

    def sync(self) -> None:
        """Makes the rows durable that a checkpoint counts on; before it commits."""
        if self._table is not None:
            self._table.sync()

    def close(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None
