"""The description of a run, assembled from the settings of its parts.

A model, an initial condition, a forcing or an integrator registers itself in its package; nothing here names
one. `RunConfig` is what the program works with; `assemble` makes the subclass that validates.
"""

import re
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, Literal, Self, Union, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    create_model,
    model_validator,
)

from simulator.config.execution import DeviceSettings, FftSettings, ProcessSettings, SlurmSettings
from simulator.config.grid import GridSettings
from simulator.config.output import OutputSettings
from simulator.config.timing import TimeSettings
from simulator.errors import UserError
from simulator.settings import Settings, wrong


@dataclass(frozen=True)
class Registries:
    """The parts that can be chosen by name: `{kind: class}` with a `Settings` class each, and
    `{name: class}` with a `max_cfl` each for the integrators."""

    models: Mapping[str, Any]
    initials: Mapping[str, Any]
    forcings: Mapping[str, Any]
    integrators: Mapping[str, Any]


def registered() -> Registries:
    """The registries of floor 3. Imports the parts, and JAX with them; starts no device."""
    from simulator.forcing import FORCINGS
    from simulator.initial import INITIALS
    from simulator.models import MODELS
    from simulator.stepping import INTEGRATORS

    return Registries(MODELS, INITIALS, FORCINGS, INTEGRATORS)


