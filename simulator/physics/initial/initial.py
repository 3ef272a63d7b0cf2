"""The contract of an initial condition, values on the grid as coefficients, and the start of a
composite."""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol, Union, cast

import jax
import jax.numpy as jnp
from pydantic import Field, create_model

from simulator.errors import UserError, prefixed
from simulator.physics.models import Equation, Fields
from simulator.physics.models.component import PARTICLES
from simulator.physics.models.composite import Composite, joined
from simulator.physics.models.particle_component import ParticleComponent
from simulator.physics.particles import ParticleSet
from simulator.physics.particles.particle_start import ParticleFiles, StoredParticles
from simulator.physics.user_function import Stored
from simulator.settings import Settings
from simulator.spectral import Transform


class StartFiles(ParticleFiles, Protocol):
    """Opens the files that an initial condition names."""

    def snapshot(self, path: str) -> Stored:
        """A snapshot or checkpoint of a run."""
        ...

    def gadget(self, path: str, kind: int, numbered: bool) -> "StoredGadget":
        """The particles of a type in GADGET's HDF5 files; `numbered`: with their places in the
        files as ids."""
        ...

    def clock(self, path: str) -> tuple[float, Mapping[str, Any]]:
        """The time of a snapshot or checkpoint, and the configuration of its run."""
        ...


class StoredGadget(StoredParticles, Protocol):
    """Particles in GADGET's files, in the files' units."""

    header: Mapping[str, float]  # Numbers of Header, Parameters and Units, by GADGET's names.


class Initial:
    """An initial condition."""

    Settings: ClassVar[type[Settings]]
    composite: ClassVar[bool] = False  # Whether it starts all components of a composite.

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def build(self, model: Equation, files: StartFiles) -> Fields:
        """Coefficients of fields by name, with the leading shapes of `model.initial_shapes`; missing
        ones start at zero."""
        raise TypeError(f"{type(self).__name__} does not define build")

    @property
    def keeps_time(self) -> bool:
        """Whether the start sets the run's time, see `start_time`."""
        return False

    def start_time(self, model: Equation, files: StartFiles) -> float:
        """The simulation time of the start."""
        return 0.0

    def place(self, matter: ParticleComponent, files: StartFiles) -> ParticleSet:
        """The particles of a component with all records, each particle on the device that owns its
        place."""
        kinds = (
            "uniform, jeans_wave, zeldovich_wave, cosmological, gadget, music, python or snapshot"
        )
        raise UserError(f"kind: {self.settings.kind} gives fields; particles begin from {kinds}")


def start_of(initial: Initial, model: Equation, files: StartFiles) -> dict[str, Any]:
    """The evolved fields of a model, and the particles of a composite, at the start: the model
    derives them from the fields of the initial condition; fields that the condition does not set
    are zero."""
    if model.parts and not initial.composite:
        example = f"initial: {{kind: composite, components: {{{next(iter(model.parts))}: ..."
        kind = initial.settings.kind
        raise UserError(
            f"kind: {kind} gives one kind of matter; for a composite it belongs into {example}"
        )
    return completed(model, initial.build(model, files))


def completed(model: Equation, start: Mapping[str, Any]) -> dict[str, Any]:
    """The evolved fields of a model from those that an initial condition sets; the others are
    zero."""
    transform = model.transform
    fields = dict(start)
    layout = transform.layout

    def zeros() -> Fields:
        missing = {n: lead for n, lead in model.initial_shapes.items() if n not in start}
        return {
            n: layout.constrain(jnp.zeros((*lead, *layout.shape), transform.complex_dtype))
            for n, lead in missing.items()
        }

    if not model.fields.keys() <= start.keys():
        fields |= jax.jit(zeros)()
    return model.variables.evolved(model, fields, start.keys())


def from_values(transform: Transform, values: Callable[..., Mapping[str, Any]]) -> Fields:
    """Coefficients of fields given as a function of the coordinates x, y, z, or x, y in a
    two-dimensional box (broadcastable, sharded arrays).

    The values are computed and transformed in one compiled call, so no device ever holds a whole
    field."""

    @jax.jit
    def build() -> Fields:
        grid = transform.grid
        points = transform.physical.coordinates(transform.dtype)
        fields = values(*([x[0] for x in grid.seen(points)] if grid.planar else points))
        arrays = {n: v if hasattr(v, "ndim") else jnp.stack(list(v)) for n, v in fields.items()}
        return coefficients(transform, arrays)

    return build()


def coefficients(transform: Transform, values: Mapping[str, jax.Array]) -> Fields:
    """Coefficients of fields given by their values (..., x, y, z), or (..., x, y), with padding."""
    physical = transform.physical
    seen = {n: jnp.where(physical.inside(), physical.from_seen(v), 0) for n, v in values.items()}
    placed = {n: physical.constrain(v) for n, v in seen.items()}
    return {n: transform.layout.constrain(transform.forward(v)) for n, v in placed.items()}


def three_dimensional(transform: Transform, kind: str) -> None:
    """Refuses a plane."""
    if transform.grid.planar:
        raise UserError(f"kind: {kind} is made for three dimensions; grid.shape has two")


def only(name: str, model: Equation, kind: str) -> None:
    """Refuses a model that has no field `name`."""
    wanted = model.initial_shapes
    if name not in wanted:
        raise UserError(
            f"{kind} gives {name}, which this model does not have; its fields are {', '.join(wanted)}"
        )


def check_components(model: Composite, starts: Collection[str]) -> None:
    """Refuses components without an initial condition, and initial conditions without a
    component."""
    for name in (*model.parts, *starts):
        if name not in model.parts:
            raise UserError(
                f"components.{name}: the model's components are {', '.join(model.parts)}"
            )
        if name not in starts:
            raise UserError(
                f"components.{name}: missing; every component needs an initial condition"
            )


def composite(parts: Mapping[str, type[Any]]) -> type[Any]:
    """The initial condition whose components start from any of `parts`."""
    part_settings: Any = Annotated[
        Union[tuple(p.Settings for p in parts.values())],  # noqa: UP007
        Field(discriminator="kind"),
    ]

    class CompositeStart(Initial):
        """Each component starts as its own model alone would, under the composite's gravity.

        A soliton's mass, radius and relaxation refer to its own matter only."""

        composite = True
        described = "The initial condition of each component, by the component's name."
        Settings = create_model(
            "CompositeInitialSettings",
            __base__=Settings,
            kind=(Literal["composite"], "composite"),
            components=(cast(Any, dict[str, part_settings]), Field(description=described)),
        )

        def start_time(self, model: Equation, files: StartFiles) -> float:
            for name, settings in self.settings.components.items():
                if parts[settings.kind](settings).keeps_time:
                    raise UserError(
                        f"components.{name}.time: keep: only initial.kind: snapshot sets the clock"
                    )
            return 0.0

        def build(self, model: Equation, files: StartFiles) -> dict[str, Any]:
            if not isinstance(model, Composite):
                raise UserError("kind: composite needs model.kind: composite")
            starts = self.settings.components
            check_components(model, starts)
            fields = {}
            undecided = None
            for name, part in model.parts.items():
                settings = starts[name]
                initial = parts[settings.kind](settings)
                try:
                    with prefixed(f"components.{name}", ": "):
                        if part.population is None:
                            fields[name] = start_of(initial, part.alone, files)
                        else:
                            fields[name] = {PARTICLES: initial.place(part, files)}
                except jax.errors.JAXTypeError as error:
                    # A run that is only checked has no values to decide by; the other components
                    # are checked too.
                    undecided = error
            if undecided is not None:
                raise undecided
            return joined(fields)

    return CompositeStart
