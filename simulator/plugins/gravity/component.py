"""The contract of a component of a composite, and the potential that all components share.

A component is a class like `ParticleComponent` and a line in `composite.COMPONENTS`, or an entry
point of the group `simulator.components`. It gives its density as values on the grid, and receives
the potential as values on the grid, however it represents its own fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from simulator.physics.models.fields import DerivedField, FieldSpec, MatterFields
from simulator.physics.names import free_name, naming
from simulator.physics.particles.population import Population
from simulator.plugins.gravity.cosmology import CosmologySettings
from simulator.plugins.gravity.units import UnitsName
from simulator.settings import Settings
from simulator.spectral import Transform
from simulator.spectral.arrays import Number, PhysicalScalar, SpectralScalar, Spectrum


def _of_component(name: str) -> bool:
    return free_name(name) and name != "log"  # histograms have a log_density


_WHAT = "a component, whose fields and columns begin with it; e.g. gas"
ComponentName = Annotated[str, naming(_WHAT, _of_component)]


PARTICLES = "particles"


@dataclass(frozen=True)
class Gravity:
    """The gravity that all components of a composite share."""

    constant: float  # G, length^3 / (mass time^2).
    cosmology: CosmologySettings | None  # The expanding background; None: a static box.
    units: UnitsName


Work = jax.Array | None
"""An intermediate result for `kick`: the values of a wave function, or accelerations."""


@dataclass(frozen=True)
class Potential:
    """The potential of all matter at one moment."""

    transform: Transform  # The transform of real fields with all their modes.
    # Phi, without mean; in an expanding background the scale factor times Phi.
    modes: SpectralScalar
    # sqrt(4 pi G rho) at the densest point: the rate (1/time, double) of its collapse.
    fall: Number

    @cached_property
    def values(self) -> PhysicalScalar:
        """Phi (length^2/time^2) on the grid."""
        return self.transform.inverse(self.modes)


class Component:
    """One kind of matter, made by `Component(settings, gravity, make, files)` with the arguments of
    `Composite.create`; the settings have a `kind` and a `name`. The names of its fields have no
    prefix here; the composite adds the component's name. Particles are the entry `PARTICLES` of the
    fields."""

    Settings: ClassVar[type[Settings]]
    fields: Sequence[FieldSpec] = ()  # Evolved fields.
    transform: Transform  # The transform of all fields of the component.
    alone: Any  # The model of this matter alone, with its initial conditions; for particles the component.
    # The particles of the component; None if it consists of fields.
    population: Population | None = None

    def source(self, fields: MatterFields) -> tuple[PhysicalScalar, Any]:
        """Mass density on the grid, zero in padding, and the intermediate results that `kick` can
        use."""
        raise TypeError(f"{type(self).__name__} does not define source")

    def sharpened(self, modes: SpectralScalar) -> SpectralScalar:
        """The coefficients of the density without the window with which its mass is assigned to the
        grid."""
        return modes

    def softened(self, modes: SpectralScalar) -> SpectralScalar:
        """The coefficients of the density that attracts."""
        return modes

    def pulled(self, fields: MatterFields, work: Work, potential: Potential) -> Any:
        """The `work` of `kick`, from the second result of `source`."""
        return work

    def kick(
        self, fields: MatterFields, work: Work, potential: Potential, time: Number, duration: Number
    ) -> tuple[Any, Number]:
        """The fields after an acceleration by the potential for `duration`, while nothing moves;
        and the rate (1/time, double) that limits dt: dt = cfl / rate, NaN if no step can be
        taken."""
        raise TypeError(f"{type(self).__name__} does not define kick")

    def rate(
        self,
        fields: MatterFields,
        work: Work,
        row: Mapping[str, Number],
        potential: Potential,
        time: Number,
    ) -> Number:
        """The rate of a kick of these fields; `work` is from `source`, `row` from `diagnostics`."""
        return row["rate"].astype(jnp.float64) + potential.fall

    def drift(self, fields: MatterFields, duration: Number) -> Any:
        """The fields after `duration` without the potential, with an accuracy of at least second
        order."""
        raise TypeError(f"{type(self).__name__} does not define drift")

    def diagnostics(self, fields: MatterFields, time: Number) -> dict[str, Number]:
        """Columns of diagnostics, among them `energy` (box mean, without gravity),
        `kinetic_energy`, `mass`, `max_density` and `mean_momentum_x`, `mean_momentum_y`,
        `mean_momentum_z`; and the `rate` (1/time) that limits dt without the potential."""
        raise TypeError(f"{type(self).__name__} does not define diagnostics")

    def spectra(self, fields: MatterFields) -> dict[str, Spectrum]:
        """Shell spectra by name, on shells of the grid's width; their number may differ from the
        composite's."""
        return {}

    def derived(self) -> Mapping[str, DerivedField]:
        """Fields beyond the evolved ones."""
        return {}

    def energy_slope(self, work: Work, scale_factor: Number) -> Number | float:
        """The derivative of `energy` by the scale factor for constant fields; `work` is from
        `source`."""
        return 0.0

    def trouble(self, fields: MatterFields) -> tuple[str, str] | None:
        """The reason why no step can be taken from these fields, and a remedy; None if a step can
        be taken."""
        return None
