"""The contract of an equation, and the state that it evolves."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from simulator.physics.models.cosmology import Background
from simulator.physics.models.fields import DerivedField, Fields, FieldSpec
from simulator.physics.models.memory import StateMemory
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.population import Populations
from simulator.physics.stepping.integrator import Integrator
from simulator.settings import Settings
from simulator.spectral import Evaluated, Local, Points, Transform, arrays
from simulator.spectral.bins import shell_spectra
from simulator.spectral.operators import project, squared
from simulator.spectral.transform import Tree

Force = Callable[
    [Fields, jax.Array], Fields
]  # (fields, time) to accelerations, by name of the accelerated field.


class Balance(NamedTuple):
    """An energy and its sources without forcing: d energy / dt = production - dissipation."""

    energy: arrays.Number
    production: arrays.Number | float
    dissipation: arrays.Number


class Dynamics:
    """The equation du/dt = L u + N(u, t), as integrators and the loop over steps use it.

    N = combine(pointwise(inputs(u))): the transform brings `inputs` to physical space, block by
    block, applies `pointwise`, and transforms the products back. L is diagonal and is integrated
    exactly."""

    split: ClassVar[bool] = (
        False  # Whether the equation is solved by split steps, as a `SplitModel`.
    )
    guarded: ClassVar[bool] = (
        False  # Whether the rate is NaN, and fields stay, if `trouble` allows no step.
    )

    def __init__(self, settings: Any, transform: Transform, fields: Sequence[FieldSpec]):
        """`fields` are the evolved ones."""
        self.settings, self.transform = settings, transform
        self.fields: Mapping[str, FieldSpec] = {spec.name: spec for spec in fields}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Leading shape of each evolved field: (d,) for a vector in d dimensions, () for a
        scalar."""
        return {name: spec.shape for name, spec in self.fields.items()}

    def transform_of(self, name: str) -> Transform:
        """The transform of an evolved field. All transforms of a model share one arrangement of
        points."""
        return self.fields[name].transform or self.transform

    @property
    def varied_arrays(self) -> Mapping[str, Tree]:
        """Trees of arrays by which a run can be differentiated, by their keys in the
        configuration."""
        return {}

    def inputs(self, fields: Fields) -> Tree:
        """Spectral fields whose values `pointwise` needs."""
        return fields

    def pointwise(self, values: Tree, points: Points, parameters: Tree) -> Local:
        """Products of values at a point. `maxima["rate"]`: the rate sum_i |v_i| / dx_i (1/time)
        that limits dt, if any."""
        raise TypeError(f"{type(self).__name__} does not define pointwise")

    def parameters(self, time: arrays.Number) -> Tree:
        """Number arguments of `pointwise`."""
        return ()

    def combine(self, products: Tree, fields: Fields) -> Fields:
        """N of all fields from the coefficients of the products."""
        raise TypeError(f"{type(self).__name__} does not define combine")

    def linear(self) -> dict[str, arrays.OverModes]:
        """The diagonal L of each field (1/time), real or complex, of either sign; it broadcasts
        against the field.

        Fields without an entry have none. For a real field L(-k) has to be the conjugate of L(k).
        If L or N lets modes grow, the tendency has to be Hermitian on the plane kz = 0
        (`operators.hermitian`)."""
        return {}

    def linear_terms(self) -> dict[str, arrays.OverModes]:
        """L of every evolved field; zero for fields without an entry in `linear`."""
        stated, zero = self.linear(), jnp.zeros((1, 1, 1), self.transform.dtype)
        return {name: stated.get(name, zero) for name in self.fields}

    def rate(self, maxima: Mapping[str, arrays.Number]) -> arrays.Number:
        """The largest rate (1/time) that an explicit step has to resolve: dt = cfl / rate. 0 means
        no limit."""
        return maxima.get("rate", jnp.zeros((), self.transform.dtype))

    def tendency(
        self,
        fields: Fields,
        time: arrays.Number,
        accelerations: Fields | None = None,
        keep: Collection[str] = (),
    ) -> tuple[Fields, Evaluated]:
        """N plus the accelerations of a forcing; and the result of `Transform.evaluate`, with the
        maxima of `pointwise` and the values of the inputs in `keep`."""
        inputs = self.inputs(fields)
        kept = tuple(name for name in keep if name in inputs)
        evaluated = self.transform.evaluate(inputs, self.pointwise, self.parameters(time), kept)
        rates = self.combine(evaluated.products, fields)
        rates |= {name: rates[name] + a for name, a in (accelerations or {}).items()}
        return rates, evaluated

    def fastest(self, fields: Fields, time: arrays.Number) -> arrays.Number:
        """The `rate` (1/time) of these fields."""
        return self.rate(self.tendency(fields, time)[1].maxima)

    def longest_step(self) -> float | None:
        """The largest dt that resolves the growth of the linear term; None if no mode grows."""
        return None

    def memory(self, fields: Fields, time: arrays.Number) -> dict[str, jax.Array]:
        """The first values of the small arrays that the model carries from step to step."""
        return {}

    def contents(self, state: "State") -> Any:
        """The argument `fields` of the model's methods: the fields of a state, and what else steps
        change."""
        return state.fields


