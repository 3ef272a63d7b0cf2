"""Several kinds of matter that attract each other: one potential, and a separate step for each
kind."""

import math
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
from pydantic import Field, model_validator

from simulator.errors import UserError, prefixed
from simulator.physics.models.equation import Numerics
from simulator.physics.models.fields import MatterFields
from simulator.physics.models.outputs import diagnostics
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.models.variables import Variables
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.user_function import UserFiles
from simulator.plugins.gravity.component import PARTICLES, Component, Gravity, Potential
from simulator.plugins.gravity.cosmology import Background, CosmologySettings, check_units
from simulator.plugins.gravity.density import check_arrangement
from simulator.plugins.gravity.matter_observables import (
    EXPECTED,
    AllMatter,
    ExpandingMatter,
    continued,
    total,
)
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.plugins.gravity.units import UNITS, UnitsName, in_units
from simulator.registry import PartsOf, Registry, subclass_of
from simulator.settings import NonNegative, Settings, check_names_differ, wrong
from simulator.spectral import Transform
from simulator.spectral.arrays import (
    Number,
    ParticleVectors,
    PhysicalScalar,
    SpectralScalar,
)
from simulator.spectral.operators import Green, solve_poisson

COMPONENTS = Registry[type[Any]](
    "simulator.components", {PARTICLES: ParticleComponent}, subclass_of(Component)
)
_Result = TypeVar("_Result")


class CompositeSettings(Settings):
    kind: Literal["composite"] = "composite"
    components: Annotated[tuple[Any, ...], PartsOf(COMPONENTS), Field(max_length=10)]
    """The kinds of matter, each with the keys of its own model except those of gravity."""
    gravitational_constant: NonNegative = 1.0
    """G, length^3 / (mass time^2); 0 turns gravity off."""
    units: UnitsName = "dimensionless"
    """They set G. kpc_km_s_msun; or mpc_h_km_s_msun_h: lengths in Mpc / h, masses in Msun / h, and
    H0 is 100 then."""
    cosmology: CosmologySettings | None = None
    """An expanding background, in comoving lengths and supercomoving time. Gas has to be cold or
    have the exponent 5/3."""
    green: Green = "exact"
    """Poisson's equation with -k^2, or with the second-order difference formula."""

    @model_validator(mode="before")
    @classmethod
    def _gravity_in_units(cls, data: Any) -> Any:
        unit = UNITS.get(str(data.get("units"))) if isinstance(data, Mapping) else None
        return {"gravitational_constant": unit.gravity, **data} if unit else data

    @model_validator(mode="after")
    def _some_of_different_names(self) -> Self:
        check_units(self)
        if not self.components:
            raise wrong("components", "an empty list; a composite needs one component or more")
        check_names_differ("components", [component.name for component in self.components])
        return self


class Matter(NamedTuple):
    """All matter at one moment."""

    values: dict[str, PhysicalScalar]  # The density of every component on the grid.
    # Intermediate results of the densities that the components' kicks can use.
    works: dict[str, Any]
    modes: SpectralScalar  # The density that attracts.
    potential: Potential


class MatterVariables(Variables["Composite"]):
    def check_start(self, model: "Composite", kind: str) -> None:
        example = f"initial: {{kind: composite, components: {{{next(iter(model.parts))}: ..."
        raise UserError(
            f"kind: {kind} gives one kind of matter; for a composite it belongs into {example}"
        )

    def evolved(self, model: "Composite", fields: MatterFields, names: Collection[str]) -> Any:
        """The fields and particle sets of an initial condition, as they are: the linear terms of
        matter let no mode grow."""
        return fields


