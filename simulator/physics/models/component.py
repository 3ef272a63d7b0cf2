"""The contract of a component of a composite, and the potential that all components share.

A component is a file with a class like `GasComponent` or `WaveComponent` and a line in `composite.COMPONENTS`. It
gives its density as values on the grid and gets the potential in the same form, however it represents its own fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import jax
from pydantic import AfterValidator

from simulator.errors import shown
from simulator.physics.models.cosmology import CosmologySettings
from simulator.physics.models.fields import DerivedField, FieldSpec
from simulator.physics.models.fluid import free_name
from simulator.physics.particles.population import Population
from simulator.settings import Settings
from simulator.spectral import Transform


def _usable(name: str) -> str:
    if not free_name(name) or name == "log":  # histograms have a log_density
        raise ValueError(
            f"{shown(name)} cannot name a component, whose fields and columns begin with it; e.g. gas"
        )
    return name


ComponentName = Annotated[str, AfterValidator(_usable)]


PARTICLES = "particles"


@dataclass(frozen=True)
class Gravity:
    """What all matter of a composite shares."""

    constant: float
    """G, length^3 / (mass time^2)."""
    cosmology: CosmologySettings | None = None
    """The expanding background; None: a static box."""


@dataclass(frozen=True)
class Potential:
    """The potential of all matter at one moment."""

    transform: Transform
    """The transform of real fields with all their modes."""
    modes: jax.Array
    """Coefficients of Phi, without mean; in an expanding background of a Phi."""
    fall: jax.Array
    """sqrt(4 pi G rho) at the densest point: the rate (1/time, double) of its collapse."""

    @cached_property
    def values(self) -> jax.Array:
        """Phi on the grid (x, y, z)."""
        return self.transform.inverse(self.modes)


class Component:
    """One kind of matter. Its fields carry no prefix here; the composite adds it. Particles are the entry `PARTICLES`
    of its fields."""

    Settings: ClassVar[type[Settings]]
    fields: Sequence[FieldSpec] = ()
    """Evolved fields."""
    transform: Transform
    """Of all its fields."""
    alone: Any
    """The model of this matter alone under the composite's gravity, whose initial conditions it takes; of particles
    the component itself."""

    @property
    def population(self) -> Population | None:
        """The particles that it is made of; None: it consists of fields."""
        return None

    def source(self, fields: Any) -> tuple[jax.Array, Any]:
        """Mass density on the grid (x, y, z), zero in padding, and whatever `kick` can use of the work."""
        raise TypeError(f"{type(self).__name__} does not define source")

    def kick(
        self, fields: Any, work: Any, potential: Potential, time: jax.Array, duration: jax.Array
    ) -> tuple[Any, jax.Array]:
        """The fields after they have felt the potential for a while without moving, which leaves the density as it
        is; and the rate (1/time, double) that limits dt: dt = cfl / rate, NaN where no step can be taken."""
        raise TypeError(f"{type(self).__name__} does not define kick")

    def drift(self, fields: Any, duration: jax.Array) -> Any:
        """The fields after a while without the potential, at least of second order in `duration`."""
        raise TypeError(f"{type(self).__name__} does not define drift")

    def diagnostics(self, fields: Any, time: jax.Array) -> dict[str, jax.Array]:
        """Columns; among them `energy` (box mean, without gravity), `kinetic_energy`, `mass`, `max_density` and
        `mean_momentum_x`, `mean_momentum_y`, `mean_momentum_z`."""
        raise TypeError(f"{type(self).__name__} does not define diagnostics")

    def spectra(self, fields: Any) -> dict[str, jax.Array]:
        """Shell spectra on shells of the grid's width, (shells,) each, however many."""
        return {}

    def derived(self) -> Mapping[str, DerivedField]:
        """Fields beyond the evolved ones."""
        return {}

    def energy_slope(self, work: Any, scale_factor: jax.Array) -> jax.Array | float:
        """The derivative of `energy` by the scale factor while the fields stay; `work` is that of `source`."""
        return 0.0

    def trouble(self, fields: Any) -> tuple[str, str] | None:
        """Why no step can be taken from these fields, and what may help."""
        return None

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        """What its columns of a row say about the run's resolution."""
        return []
