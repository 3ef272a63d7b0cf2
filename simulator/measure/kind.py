"""The contract of a kind of series: one file defines its settings, its measurement, its storage and
its pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self

import numpy as np
from pydantic import AfterValidator, Discriminator, Tag, model_validator

from simulator.errors import did_you_mean, shortened
from simulator.settings import Count, Flag, Moment, Seconds, Settings, wrong

if TYPE_CHECKING:  # configurations are read and pictures drawn without JAX
    import h5py
    import jax

    from simulator import spectral
    from simulator.physics import models
    from simulator.physics.initial import StartFiles
    from simulator.physics.particles import ParticleSet
    from simulator.physics.particles.population import Populations
    from simulator.physics.particles.swarm import Swarm
    from simulator.spectral.arrays import ParticleVectors
    from simulator.spectral.layout import PhysicalLayout

AXES = "xyz"

SHOWN_FIRST = ("vorticity_magnitude", "density")
"""The fields that pictures show by default: the first that a model has."""


def _in_order(times: tuple[float, ...]) -> tuple[float, ...]:
    if not times or list(times) != sorted(set(times)):
        raise ValueError("one or more times in increasing order are needed")
    return times


Times = Annotated[
    Annotated[Moment, Tag("interval")]
    | Annotated[tuple[Moment, ...], AfterValidator(_in_order), Tag("times")],
    Discriminator(lambda value: "times" if isinstance(value, list | tuple) else "interval"),
]


class Cadence(Settings):
    """The schedule of an output. If several keys are set, the output is due by each of them."""

    every: Times | None = None
    """Interval in simulation time, or a list of times; in an expanding box also {redshift: [9, 3,
    0]} or {scale_factor: [0.1, 0.25, 1]}."""
    every_steps: Count | None = None
    """Interval in steps."""
    every_wall: Seconds | None = None
    """Interval in wall-clock time: seconds, or 10min, 2h."""

    @property
    def given(self) -> bool:
        return not (self.every is None and self.every_steps is None and self.every_wall is None)


class SeriesCadence(Cadence):
    """The schedule of a series. A row is taken after the first step that reaches or passes the time
    of the row."""

    # Whether snapshots add rows, so that no interval is needed.
    with_snapshots: ClassVar[bool] = False

    align: Flag = False
    """Shorten steps so that rows due by simulation time are taken at exactly the time when they are
    due."""

    @model_validator(mode="after")
    def _some_cadence(self) -> Self:
        if not self.given and not self.with_snapshots:
            raise wrong("", "has no interval; give every, every_steps or every_wall")
        if self.align and self.every is None:
            raise wrong(
                "align",
                "applies to rows due by simulation time; give every too, or leave align out",
            )
        return self


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Validator of a list of fields: refuses an empty list, and names that occur twice."""
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{shortened(name)} is given twice; keep one of them")
    if not names:
        raise ValueError("an empty list; name a field, or leave the key out for the model's fields")
    return names


class Unsupported(Exception):
    """The run's model or settings do not allow this kind of output. `key` is relative to the kind's
    block."""

    def __init__(self, message: str, key: str = "", *, of_model: bool = True):
        """`of_model`: without a key the message ends with "which EQUATION does not have"."""
        super().__init__(message)
        self.key = key
        self.of_model = of_model


@dataclass(frozen=True)
class ParticleSubject:
    """The particles of a run: particles that move with a fluid, and particles that are matter."""

    populations: Populations  # All particles, by name.
    swarm: Swarm  # The particles that move with a fluid.
    motion: Callable[
        [models.State],
        Callable[[str, ParticleSet], tuple[ParticleVectors, ParticleVectors]],
    ]
    """`motion(state)(species, particles)` gives the velocity and the acceleration of particles of a
    species."""
    sampled: Callable[[models.State, str, tuple[str, ...]], dict[str, jax.Array]]
    """`sampled(state, species, quantities)` gives the records `fluid_velocity` and so on of
    particles in a fluid."""
    # The quantities of the fluid that `sampled` can interpolate to the particles.
    quantities: tuple[str, ...]

    def species(self, asked: tuple[str, ...] | None) -> tuple[str, ...]:
        """The species to measure: `asked`, the value of a setting, or all for None. Refuses unknown
        names."""
        self.check(asked or (), self.populations, "particles")
        return asked or tuple(self.populations)

    def check(self, names: tuple[str, ...], known: Collection[str], key: str) -> None:
        for name in names:
            if name not in known:
                raise Unsupported(f"unknown {name!r}; known: {', '.join(known)}", key)


@dataclass(frozen=True)
class Subject:
    """The subject of a measurement: a model, `template` with the shapes and types of its state, and
    `files`, which opens the files of the configuration."""

    model: models.Equation
    template: models.State
    files: StartFiles
    row: Callable[[models.State], Mapping[str, Any]]  # The scalars of diagnostics, and `rate`.
    carried: ParticleSubject | None = None  # The particles; None without particles.

    @property
    def transform(self) -> spectral.Transform:
        return self.model.transform

    @property
    def particles(self) -> ParticleSubject:
        """The particles. Raises Unsupported if there are none."""
        if self.carried is None:
            raise Unsupported(
                "there are no particles; define some in the block `particles`", of_model=False
            )
        return self.carried


@dataclass(frozen=True)
class Curves:
    """The drawing of one-dimensional variables of a series: one figure per variable with curves at
    up to six times. `title` labels a variable's axis (default: its name in words), `coordinates` a
    coordinate's axis; both may be mathematical text. `log` names the logarithmic axes: "", "x", "y"
    or "xy"."""

    title: Callable[[str], str] | None = None
    coordinates: Mapping[str, str] | None = None
    log: str = ""


