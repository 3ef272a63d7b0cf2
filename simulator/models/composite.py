"""Several kinds of matter that attract each other: one potential, and a separate step for each kind."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from pydantic import Field, model_validator

from simulator.errors import UserError
from simulator.models.component import Component, Potential
from simulator.models.density import center, density_power
from simulator.models.fields import DENSITY, POTENTIAL, DerivedField, Fields, by_name
from simulator.models.gas_component import GasComponent
from simulator.models.model import SplitModel
from simulator.models.wave_component import WaveComponent
from simulator.settings import NonNegative, Settings, wrong
from simulator.spectral import Transform
from simulator.spectral.poisson import Green, solve_poisson

COMPONENTS: dict[str, type] = {
    "self_gravitating_gas": GasComponent,
    "schrodinger_poisson": WaveComponent,
}
SHARED = ("energy", "potential_energy", "virial_ratio", "rate", "scale_factor")
"""Columns that only the composite can compute, such as the total energy."""


class CompositeSettings(Settings):
    kind: Literal["composite"] = "composite"
    components: Annotated[
        tuple[Annotated[GasComponent.Settings | WaveComponent.Settings, Field(discriminator="kind")], ...],
        Field(max_length=10),
    ]
    """The kinds of matter, each with the keys of its own model except those of gravity."""
    gravitational_constant: NonNegative = 1.0
    """G, length^3 / (mass time^2); 0 turns gravity off."""
    green: Green = "exact"
    """Poisson's equation with -k^2, or with the second-order difference formula."""

    @model_validator(mode="after")
    def _some_of_different_names(self) -> Self:
        if not self.components:
            raise wrong("components", "an empty list; a composite needs one component or more")
        names = [c.name for c in self.components]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise wrong(
                    f"components.{index}.name", f"{name} is taken; give each component a name of its own"
                )
        return self