class Composite(SplitEquation):
    """lap Phi = 4 pi G (sum of all densities - mean), and each kind of matter moves in Phi.

    A step is split: in a kick the velocities change in the potential of all matter, which is solved
    once, while no density changes; in a drift every component moves by itself, with at least
    second-order accuracy. Both orders of drift and kick are second-order accurate and conserve the
    total momentum as exactly as the components conserve theirs. Fields and columns begin with the
    name of their component."""

    Settings = CompositeSettings
    settings: CompositeSettings
    # Integrators of second order: higher orders step back in time, which a viscous gas does not
    # allow.
    numerics = Numerics(
        ("kick_drift_kick", "drift_kick_drift", "bullfrog", "fastpm"),
        ("two_thirds",),
        decays=True,
        split=True,
        guarded=True,
    )
    dimensions = 3
    variables = MatterVariables()
    has = (AllMatter(), ExpandingMatter())

    def __init__(
        self, settings: CompositeSettings, parts: Mapping[str, Component], real: Transform
    ):
        """`real`: the transform of real fields with all their modes."""
        for part in parts.values():
            check_arrangement(part.transform, real, "the components")
        super().__init__(settings, real)
        self.fields = {}
        self._transforms: dict[str, Transform] = {}
        for name, part in parts.items():
            for field in part.fields:
                spec = field.of_component(name)
                self.fields[spec.name] = spec
                self._transforms[spec.name] = part.transform
        self.unit_system = settings.units
        self.parts: Mapping[str, Any] = parts
        particles = {name: part.population for name, part in parts.items()}
        self.populations = {
            n: population for n, population in particles.items() if population is not None
        }
        self.joins_kicks = len(self.populations) == len(parts)
        self.gravity = settings.gravitational_constant
        self.background: Background | None = (  # pyright: ignore[reportIncompatibleVariableOverride]
            Background(settings.cosmology, self.gravity) if settings.cosmology else None
        )

    @property
    def transforms(self) -> Mapping[str, Transform]:
        return self._transforms

    @classmethod
    def create(
        cls, settings: CompositeSettings, make: Callable[..., Transform], files: UserFiles
    ) -> Self:
        gravity = Gravity(settings.gravitational_constant, settings.cosmology, settings.units)
        parts = {}
        for number, c in enumerate(settings.components):
            with prefixed(f"components.{number}"):
                parts[c.name] = COMPONENTS[c.kind](c, gravity, make, files)
        return cls(settings, parts, make(real=True, every=True))

    def in_units(self, text: str) -> str:
        return in_units(text, self.unit_system)

    def of(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the component `name`, under their names without prefix."""
        part = self.parts[name]
        if part.population is not None:
            return {PARTICLES: fields[name]}
        return {spec.name: fields[f"{name}_{spec.name}"] for spec in part.fields}

    def drift(self, fields: MatterFields, duration: Number) -> Any:
        def act(name: str, matter: MatterFields) -> dict[str, Any]:
            return self.parts[name].drift(matter, duration)

        moved = self._in_turn(fields, act, lambda new: new[PARTICLES].records["velocity"])
        return joined(moved) | _beside(fields)

    def particle_acceleration(
        self, fields: MatterFields, time: Number
    ) -> Callable[[str, ParticleSet], ParticleVectors]:
        potential = self.moment(fields, time).potential

        def of(name: str, particles: ParticleSet) -> jax.Array:
            part = self.parts[name]
            assert isinstance(part, ParticleComponent)
            return part.acceleration(particles, potential)

        return of

    def slowed(self, fields: MatterFields, factor: Number) -> Any:
        """The fields with the velocities of all particles times `factor`."""
        slower = {
            name: fields[name].with_records({"velocity": factor * fields[name].records["velocity"]})
            for name in self.populations
        }
        return {**fields, **slower}

    def kick(self, fields: MatterFields, time: Number, duration: Number) -> tuple[Any, Number]:
        return self.kicked(fields, self.forces(fields, time), time, duration)

    def forces(self, fields: MatterFields, time: Number | None) -> Matter:
        moment = self.moment(fields, time)

        def act(name: str, matter: MatterFields) -> Any:
            return self.parts[name].pulled(matter, moment.works[name], moment.potential)

        return moment._replace(works=self._in_turn(fields, act, lambda work: work))

    def kicked(
        self, fields: MatterFields, forces: Matter, time: Number, duration: Number
    ) -> tuple[Any, Number]:
        kicked = {}
        accounted = self._accounted(fields, forces, time)
        fields = self._after(fields, accounted)
        for name, part in self.parts.items():
            matter = self.of(name, fields)
            work = forces.works[name]
            kicked[name] = part.kick(matter, work, forces.potential, time, duration)
        rate = reduce(jnp.maximum, (rate for _, rate in kicked.values()))
        new = joined({name: moved for name, (moved, _) in kicked.items()})
        return new | accounted, rate

    def paced(
        self, fields: MatterFields, forces: Matter, time: Number, duration: Number
    ) -> tuple[Any, Number]:
        if self.transform.kernels != "native":
            return fields, self.kicked(fields, forces, time, duration)[1]
        accounted = self._accounted(fields, forces, time)
        fields = self._after(fields, accounted) | accounted
        rates = [
            part.rate_after(fields[name], forces.works[name], forces.potential, duration)
            for name, part in self.parts.items()
        ]
        return fields, reduce(jnp.maximum, rates)

    def leapt(
        self,
        fields: MatterFields,
        forces: Matter,
        time: Number,
        kicks: tuple[Number, Number],
        drift: Number,
    ) -> tuple[Any, Any]:
        if self.transform.kernels != "native":
            old, _ = self.kicked(fields, forces, time, kicks[0])
            kicked, _ = self.kicked(old, forces, time, kicks[1])
            return old, self.drift(kicked, drift)

        def act(name: str, matter: MatterFields) -> tuple[Any, ParticleSet]:
            return self.parts[name].leap(matter[PARTICLES], forces.works[name], (*kicks, drift))

        pairs = self._in_turn(fields, act, lambda pair: pair[1].records["velocity"])
        old = {name: before for name, (before, _) in pairs.items()}
        new = {name: after for name, (_, after) in pairs.items()}
        return old | _beside(fields), new | _beside(fields)

    def _accounted(self, fields: MatterFields, forces: Matter, time: Number) -> dict[str, Any]:
        """The entry `EXPECTED` of the fields, if there is one, after a kick."""
        if self.background is None or EXPECTED not in fields:
            return _beside(fields)
        slope = self.energy_slope(forces, time)
        return {EXPECTED: continued(fields[EXPECTED], self.background.scale_factor(time), slope)}

    def _after(self, fields: MatterFields, accounted: Mapping[str, Any]) -> dict[str, Any]:
        """The fields, whose particles move only after `accounted` is computed: its sum over all
        devices must not run beside the exchanges of particles that move."""
        fields = dict(fields)
        for name, part in self.parts.items() if EXPECTED in accounted else ():
            if part.population is not None:
                velocity = fields[name].records["velocity"]
                later = part.population.domain.after(velocity, accounted[EXPECTED][-1])
                fields[name] = fields[name].with_records({"velocity": later})
        return fields

    def _in_turn(
        self,
        fields: MatterFields,
        act: Callable[[str, MatterFields], _Result],
        last_of: Callable[[_Result], jax.Array],
    ) -> dict[str, _Result]:
        """The results of `act(name, fields of the component)` by name. The particles of one
        component are exchanged only after `last_of` the result of the component before is computed
        (see `particles.domain.after`)."""
        names = list(self.populations)
        results = {}
        last = fields[names[-1]].records["velocity"] if len(names) > 1 else None
        for name, part in self.parts.items():
            matter = self.of(name, fields)
            if part.population is None or last is None:
                results[name] = act(name, matter)
                continue
            particles = matter[PARTICLES]
            domain = part.population.domain
            later = {r: domain.after(a, last) for r, a in particles.records.items()}
            results[name] = act(name, {PARTICLES: particles.with_records(later)})
            last = last_of(results[name])
        return results

    def densities(self, fields: MatterFields) -> tuple[dict[str, PhysicalScalar], dict[str, Any]]:
        """The density of every component on the grid, and the intermediate results that its kick
        can use."""

        def act(name: str, matter: MatterFields) -> tuple[PhysicalScalar, Any]:
            return self.parts[name].source(matter)

        sources = self._in_turn(fields, act, lambda source: source[0])
        values = {name: density for name, (density, _) in sources.items()}
        return values, {name: work for name, (_, work) in sources.items()}

    def moment(self, fields: MatterFields, time: jax.Array | None = None) -> Matter:
        """All matter and its potential; in an expanding background the potential times the scale
        factor at `time`."""
        values, works = self.densities(fields)
        modes = self._attracting(values)
        factor = 1.0
        if self.background is not None and time is not None:
            factor = self.background.scale_factor(time)
        return Matter(values, works, modes, self._potential(values, modes, factor))

    def density_modes(self, values: Mapping[str, PhysicalScalar]) -> dict[str, SpectralScalar]:
        """Coefficients of the components' densities; from particles' the window of the assignment
        is divided out."""
        forward = self.transform.forward
        return {
            name: self.parts[name].sharpened(forward(density)) for name, density in values.items()
        }

    def _attracting(self, values: Mapping[str, PhysicalScalar]) -> SpectralScalar:
        smooth = [density for name, density in values.items() if name not in self.populations]
        modes = [self.transform.forward(total(smooth))] if smooth else []
        for name, part in self.parts.items():
            if isinstance(part, ParticleComponent):
                modes.append(part.clouds(self.transform.forward(values[name])))
        return total(modes)

    def _potential(
        self,
        values: Mapping[str, PhysicalScalar],
        modes: SpectralScalar,
        scale_factor: Number | float,
    ) -> Potential:
        """The potential of all matter times the scale factor, from the values of the densities and
        from the coefficients `modes` that `_attracting` gives."""
        g = 4 * math.pi * self.settings.gravitational_constant * scale_factor
        densest = jnp.maximum(self.transform.physical.max(total(values.values())), 0).astype(
            jnp.float64
        )
        source = jnp.asarray(g, modes.real.dtype) * modes
        phi = solve_poisson(self.transform.layout, source, self.settings.green)
        return Potential(self.transform, phi, jnp.sqrt(g * densest))

    def energy_slope(self, moment: Matter, time: Number) -> Number:
        """The derivative of the energy with respect to the scale factor while no matter moves."""
        assert self.background is not None
        a = self.background.scale_factor(time)
        gravity = 0.5 * self.transform.layout.inner(moment.modes, moment.potential.modes) / a
        slopes = [self.parts[name].energy_slope(work, a) for name, work in moment.works.items()]
        return gravity.astype(jnp.float64) + total(slopes)

    def memory(self, fields: MatterFields, time: Number) -> dict[str, jax.Array]:
        memory = {"rate": self.kick(fields, time, jnp.zeros((), jnp.float64))[1]}
        if self.background is not None:
            scale_factor = self.background.scale_factor(time)
            slope = self.energy_slope(self.moment(fields, time), time).astype(jnp.float64)
            energy = diagnostics(self, fields, time)["energy"].astype(jnp.float64)
            memory[EXPECTED] = jnp.stack([energy, scale_factor, slope, scale_factor, slope])
        return memory


def _beside(fields: MatterFields) -> dict[str, Any]:
    return {EXPECTED: fields[EXPECTED]} if EXPECTED in fields else {}


def joined(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of all components, each with the component's name as prefix; particles have the
    component's name."""
    return {
        name if field == PARTICLES else f"{name}_{field}": f
        for name, fields in parts.items()
        for field, f in fields.items()
    }
