"""Kinds of equations: what objects that measure, limit or close an equation rely on."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simulator.physics.models.advection import Momentum
from simulator.physics.models.damping import HyperdiffusionSettings
from simulator.physics.models.equation import Equation
from simulator.physics.models.fields import Fields, MatterFields
from simulator.physics.models.passive_scalars import TransportedScalar
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.models.variables import Variables
from simulator.physics.models.wave_functions import PointFunction
from simulator.spectral import Transform
from simulator.spectral.arrays import (
    Number,
    PhysicalScalar,
    SpectralScalar,
    SpectralVector,
)


class IncompressibleFlow(Equation):
    """An incompressible flow."""

    usual_waves = "explicit"
    viscosity: float
    hyperviscosity: HyperdiffusionSettings | None
    rotation: Sequence[float]
    scalars: Sequence[TransportedScalar]
    momentum: Momentum
    energy_weights: Mapping[str, float] = {"velocity": 1.0}
    """w of the energy, the sum of w <f . f> / 2 over some evolved fields f."""

    def body_force(self, fields: Fields) -> SpectralVector | float:
        """The accelerations that are linear in the fields."""
        return 0.0


class StratifiedFlow(IncompressibleFlow):
    """A flow with a buoyancy."""

    stratification: float
    stable: bool
    up: Sequence[float]


class ConductingFlow(IncompressibleFlow):
    """A flow with a magnetic field."""

    resistivity: float
    hyperresistivity: HyperdiffusionSettings | None
    kinematic: bool


class Gas(Equation):
    """A compressible gas."""

    sound_speed: float
    polytropic_exponent: float
    isothermal: bool
    gravitational_constant: float
    viscosity: float
    bulk_viscosity: float
    max_edge_energy: float
    pull: Sequence[float]

    def reference_density(self, fields: Fields) -> Number:
        """The density at which the speed of sound and the viscosities are stated."""
        raise TypeError(f"{type(self).__name__} does not define reference_density")

    def pressure(self, rho: PhysicalScalar, reference: Number) -> PhysicalScalar:
        """The pressure of the density."""
        raise TypeError(f"{type(self).__name__} does not define pressure")

    def potential(self, density: SpectralScalar) -> SpectralScalar:
        """The potential (length^2/time^2) of the density."""
        raise TypeError(f"{type(self).__name__} does not define potential")


class MatterWave(SplitEquation):
    """A wave function whose square is a density of mass."""

    real: Transform
    hbar: float
    gravity: float
    self_interaction: float
    trap: PointFunction | None
    fastest_drift: float

    def potential(self, density: SpectralScalar) -> SpectralScalar:
        """The potential (length^2/time^2) of the density."""
        raise TypeError(f"{type(self).__name__} does not define potential")

    def turn(self, density: PhysicalScalar, time: Number) -> PhysicalScalar:
        """The rate (1/time) at which phases turn, from the values of the density."""
        raise TypeError(f"{type(self).__name__} does not define turn")

    def spread(self, v: PhysicalScalar) -> Number:
        """The rate (1/time) that limits dt, from the rates at which phases turn."""
        raise TypeError(f"{type(self).__name__} does not define spread")


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


class Matter(NamedTuple):
    """All matter at one moment."""

    values: dict[str, PhysicalScalar]  # The density of every component on the grid.
    # Intermediate results of the densities that the components' kicks can use.
    works: dict[str, Any]
    modes: SpectralScalar  # The density that attracts.
    potential: Potential


class MixtureVariables(Variables[Any]):
    def evolved(self, model: Any, fields: MatterFields, names: Collection[str]) -> Any:
        """The fields and particle sets of an initial condition, as they are: the linear terms of
        matter let no mode grow."""
        return fields


class Mixture(SplitEquation):
    """Several kinds of matter in one potential."""

    gravity: float
    variables = MixtureVariables()

    def of(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the component `name`, under their names without prefix."""
        raise TypeError(f"{type(self).__name__} does not define of")

    def moment(self, fields: MatterFields, time: Number | None = None) -> Matter:
        """All matter and its potential."""
        raise TypeError(f"{type(self).__name__} does not define moment")

    def densities(self, fields: MatterFields) -> tuple[dict[str, PhysicalScalar], dict[str, Any]]:
        """The density of every component on the grid, and what its kick can use."""
        raise TypeError(f"{type(self).__name__} does not define densities")

    def density_modes(self, values: Mapping[str, PhysicalScalar]) -> dict[str, SpectralScalar]:
        """Coefficients of the components' densities."""
        raise TypeError(f"{type(self).__name__} does not define density_modes")

    def energy_slope(self, moment: Matter, time: Number) -> Number:
        """The derivative of the energy with respect to the scale factor."""
        raise TypeError(f"{type(self).__name__} does not define energy_slope")
