"""The contract of a kind of output: one file defines its settings, its measurement, its storage and its pictures."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simulator.measure.cadence import SeriesCadence

if TYPE_CHECKING:
    import jax

    from simulator.diagnostics.measured import Measured
    from simulator.initial import Files
    from simulator.models import Fields, Model, State
    from simulator.particles import ParticleSet
    from simulator.particles.population import Populations
    from simulator.particles.swarm import Swarm
    from simulator.spectral import Transform


class Unsupported(Exception):
    """The run's model or settings do not allow this kind of output. `key` is relative to the kind's block."""

    def __init__(self, message: str, key: str = "", *, of_model: bool = True):
        """`of_model`: without a key the message ends with "which MODEL does not have"."""
        super().__init__(message)
        self.key, self.of_model = key, of_model


@dataclass(frozen=True)
class ParticleSubject:
    """The particles of a run: those that move with a fluid, and those that are matter."""

    populations: "Populations"
    """All of them, by name."""
    swarm: "Swarm"
    """Those that move with a fluid."""
    motion: "Callable[[State], Callable[[str, ParticleSet], tuple[jax.Array, jax.Array]]]"
    """A state to the function from a name and its particles to their velocity and acceleration, (3, entries) both."""
    sampled: "Callable[[State, str, tuple[str, ...]], dict[str, jax.Array]]"
    """(state, species, quantities) to records `fluid_velocity` and so on, for particles that move with a fluid."""
    quantities: tuple[str, ...]
    """The quantities that can be sampled at these."""

    def species(self, asked: tuple[str, ...] | None) -> tuple[str, ...]:
        """The names that a setting `particles` asks for; None stands for all. Refuses unknown ones."""
        self.check(asked or (), self.populations, "particles")
        return asked or tuple(self.populations)

    def check(self, names: tuple[str, ...], known: "Collection[str]", key: str) -> None:
        """Refuses names that are not in `known`."""
        for name in names:
            if name not in known:
                raise Unsupported(f"unknown {name!r}; known: {', '.join(known)}", key)


@dataclass(frozen=True)
class Subject:
    """The subject of a measurement: a model on its transform, `template` with the shapes and types of its state, and
    `files`, which opens the files of the configuration."""

    model: "Model"
    transform: "Transform"
    template: "State"
    files: "Files"
    carried: ParticleSubject | None = None
    """The particles; None without particles."""

    @property
    def particles(self) -> ParticleSubject:
        """The particles. Raises Unsupported if there are none."""
        if self.carried is None:
            raise Unsupported(
                "there are no particles; the block `particles` names some",
                of_model=False,
            )
        return self.carried

    def names(self, function: "Callable[[Fields], Mapping[str, Any]]") -> tuple[str, ...]:
        """The names in the result of a function of the fields, without computing it."""
        import jax

        return tuple(jax.eval_shape(function, self.model.contents(self.template)))


@dataclass(frozen=True)
class Curves:
    """The drawing of one-dimensional variables of a series: one figure per variable with curves at up to six times.
    `title` labels a variable's axis (default: its name in words), `coordinates` a coordinate's axis; both may be
    mathematical text. `log` lists the logarithmic axes, of `x` and `y`."""

    title: Callable[[str], str] | None = None
    coordinates: Mapping[str, str] | None = None
    log: str = ""


class Kind:
    """One kind of series: a file RUN/NAME.h5 with a row of arrays for each time at which it is due.

    A kind is an instance in `simulator.measure.KINDS`, or a class or instance that an installed package declares
    as an entry point of `simulator.outputs`. Its module must not import JAX at the top, because configurations are
    read and pictures drawn without it; `measured` does the imports.
    """

    name: ClassVar[str]
    """The key `output.NAME`, and the file NAME.h5."""
    description: ClassVar[str]
    """One line for the reference of keys."""
    Settings: ClassVar[type[SeriesCadence]] = SeriesCadence
    default: ClassVar[SeriesCadence | None] = None
    """The settings of a run without the key; None: the series is written only if the key is given."""
    with_snapshots: ClassVar[bool] = False
    """Whether every snapshot adds a row, even without the key."""
    frequent: ClassVar[bool] = False
    """Rows are small and many: they wait in memory and are written together, every other second or so and before
    each checkpoint."""
    curves: ClassVar[Curves] = Curves()
    """The drawing of variables without registered pictures."""

    @property
    def annotation(self) -> Any:
        """The type of the key `output.NAME`."""
        return self.Settings

    def series(self, settings: Any) -> Mapping[str, Any]:
        """The series for a value of `output.NAME`: settings by file name without its ending."""
        return {} if settings is None else {self.name: settings}

    def measured(self, subject: Subject, settings: Any) -> "Measured":
        """The content of a row and its computation. `settings` is None if only snapshots add rows.

        Raises Unsupported if the model does not have the quantities."""
        raise NotImplementedError

    def pictures(self, series: Any, labels: Any) -> "Iterator[tuple[str, Callable[[], Any]]] | None":
        """Pictures of a `SeriesReader` that `curves` cannot describe, as (file name without its ending, function that
        builds a matplotlib Figure); None to use `curves`. For kinds of other packages, whose modules may import
        `simulator.show`."""
        return None
