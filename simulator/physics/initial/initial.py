"""The contract of an initial condition, and values on the grid as coefficients."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jax.core import Tracer

from simulator.errors import UserError
from simulator.physics.models import Equation, Fields
from simulator.physics.models.expansion import Expansion
from simulator.physics.particles import ParticleSet
from simulator.physics.particles.particle_start import ParticleFiles, StoredParticles
from simulator.physics.particles.population import Population
from simulator.physics.stored_values import ArrayFiles
from simulator.physics.user_function import Stored
from simulator.settings import Settings
from simulator.spectral import Transform


class StartFiles(ParticleFiles, ArrayFiles, Protocol):
    """Opens the files that an initial condition names."""

    def snapshot(self, path: str) -> Stored:
        """A snapshot or checkpoint of a run."""
        ...

    def foreign(self, particles: "ForeignParticles") -> StoredParticles:
        """Particles in the files of another program, as the run sees them: it keeps the checksums
        of the files, and reads no values if it is only checked."""
        ...

    def clock(self, path: str) -> tuple[float, Mapping[str, Any]]:
        """The time of a snapshot or checkpoint, and the configuration of its run."""
        ...


class ForeignParticles(StoredParticles, Protocol):
    """Particles in the `files` of another program."""

    @property
    def files(self) -> Sequence[Path]: ...


class ParticleMatter(Protocol):
    """Particles that are matter of a model."""

    population: Population
    transform: Transform
    units: str
    background: Expansion | None

    def arranged(
        self, density: float, motion: Callable[[jax.Array], Any] | None = None
    ) -> ParticleSet:
        """Particles of equal masses at undisturbed places, from which `motion(places)`, the
        displacements (length) and velocities (length/time), moves them."""
        ...


class Initial:
    """An initial condition."""

    Settings: ClassVar[type[Settings]]
    of_all: ClassVar[bool] = False  # Whether it starts all kinds of matter of a model.

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

    def outlook(self, model: Equation, stop: float, files: StartFiles) -> dict[str, bool]:
        """Lines about the resolution that a run from this start to the time `stop` needs, and
        whether the grid has it; from formulas alone, so that no device is needed."""
        return {}

    def place(self, matter: Any, files: StartFiles) -> ParticleSet:
        """The particles of a `ParticleMatter` with all records, each particle on the device that owns its
        place."""
        raise TypeError(f"{type(self).__name__} does not define place")


def start_of(initial: Initial, model: Equation, files: StartFiles) -> dict[str, Any]:
    """The evolved fields of a model, and the particles that are its matter, at the start: the model
    derives them from the fields of the initial condition; fields that the condition does not set
    are zero."""
    if not initial.of_all:
        model.variables.check_start(model, initial.settings.kind)
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
    """Coefficients of fields given as a function of the coordinates of the grid's axes
    (broadcastable, sharded arrays). Raises UserError if the grid keeps no mode of a field."""

    def at_points() -> Mapping[str, Any]:
        return values(*transform.physical.seen_coordinates(transform.dtype))

    return _transformed(transform, at_points)


def from_arrays(transform: Transform, values: Mapping[str, jax.Array]) -> Fields:
    """Coefficients of fields given by their values in the layout of the points. Raises UserError if
    the grid keeps no mode of a field."""
    physical = transform.physical
    return _transformed(
        transform, lambda arrays: {n: physical.as_seen(v) for n, v in arrays.items()}, values
    )


def _transformed(
    transform: Transform, values: Callable[..., Mapping[str, Any]], *arguments: Any
) -> Fields:
    """The values are computed and transformed in one compiled call, so no device ever holds a whole
    field."""
    layout = transform.layout

    @jax.jit
    def build(*arguments: Any) -> tuple[Fields, dict[str, jax.Array]]:
        fields = values(*arguments)
        arrays = {n: v if hasattr(v, "ndim") else jnp.stack(list(v)) for n, v in fields.items()}
        fields = coefficients(transform, arrays)
        squares = {n: transform.physical.from_seen(abs(v) ** 2) for n, v in arrays.items()}
        given = {n: transform.physical.mean(v).sum() for n, v in squares.items()}
        kept = {n: layout.inner(f, f).sum() for n, f in fields.items()}
        noise = jnp.finfo(transform.dtype).eps ** 2 * 1e4
        empty = {n: (given[n] > 0) & (kept[n] <= noise * given[n]) for n in fields}
        return fields, {n: layout.replicated(flag) for n, flag in empty.items()}

    fields, lost = build(*arguments)
    for name, empty in lost.items():
        if not isinstance(empty, Tracer) and empty:
            raise UserError(f"{name}: this grid keeps none of its modes; take a finer one")
    return fields


def coefficients(transform: Transform, values: Mapping[str, jax.Array]) -> Fields:
    """Coefficients of fields given by their values (..., x, y, z), or (..., x, y), with padding."""
    physical = transform.physical
    seen = {n: jnp.where(physical.inside(), physical.from_seen(v), 0) for n, v in values.items()}
    placed = {n: physical.constrain(v) for n, v in seen.items()}
    return {n: transform.layout.constrain(transform.forward(v)) for n, v in placed.items()}


def check_dimensions(transform: Transform, kind: str, least: int = 3) -> None:
    """Refuses a grid with fewer than `least` dimensions."""
    dimensions = transform.grid.dimensions
    if dimensions < least:
        has = ("one", "two")[dimensions - 1]
        needed = "three" if least == 3 else "two or three"
        raise UserError(f"kind: {kind} is made for {needed} dimensions; grid.shape has {has}")


def only(name: str, model: Equation, kind: str) -> None:
    """Refuses a model that has no field `name`."""
    wanted = model.initial_shapes
    if name not in wanted:
        raise UserError(
            f"{kind} gives {name}, which this model does not have; its fields are {', '.join(wanted)}"
        )
