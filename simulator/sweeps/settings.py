"""What a sweep's file may say."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from simulator.config.execution import SlurmSettings
from simulator.run.folder import OWN
from simulator.settings import Count, InputPath, Integer, Real, Settings


def _values(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(f"a list of values is needed, e.g. [{value}], not {value!r}")
    if not value:
        raise ValueError("an empty list, so the sweep would have no runs; give at least one value")
    return value


def _by_key(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"keys of the run's file and their values are needed, not {value!r}")
    if not value:
        raise ValueError("names no key; give one, or leave it out")
    return value


def _entries(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(f"a list of blocks is needed, e.g. [{{initial.kind: abc}}], not {value!r}")
    if not value:
        raise ValueError("an empty list, so the sweep would have no runs; give an entry, or leave it out")
    return value


def _two(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"two numbers are needed, e.g. [0.1, 10], not {value!r}")
    return value


def _usable_name(name: str) -> str:
    if not re.fullmatch(r"[\w.+-]*\w[\w.+-]*", name):
        raise ValueError(
            f"letters, digits and _ . + - make a name (it names the sweep's folder), not {name!r}"
        )
    if name in OWN:
        raise ValueError(f"{name!r} is what a run writes itself; give the sweep another name")
    return name


Values = Annotated[tuple[Any, ...], BeforeValidator(_values)]
Assignment = Annotated[dict[str, Any], BeforeValidator(_by_key)]
Pair = Annotated[tuple[Real, Real], BeforeValidator(_two)]


class Distribution(Settings):
    """How one parameter is sampled: exactly one of these."""

    uniform: Pair | None = None
    """[low, high]"""
    log_uniform: Pair | None = None
    """[low, high], both above zero: uniform in the logarithm."""
    normal: Pair | None = None
    """[mean, standard deviation]"""
    choice: Values | None = None
    """One of these values, all equally often."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"one of {', '.join(type(self).model_fields)} is needed, e.g. {{uniform: [0, 1]}}"
            )
        for name in ("uniform", "log_uniform"):
            pair = getattr(self, name)
            if pair is not None and not pair[0] < pair[1]:
                raise ValueError(f"{name}: the first number must be below the second, not {list(pair)}")
        if self.log_uniform is not None and self.log_uniform[0] <= 0:
            raise ValueError(f"log_uniform: both numbers must be above zero, not {list(self.log_uniform)}")
        if self.normal is not None and self.normal[1] <= 0:
            raise ValueError(f"normal: the standard deviation must be above zero, not {self.normal[1]:g}")
        return self


class SampleSettings(Settings):
    """Runs at random points of a space of parameters."""

    method: Literal["latin_hypercube", "random"] = "latin_hypercube"
    """latin_hypercube: every parameter's range in n parts of equal probability, each hit once (McKay, Beckman &
    Conover, Technometrics 21, 239 (1979)); random: independent points, of which a larger n keeps the first ones."""
    n: Count
    """Number of points."""
    seed: Annotated[Integer, Field(ge=0)] = 0
    parameters: Annotated[dict[str, Distribution], BeforeValidator(_by_key)]
    """Keys of the run's file and how each is sampled."""


class Blocks(Settings):
    """Blocks multiply: one run for every combination of what grid, zip, list and sample give."""

    grid: Annotated[dict[str, Values], BeforeValidator(_by_key)] | None = None
    """Every combination of these values."""
    zip: Annotated[dict[str, Values], BeforeValidator(_by_key)] | None = None
    """The first values of all keys together, the second ones together, ...: lists of one length."""
    sample: SampleSettings | None = None
    exclude: tuple[Assignment, ...] = ()
    """Combinations to leave out: runs in which all keys of an entry have its values."""
    list: Annotated[tuple[Assignment, ...], BeforeValidator(_entries)] | None = None
    """Each entry is a set of values of its own."""


class SweepSlurmSettings(SlurmSettings):
    """What each task of the array asks of Slurm; what is not given is the base's `slurm` block's."""

    throttle: Count | None = None
    """How many runs Slurm runs at a time."""


class SweepSettings(Settings):
    """A study: a base configuration and what is varied in it."""

    base: InputPath
    """The configuration that is varied, relative to this file."""
    name: Annotated[str, AfterValidator(_usable_name)]
    """Names the folder of the runs, below the base's output.directory; by default the file's name."""
    sweep: Blocks
    collect: tuple[str, ...] = ()
    """Columns of the table: final.energy, max.dissipation, mean.enstrophy[time>0.5], wall_time, ..."""
    slurm: SweepSlurmSettings = SweepSlurmSettings()
