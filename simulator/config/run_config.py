"""The description of a run, assembled from the settings of its parts.

Models, initial conditions, forcings, terms and integrators are registered in their packages; this module
names none of them. `RunConfig` is the class that the program works with; `assemble` makes its
subclass that validates the parts' settings."""

import math
import pickle
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
)

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    create_model,
    field_validator,
    model_validator,
)

from simulator.cluster.jobscript import SlurmSettings
from simulator.config.blocks import (
    EXCLUSIVE,
    USUAL_CFL,
    DeviceSettings,
    FftSettings,
    GridSettings,
    OutputSettings,
    ProcessSettings,
    TimeSettings,
    with_blocks,
    with_kinds,
)
from simulator.config.yaml12 import path_of
from simulator.errors import UserError, shown
from simulator.measure import OUTPUTS, OutputKind, requested
from simulator.registry import PartsOf, Registry, declared_names
from simulator.settings import Settings, check_names_differ, wrong
from simulator.words import MAIN_BLOCKS, Shown, flat

if TYPE_CHECKING:
    from simulator.physics.models import Equation
    from simulator.physics.models.expansion import ExpansionSettings


class Registries(NamedTuple):
    """The parts that can be chosen by name: `{kind: class}`, each class with its `Settings`;
    `{name: class}` for the integrators, whose `max_cfl` maps each supported kind of dealiasing to
    the largest `time.cfl`."""

    models: Mapping[str, Any]
    initials: Mapping[str, Any]
    forcings: Mapping[str, Any]
    integrators: Mapping[str, Any]
    particles: Mapping[str, Any]
    terms: Mapping[str, Any]


def registered() -> Registries:
    """The registries of the physics. Imports the parts, and with them JAX; starts no device."""
    from simulator.physics.forcing import FORCINGS
    from simulator.physics.initial import INITIALS
    from simulator.physics.models import MODELS
    from simulator.physics.particles import PARTICLES
    from simulator.physics.stepping import INTEGRATORS
    from simulator.physics.terms import TERMS

    return Registries(MODELS, INITIALS, FORCINGS, INTEGRATORS, PARTICLES, TERMS)


@dataclass(frozen=True)
class Places:
    """The origin of each key of a configuration: `run.yaml:3` or `command line`. All instances
    compare equal, so that configurations with the same values are equal."""

    by_path: Mapping[tuple[str | int, ...], str] = field(default_factory=dict, compare=False)

    def of(self, path: tuple[str | int, ...]) -> str:
        """The origin of `path`, or of the innermost block around `path` with a known origin."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.by_path:
                return self.by_path[path[:length]]
        return "configuration"


def usable_name(name: str) -> str:
    """`name`, if it can name a folder and a job. Raises ValueError if it contains other characters
    than these may."""
    if not re.fullmatch(r"[\w.+-]*\w[\w.+-]*", name):
        raise ValueError(
            f"the name of a folder and a job has letters, digits and _ . + - only, unlike {shown(name)}"
        )
    return name


# More than any run has; a double counts exactly up to 1e15.
MOST_STEPS = 1e12
MOST_EVENTS = 1e9
LEAST_ERROR = {"double": 1e-12, "single": 1e-6}
"""The smallest error of rounded snapshots, by the precision of the run."""
# The range of single precision, reduced by a factor of about 100 at both ends.
SINGLE = (1e-36, 1e36)


BLOCK = "one block"
LIST = "a list"
"""The branches of a key that takes a block or a list of blocks, in pydantic's locations."""

BLOCKS = "blocks"
"""The key of a validation's context whose dictionary keeps the validated blocks."""


def named_blocks(data: Mapping[str, Any], usual: str) -> dict[str, Any]:
    """The blocks of a run with its name, by default `usual`, and its folder."""
    name = data.get("name") or usual
    output = data.get("output", {})
    if isinstance(output, dict):
        output = {"directory": f"outputs/{name}", **output}
    return {**data, "name": data.get("name", name), "output": output}


