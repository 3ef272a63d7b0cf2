"""Boussinesq equations of a stratified, incompressible fluid:

du/dt = -P[(u . grad) u + 2 Omega x u - b e] + nu lap u,  div u = 0,
db/dt = -div(u b) - N^2 u . e + kappa lap b.

b is the buoyancy (an acceleration) relative to the background stratification N^2, e the unit vector
against gravity. For N^2 > 0, <u^2>/2 + <b^2>/(2 N^2) is conserved without dissipation. Davidson,
Turbulence in Rotating, Stratified and Electrically Conducting Fluids (2013), section 4.1."""

from collections.abc import Sequence
from math import hypot
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from simulator.errors import UserError
from simulator.physics.models.equation import Field
from simulator.physics.models.fields import Fields, along_axes, directed
from simulator.physics.models.flow_settings import TURNED, FlowSettings
from simulator.physics.models.linear_waves import BuoyancyWaves, Waves, equally_damped
from simulator.physics.models.navier_stokes import NavierStokes
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.observables.observable import Observable
from simulator.physics.models.observables.scalars import Scalars
from simulator.physics.models.observables.stratification import (
    Stratification,
    StratifiedBudget,
    StratifiedTransfers,
)
from simulator.physics.models.observables.subgrid import SubgridLosses
from simulator.physics.models.observables.turbulence import Turbulence
from simulator.physics.models.observables.velocity_fields import Pressure, VelocityFields
from simulator.physics.models.observables.waves import RossbyNumber
from simulator.physics.models.passive_scalars import TransportedScalar
from simulator.settings import AxisVector, NonNegative, Real, wrong
from simulator.spectral import Transform
from simulator.spectral.arrays import SpectralVector
from simulator.spectral.operators import hermitian


class BoussinesqSettings(FlowSettings):
    kind: Literal["boussinesq"] = "boussinesq"
    diffusivity: NonNegative
    """Diffusivity of the buoyancy, length^2 / time; viscosity / diffusivity is the Prandtl
    number."""
    stratification: Real
    """N^2 (1/time^2): positive for stable stratification with the buoyancy frequency N, negative
    for unstable."""
    gravity: AxisVector | None = None
    """Direction of gravity, of any length: a number for each axis; by default [0, 0, -1], in two
    dimensions [0, -1]."""

    closed: ClassVar[tuple[str, ...]] = ("velocity", "buoyancy")

    @model_validator(mode="after")
    def _gravity_has_a_direction(self) -> Self:
        if self.gravity is not None and not any(self.gravity):
            raise wrong("gravity", "has no direction; give e.g. [0, 0, -1]")
        return self


class Boussinesq(NavierStokes):
    """Navier-Stokes, with the buoyancy as a scalar whose mean gradient is N^2 e, and its force."""

    Settings = BoussinesqSettings
    budget: Budget[Any] | None = StratifiedBudget()
    has: Sequence[Observable[Any]] = (
        StratifiedBudget(),
        SubgridLosses(),
        Turbulence(),
        RossbyNumber(),
        Scalars(),
        Stratification(),
        StratifiedTransfers(),
        VelocityFields(),
        Pressure(),
    )

    diffusivity: float
    stratification: float
    transported: Sequence[TransportedScalar]

    def __init__(self, settings: BoussinesqSettings, transform: Transform):
        buoyancy = Field("buoyancy", units="length/time^2")
        super().__init__(settings, transform, [buoyancy])
        grid = transform.grid
        down = (0.0,) * (len(grid.axes) - 1) + (-1.0,)
        gravity = settings.gravity
        direction = down if gravity is None else along_axes(grid, "gravity", gravity)
        if self.sheared is not None and direction[1]:
            raise UserError(f"gravity: {TURNED}, as in [-1, 0{', 0' * (grid.dimensions - 2)}]")
        self.up = tuple(-g / hypot(*direction) for g in direction)
        self.stable = self.stratification > 0
        background = tuple(self.stratification * e for e in self.up)
        buoyancy = TransportedScalar("buoyancy", self.diffusivity, background)
        self.transported = (buoyancy, *self.scalars)
        if self.stable:
            self.energy_weights = {"velocity": 1.0, "buoyancy": 1 / self.stratification}
        # Inertia-gravity waves have frequencies up to max(2 Omega, N), or grow at up to
        # sqrt(-N^2).
        self.wave_frequency += abs(self.stratification) ** 0.5

    def body_force(self, fields: Fields) -> SpectralVector:
        return super().body_force(fields) + directed(self.up, fields["buoyancy"])

    def waves(self) -> Waves:
        if not self.stable:
            return {}
        layout = self.transform.layout
        equal = equally_damped(self, self.viscosity, self.diffusivity)
        return BuoyancyWaves(layout, self.rotation, self.up, self.stratification, equal)

    def combine(self, products: Fields, fields: Fields) -> Fields:
        if self.stratification < 0:
            # The anti-Hermitian part of the fields, which is invisible on the grid, would grow
            # without limit.
            layout = self.transform.layout
            fields = {name: hermitian(layout, field) for name, field in fields.items()}
        return super().combine(products, fields)
