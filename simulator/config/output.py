"""Settings of a run's output: snapshots, checkpoints, the table of diagnostics, and every kind of series."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, create_model

from simulator.measure.kind import Cadence, Kind, SeriesCadence, distinct
from simulator.settings import Count, OutputPath, Positive, Seconds, Settings


class SnapshotSettings(Cadence):
    """The first and the last state are always a snapshot; steps end exactly at the times of `every`."""

    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Fields to write, evolved or derived; by default the evolved fields of the model."""
    sample: tuple[str, ...] = ("velocity",)
    """Fields of the fluid that are sampled at the particles' positions and written as fluid_velocity and so on:
    velocity, acceleration, gradient and the names of scalar fields."""
    precision: Literal["single", "double"] | None = None
    """Precision of the numbers in the files; by default the precision of the run."""
    index: bool = True
    """Also write the files by which ParaView, yt and xarray read the snapshots; by default not in the runs of a study
    with `dataset`. `output.gadget` needs them."""


class GadgetSettings(Settings):
    h: Positive | None = None
    """H0 in 100 km/s/Mpc; needed in units of Mpc / h, which do not contain it."""
    precision: Literal["single", "double"] = "double"
    """Precision of positions, velocities and masses in the file."""


class CheckpointSettings(Settings):
    """Checkpoints for restarting; a checkpoint is also written at every early stop and at the end."""

    every_wall: Seconds = 900.0
    """Interval in wall-clock time: seconds, or 10min, 2h."""
    every_steps: Count | None = None
    """Interval in steps."""
    keep_last: Count = 2
    """Number of newest checkpoints that are kept."""
    keep_every: Count | None = None
    """Also keep every checkpoint whose step is a multiple of this."""


def _installed(compression: str) -> str:
    if compression == "blosc2" and find_spec("hdf5plugin") is None:
        raise ValueError("blosc2 needs the package hdf5plugin (pip install hdf5plugin); or use gzip")
    return compression


class _Rows(Settings):
    directory: OutputPath
    """The run folder, relative to the current folder; by default outputs/NAME."""
    diagnostics: SeriesCadence = SeriesCadence(every_steps=10)
    """Rows of diagnostics.csv."""


class _Snapshots(Settings):
    snapshots: SnapshotSettings = SnapshotSettings()
    """Whole fields in snapshots/."""
    gadget: GadgetSettings | None = None
    """The particles of every snapshot as a GADGET-4 file, snapshots/STEP.hdf5."""


class _Checkpoints(Settings):
    checkpoints: CheckpointSettings = CheckpointSettings()
    """Checkpoints in checkpoints/."""
    compression: Annotated[Literal["none", "gzip", "blosc2"], AfterValidator(_installed)] = "none"
    """Lossless compression of snapshots; it saves a fifth for turbulence and makes writing many times slower."""


class OutputSettings(_Checkpoints, _Snapshots, _Rows):
    # The keys of every run; `with_kinds` adds a key for each kind of series. Pydantic lists the keys of the bases
    # from last to first, so that series come after the diagnostics and series that are taken with snapshots after
    # these.
    pass


def with_kinds(kinds: Mapping[str, Kind]) -> type[OutputSettings]:
    """OutputSettings with an additional key for each of `kinds`, the kinds of series."""
    keys: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for kind in kinds.values():
        type_ = kind.annotation if kind.default is not None else kind.annotation | None
        keys[kind.with_snapshots][kind.name] = (type_, Field(kind.default, description=kind.description))
    rows = create_model("Rows", __base__=_Rows, **keys[False])
    snapshots = create_model("Snapshots", __base__=_Snapshots, **keys[True])
    bases = cast(Any, (OutputSettings, snapshots, rows))
    return cast(type[OutputSettings], create_model("OutputSettings", __base__=bases))