@dataclass(frozen=True)
class Places:
    """Where the keys of a configuration were given: `run.yaml:3`, `command line`. All are equal, so that two
    configurations with the same values are."""

    by_path: Mapping[tuple[str | int, ...], str] = field(default_factory=dict, compare=False)

    def of(self, path: tuple[str | int, ...]) -> str:
        """The place of `path`, or of the block that it would stand in."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.by_path:
                return self.by_path[path[:length]]
        return "configuration"


def _usable_name(name: str) -> str:
    if not re.fullmatch(r"[\w.+-]*\w[\w.+-]*", name):
        raise ValueError(f"letters, digits and _ . + - make a name (it names folders and jobs), not {name!r}")
    return name


class RunConfig(Settings):
    """A run as the user described it, complete with defaults.

    `model`, `initial` and `forcing` hold the settings of the chosen kind; the classes stand with the parts.
    """

    name: Annotated[str, AfterValidator(_usable_name)] = "run"
    """Name of the run; by default the file's name."""
    model: Any
    """The equations."""
    grid: GridSettings = GridSettings()
    """The box and its points."""
    initial: Any
    """The initial condition."""
    forcing: Any = None
    """A force on the fluid; none by default."""
    time: TimeSettings
    """How the run advances and when it ends."""
    precision: Literal["double", "single"] = "double"
    """Precision of the fields; time and dt are always double."""
    devices: DeviceSettings = DeviceSettings()
    """The devices to compute on."""
    fft: FftSettings = FftSettings()
    """The distributed transform."""
    output: OutputSettings
    """What is written, where and when."""
    run: ProcessSettings = ProcessSettings()
    """How the processes of a run watch over each other, and how much memory they take."""
    slurm: SlurmSettings = SlurmSettings()
    """Defaults of this site for job scripts."""

    _places: Places = PrivateAttr(default_factory=Places)

    @model_validator(mode="before")
    @classmethod
    def _names(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        name = data.get("name") or (info.context or {}).get("name", "run")
        output = data.get("output", {})
        if isinstance(output, dict):
            output = {"directory": f"outputs/{name}", **output}
        return {**data, "name": data.get("name", name), "output": output}

    @model_validator(mode="after")
    def _precision_of_snapshots(self) -> Self:
        if self.precision == "single" and self.output.snapshots.precision == "double":
            raise wrong("output.snapshots.precision", "the run has single precision only; leave the key out")
        return self

    def error(self, key: str, message: str) -> UserError:
        """The error that blames `key` (`devices.count`) at the place where it was given:
        `run.yaml:9: devices.count: MESSAGE`. For checks that need more than the configuration."""
        path = tuple(int(part) if part.isdecimal() else part for part in key.split("."))
        return UserError(f"{self._places.of(path)}: {key}: {message}")


def _asked_for_kind(value: Any, kind: str) -> Any:
    if isinstance(value, Mapping) and "kind" not in value:
        raise wrong("kind", f"missing; one of {kind}")
    return value


def _choice(parts: Mapping[str, Any]) -> Any:
    """The union of the parts' settings classes, told apart by `kind`."""
    classes = [part.Settings for part in parts.values()]
    if not classes:
        return None
    if len(classes) == 1:  # pydantic makes no union of one, and would not ask for its kind
        return Annotated[classes[0], BeforeValidator(partial(_asked_for_kind, kind=next(iter(parts))))]
    return Annotated[Union[tuple(classes)], Field(discriminator="kind")]  # noqa: UP007 - made from a list


def _time_settings(integrators: Mapping[str, Any]) -> type[TimeSettings]:
    def check_cfl(self: TimeSettings) -> TimeSettings:
        limit = integrators[self.integrator].max_cfl
        if self.cfl is not None and self.cfl > limit:
            raise wrong("cfl", f"must be at most {limit:g} with {self.integrator}, not {self.cfl:g}")
        return self

    return create_model(
        "TimeSettings",
        __base__=TimeSettings,
        __doc__=TimeSettings.__doc__,
        __validators__={"check_cfl": cast(Any, model_validator(mode="after")(check_cfl))},
        integrator=cast(Any, (Literal[tuple(integrators)], copy(TimeSettings.model_fields["integrator"]))),
    )


_REACH = {"two_thirds": 1.0, "spherical": 2**-0.5, "none": 2 / 3}
"""The integrators' limits hold for wavenumbers up to 2/3 of the largest; how far others lower them."""


def _fitting(registries: Registries) -> dict[str, Any]:
    """Validators for what a model decides beyond its own block: a model that is solved by split steps (`split`) has
    its own integrators, all or those that it lists (`integrators`), and `dealias` lists the kinds that a model
    takes; the first of each is its default."""

    def integrators(kind: Any) -> Sequence[str]:
        if known := getattr(registries.models.get(kind), "integrators", ()):
            return known
        split = getattr(registries.models.get(kind), "split", False)
        return [n for n, c in registries.integrators.items() if getattr(c, "split", False) == split]

    def defaults(cls: Any, data: Any) -> Any:
        model = data.get("model") if isinstance(data, dict) else None
        kind = str(model.get("kind")) if isinstance(model, dict) else ""
        part = registries.models.get(kind)
        wanted: dict[str, dict[str, Any]] = {}
        if getattr(part, "split", False):
            wanted["time"] = {"integrator": integrators(kind)[0]}
        if hasattr(part, "dealias"):
            wanted["grid"] = {"dealias": cast(Any, part).dealias[0]}
        for block, values in wanted.items():
            given = data.get(block, {})
            if isinstance(given, dict):
                data = {**data, block: {**values, **given}}
        return data

    def check(self: RunConfig) -> RunConfig:
        kind = self.model.kind
        known = integrators(kind)
        if self.time.integrator not in known:
            raise wrong(
                "time.integrator", f"{self.time.integrator} does not solve {kind}; {' or '.join(known)} do"
            )
        if self.forcing is not None and getattr(registries.models[kind], "split", False):
            raise wrong("forcing", f"{kind} takes none; leave the key out")
        kinds = getattr(registries.models[kind], "dealias", (self.grid.dealias,))
        if self.grid.dealias not in kinds:
            raise wrong("grid.dealias", f"{kind} takes {' or '.join(kinds)} only, not {self.grid.dealias}")
        if not getattr(registries.models[kind], "split", False):
            limit = registries.integrators[self.time.integrator].max_cfl * _REACH[self.grid.dealias]
            if self.time.cfl is not None and self.time.cfl > limit:
                raise wrong(
                    "time.cfl",
                    f"must be at most {limit:.2g} with {self.time.integrator} and grid.dealias: "
                    f"{self.grid.dealias}, not {self.time.cfl:g}",
                )
        return self

    return {
        "fitting_defaults": cast(Any, model_validator(mode="before"))(classmethod(defaults)),
        "fitting_check": cast(Any, model_validator(mode="after")(check)),
    }


def assemble(registries: Registries) -> type[RunConfig]:
    """The RunConfig whose `model`, `initial`, `forcing` and `time` take what the registries hold."""
    forcing = _choice(registries.forcings)
    return create_model(
        "RunConfig",
        __base__=RunConfig,
        __doc__=RunConfig.__doc__,
        __validators__=_fitting(registries),
        model=(_choice(registries.models), ...),
        initial=(_choice(registries.initials), ...),
        forcing=(type(None) if forcing is None else forcing | None, None),
        time=(_time_settings(registries.integrators), ...),
    )


@cache
def run_config_class() -> type[RunConfig]:
    """`assemble` of what is registered in this program."""
    return assemble(registered())
