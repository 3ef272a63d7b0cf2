"""What a run writes, where and when."""

from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.settings import Count, Flag, OutputPath, Positive, Real, Seconds, Settings, wrong


class Cadence(Settings):
    """When something is due; where several are given, each of them makes it due."""

    every: Positive | None = None
    """Simulation time between two."""
    every_steps: Count | None = None
    """Steps between two."""
    every_wall: Seconds | None = None
    """Wall-clock time between two: seconds, or 10min, 2h."""

    @property
    def given(self) -> bool:
        """Whether anything is due before the end of the run."""
        return not (self.every is None and self.every_steps is None and self.every_wall is None)


class SeriesCadence(Cadence):
    """When a row of a series is taken: after the first step at or beyond its time."""

    align: Flag = False
    """Shorten steps so that rows due by simulation time are taken at exactly that time."""

    @model_validator(mode="after")
    def _some_cadence(self) -> Self:
        if not self.given:
            raise wrong("", "says not when; give every, every_steps or every_wall")
        if self.align and self.every is None:
            raise wrong("align", "makes rows due by simulation time exact; give every too, or leave it out")
        return self


class SpectraSettings(SeriesCadence):
    axis: Literal["x", "y", "z"] | None = None
    """Write spectra across and along this axis too."""


class StructureFunctionSettings(SeriesCadence):
    separations: tuple[Positive, ...] | None = None
    """Lengths; by default about six an octave, from the grid's spacing to half the box."""
    orders: Annotated[tuple[Annotated[Count, Field(ge=2, le=10)], ...], Field(min_length=1)] = (2, 3, 4)
    """Powers of the increments."""


class HistogramSettings(SeriesCadence):
    bins: Count = 200
    range: Positive = 20.0
    """The histograms reach so many standard deviations to either side of the mean."""
    decades: tuple[Real, Real] = (-6.0, 6.0)
    """Those of a mass density, on a logarithmic scale, reach between these powers of ten times its mean."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        return _rises(self, "decades", self.decades)


class ProfileSettings(SeriesCadence):
    bins: Count = 32
    """Number of spherical shells."""
    range: tuple[Positive, Positive] | None = None
    """Their least and largest radius; by default the grid's spacing and half the box."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        return _rises(self, "range", self.range)


def _rises(settings: Any, key: str, ends: tuple[float, float] | None) -> Any:
    if ends is not None and ends[0] >= ends[1]:
        raise wrong(key, f"[{ends[0]:g}, {ends[1]:g}] does not rise; the smaller end comes first")
    return settings


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{name} is given twice; keep one of them")
    if not names:
        raise ValueError("an empty list; name a field, or leave the key out for the model's fields")
    return names


class SliceSettings(SeriesCadence):
    fields: Annotated[tuple[str, ...], AfterValidator(_distinct)] | None = None
    """Scalar fields to cut; by default speed, vorticity magnitude and density, where the model has them."""


class SnapshotSettings(Cadence):
    """The first and the last state are always a snapshot; those due by simulation time are hit exactly."""

    fields: Annotated[tuple[str, ...], AfterValidator(_distinct)] | None = None
    """Fields to write, derived ones too; by default the model's own."""
    precision: Literal["single", "double"] | None = None
    """Precision of the numbers in the files; by default the run's."""


class CheckpointSettings(Settings):
    """Checkpoints for restarting; one is also written at every early stop and at the end."""

    every_wall: Seconds = 900.0
    """Wall-clock time between two: seconds, or 10min, 2h."""
    every_steps: Count | None = None
    """Steps between two."""
    keep_last: Count = 2
    """How many of the newest are kept."""
    keep_every: Count | None = None
    """Keep for good those whose step is a multiple of this."""


def _installed(compression: str) -> str:
    if compression == "blosc2" and find_spec("hdf5plugin") is None:
        raise ValueError("blosc2 needs the package hdf5plugin (pip install hdf5plugin); or use gzip")
    return compression


class OutputSettings(Settings):
    directory: OutputPath
    """The run folder, relative to the current folder; by default outputs/NAME."""
    diagnostics: SeriesCadence = SeriesCadence(every_steps=10)
    """Rows of diagnostics.csv."""
    spectra: SpectraSettings = SpectraSettings(every_steps=100)
    """Shell spectra in spectra.h5."""
    transfer: SeriesCadence | None = None
    """Energy transfer and flux between scales in transfer.h5."""
    structure_functions: StructureFunctionSettings | None = None
    """Moments of velocity increments in structure_functions.h5."""
    histograms: HistogramSettings | None = None
    """Probability densities of the fields and their gradients, and of log density, in histograms.h5."""
    profiles: ProfileSettings | None = None
    """Radial profiles of mass densities about the densest point in profiles.h5."""
    projections: SeriesCadence | None = None
    """Mass densities integrated along x, y and z in projections.h5."""
    snapshots: SnapshotSettings = SnapshotSettings()
    """Whole fields in snapshots/."""
    slices: SliceSettings | None = None
    """Mid-plane slices in slices.h5 beside those that come with every snapshot."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """Checkpoints in checkpoints/."""
    compression: Annotated[Literal["none", "gzip", "blosc2"], AfterValidator(_installed)] = "none"
    """Lossless compression of snapshots; turbulence shrinks by a fifth, and is written many times slower."""
