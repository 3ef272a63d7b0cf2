"""Settings of the box and its grid, of time integration, devices, transform and processes, and of a
run's output."""

import inspect
import math
from collections.abc import Container, Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    model_validator,
)

from simulator.errors import shown
from simulator.measure import requested
from simulator.measure.kind import Cadence, OutputKind, SeriesCadence, distinct
from simulator.registry import Registry, subclass_of
from simulator.settings import (
    ONE_TO_THREE,
    Count,
    Duration,
    Length,
    Moment,
    OutputPath,
    Points,
    Positive,
    Ratio,
    Seconds,
    Settings,
    entries,
    wrong,
)
from simulator.words import counted

Block = TypeVar("Block", bound=Settings)

_PER_AXIS = entries("one to three values are needed, one for each axis", 1, 2, 3)


class GridSettings(Settings):
    shape: Annotated[tuple[Points, ...], ONE_TO_THREE, _PER_AXIS] = (64, 64, 64)
    """Number of points along x, y and z; [nx, ny] in two dimensions, [nx] in one. Products of small
    primes are fast."""
    box: Annotated[tuple[Length, ...], ONE_TO_THREE, _PER_AXIS] = (
        2 * math.pi,
        2 * math.pi,
        2 * math.pi,
    )
    """Lengths of the periodic box along the axes of the grid, 2 pi by default; entries such as 2*pi
    are possible."""
    dealias: Literal["two_thirds", "spherical", "phase_shift", "none"] = "two_thirds"
    """two_thirds keeps the modes with |k_i| <= (N_i - 1)//3; spherical keeps the modes within 2
    sqrt(2)/3 of the Nyquist wavenumber, and computes products on two grids half a spacing apart:
    both are free of aliasing. phase_shift keeps the modes of spherical, on one shifted grid in each
    stage of rk2, rk4 or etdrk4: aliasing errors cancel but for a remainder that is small in viscous
    flows with k_max eta >= 1. none keeps all modes, with aliasing errors."""
    shell_width: Positive | None = None
    """Width dk of the shells n = floor(|k| / dk + 1/2 + 1e-9) of spectra, transfers and random
    fields; by default the largest 2 pi / L_i, which is coarse in a long box."""

    @model_validator(mode="before")
    @classmethod
    def _fewer_axes(cls, data: object) -> Any:
        """Takes a number for a list of one, and gives each axis of `shape` a length."""
        if not isinstance(data, dict):
            return data
        for key, types in (("shape", int | float), ("box", int | float | str)):
            if isinstance(data.get(key), types):
                data = {**data, key: [data[key]]}
        shape = data.get("shape")
        if "box" in data or not isinstance(shape, list | tuple) or len(shape) not in (1, 2):
            return data
        return {**data, "box": (2 * math.pi,) * len(shape)}

    @model_validator(mode="after")
    def _box_fits(self) -> Self:
        if len(self.box) != len(self.shape):
            lengths = counted(len(self.box), "length")
            axes = counted(len(self.shape), "axis", "axes")
            raise wrong("box", f"has {lengths}, but shape has {axes}; give one for each")
        lengths = [
            length for length, n in zip(self.box, self.shape, strict=True) if n > 1
        ] or self.box
        least = 2 * math.pi / max(lengths)
        if self.shell_width is not None and self.shell_width < least * (1 - 1e-9):
            empty = f"the smallest wavenumber of the box, 2 pi / L = {least:.6g}, and shells would be empty"
            raise wrong("shell_width", f"{self.shell_width:g} is below {empty}; give at least that")
        return self


# The keys of `time` of which one chooses the time step.
EXCLUSIVE = ("cfl", "dt", "error", "steps")
REMOVES = {
    "cfl": ("dt", "error", "steps", "spacing"),
    "dt": ("cfl", "error", "steps", "spacing"),
    "error": ("cfl", "dt", "steps", "spacing"),
    "steps": ("cfl", "dt", "error", "max_dt"),
}
"""The keys of a file's `time` that an override of one of `EXCLUSIVE` removes."""

