"""Targets and masks that files hold: snapshots of runs, and arrays of other programs.

Each device reads its part only. A target is kept as the coefficients of the modes of the run, a
mask as values on the grid."""

from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.archive.open_run import open_run
from simulator.errors import UserError, prefixed
from simulator.physics.initial.stored import check_frame
from simulator.physics.stored_values import ArraySettings, StoredValues, fitting_array
from simulator.physics.terms.term import TermFiles
from simulator.plugins.bodies.shapes import ArrayMaskSettings
from simulator.settings import InputPath, Real, Settings
from simulator.spectral import Transform
from simulator.spectral.arrays import Number


class SnapshotTargetSettings(Settings):
    snapshot: InputPath
    """A snapshot or checkpoint: RUN/snapshots/00000010, at any resolution."""


class SeriesTargetSettings(Settings):
    series: InputPath
    """The folder of a run, between whose snapshots polynomials in time through the four nearest
    ones interpolate."""
    time_offset: Real = 0.0
    """The target at the time t is the field of that run at t + time_offset."""


StoredSettings = SnapshotTargetSettings | SeriesTargetSettings | ArraySettings

WINDOW = 4
"""Snapshots through which a polynomial in time goes."""


class StoredTarget:
    """The coefficients of a field at some times, from files. Raises UserError for files that do not
    fit the run."""

    def __init__(
        self,
        settings: StoredSettings,
        name: str,
        lead: tuple[int, ...],
        transform: Transform,
        files: TermFiles,
    ):
        self.name = name
        self.lead = lead
        self.transform = transform
        self._files = files
        self.times: Sequence[float] = (0.0,)
        """The times of the series on the run's clock; a constant target has one entry."""
        self._array: StoredValues | None = None
        self._folder: str | None = None
        self._paths: Sequence[str] = ()
        if isinstance(settings, ArraySettings):
            self._array = fitting_array(settings.array, settings.dataset, lead, transform, files)
        elif isinstance(settings, SnapshotTargetSettings):
            self._paths = (str(settings.snapshot),)
        else:
            self._folder = str(settings.series)
            entries = _snapshots(self._folder, files)
            self.times = [time - settings.time_offset for time, _ in entries]
            self._paths = [path for _, path in entries]
        for path in self._paths:
            self._check(path)

    def _check(self, path: str) -> None:
        stored = self._files.snapshot(path)
        theirs, ours = (grid.seen(grid.box) for grid in (stored.grid, self.transform.grid))
        if len(theirs) != len(ours) or not np.allclose(theirs, ours, rtol=1e-12):
            raise UserError(f"{path}: its box is {list(theirs)}, the run's {list(ours)}")
        if stored.components.get(self.name) != self.lead:
            have = ", ".join(stored.components)
            raise UserError(f"{path}: has no {self.name} of this run's kind; it has {have}")
        if path == self._paths[0]:
            check_frame(path, theirs, self._files.clock(path), self.transform)

    def until(self, stop: float) -> None:
        """Leaves out the snapshots that no time from 0 to `stop` needs. Raises UserError for a
        series that does not reach these times."""
        if self._folder is None:
            return
        if self.times[-1] < stop - 1e-9 * max(abs(stop), 1.0):
            ends = f"its last snapshot is of the time {self.times[-1]:g}"
            raise UserError(f"{self._folder}: {ends}, but the run goes on to time.stop = {stop:g}")
        last = int(np.searchsorted(self.times, stop)) + 3
        first = max(int(np.searchsorted(self.times, 0.0, side="right")) - 2, 0)
        self.times, self._paths = self.times[first:last], self._paths[first:last]

    def check_start(self, start: float) -> None:
        """Raises UserError for a series that begins after the run."""
        if len(self.times) > 1 and self.times[0] > start + 1e-9 * max(abs(start), 1.0):
            begins = f"its first snapshot is of the time {self.times[0]:g}"
            raise UserError(f"{self._folder}: {begins}, but the run begins at {start:g}")

    @property
    def shape(self) -> jax.ShapeDtypeStruct:
        """Shape and type of `coefficients`."""
        layout = self.transform.layout
        return jax.ShapeDtypeStruct(
            (len(self.times), *self.lead, *layout.shape), self.transform.complex_dtype
        )

    def coefficients(self) -> jax.Array:
        """Coefficients (time, component, *layout.order), read from the files."""
        transform = self.transform
        if self._array is not None:
            values = self._array.values(transform.physical, self.lead, transform.value_dtype)
            fields = [jax.jit(partial(_modes, transform))(values)]
        else:
            fields = [
                self._files.snapshot(p).coefficients(self.name, transform) for p in self._paths
            ]
        sharding = transform.layout.sharding(self.shape.ndim)
        return jax.jit(lambda *f: jnp.stack(f), out_shardings=sharding)(*fields)

    def at(self, coefficients: jax.Array, time: Number) -> jax.Array:
        """The coefficients at a time, interpolated."""
        count = min(WINDOW, len(self.times))
        if count == 1:
            return coefficients[0]
        times = jnp.asarray(self.times, jnp.float64)
        place = jnp.searchsorted(times, time, side="right") - count // 2
        first = jnp.clip(place, 0, len(self.times) - count)
        near = lax.dynamic_slice_in_dim(times, first, count)
        fields = lax.dynamic_slice_in_dim(coefficients, first, count)
        parts = (_weight(near, j, time).astype(fields.real.dtype) * fields[j] for j in range(count))
        return sum(parts, jnp.zeros_like(fields[0]))


def _snapshots(path: str, files: TermFiles) -> list[tuple[float, str]]:
    """The times of the snapshots of a run, rising, with their paths."""
    snapshots = open_run(path).snapshots[:]
    if not snapshots:
        raise UserError(f"{path}: holds no snapshot")
    files.record_series(path, [s.path.name for s in snapshots])
    return [(s.time, str(s.path)) for s in snapshots]


def _weight(times: jax.Array, j: int, time: Number) -> jax.Array:
    """Lagrange's polynomial that is 1 at the time j and 0 at the others."""
    weight = jnp.ones((), jnp.float64)
    for i in range(len(times)):
        if i != j:
            weight = weight * (time - times[i]) / (times[j] - times[i])
    return weight


def _modes(transform: Transform, values: jax.Array) -> jax.Array:
    return transform.layout.constrain(transform.forward(transform.physical.constrain(values)))


def stored_mask(
    settings: ArrayMaskSettings, transform: Transform, files: TermFiles
) -> StoredValues:
    """A mask from a file. Raises UserError if it does not fit the run's grid."""
    if transform.grid.spherical and transform.layout.truncated:
        problem = "an array has no values between the grid points, which grid.dealias: "
        raise UserError(f"kind: {problem}{transform.grid.dealias} needs; two_thirds")
    with prefixed("path", ": "):
        return fitting_array(settings.path, settings.dataset, (), transform, files)


def check_finite(arrays: Mapping[str, jax.Array]) -> None:
    """Raises UserError, beginning with the field, for a target with values that are not finite."""
    for name, array in arrays.items():
        if not bool(jax.jit(lambda a: jnp.isfinite(a).all())(array)):
            raise UserError(f"{name}: its file has values that are not finite")
