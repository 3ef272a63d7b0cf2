"""Settings of a sweep's file."""

from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from simulator.cluster.jobscript import SlurmSettings
from simulator.config.blocks import with_blocks
from simulator.config.load import SWEEP, FileSettings
from simulator.config.run_config import usable_name
from simulator.errors import shortened, shown
from simulator.measure import OUTPUTS
from simulator.run.folder import own_names
from simulator.settings import (
    Count,
    InputPath,
    Integer,
    Real,
    Settings,
    entries,
)


def _filled(kind: type | UnionType, needed: str, empty: str) -> BeforeValidator:
    """Refuses values of another type than `kind`, and empty ones; the value replaces the dots in
    `needed`."""

    def check(value: object) -> Any:
        if not isinstance(value, kind):
            raise ValueError(
                f"{needed.replace('...', shortened(str(value), 20))}, not {shown(value)}"
            )
        if not value:
            raise ValueError(empty)
        return value

    return BeforeValidator(check)


_NO_RUNS = "an empty list, so the sweep would have no runs; give"
_values = _filled(
    list | tuple, "a list of values is needed, e.g. [...]", f"{_NO_RUNS} at least one value"
)
_by_key = _filled(
    dict,
    "keys of the run's file and their values are needed",
    "names no key; give one, or leave it out",
)
_entries = _filled(
    list | tuple,
    "a list of blocks is needed, e.g. [{initial.kind: abc}]",
    f"{_NO_RUNS} an entry, or leave it out",
)


def _usable_name(name: str) -> str:
    if usable_name(name) in own_names(OUTPUTS.names):
        raise ValueError(
            f"{shown(name)} is the name of a file of every run; give the sweep another name"
        )
    return name


Values = Annotated[tuple[Any, ...], _values]
Assignment = Annotated[dict[str, Any], _by_key]
Pair = Annotated[tuple[Real, Real], entries("two numbers are needed, e.g. [0.1, 10]", 2)]
_Whole = Annotated[Integer, Field(ge=-(2**53), le=2**53)]
WholePair = Annotated[
    tuple[_Whole, _Whole], entries("two whole numbers are needed, e.g. [1, 100]", 2)
]


class Distribution(Settings):
    """The distribution of one parameter: exactly one of these keys."""

    uniform: Pair | None = None
    """[low, high]"""
    log_uniform: Pair | None = None
    """[low, high], both above zero: uniform in the logarithm."""
    normal: Pair | None = None
    """[mean, standard deviation]"""
    integers: WholePair | None = None
    """[first, last]: a whole number in this range, both included, with equal probability."""
    seeds: WholePair | None = None
    """[first, last]: different whole numbers in this range, drawn without repetition."""
    choice: Values | None = None
    """One of these values, with equal probability."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        keys = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(keys) != 1:
            raise ValueError(
                f"one of {', '.join(type(self).model_fields)} is needed, e.g. {{uniform: [0, 1]}}"
            )
        for name in ("uniform", "log_uniform", "integers", "seeds"):
            pair = getattr(self, name)
            if pair is not None and not pair[0] < pair[1]:
                raise ValueError(
                    f"{name}: the first number must be below the second, not {list(pair)}"
                )
        if self.log_uniform is not None and self.log_uniform[0] <= 0:
            raise ValueError(
                f"log_uniform: both numbers must be above zero, not {list(self.log_uniform)}"
            )
        if self.normal is not None and self.normal[1] <= 0:
            raise ValueError(
                f"normal: the standard deviation must be above zero, not {self.normal[1]:g}"
            )
        return self


class SampleSettings(Settings):
    """Runs at random points of a space of parameters."""

    method: Literal["latin_hypercube", "random"] = "latin_hypercube"
    """latin_hypercube: each of n intervals of equal probability of every parameter contains one
    point (McKay, Beckman & Conover, Technometrics 21, 239 (1979)); random: independent points, to
    which a larger n adds further points."""
    n: Count | None = None
    """Number of points; beside `zip` the number of its values."""
    seed: Annotated[Integer, Field(ge=0)] = 0
    parameters: Annotated[dict[str, Distribution], _by_key]
    """Keys of the run's file and their distributions."""


class Blocks(Settings):
    """The blocks multiply: there is a run for every combination of an entry of grid, zip, list and
    sample. Beside `zip`, the points of `sample` belong to its values, one by one."""

    grid: Annotated[dict[str, Values], _by_key] | None = None
    """Every combination of these values."""
    zip: Annotated[dict[str, Values], _by_key] | None = None
    """Lists of equal length: the first values of all keys belong together, then the second ones,
    and so on."""
    sample: SampleSettings | None = None
    exclude: tuple[Assignment, ...] = ()
    """Combinations to leave out: a run is left out if all keys of an entry have the values of that
    entry."""
    list: Annotated[tuple[Assignment, ...], _entries] | None = None
    """Each entry is a set of values."""


class SweepSlurmSettings(SlurmSettings):
    """Resources of each task of the array; the base's `slurm` block gives the resources that are
    missing here."""

    throttle: Count | None = None
    """Largest number of runs that Slurm runs at a time."""


class SweepSettings(FileSettings):
    """A parameter study: a base configuration and the keys that vary."""

    file_kind = SWEEP

    base: InputPath
    """The base configuration, relative to this file."""
    name: Annotated[str, AfterValidator(_usable_name)]
    """Name of the folder of the runs, below the base's output.directory; by default the file's
    name."""
    sweep: Blocks
    collect: tuple[str, ...] = ()
    """Columns of the table: final.energy, max.dissipation, mean.enstrophy[time>0.5], wall_time,
    ..."""
    slurm: SweepSlurmSettings = SweepSlurmSettings()


@cache
def study_settings() -> type[SweepSettings]:
    """The settings of a study's file, with the blocks of plugins."""
    return with_blocks(SweepSettings, "study")
