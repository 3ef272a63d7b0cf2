"""Several kinds of matter that attract each other: one potential, and a separate step for each
kind."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from simulator.errors import UserError
from simulator.physics.models import fields as specs
from simulator.physics.models.component import (
    PARTICLES,
    Component,
    GasComponent,
    GasComponentSettings,
    Gravity,
    Potential,
    WaveComponent,
    WaveComponentSettings,
)
from simulator.physics.models.cosmology import (
    UNITS,
    Background,
    CosmologySettings,
    UnitsName,
    in_units,
)
from simulator.physics.models.density import center, density_power
from simulator.physics.models.fields import DerivedField, Fields
from simulator.physics.models.model import SplitModel, State
from simulator.physics.models.particle_component import ParticleComponent, ParticleComponentSettings
from simulator.physics.particles.particle_set import ParticleSet
from simulator.physics.particles.population import Population
from simulator.physics.stepping.integrator import Integrator
from simulator.settings import NonNegative, Settings, wrong
from simulator.spectral import Transform
from simulator.spectral.arrays import (
    Number,
    OfModes,
    ParticleVectors,
    PhysicalScalar,
    SpectralScalar,
    Spectrum,
)
from simulator.spectral.operators import Green, solve_poisson

COMPONENTS: dict[str, type[Any]] = {
    "self_gravitating_gas": GasComponent,
    "schrodinger_poisson": WaveComponent,
    "particles": ParticleComponent,
}
CENTER = ("center_x", "center_y", "center_z")
SHARED = (
    "energy",
    "potential_energy",
    "virial_ratio",
    "rate",
    "scale_factor",
)  # Columns of the composite.
EXPECTED = "expected_energy"
"""Name of an array of five numbers in the state's memory: the energy at the start plus the work of
the expansion since then; the scale factor and the slope dE/da at the last kick; and both at the
kick before."""
_Result = TypeVar("_Result")


AnyComponentSettings = Annotated[
    GasComponentSettings | WaveComponentSettings | ParticleComponentSettings,
    Field(discriminator="kind"),
]


class CompositeSettings(Settings):
    kind: Literal["composite"] = "composite"
    components: Annotated[tuple[AnyComponentSettings, ...], Field(max_length=10)]
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
        if not self.components:
            raise wrong("components", "an empty list; a composite needs one component or more")
        names = [c.name for c in self.components]
        for index, name in enumerate(names):
            if name in names[:index]:
                problem = f"{name} is taken; give each component a name of its own"
                raise wrong(f"components.{index}.name", problem)
        return self


class Matter(NamedTuple):
    """All matter at one moment."""

    values: dict[str, PhysicalScalar]  # The density of every component on the grid.
    works: dict[
        str, Any
    ]  # Intermediate results of the densities that the components' kicks can use.
    modes: SpectralScalar  # The density that attracts.
    potential: Potential


class Composite(SplitModel):
    """lap Phi = 4 pi G (sum of all densities - mean), and each kind of matter moves in Phi.

    A step is split: in a kick the velocities change in the potential of all matter, which is solved
    once, while no density changes; in a drift every component moves by itself, with at least
    second-order accuracy. Both orders of drift and kick are second-order accurate and conserve the
    total momentum as exactly as the components conserve theirs. Fields and columns begin with the
    name of their component."""

    Settings = CompositeSettings
    integrators: ClassVar[tuple[str, ...]] = (
        "kick_drift_kick",
        "drift_kick_drift",
        "bullfrog",
        "fastpm",
    )
    """Those of second order: higher orders step back in time, which a viscous gas does not
    allow."""
    dealias: ClassVar[tuple[str, ...]] = ("two_thirds",)
    guarded = True

    def __init__(
        self, settings: CompositeSettings, parts: Mapping[str, Component], real: Transform
    ):
        """`real`: the transform of real fields with all their modes."""
        for part in parts.values():
            specs.check_arrangement(part.transform, real, "the components")
        own = [(name, part.transform, spec) for name, part in parts.items() for spec in part.fields]
        fields = [
            replace(spec.of_component(name), transform=transform) for name, transform, spec in own
        ]
        super().__init__(settings, real, fields)
        self.parts = dict(parts)
        self.background = Background(settings.cosmology) if settings.cosmology else None

    def units_of(self, spec: specs.FieldSpec) -> str:
        return in_units(spec.units, self.settings.units)

    @classmethod
    def misfit(cls, settings: CompositeSettings, integrator: type[Integrator]) -> str | None:
        others = [c.kind for c in settings.components if c.kind != "particles"]
        if integrator.growing and (settings.cosmology is None or others):
            why = (
                "an expanding box, model.background"
                if settings.cosmology is None
                else f"no {others[0]}"
            )
            return f"takes steps of linear growth: it needs particles and {why}; kick_drift_kick takes every matter"
        return None

    @classmethod
    def create(
        cls, settings: CompositeSettings, make: Callable[..., Transform], files: Any
    ) -> Self:
        gravity, parts = (
            Gravity(settings.gravitational_constant, settings.cosmology, settings.units),
            {},
        )
        for number, c in enumerate(settings.components):
            try:
                parts[c.name] = COMPONENTS[c.kind](c, gravity, make, files)
            except UserError as error:
                raise UserError(f"components.{number}.{error}") from error
        return cls(settings, parts, make(real=True, every=True))

    def of(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the component `name`, under their names without prefix."""
        part = self.parts[name]
        if part.population is not None:
            return {PARTICLES: fields[name]}
        return {spec.name: fields[f"{name}_{spec.name}"] for spec in part.fields}

    @property
    def populations(self) -> Mapping[str, Population]:
        return {n: part.population for n, part in self.parts.items() if part.population is not None}

    def contents(self, state: State) -> dict[str, Any]:
        return {**state.fields, **state.particles, **state.memory.model}

    @property
    def stored(self) -> tuple[str, ...]:
        return (*self.fields, *(f"{name}_{specs.DENSITY.name}" for name in self.populations))

    def drift(self, fields: Any, duration: Number) -> Any:
        moved = self._in_turn(fields, lambda part, own: part.drift(own, duration), lambda new: new)
        return joined(moved) | _beside(fields)

    def particle_acceleration(
        self, fields: Any, time: Number
    ) -> Callable[[str, ParticleSet], ParticleVectors]:
        potential = self.moment(fields, time).potential

        def of(name: str, particles: ParticleSet) -> jax.Array:
            part = self.parts[name]
            assert isinstance(part, ParticleComponent)
            return part.acceleration(particles, potential)

        return of

    @property
    def joins_kicks(self) -> bool:
        return len(self.populations) == len(self.parts)

    def slowed(self, fields: Any, factor: Number) -> Any:
        """The fields with the velocities of all particles times `factor`."""
        slower = {
            name: fields[name].with_records({"velocity": factor * fields[name].records["velocity"]})
            for name in self.populations
        }
        return {**fields, **slower}

    def kick(self, fields: Any, time: Number, duration: Number) -> tuple[Any, Number]:
        return self.kicked(fields, self.forces(fields, time), time, duration)

    def forces(self, fields: Any, time: Number | None) -> Matter:
        moment = self.moment(fields, time)
        works = iter(moment.works.values())

        def act(part: Component, own: Any) -> Any:
            return part.pulled(own, next(works), moment.potential)

        return moment._replace(works=self._in_turn(fields, act, lambda found: found))

    def kicked(
        self, fields: Any, forces: Matter, time: Number, duration: Number
    ) -> tuple[Any, Number]:
        kicked = {
            name: part.kick(
                self.of(name, fields), forces.works[name], forces.potential, time, duration
            )
            for name, part in self.parts.items()
        }
        rate = reduce(jnp.maximum, (rate for _, rate in kicked.values()))
        new = joined({name: found for name, (found, _) in kicked.items()})
        return new | self._accounted(fields, forces, time), rate

    def leapt(
        self, fields: Any, forces: Matter, time: Number, kick: Number, drift: Number
    ) -> tuple[Any, Any]:
        if self.transform.kernels != "native":
            kicked, _ = self.kicked(fields, forces, time, kick)
            return kicked, self.drift(kicked, drift)
        works = iter(forces.works.values())

        def act(part: Any, own: Any) -> Any:
            return part.leap(own[PARTICLES], next(works), kick, drift)

        pairs = self._in_turn(fields, act, lambda pair: {PARTICLES: pair[1]})
        new = {name: pair[1] for name, pair in pairs.items()} | self._accounted(
            fields, forces, time
        )
        return {name: pair[0] for name, pair in pairs.items()}, new

    def _accounted(self, fields: Any, forces: Matter, time: Number) -> dict[str, Any]:
        """The entry `EXPECTED` of the fields, if there is one, after a kick."""
        if self.background is None or EXPECTED not in fields:
            return _beside(fields)
        slope = self._energy_slope(forces, time)
        return {EXPECTED: continued(fields[EXPECTED], self.background.scale_factor(time), slope)}

    def _in_turn(
        self,
        fields: Any,
        act: Callable[[Component, Any], _Result],
        result: Callable[[_Result], Any],
    ) -> dict[str, _Result]:
        """The results of `act(component, its fields)` by name. `result` picks the component's new
        fields, or its density, from the result of `act`: the particles of one component are
        exchanged only after those of the component before (see `particles.domain.after`)."""
        names, found = list(self.populations), {}
        last = fields[names[-1]].records["velocity"] if len(names) > 1 else None
        for name, part in self.parts.items():
            own = self.of(name, fields)
            if part.population is None:
                found[name] = act(part, own)
                continue
            if last is not None:
                held, domain = own[PARTICLES], part.population.domain
                held = held.with_records(
                    {r: domain.after(a, last) for r, a in held.records.items()}
                )
                own = {PARTICLES: held}
            found[name] = act(part, own)
            new = result(found[name])
            if len(names) > 1:
                last = new[PARTICLES].records["velocity"] if isinstance(new, dict) else new
        return found

    def densities(self, fields: Any) -> tuple[dict[str, PhysicalScalar], dict[str, Any]]:
        """The density of every component on the grid, and the intermediate results that its kick
        can use."""
        sources = self._in_turn(fields, lambda part, own: part.source(own), lambda found: found[0])
        values = {name: density for name, (density, _) in sources.items()}
        return values, {name: work for name, (_, work) in sources.items()}

    def moment(self, fields: Any, time: jax.Array | None = None) -> Matter:
        """All matter and its potential; in an expanding background the potential times the scale
        factor at `time`."""
        values, works = self.densities(fields)
        modes, factor = self._attracting(values), 1.0
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

    def _energy_slope(self, moment: Matter, time: Number) -> Number:
        """The derivative of the energy with respect to the scale factor while no matter moves."""
        assert self.background is not None
        a = self.background.scale_factor(time)
        gravity = 0.5 * self.transform.layout.inner(moment.modes, moment.potential.modes) / a
        own = [self.parts[name].energy_slope(work, a) for name, work in moment.works.items()]
        return gravity.astype(jnp.float64) + total(own)

    def memory(self, fields: Any, time: Number) -> dict[str, Any]:
        found = {"rate": self.kick(fields, time, jnp.float64(0))[1]}
        if self.background is not None:
            scale_factor = self.background.scale_factor(time)
            slope = self._energy_slope(self.moment(fields, time), time).astype(jnp.float64)
            energy = self.diagnostics(fields, time)["energy"].astype(jnp.float64)
            found[EXPECTED] = jnp.stack([energy, scale_factor, slope, scale_factor, slope])
        return found

    def trouble(self, fields: Any) -> tuple[str, str] | None:
        """The reason why a run cannot continue from these fields, and a remedy; None if it can."""
        for name, part in self.parts.items():
            if (reason := part.trouble(self.of(name, fields))) is not None:
                return f"{name}: {reason[0]}", reason[1]
        return None

    def diagnostics(self, fields: Any, time: Number) -> dict[str, Number]:
        """Columns of all matter, then of each component with its name. Energies are box means;
        `internal_energy` is the energy of the components without gravity and motion: heat, quantum
        pressure, interaction, traps. The potential energy of a component is half the mean of its
        density times the potential of all matter.

        In an expanding background `energy_residual` is the energy minus its value at the start and
        the work of the expansion since then (Layzer-Irvine): 0 but for errors of time steps and
        grid, and dissipation."""
        layout = self.transform.layout
        own = {
            name: part.diagnostics(self.of(name, fields), time) for name, part in self.parts.items()
        }
        moment = self.moment(fields, time)
        values, modes, shares = moment.values, self.density_modes(moment.values), {}
        for name, density in modes.items():
            shares[name] = 0.5 * layout.inner(
                self.parts[name].softened(density), moment.potential.modes
            )

        def summed(column: str) -> jax.Array:
            return total(columns[column] for columns in own.values())

        gravity, parts_energy, kinetic = (
            total(shares.values()),
            summed("energy"),
            summed("kinetic_energy"),
        )
        columns = {
            "energy": parts_energy + gravity,
            "kinetic_energy": kinetic,
            "internal_energy": parts_energy - kinetic,
            "potential_energy": gravity,
            "mass": summed("mass"),
            "max_density": self.transform.physical.max(total(values.values())),
            **{f"mean_momentum_{axis}": summed(f"mean_momentum_{axis}") for axis in "xyz"},
            **dict(zip(CENTER, center(layout, total(modes.values())), strict=True)),
        }
        if self.background is not None:
            columns["scale_factor"] = self.background.scale_factor(time)
            columns["energy_residual"] = jnp.zeros(())
            if EXPECTED in fields:
                slope = self._energy_slope(moment, time)
                expected = continued(fields[EXPECTED], columns["scale_factor"], slope)[0]
                columns["energy_residual"] = columns["energy"] - expected
        for name, found in own.items():
            columns |= {
                f"{name}_{column}": x for column, x in found.items() if column not in SHARED
            }
            columns.setdefault(f"{name}_max_density", self.transform.physical.max(values[name]))
            columns[f"{name}_potential_energy"] = shares[name]
        rates = (
            part.rate(self.of(name, fields), moment.works[name], own[name], moment.potential, time)
            for name, part in self.parts.items()
        )
        return columns | {"rate": reduce(jnp.maximum, rates)}

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        lines = []
        for name, part in self.parts.items():
            columns = {
                k.removeprefix(f"{name}_"): x for k, x in row.items() if k.startswith(f"{name}_")
            }
            lines += [f"{name}: {line}" for line in part.warnings(columns)]
        return lines

    def spectral_energies(self, fields: Fields) -> dict[str, OfModes]:
        return {}  # each component has its own spectra

    def spectra(self, fields: Any) -> dict[str, Spectrum]:
        """P(k) of all matter, and the components' spectra; 0 in shells where a component has no
        modes. From P(k) of particles the window of the assignment is divided out; the shot noise is
        left in."""
        layout = self.transform.layout
        modes = self.density_modes(self.densities(fields)[0])
        found = {"density_power": density_power(layout, total(modes.values()))}
        for name, part in self.parts.items():
            own = part.spectra(self.of(name, fields))
            if part.population is not None:
                own = {"density_power": density_power(layout, modes[name]), **own}
            for quantity, spectrum in own.items():
                found[f"{name}_{quantity}"] = jnp.pad(spectrum, (0, layout.shells - len(spectrum)))
        return found

    @property
    def spectra_attributes(self) -> Mapping[str, str]:
        sizes = [f"{name}_shot_noise" for name in self.populations]
        if not sizes:
            return {}
        left_in = ", ".join(f"{name}_density_power" for name in self.populations)
        return {
            "shot_noise": f"not subtracted from {left_in}; {', '.join(sizes)} in diagnostics.csv"
        }

    def derived(self) -> Mapping[str, DerivedField]:
        def of(name: str, field: DerivedField) -> DerivedField:
            spec = field.spec.of_component(name)
            return DerivedField(spec, lambda fields: field.values(self.of(name, fields)))

        parts = [
            of(name, field)
            for name, part in self.parts.items()
            for field in part.derived().values()
            if field.spec.name != specs.POTENTIAL.name
        ]
        density = DerivedField(
            specs.DENSITY, lambda fields: total(self.densities(fields)[0].values())
        )
        potential = DerivedField(
            specs.POTENTIAL, lambda fields: self.moment(fields).potential.values
        )
        return specs.by_name(density, potential, *parts)