class RunConfig(Shown, Settings):
    """A run as the user described it, complete with defaults.

    `model`, `initial`, `forcing`, `terms` and `particles` hold the settings of the chosen kinds, whose
    classes are defined with the parts."""

    name: Annotated[str, AfterValidator(usable_name)] = "run"
    """Name of the run; by default the file's name."""
    model: Any
    """The equations."""
    grid: GridSettings = GridSettings()
    """The box and its grid."""
    initial: Any
    """The initial condition."""
    forcing: Any = None
    """A force on the fluid, or a list of them, each with a name of its own; by default none."""
    terms: Any = ()
    """Further terms of the equations: bodies, sponges, sources."""
    particles: Any = ()
    """Particles that move with the fluid."""
    time: TimeSettings
    """The time integration and its end."""
    precision: Literal["double", "single"] = "double"
    """Precision of the fields; time and dt are always double."""
    devices: DeviceSettings = DeviceSettings()
    """The devices to compute on."""
    fft: FftSettings = FftSettings()
    """The distributed transform."""
    output: OutputSettings
    """The output: data, folder and schedule."""
    run: ProcessSettings = ProcessSettings()
    """Memory and supervision of the processes."""
    slurm: SlurmSettings = SlurmSettings()
    """Resources and settings of the Slurm job."""

    _places: Places = PrivateAttr(default_factory=Places)

    def shown(self) -> tuple[str, dict[str, Any]]:
        blocks = self.model_dump(exclude_none=True)
        rows = flat({name: blocks[name] for name in MAIN_BLOCKS if blocks.get(name)})
        return f"configuration {self.name}", rows | flat(
            self.output.model_dump(exclude_defaults=True), "output"
        )

    @model_validator(mode="before")
    @classmethod
    def _names(cls, data: object, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        return named_blocks(data, (info.context or {}).get("name", "run"))

    @field_validator("*", mode="wrap")
    @classmethod
    def _once(
        cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        """Validates equal values of a block once, if the context has room for the results."""
        validated = (info.context or {}).get(BLOCKS)
        if validated is None:
            return handler(value)
        # pickle tells 1 from 1.0, and keeps the folder of a `RootedText`.
        key = info.field_name, pickle.dumps(value)
        if key not in validated:
            validated[key] = handler(value)
        return validated[key]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        forces = [force_name(force) for force in self._forces()]
        check_names_differ("forcing", forces)
        check_names_differ("terms", [term.name for term in self.terms], forces)
        check_names_differ("particles", [particles.name for particles in self.particles])
        for index, p in enumerate(self.particles):
            if not p.given():
                stored = p.count is not None
                problem = (
                    "start: snapshot takes all stored particles; leave the key out"
                    if stored
                    else "missing"
                )
                raise wrong(f"particles.{index}.count", problem)
        return self

    @model_validator(mode="after")
    def _countable(self) -> Self:
        stop = self.time.stop
        dt = self.time.dt
        if dt is not None and stop / dt > MOST_STEPS and self.time.max_steps is None:
            steps = f"{dt:g} gives {stop / dt:.3g} steps until time.stop = {stop:g}"
            least = stop / MOST_STEPS
            raise wrong("time.dt", f"{steps}; at least {least:g}, or time.max_steps, is needed")
        names = ("diagnostics", "snapshots", "checkpoints")
        cadences = [(name, getattr(self.output, name)) for name in names]
        cadences += [
            (kind.name, settings) for _, kind, settings in requested(self.output) if settings
        ]
        for name, cadence in cadences:
            every = cadence.every
            if isinstance(every, float) and stop / every > MOST_EVENTS:
                events = f"{every:g} gives {stop / every:.3g} events until time.stop = {stop:g}"
                raise wrong(
                    f"output.{name}.every", f"{events}; at least {stop / MOST_EVENTS:g} is needed"
                )
        return self

    @model_validator(mode="after")
    def _precision_suffices(self) -> Self:
        snapshots = self.output.snapshots
        if snapshots.error is not None and snapshots.precision is not None:
            raise wrong(
                "output.snapshots.precision",
                "error says how exact the fields are; leave precision out",
            )
        least = LEAST_ERROR[self.precision]
        if snapshots.error is not None and snapshots.error < least:
            raise wrong(
                "output.snapshots.error", f"the run's own numbers are not more exact than {least:g}"
            )
        if self.precision == "single":
            if self.output.snapshots.precision == "double":
                raise wrong(
                    "output.snapshots.precision",
                    "the run itself is in single precision; leave the key out",
                )
            lowest = 2 * math.pi / max(self.grid.box)
            highest = math.hypot(
                *(math.pi * n / x for n, x in zip(self.grid.shape, self.grid.box, strict=True))
            )
            if lowest**2 <= SINGLE[0] or highest**2 >= SINGLE[1]:
                cure = (
                    "single precision cannot hold; use precision: double, or another unit of length"
                )
                raise wrong(
                    "grid.box",
                    f"has wavenumbers {lowest:.2g} to {highest:.2g}, whose squares {cure}",
                )
        return self

    @property
    def forcings(self) -> dict[str, tuple[str, Any]]:
        """The key (`forcing`, or `forcing.0` in a list) and the settings of each force, by name."""
        several = isinstance(self.forcing, tuple)
        keys = (f"forcing.{i}" if several else "forcing" for i in range(len(self._forces())))
        return {force_name(s): (k, s) for k, s in zip(keys, self._forces(), strict=True)}

    def _forces(self) -> tuple[Any, ...]:
        if self.forcing is None:
            return ()
        return self.forcing if isinstance(self.forcing, tuple) else (self.forcing,)

    def changed(self, **blocks: Mapping[str, Any]) -> Self:
        """The configuration with other values of some keys, which are not validated again:
        `config.changed(grid={"shape": (64, 64, 64)})`."""
        update = {
            name: getattr(self, name).model_copy(update=keys) for name, keys in blocks.items()
        }
        return self.model_copy(update=update)

    @property
    def places(self) -> Places:
        """The origins of the keys of this configuration."""
        return self._places

    def error(self, key: str, message: str) -> UserError:
        """The error for a mistake in `key` that a later check has found, with the key's origin:
        `run.yaml:9: devices.count: MESSAGE`."""
        return UserError(f"{self._places.of(path_of(key))}: {key}: {message}")

    @contextmanager
    def blaming(self, block: str) -> Iterator[None]:
        """Adds the origin to errors `KEY: MESSAGE` about the settings of a part; the key belongs to
        `block`, or to the top level if `block` is empty."""
        try:
            yield
        except UserError as error:
            key, _, message = str(error).partition(": ")
            raise self.error(f"{block}.{key}" if block else key, message) from error


def force_name(settings: Any) -> str:
    """The name of a force: that of its settings, else its kind."""
    return getattr(settings, "name", None) or settings.kind


def _block_or_list(block: Any) -> Any:
    """The type of one block or of a list of such blocks."""
    several: Any = tuple[block, ...]
    return Annotated[
        Annotated[block, Tag(BLOCK)] | Annotated[several, Tag(LIST)],
        Discriminator(lambda value: LIST if isinstance(value, list | tuple) else BLOCK),
    ]


def _choice(parts: Iterable[Any], words: Container[str] | None) -> Any:
    """The type of a block that describes one of the parts."""
    classes = tuple(_with_parts(part.Settings, words) for part in parts)
    return Annotated[Union[classes], Field(discriminator="kind")]  # noqa: UP007 - from a list


def _with_parts(settings: type[Settings], words: Container[str] | None) -> type[Settings]:
    """The class with the settings of parts in the place of `Any` in the keys that `PartsOf`
    marks."""
    keys = {
        name: (_inserted(key.annotation, _choice(mark.among(words), words)), copy(key))
        for name, key in settings.model_fields.items()
        for mark in key.metadata
        if isinstance(mark, PartsOf)
    }
    if not keys:
        return settings
    fields = cast(Any, keys)
    return create_model(settings.__name__, __base__=settings, __doc__=settings.__doc__, **fields)


def _inserted(annotation: Any, choice: Any) -> Any:
    arguments = (choice if each is Any else each for each in get_args(annotation))
    return get_origin(annotation)[*arguments]


class _Fitting:
    """Validates the keys outside of its block that a model restricts: the integrator (one of
    `integrators`, else any integrator that matches `split`) and the dealiasing (one of `dealias`);
    the first possible value is the default. Integrator and dealiasing together limit `time.cfl` and
    its default."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries
        self._integrators = registries.integrators

    def validators(self) -> dict[str, Any]:
        def defaults(cls: type[RunConfig], data: object) -> object:
            return self._with_defaults(data) if isinstance(data, dict) else data

        def check(config: RunConfig) -> RunConfig:
            return self._check(config)

        return {
            "fitting_defaults": cast(Any, model_validator(mode="before"))(classmethod(defaults)),
            "fitting_check": cast(Any, model_validator(mode="after")(check)),
        }

    def _solvers(self, model: "type[Equation]") -> Sequence[str]:
        return (
            list(self._integrators) if model.numerics.open else _solvers(model, self._integrators)
        )

    def _with_defaults(self, data: dict[str, Any]) -> dict[str, Any]:
        model = data.get("model")
        kind = str(model.get("kind")) if isinstance(model, dict) else ""
        wanted: dict[str, dict[str, Any]] = {}
        if (part := self._registries.models.get(kind)) is not None:
            if (background := _background(part)) is not None:
                data = background.in_time(data)
            wanted |= (
                {"time": {"integrator": self._solvers(part)[0]}} if part.numerics.split else {}
            )
            wanted |= (
                {"grid": {"dealias": part.numerics.dealias[0]}} if part.numerics.dealias else {}
            )
        for block, values in wanted.items():
            current = data.get(block, {})
            if isinstance(current, dict):
                data = {**data, block: {**values, **current}}
        return self._with_cfl(data)

    def _with_cfl(self, data: dict[str, Any]) -> dict[str, Any]:
        """`data` with the default of `time.cfl` lowered to the limit of integrator and
        dealiasing."""
        time = data.get("time")
        grid = data.get("grid", {})
        if not isinstance(time, dict) or not isinstance(grid, dict):
            return data
        if any(time.get(key) is not None for key in EXCLUSIVE):
            return data
        integrator = time.get("integrator", TimeSettings.model_fields["integrator"].default)
        dealias = grid.get("dealias", GridSettings.model_fields["dealias"].default)
        limit = largest_cfl(self._integrators, str(integrator), str(dealias)) or USUAL_CFL
        return data if limit >= USUAL_CFL else {**data, "time": {**time, "cfl": limit}}

    def _check(self, config: RunConfig) -> RunConfig:
        kind = config.model.kind
        model = self._registries.models[kind]
        misfit = _misfit(config, kind, model, self._solvers(model), self._integrators)
        if misfit is None and (background := _background(model)) is not None:
            # Blocks that were validated before may have classes of other parts.
            misfit = background.misfit(config.model_dump(warnings=False))
        if misfit:
            raise wrong(*misfit)
        return config


def _background(model: "Equation | type[Equation]") -> "type[ExpansionSettings] | None":
    """The settings of the expanding background that a model may have."""
    key = model.Settings.model_fields.get("cosmology")
    return get_args(key.annotation)[0] if key else None


def _solvers(model: "Equation | type[Equation]", integrators: Mapping[str, Any]) -> Sequence[str]:
    """The integrators that solve `model`, the default first."""
    split = model.numerics.split
    fitting = [n for n, c in integrators.items() if c.split == split and not c.growing]
    return model.numerics.integrators or fitting


def largest_cfl(integrators: Mapping[str, Any], integrator: str, dealias: str) -> float | None:
    """The largest CFL number of steps of the integrator with this dealiasing; None if they do not
    work together."""
    return getattr(integrators.get(integrator), "max_cfl", {}).get(dealias)


def _misfit(
    config: RunConfig,
    name: str,
    model: "Equation | type[Equation]",
    known: Sequence[str],
    integrators: Mapping[str, Any],
) -> tuple[str, str] | None:
    """The key whose value does not fit the model `name`, and the message; None if all keys fit. The
    integrators `known` solve the model."""
    integrator = config.time.integrator
    dealias = config.grid.dealias
    cfl = config.time.cfl
    if integrator not in known:
        return "time.integrator", f"{integrator} does not solve {name}; {' or '.join(known)} do"
    if config.time.error is not None and not integrators[integrator].embedded:
        able = [n for n in known if n in integrators and integrators[n].embedded]
        cure = f"{' or '.join(able)} do" if able else "give time.cfl, time.dt or time.steps"
        return "time.error", f"{integrator} does not estimate the error of its steps; {cure}"
    if config.time.error is not None and dealias == "phase_shift":
        problem = "moves the grid from stage to stage, which hides the error of a step"
        return "grid.dealias", f"phase_shift {problem}; take spherical, or time.cfl"
    if config.time.error is not None and config.fft.exchange != "full":
        problem = "rounds the stages from which the error of a step is read"
        return "fft.exchange", f"{config.fft.exchange} {problem}; full, or time.cfl"
    if line := integrators[integrator].misfit(config.model):
        return "time.integrator", f"{integrator} {line}"
    if config.time.steps is not None and getattr(config.model, "cosmology", None) is None:
        return "time.steps", "needs an expanding box, model.background; give time.dt"
    if config.forcings and model.numerics.split:
        return "forcing", f"{name} cannot be forced; leave the key out"
    if config.terms and model.numerics.split:
        return "terms", f"{name} takes no terms; leave the key out"
    allowed = model.numerics.dealias
    if allowed and dealias not in allowed:
        return "grid.dealias", f"{name} takes {' or '.join(allowed)} only, not {dealias}"
    limit = largest_cfl(integrators, integrator, dealias)
    if limit is None:
        loaded = (n for n in known if n in integrators)
        others = " or ".join(n for n in loaded if largest_cfl(integrators, n, dealias))
        takes = " or ".join(integrators[integrator].max_cfl)
        return (
            "grid.dealias",
            f"{dealias} works with time.integrator: {others} only; {integrator} takes {takes}",
        )
    if isinstance(cfl, int | float) and cfl > limit:  # a traced number has no value
        most = f"{limit:g} with {integrator} and grid.dealias: {dealias}"
        return "time.cfl", f"must be at most {most}, not {cfl:g}"
    return None


def check_fitting(config: RunConfig, model: "Equation") -> None:
    """Raises UserError if integrator, forcing or dealiasing do not fit the model of a user's file,
    which was not known when the configuration was read."""
    integrators = registered().integrators
    known = _solvers(model, integrators)
    if misfit := _misfit(config, type(model).__name__, model, known, integrators):
        raise config.error(*misfit)


def assemble(
    registries: Registries,
    kinds: Mapping[str, OutputKind] = OUTPUTS,
    words: Container[str] | None = None,
) -> type[RunConfig]:
    """The RunConfig whose `model`, `initial`, `forcing`, `terms` and `time` accept the parts in the
    registries, and `output` the `kinds` of output; with the blocks of plugins among `words`, or with
    all."""

    def choice(parts: Mapping[str, Any]) -> Any:
        return _choice(parts.values(), words)

    particles: Any = tuple[cast(Any, (choice(registries.particles), ...))]
    terms: Any = tuple[cast(Any, (choice(registries.terms), ...))]
    integrator = (
        Literal[tuple(registries.integrators)],
        copy(TimeSettings.model_fields["integrator"]),
    )
    time = create_model(
        "TimeSettings",
        __base__=TimeSettings,
        __doc__=TimeSettings.__doc__,
        integrator=cast(Any, integrator),
    )

    return create_model(
        "RunConfig",
        __base__=with_blocks(RunConfig, "run", words),
        __doc__=RunConfig.__doc__,
        __validators__=_Fitting(registries).validators(),
        model=(choice(registries.models), ...),
        initial=(choice(registries.initials), ...),
        forcing=(cast(Any, _block_or_list(choice(registries.forcings)) | None), None),
        terms=(terms, ()),
        particles=(particles, ()),
        time=(time, ...),
        output=(with_kinds(kinds), ...),
    )


def run_config_class(words: Iterable[str] | None = None) -> type[RunConfig]:
    """The RunConfig of all parts that are registered in this program; with `words`, without the
    parts of packages, and the initial conditions, whose names are not among the words: they are
    not even imported."""
    initials = registered().initials
    assert isinstance(initials, Registry)
    names = {*initials.names, *declared_names()}
    return _of_all_parts() if words is None else _of_named_parts(frozenset(names & {*words}))


@cache
def _of_all_parts() -> type[RunConfig]:
    return assemble(registered())


@cache
def _of_named_parts(words: frozenset[str]) -> type[RunConfig]:
    parts = registered()
    starts = {name: parts.initials[name] for name in sorted(words) if name in parts.initials}

    def named(part: Any) -> Any:
        if part is parts.initials and starts:
            return starts
        return part.among(words) if isinstance(part, Registry) else part

    return assemble(Registries(*map(named, parts)), OUTPUTS.among(words), words)