USUAL_CFL = 0.5  # The default CFL number, if integrator and dealiasing allow it.

# An event that is within this fraction of dt from the end of a step is due there.
EVENT_TOLERANCE = 1e-6


class TimeSettings(Settings):
    integrator: str = "rk4"
    """The time integrator."""
    waves: Literal["exact", "explicit"] | None = None
    """Rotation, stable stratification, the mean magnetic field and your equation's `waves`: exact,
    so that advection alone limits dt, or explicit, so that dt has to resolve them. By default
    explicit in the shipped models, and exact in your equation if the integrator takes linear terms
    that couple fields."""
    stop: Moment
    """The simulation time, from 0, at which the run ends; in an expanding box also {scale_factor:
    A} or {redshift: Z}."""
    cfl: Ratio | None = None
    """CFL number: dt = cfl / max_x sum_i |v_i| / dx_i. If neither cfl nor dt is given, cfl is 0.5,
    or the limit of the integrator with this dealiasing if that is smaller."""
    dt: Duration | None = None
    """A fixed time step, instead of cfl."""
    error: Annotated[Positive, Field(ge=1e-12, le=0.1)] | None = None
    """Instead of cfl: the relative error per unit of time that each field may have, in the root mean
    square over the box. Each step estimates its error, and is repeated with a shorter dt where the
    error is larger. With rk4 and etdrk4."""
    steps: Count | None = None
    """In an expanding box, instead of cfl: the number of steps to stop, which aligned output
    divides further."""
    spacing: Literal["growth", "log_scale_factor"] | None = None
    """The quantity that steps divide evenly: the linear growth factor D (the default) or ln a."""
    max_dt: Duration | None = None
    """Upper limit of the time step that follows from cfl or error; with cfl required if the initial
    flow is at rest."""
    max_steps: Count | None = None
    """The run ends after this many steps even if stop is not reached."""

    @model_validator(mode="before")
    @classmethod
    def _default_cfl(cls, data: object) -> Any:
        if isinstance(data, dict) and all(data.get(key) is None for key in EXCLUSIVE):
            return {**data, "cfl": USUAL_CFL}
        return data

    @model_validator(mode="after")
    def _one_way_to_choose_dt(self) -> Self:
        chosen = [key for key in EXCLUSIVE if getattr(self, key) is not None]
        if len(chosen) > 1:
            raise wrong(chosen[1], f"excludes time.{chosen[0]}; keep one of the two")
        if self.steps is None and self.spacing is not None:
            raise wrong("spacing", "needs time.steps; leave the key out")
        if self.steps is not None and self.max_dt is not None:
            raise wrong("max_dt", "has no effect with time.steps; leave the key out")
        if self.dt is not None and self.max_dt is not None and self.dt > self.max_dt:
            raise wrong("dt", f"must be at most time.max_dt = {self.max_dt}, not {self.dt}")
        return self


# Upper limit of `devices.count`: more than any machine has.
MOST_DEVICES = 2**20


def _auto_or_count(value: object) -> Any:
    if value == "auto":
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 1 or value % 1:
        raise ValueError(f"auto or a whole number of at least 1 is needed, not {shown(value)}")
    if value > MOST_DEVICES:
        raise ValueError(f"must be at most {MOST_DEVICES}, not {shown(value)}")
    return value


def _auto_or_mesh(value: object) -> Any:
    if value == "auto":
        return value
    numbers = list(value) if isinstance(value, list | tuple) else []
    if len(numbers) != 2 or not all(
        isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers
    ):
        raise ValueError(
            f"auto or [rows, columns] is needed, two whole numbers, not {shown(value)}"
        )
    return numbers


AutoOrMesh = Annotated[Literal["auto"] | tuple[int, int], BeforeValidator(_auto_or_mesh)]
AutoOrCount = Annotated[Literal["auto"] | int, BeforeValidator(_auto_or_count)]


