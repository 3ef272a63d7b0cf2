"""The contract of a component of a composite, and the potential that all components share.

A component is a file with a class like `GasComponent` or `WaveComponent` and a line in `composite.COMPONENTS`. It
gives its density as values on the grid and gets the potential in the same form, however it represents its own fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol

import jax
from pydantic import AfterValidator

from simulator.errors import shown
from simulator.models.fields import DerivedField, Fields, FieldSpec
from simulator.models.fluid import free_name
from simulator.settings import Settings
from simulator.spectral import Transform


def _usable(name: str) -> str:
    if not free_name(name) or name == "log":  # histograms have a log_density
        raise ValueError(
            f"{shown(name)} cannot name a component, whose fields and columns begin with it; e.g. gas"
        )
    return name


ComponentName = Annotated[str, AfterValidator(_usable)]


@dataclass(frozen=True)
class Potential:
    """The potential of all matter at one moment."""

    transform: Transform
    """The transform of real fields with all their modes."""
    modes: jax.Array
    """Coefficients of Phi, without mean."""
    fall: jax.Array
    """sqrt(4 pi G rho) at the densest point: the rate (1/time, double) of its collapse."""

    @cached_property
    def values(self) -> jax.Array:
        """Phi on the grid (x, y, z)."""
        return self.transform.inverse(self.modes)


class Component(Protocol):
    """One kind of matter. Its own names of fields have no prefix; the composite adds it."""

    Settings: ClassVar[type[Settings]]
    fields: Sequence[FieldSpec]
    """Evolved fields."""
    transform: Transform
    """The transform of all these fields."""
    alone: Any
    """The model of this matter alone under the composite's gravity; the component takes its initial conditions."""

    def source(self, fields: Fields) -> tuple[jax.Array, Any]:
        """Mass density on the grid (x, y, z), zero in padding, and intermediate results for `kick` (its `work`)."""
        ...

    def kick(
        self, fields: Fields, work: Any, potential: Potential, time: jax.Array, duration: jax.Array
    ) -> tuple[Fields, jax.Array]:
        """The fields after `duration` in the potential without motion, which leaves the density unchanged; and the
        rate (1/time, double) that limits dt: dt = cfl / rate, NaN if no step can be taken."""
        ...

    def drift(self, fields: Fields, duration: jax.Array) -> Fields:
        """The fields after `duration` without the potential, accurate to at least second order."""
        ...

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        """Columns; among them `energy` (box mean, without gravity), `kinetic_energy`, `mass`, `max_density` and
        `mean_momentum_x`, `mean_momentum_y`, `mean_momentum_z`."""
        ...

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        """Shell spectra on shells of the grid's width, (shells,) each, with any number of shells."""
        ...

    def derived(self) -> Mapping[str, DerivedField]:
        """Fields beyond the evolved ones."""
        ...

    def trouble(self, fields: Fields) -> tuple[str, str] | None:
        """Why no step can be taken from these fields, and a remedy; None if one can."""
        ...

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        """Lines about the run's resolution, from the component's columns of a row."""
        ...