class Observables(Dynamics):
    """The quantities of a model that output, diagnostics and pictures use."""

    budget: Literal["none", "step", "row"] = "none"
    """When the energy budget (`balance`, `work`) is evaluated: in every step, which needs a budget
    of spectral fields only, or, if it is expensive, only for rows of output."""

    def derived(self) -> Mapping[str, DerivedField]:
        """Fields besides the evolved ones that output may request."""
        return {}

    def specs(self) -> dict[str, FieldSpec]:
        """All fields that output may request, evolved and derived."""
        return {**self.fields, **{name: field.spec for name, field in self.derived().items()}}

    def spec(self, name: str) -> FieldSpec:
        """The specification of a field, evolved or derived. Raises KeyError, which lists them, for
        others."""
        specs = self.specs()
        if name not in specs:
            raise KeyError(
                f"{name!r} is not a field of this model; its fields are {', '.join(specs)}"
            )
        return specs[name]

    @property
    def scalar_fields(self) -> tuple[str, ...]:
        """The evolved and derived fields with one real value at each point."""
        return tuple(n for n, spec in self.specs().items() if not (spec.components or spec.complex))

    def field_values(self, name: str, fields: Any) -> jax.Array:
        """The values of one field, evolved or derived, (component, x, y, z) or, in two dimensions,
        (component, x, y), zero in padding. Raises KeyError, which lists the fields, for another
        name."""
        self.spec(name)
        return self.transform.physical.as_seen(self.whole_values(name, fields))

    def whole_values(self, name: str, fields: Any) -> arrays.PhysicalField:
        """The values of one field, evolved or derived, with three axes in two dimensions, too; zero
        in padding."""
        if name in self.fields:
            return self.transform_of(name).inverse(fields[name])
        return self.derived()[name].values(fields)

    def units_of(self, spec: FieldSpec) -> str:
        """The units of a field in words: by default their dimension in the run's own units."""
        return spec.units

    @property
    def stored(self) -> tuple[str, ...]:
        """The fields that snapshots hold unless a run names others."""
        return tuple(self.fields)

    @property
    def pictured(self) -> tuple[str, ...]:
        """The scalars whose mid-planes are stored by default."""
        scalars = self.scalar_fields
        vorticity = (
            "vorticity" if "vorticity" in scalars else "vorticity_magnitude"
        )  # a scalar in a plane
        return tuple(name for name in ("speed", vorticity, "density") if name in scalars)

    @property
    def density_transform(self) -> Transform:
        """The transform of real fields with all modes of the model."""
        return self.transform

    def velocity(self, fields: Fields) -> arrays.SpectralVector:
        """The velocity (length/time)."""
        return fields["velocity"]

    def particle_acceleration(
        self, fields: Any, time: arrays.Number
    ) -> Callable[[str, ParticleSet], arrays.ParticleVectors]:
        """The function from the name of a population and its particles to their acceleration
        (length/time^2)."""
        raise TypeError(f"{type(self).__name__} does not define particle_acceleration")

    def trouble(self, fields: Fields) -> tuple[str, str] | None:
        """The reason why no step can be taken from finite fields, and a remedy; None if a step can
        be taken."""
        return None

    def balance(self, fields: Fields) -> Balance:
        """The energy budget, for models whose `budget` is not "none"."""
        raise TypeError(f"{type(self).__name__} states no energy budget")

    def work(self, fields: Fields, forces: Fields) -> arrays.Number:
        """The energy per time that the accelerations of a force add."""
        raise TypeError(f"{type(self).__name__} states no energy budget")

    def diagnostics(self, fields: Fields, time: arrays.Number) -> dict[str, arrays.Number]:
        """Scalars of `diagnostics.csv` by column, and `rate`; by default the mean and variance of
        every field."""
        columns: dict[str, jax.Array] = {}
        for name, spec in self.fields.items():
            layout = self.transform_of(name).layout
            mean, square = layout.at_zero(fields[name]), layout.inner(fields[name], fields[name])
            if not spec.components:
                columns[f"{name}_mean"] = mean.real
                columns[f"{name}_variance"] = square - abs(mean) ** 2
                continue
            for i, component in enumerate(spec.components):
                columns[f"{name}_{component}_mean"] = mean[i].real
                columns[f"{name}_{component}_variance"] = square[i] - abs(mean[i]) ** 2
        return columns | {"rate": self.fastest(fields, time)}

    def with_balance(
        self, fields: Fields, time: arrays.Number, accelerations: Fields | None
    ) -> tuple[dict[str, arrays.Number], arrays.Number, Balance]:
        """For models whose `budget` is "row" the `diagnostics`; dE/dt of the equations on this
        grid, with the accelerations of a forcing; and the `balance`."""
        rates, linear = self.tendency(fields, time, accelerations)[0], self.linear_terms()
        rates = {n: rate + linear[n] * fields[n] for n, rate in rates.items()}

        def energy(f: Fields) -> tuple[jax.Array, Balance]:
            return (balance := self.balance(f)).energy, balance

        _, change, balance = jax.jvp(energy, (fields,), (rates,), has_aux=True)
        return self.diagnostics(fields, time), change, balance

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        """Lines about the run's resolution, from a row of diagnostics."""
        return []

    def spectral_energies(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """The energy of each mode, by name; by default half the square of every field."""
        return {
            name: 0.5 * (squared(f) if f.ndim > 3 else f.real**2 + f.imag**2)
            for name, f in fields.items()
        }

    def spectra(self, fields: Fields) -> dict[str, arrays.Spectrum]:
        """Shell spectra by name."""
        return shell_spectra(self.transform.layout, self.spectral_energies(fields))

    def cospectra(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """Other quadratic quantities of each mode, by name: fluxes, helicities, parts of the
        energy."""
        return {}

    @property
    def spectra_attributes(self) -> Mapping[str, str]:
        """Remarks on the spectra, by name: attributes of their file."""
        return {}

    def transfers(self, fields: Fields) -> dict[str, arrays.OfModes]:
        """The rate at which the nonlinear terms add energy to each mode, by name; empty if the
        model defines none."""
        return {}


class Model(Observables):
    """An equation that a configuration can name: its `Dynamics`, its `Observables`, and here how a
    run makes, starts and forces it.

    A subclass defines `Settings`, `pointwise` and `combine`, and passes its fields to
    `__init__`."""

    Settings: ClassVar[type[Settings]]
    integrators: ClassVar[
        tuple[str, ...]
    ] = ()  # Those that solve it, the default first; empty: all of its kind.
    dealias: ClassVar[
        tuple[str, ...]
    ] = ()  # The allowed values of `grid.dealias`, the default first; empty: all.
    planar: ClassVar[bool] = False  # Whether the equation can also be solved in two dimensions.
    open: ClassVar[bool] = (
        False  # Whether a user's file defines the model, against which other keys are checked.
    )
    unforced: str | None = None  # The reason why the model cannot be forced; None if it can.
    background: Background | None = None  # The expanding background; None: a static box.
    parts: Mapping[str, Any] = {}  # The components of a composite, by name.

    @classmethod
    def misfit(cls, settings: Any, integrator: type[Integrator]) -> str | None:
        """The reason why an integrator cannot solve the model with these settings; None if it
        can."""
        return None

    @classmethod
    def create(cls, settings: Any, make: Callable[..., Transform], files: Any) -> "Model":
        """The model of a run. `make(real=True, every=False)` makes a transform of the run; `files`
        opens files."""
        return cls(settings, make())  # type: ignore[call-arg] - subclasses know their fields

    def settle(self) -> None:
        """Computes on the devices what depends only on settings; called once on every process, at
        the start."""

    @property
    def solenoidal(self) -> tuple[str, ...]:
        """Names of the fields that are kept free of divergence."""
        return tuple(name for name, spec in self.fields.items() if spec.solenoidal)

    def solenoidal_part(self, field: arrays.SpectralVector) -> arrays.SpectralVector:
        """The part of a vector field without divergence."""
        return project(self.transform.layout, field)

    @property
    def initial_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The fields of an initial condition, with their leading shapes."""
        return self.shapes

    def begin(self, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
        """The evolved fields, and the particles of a composite, from those of an initial condition.
        Fields that are not in `names` were not set, and are zero."""
        return fields

    @property
    def accelerated(self) -> Mapping[str, tuple[int, ...]]:
        """The fields that a forcing accelerates, with their leading shapes."""
        return self.shapes

    @property
    def populations(self) -> Populations:
        """The particles that are matter of the model itself."""
        return {}

    def jeans_frequency_squared(self, k2: float, density: float) -> float | None:
        """omega^2 (1/time^2) of a small density wave in homogeneous matter at rest; None if there
        is no such wave."""
        return None


class SplitModel(Model):
    """An equation du/dt = T u + V(u) u whose two parts are solved exactly, one after the other.

    T is diagonal in spectral space. V is pointwise in physical space and constant during a kick."""

    split: ClassVar[bool] = True

    @property
    def joins_kicks(self) -> bool:
        """Whether the kick that ends a step and the kick that begins the next share one evaluation
        of V. Such a model defines `forces(fields, time)`, `kicked(fields, forces, time, duration)`
        with the result of `kick`, and `leapt(fields, forces, time, kick, drift)`: the fields to go
        back to, and those after a kick and a drift. Those of no duration change no bit."""
        return False

    def drift(self, fields: Fields, duration: arrays.Number) -> Fields:
        """exp(duration T) u."""
        raise TypeError(f"{type(self).__name__} does not define drift")

    def slowed(self, fields: Fields, factor: arrays.Number) -> Fields:
        """The fields with all velocities times `factor`, for integrators of linear growth."""
        raise TypeError(f"{type(self).__name__} does not define slowed")

    def kick(
        self, fields: Fields, time: arrays.Number, duration: arrays.Number
    ) -> tuple[Fields, arrays.Number]:
        """exp(duration V) u at `time`, and the rate (1/time, double) that limits dt: dt = cfl /
        rate.

        `memory` has to hold the first step's `rate`."""
        raise TypeError(f"{type(self).__name__} does not define kick")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything that influences the next step, and so the content of a checkpoint.

    With a fixed dt the time is origin + since * dt: it is not accumulated."""

    fields: Fields
    time: arrays.Number
    step: arrays.Whole
    dt: arrays.Number  # The size of the last step; 0 before the first.
    origin: arrays.Number
    since: arrays.Whole
    memory: StateMemory = field(default_factory=StateMemory)
    # Of multistep integrators: trees of fields.
    history: dict[str, Fields] = field(default_factory=dict)
    particles: dict[str, ParticleSet] = field(default_factory=dict)  # By name: matter, or tracers.