def continued(carried: Float[Array, "5"], scale_factor: Number, slope: Number) -> Float[Array, "5"]:
    """`EXPECTED` at this scale factor: the slope is integrated as the parabola through its last
    three values.

    The error of the trapezoid rule, although of the order of the splitting, would be as large as
    that of the steps."""
    energy, a1, s1, a0, s0 = carried
    s2, h, before = slope.astype(jnp.float64), scale_factor - a1, a1 - a0
    moved = (
        abs(h) > 1e-10 * scale_factor
    )  # the last kick of a step and the first of the next are at one time
    h = jnp.where(moved, h, 1.0)
    bend = (s2 - s1) / h - (s1 - s0) / jnp.where(before == 0, 1.0, before)
    bend = jnp.where(before == 0, 0.0, bend / jnp.where(before == 0, 1.0, h + before))
    new = jnp.stack([energy + h * (s1 + s2) / 2 - h**3 / 6 * bend, scale_factor, s2, a1, s1])
    return jnp.where(moved, new, carried)


def _beside(fields: Any) -> dict[str, Any]:
    return {EXPECTED: fields[EXPECTED]} if EXPECTED in fields else {}


def joined(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of all components, each with the component's name as prefix; particles have the
    component's name."""
    return {
        name if field == PARTICLES else f"{name}_{field}": f
        for name, fields in parts.items()
        for field, f in fields.items()
    }


def total(terms: Any) -> jax.Array:
    """The sum of arrays of one shape."""
    return reduce(jnp.add, terms)