class DeviceSettings(Settings):
    platform: Literal["auto", "cpu", "gpu"] = "auto"
    """auto uses GPUs if there are any."""
    count: AutoOrCount = "auto"
    """Number of devices of the whole run, over all processes; on the CPU the number of virtual
    devices. auto: all GPUs (one in one dimension), or on the CPU one device per process."""
    threads: AutoOrCount = "auto"
    """Number of threads of each device on the CPU, which share the work of native kernels and of
    XLA's loops. auto: the cores that a process may use, or, where count gives a number of virtual
    devices, one. The results do not depend on it."""

    @model_validator(mode="after")
    def _threads_of_processors(self) -> Self:
        if self.platform == "gpu" and self.threads != "auto":
            raise wrong(
                "threads", "is for processors; leave the key out, or set devices.platform: cpu"
            )
        return self


class FftSettings(Settings):
    backend: Literal["auto", "custom_partitioning", "jaxdecomp"] = "custom_partitioning"
    """The implementation of distributed transforms; auto measures the candidates once and keeps the
    fastest."""
    decomposition: Literal["auto", "slab", "pencil", "z_xy", "zx_y", "z_y_x"] = "auto"
    """How a field is divided among the devices; the last three are names of plans of
    custom_partitioning."""
    mesh: AutoOrMesh = "auto"
    """Rows and columns of the devices that share pencils; their product is the number of devices.
    The devices of a column are neighbours; with one row or one column the pencils are slabs. auto
    takes the mesh that pads least, and with fft.backend: auto the fastest mesh."""
    kernels: Literal["auto", "native", "xla"] = "auto"
    """The implementation of the local stages of transforms: native code, which runs on processors
    and needs a C++ compiler, or XLA; auto uses native code where it is available."""
    exchange: Literal["full", "single", "half_scaled"] = "full"
    """Format of the numbers that the nonlinear term of a double-precision run sends between
    devices: double precision, single precision (half the bytes), or 16 bits scaled plane by plane
    (a quarter). Arrays stay in double precision."""

    @model_validator(mode="before")
    @classmethod
    def _without_block(cls, data: Any, info: ValidationInfo) -> Any:
        """Records of earlier runs have the key."""
        if not isinstance(data, Mapping) or "block" not in data:
            return data
        recorded = not (info.context or {}).get("check_files", True)
        if data["block"] != "auto" and not recorded:
            raise wrong("block", "is now the environment variable SIMULATOR_FFT_BLOCK")
        return {key: value for key, value in data.items() if key != "block"}


class ProcessSettings(Settings):
    """The block `run`: memory and supervision of the processes."""

    memory: Literal["auto", "low", "fast"] = "auto"
    """low transforms components one after another, in about half the memory; auto is low only if
    fast does not fit."""

    watchdog: Seconds = 600.0
    """A process that makes no progress for this long prints the stacks of its threads and ends the
    run."""

    stop_within: Seconds = 60.0
    """A process whose loop has not answered a signal to stop for this long prints the stacks of its
    threads and ends the run. Give more time if a step, a row of output or a compilation takes
    longer."""

    wall_time: Seconds | None = None
    """The run writes a checkpoint and ends with exit code 3 before this wall time has passed since
    its command began: seconds, or 90min, 4h. It stops by stop_within, and at most an eighth of the
    time, earlier."""

    rendezvous: Seconds = 900.0
    """Time for which processes wait for one another at the start; longer for more than 512
    processes."""

    transport: Literal["auto", "gloo", "mpi"] = "auto"
    """How processes exchange arrays on processors: MPI, which has to start the processes (mpirun,
    srun --mpi) and needs the library of scripts/build_mpi, or gloo, which needs nothing; auto takes
    MPI where it works. GPUs communicate by themselves."""

    sync: bool = True
    """Make each file durable as it is written. false does so at checkpoints and at the end only,
    which is faster for many small files; after a power failure the run continues from its last
    checkpoint."""