class Composite(SplitModel):
    """lap Phi = 4 pi G (sum of all densities - mean), and each kind of matter moves in Phi.

    A step is split: in a kick the velocities change in the potential of all matter, which is solved once, while no
    density changes; in a drift every component moves by itself, with at least second-order accuracy. Both orders of
    drift and kick are second-order accurate and conserve the total momentum as exactly as the components conserve
    theirs. Fields and columns begin with the name of their component.
    """

    Settings = CompositeSettings
    integrators: ClassVar[tuple[str, ...]] = ("kick_drift_kick", "drift_kick_drift")
    """The integrators of second order: those of higher order step back in time, which a viscous gas does not
    allow."""
    dealias: ClassVar[tuple[str, ...]] = ("two_thirds",)
    guarded = True

    def __init__(self, settings: CompositeSettings, parts: Mapping[str, Component], real: Transform):
        """`real`: the transform of real fields with all their modes."""
        for part in parts.values():
            theirs, ours = part.transform.physical, real.physical
            if theirs.spec != ours.spec or theirs.shape != ours.shape:
                raise UserError(
                    "devices.count: the components would be shared out differently; "
                    "fewer devices, or fft.decomposition: slab, work"
                )
        super().__init__(
            settings,
            real,
            [
                replace(spec.of_component(name), transform=part.transform)
                for name, part in parts.items()
                for spec in part.fields
            ],
        )
        self._parts = dict(parts)

    @property
    def parts(self) -> Mapping[str, Component]:
        return self._parts

    @classmethod
    def create(cls, settings: CompositeSettings, make: Callable[..., Transform], files: Any) -> Self:
        parts = {
            c.name: COMPONENTS[c.kind](c, settings.gravitational_constant, make, files)
            for c in settings.components
        }
        return cls(settings, parts, make(real=True, every=True))

    def of(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of one component, under the component's own names."""
        return {spec.name: fields[f"{name}_{spec.name}"] for spec in self.parts[name].fields}

    # ---- the equation ------------------------------------------------------------------------------------

    def drift(self, fields: Fields, duration: jax.Array) -> Fields:
        return joined(
            {name: part.drift(self.of(name, fields), duration) for name, part in self.parts.items()}
        )

    def kick(self, fields: Fields, time: jax.Array, duration: jax.Array) -> tuple[Fields, jax.Array]:
        sources = {name: part.source(self.of(name, fields)) for name, part in self.parts.items()}
        potential = self._potential(total(density for density, _ in sources.values()))
        kicked = {
            name: part.kick(self.of(name, fields), sources[name][1], potential, time, duration)
            for name, part in self.parts.items()
        }
        rate = reduce(jnp.maximum, (rate for _, rate in kicked.values()))
        return joined({name: new for name, (new, _) in kicked.items()}), rate

    def _potential(self, density: jax.Array) -> Potential:
        """The potential of the density of all matter, given as values."""
        g = 4 * math.pi * self.settings.gravitational_constant
        modes = solve_poisson(self.transform.layout, g * self.transform.forward(density), self.settings.green)
        densest = jnp.maximum(self.transform.physical.max(density), 0).astype(jnp.float64)
        return Potential(self.transform, modes, jnp.sqrt(g * densest))

    def memory(self, fields: Fields, time: jax.Array) -> dict[str, Any]:
        return {"rate": self.kick(fields, time, jnp.float64(0))[1]}

    def trouble(self, fields: Fields) -> tuple[str, str] | None:
        """Why a run cannot continue from these fields, and a remedy."""
        for name, part in self.parts.items():
            if (reason := part.trouble(self.of(name, fields))) is not None:
                return f"{name}: {reason[0]}", reason[1]
        return None

    # ---- diagnostics --------------------------------------------------------------------------------------

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        """Columns of all matter, then of each component under its name. Energies are box means; `internal_energy` is
        the components' energy apart from motion: heat, quantum pressure, interaction, traps. The potential energy of
        a component is its share of the whole, half the mean of its density times the potential of all matter."""
        layout = self.transform.layout
        parts = {name: part.diagnostics(self.of(name, fields), time) for name, part in self.parts.items()}
        values = {name: part.source(self.of(name, fields))[0] for name, part in self.parts.items()}
        modes = {name: self.transform.forward(density) for name, density in values.items()}
        potential = self._potential(total(values.values()))
        shares = {name: 0.5 * layout.inner(density, potential.modes) for name, density in modes.items()}

        def summed(column: str) -> jax.Array:
            return total(columns[column] for columns in parts.values())

        gravity, parts_energy, kinetic = total(shares.values()), summed("energy"), summed("kinetic_energy")
        columns = {
            "energy": parts_energy + gravity,
            "kinetic_energy": kinetic,
            "internal_energy": parts_energy - kinetic,
            "potential_energy": gravity,
            "mass": summed("mass"),
            "max_density": self.transform.physical.max(total(values.values())),
            **{f"mean_momentum_{axis}": summed(f"mean_momentum_{axis}") for axis in "xyz"},
            **{
                f"center_{axis}": x
                for axis, x in zip("xyz", center(layout, total(modes.values())), strict=True)
            },
        }
        for name, part_columns in parts.items():
            columns |= {f"{name}_{column}": x for column, x in part_columns.items() if column not in SHARED}
            columns[f"{name}_potential_energy"] = shares[name]
        return columns | {"rate": self.memory(fields, time)["rate"]}

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        lines = []
        for name, part in self.parts.items():
            columns = {
                key.removeprefix(f"{name}_"): x for key, x in row.items() if key.startswith(f"{name}_")
            }
            lines += [f"{name}: {line}" for line in part.warnings(columns)]
        return lines

    def spectral_energies(self, fields: Fields) -> Fields:
        return {}  # each component has its own spectra

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        """P(k) of all matter, and the components' spectra; 0 where a component has no modes."""
        layout = self.transform.layout
        density = total(part.source(self.of(name, fields))[0] for name, part in self.parts.items())
        spectra = {"density_power": density_power(layout, self.transform.forward(density))}
        for name, part in self.parts.items():
            for quantity, spectrum in part.spectra(self.of(name, fields)).items():
                spectra[f"{name}_{quantity}"] = jnp.pad(spectrum, (0, layout.shells - len(spectrum)))
        return spectra

    def derived(self) -> Mapping[str, DerivedField]:
        def density(fields: Fields) -> jax.Array:
            return total(part.source(self.of(name, fields))[0] for name, part in self.parts.items())

        def of(name: str, field: DerivedField) -> DerivedField:
            return DerivedField(
                field.spec.of_component(name), lambda fields: field.values(self.of(name, fields))
            )

        parts = [
            of(name, field)
            for name, part in self.parts.items()
            for field in part.derived().values()
            if field.spec.name != POTENTIAL.name
        ]
        return by_name(
            DerivedField(DENSITY, density),
            DerivedField(POTENTIAL, lambda fields: self._potential(density(fields)).values),
            *parts,
        )


def joined(parts: Mapping[str, Fields]) -> Fields:
    """Fields of components, under their names in the composite."""
    return {f"{name}_{field}": f for name, fields in parts.items() for field, f in fields.items()}


def total(terms: Any) -> jax.Array:
    """The sum of some arrays."""
    return reduce(jnp.add, terms)