class OutputKind:
    """One kind of output besides diagnostics, snapshots and checkpoints, with its block of settings
    `output.NAME`: a `Kind` of series, or a `SnapshotFile`.

    Installed packages declare a class or an instance as an entry point of `simulator.outputs`. It is
    imported if a run's file has its key, so that it has neither a `default` nor rows
    `with_snapshots`; if its module imports JAX in its functions only, runs are read and drawn without
    JAX."""

    name: ClassVar[str]  # The key `output.NAME`.
    description: ClassVar[str]  # One line for the reference of keys.
    Settings: ClassVar[Any]  # The class of the settings.
    default: ClassVar[Any] = None
    """The settings of a run without the key; None: there is output only if the key is given."""

    @property
    def annotation(self) -> Any:
        """The type of the key `output.NAME`."""
        return self.Settings


class StoredSnapshot(Protocol):
    """A snapshot on disk, whose arrays are read when they are indexed."""

    time: float

    @property
    def attributes(self) -> Mapping[str, Any]: ...

    @property
    def particles(self) -> Mapping[str, Mapping[str, Any]]:
        """The records of particles by species and name."""
        ...


class SnapshotFile(OutputKind):
    """One kind of HDF5 file beside each snapshot, such as one in the format of another program. It
    is derived from the snapshot: `verify` makes it again where it is missing, and it is removed
    with the snapshot. Its settings have no key of a `Cadence`."""

    ending: ClassVar[str] = ".hdf5"
    """The file is `snapshots/STEP` with this ending, which ends with `.hdf5`."""

    def problem(self, configuration: Mapping[str, Any], model: models.Equation) -> str | None:
        """Why the snapshots of a run with this resolved configuration cannot be written in this
        way; None if they can."""
        return None

    def fill(
        self, file: h5py.File, snapshot: StoredSnapshot, configuration: Mapping[str, Any]
    ) -> None:
        """Write the content of the file, from a snapshot of a run with this resolved
        configuration."""
        raise NotImplementedError


class Kind(OutputKind):
    """One kind of series: a file RUN/NAME.h5 with a row of arrays for each time at which it is
    due."""

    Settings: ClassVar[type[SeriesCadence]] = SeriesCadence
    default: ClassVar[SeriesCadence | None] = None
    # Whether every snapshot adds a row, even without the key.
    with_snapshots: ClassVar[bool] = False
    frequent: ClassVar[bool] = False
    """Whether rows are small and many: rows then wait in memory and are written together, about
    every ten seconds and before each checkpoint."""
    sheared: ClassVar[bool] = False
    """Whether rows can be taken of a flow in a background shear, whose wavenumbers depend on
    time."""
    curves: ClassVar[Curves] = Curves()  # The drawing of variables without registered pictures.

    def series(self, settings: Any) -> Mapping[str, Any]:
        """The series for a value of `output.NAME`: settings by file name without its ending."""
        return {} if settings is None else {self.name: settings}

    def measured(self, subject: Subject, settings: Any) -> Measured:
        """The content of a row and its computation. `settings` is None if only snapshots add rows.

        Raises Unsupported if the model does not have the quantities."""
        raise NotImplementedError

    def pictures(self, series: Any, labels: Any) -> Iterator[tuple[str, Callable[[], Any]]] | None:
        """Pictures of a `SeriesReader` that `curves` cannot describe, as (file name without its
        ending, function that builds a matplotlib Figure); None to use `curves`. For kinds of other
        packages, whose modules may import `simulator.plugins.pictures`."""
        return None


@dataclass(frozen=True)
class Carried:
    """Arrays that a series carries from row to row, such as sums over time. They stay on the
    devices and are part of every checkpoint. `begin` and `update` can be compiled.

    If an earlier start of the run did not write the series, the arrays begin at the next row."""

    begin: Callable[[], dict[str, jax.Array]]  # The arrays before the first row.
    update: Callable[[models.State, Mapping[str, jax.Array]], dict[str, jax.Array]]
    """The arrays after adding a state; called whenever a row is due, before the row is computed."""
    places: Mapping[str, spectral.Layout | PhysicalLayout] = field(default_factory=dict)
    """Layouts of the arrays whose last three axes are modes or grid points; all others are small
    and replicated."""
    fields: Callable[[Mapping[str, jax.Array]], dict[str, jax.Array]] | None = None
    """Computes from the arrays the fields (..., x, y, z) that snapshots hold beside the model's; is
    compiled."""
    independent: bool = False
    """Whether the arrays mean the same under other settings of the kind. Otherwise a run that is
    continued with others begins them anew, and says so."""
    samples: bool = False
    """Whether each row adds a sample of the state to the arrays. The row at the end of a run is
    then computed without `update`, unless the cadence asks for it."""


@dataclass(frozen=True)
class Measured:
    """The content of a row and its computation. `compute(state)`, with `carried` `compute(state,
    arrays)`, returns all `variables` with the shapes of their dimensions and can be compiled."""

    coordinates: Mapping[str, np.ndarray]
    variables: Mapping[str, tuple[str, ...]]  # The dimensions of each variable.
    compute: Callable[..., dict[str, jax.Array]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    beside: Callable[[], Mapping[str, tuple[str, np.ndarray]]] = dict
    """Gives further arrays along a coordinate, stored once: name to (coordinate, values). All
    processes have to call this function."""
    carried: Carried | None = None
    finish: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = lambda row: row
    """Makes the variables from what `compute` returns, on the host of process 0."""


def check_field_names(names: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuses names in the setting `fields` that are not in `known`, which holds `what`."""
    for name in names:
        if name not in known:
            meant = did_you_mean(name, known)
            raise Unsupported(f"{name} is not {what}{meant} known: {', '.join(known)}", "fields")