class SnapshotSettings(Cadence):
    """The first and the last state are always a snapshot; steps end exactly at the times of
    `every`."""

    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Fields to write, evolved or derived; by default the evolved fields of the model."""
    sample: tuple[str, ...] = ("velocity",)
    """Fields of the fluid that are sampled at the particles' positions and written as
    fluid_velocity and so on: velocity, acceleration, gradient and the names of scalar fields."""
    precision: Literal["single", "double"] | None = None
    """Precision of the numbers in the files; by default the precision of the run."""
    error: Annotated[Positive, Field(le=0.1)] | None = None
    """Round the fields so that in every shell of wavenumbers the coefficients and the energy keep
    this relative error, and compress them; by default they are exact. Particles and checkpoints
    stay exact."""
    index: bool = True
    """Also write the files by which ParaView, yt and xarray read the snapshots, and a row of
    slices.h5 with each. Always written with an output that puts further files beside the
    snapshots."""


class CheckpointSettings(Cadence):
    """Checkpoints for restarting; a checkpoint is also written at every early stop and at the end.
    Steps end exactly at the times of `every`."""

    every_wall: Seconds | None = 900.0
    keep_last: Count = 2
    """Number of newest checkpoints that are kept, whatever made them due."""
    keep_every: Count | None = None
    """Also keep every checkpoint whose step is a multiple of this."""


def _installed(compression: str) -> str:
    if compression == "blosc2" and find_spec("hdf5plugin") is None:
        raise ValueError(
            "blosc2 needs the package hdf5plugin (pip install hdf5plugin); or use gzip"
        )
    return compression


class OutputSettings(Settings):
    directory: OutputPath
    """The run folder, relative to the current folder; by default outputs/NAME."""
    diagnostics: SeriesCadence = SeriesCadence(every_steps=10)
    """Rows of diagnostics.csv."""
    snapshots: SnapshotSettings = SnapshotSettings()
    """Whole fields in snapshots/."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """Checkpoints in checkpoints/."""
    compression: Annotated[Literal["none", "gzip", "blosc2"], AfterValidator(_installed)] = "none"
    """Lossless compression of snapshots; it saves a fifth for turbulence and makes writing many
    times slower."""


def with_kinds(kinds: Mapping[str, OutputKind]) -> type[OutputSettings]:
    """OutputSettings with an additional key for each of `kinds`."""
    keys: dict[str, Any] = {}
    for kind in kinds.values():
        type_ = kind.annotation if kind.default is not None else kind.annotation | None
        keys[kind.name] = type_, Field(kind.default, description=kind.description)
    taken = (*kinds, "diagnostics", "snapshots", "checkpoints")

    def names_differ(self: OutputSettings) -> OutputSettings:
        for name, kind, _ in requested(self):
            if name != kind.name and name in taken:
                problem = f"{name} is the name of another output; give the series a name: ..."
                raise wrong(kind.name, problem)
        return self

    check = cast(Any, model_validator(mode="after")(names_differ))
    return create_model(
        "OutputSettings", __base__=OutputSettings, __validators__={"names_differ": check}, **keys
    )


FURTHER = Registry[type[Settings]]("simulator.settings", {}, subclass_of(Settings))


def with_blocks(
    settings: type[Block], file: str, words: Container[str] | None = None
) -> type[Block]:
    """`settings`, of the file of a `run` or of a `study`, with the blocks that plugins add by the
    name FILE.BLOCK, only those that are among `words` if these are given. A block that the file does
    not have is None."""
    keys: dict[str, Any] = {}
    for key, block in FURTHER.beginning_with(f"{file}.", words).items():
        keys[key] = block | None, Field(None, description=inspect.getdoc(block))
    return create_model(settings.__name__, __base__=settings, __doc__=settings.__doc__, **keys)
