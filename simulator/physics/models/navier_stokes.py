"""Incompressible Navier-Stokes equations in three or two dimensions, with rotation and passive
scalars:

du/dt = -P[(u . grad) u + 2 Omega x u] + nu lap u,  div u = 0,
dtheta/dt = -div(u theta) - u . G + D lap theta.

P, the solenoidal projection, removes the pressure gradient and every other gradient, so the
advection term may take any form that differs from (u . grad) u by a gradient, `momentum` (see
`models.advection`). Canuto et al., Spectral Methods: Evolution to Complex Geometries (2007),
section 3.3.

In two dimensions the velocity has two components and the vorticity one, along the normal. Rotation
has no effect there, because its force is a gradient, and the only closures are those of users."""

from collections.abc import Sequence
from math import hypot
from typing import Annotated, Any, ClassVar, Literal, Self

import jax.numpy as jnp
from pydantic import Field as Key
from pydantic import model_validator

from simulator.physics.models.advection import advection_of
from simulator.physics.models.closures import SubgridSettings, check_closed, close
from simulator.physics.models.damping import DragSettings, HyperdiffusionSettings, flow_damping
from simulator.physics.models.equation import Field, MakeTransform
from simulator.physics.models.fields import Fields, along, constant
from simulator.physics.models.kinds import IncompressibleFlow
from simulator.physics.models.linear_waves import HelicalWaves, Waves
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.observables.energy import AdvectiveTransfers, EnergyBudget
from simulator.physics.models.observables.observable import Observable
from simulator.physics.models.observables.scalars import Scalars
from simulator.physics.models.observables.subgrid import SubgridLosses
from simulator.physics.models.observables.turbulence import Turbulence
from simulator.physics.models.observables.velocity_fields import Pressure, VelocityFields
from simulator.physics.models.observables.waves import InertialWaves, RossbyNumber
from simulator.physics.models.passive_scalars import (
    Scalar,
    TransportedScalar,
    check_names_differ,
    check_plane,
    scalars_on,
)
from simulator.physics.user_function import UserFiles
from simulator.settings import NonNegative, Settings, Vector
from simulator.spectral import Transform
from simulator.spectral.arrays import OverModes, PhysicalVector, PointValues, SpectralVector
from simulator.spectral.operators import cross


class FlowSettings(Settings):
    """Keys of every incompressible flow."""

    kind: Any
    viscosity: NonNegative
    """Kinematic viscosity, length^2 / time."""
    hyperviscosity: HyperdiffusionSettings | None = None
    """Additional damping of the velocity at the rate coefficient * k^(2 order)."""
    drag: DragSettings | None = None
    """Damping of the velocity's large scales."""
    rotation: Vector = (0.0, 0.0, 0.0)
    """Angular velocity Omega in the Coriolis force -2 Omega x u. In two dimensions there is
    none."""
    scalars: Annotated[tuple[Scalar, ...], Key(max_length=100)] = ()
    """Passive scalars."""
    subgrid: SubgridSettings | None = None
    """Closure of a large-eddy simulation: the effect of the scales below the grid on the resolved
    scales."""

    closed: ClassVar[tuple[str, ...]] = ("velocity",)
    """The fields that a closure has to close besides `scalars`."""

    @model_validator(mode="after")
    def _names_and_closure_fit(self) -> Self:
        check_names_differ(self.scalars)
        check_closed(self.subgrid, (*self.closed, *(scalar.name for scalar in self.scalars)))
        return self


class NavierStokesSettings(FlowSettings):
    kind: Literal["navier_stokes"] = "navier_stokes"


class NavierStokes(IncompressibleFlow):
    Settings = NavierStokesSettings
    decays = True
    pictured = ("speed", "vorticity", "vorticity_magnitude", "density")
    budget: Budget[Any] | None = EnergyBudget()
    has: Sequence[Observable[Any]] = (
        EnergyBudget(),
        SubgridLosses(),
        Turbulence(),
        RossbyNumber(),
        Scalars(),
        InertialWaves(),
        AdvectiveTransfers(),
        VelocityFields(),
        Pressure(),
    )

    def __init__(self, settings: FlowSettings, transform: Transform, further: Sequence[Field] = ()):
        """`further`: fields that a subclass evolves besides velocity and scalars."""
        velocity = Field("velocity", vector=True, solenoidal=True, units="length/time")
        self.evolved = (velocity, *further, *(Field(s.name) for s in settings.scalars))
        super().__init__(settings, transform)
        if transform.grid.planar:
            subgrid = settings.subgrid.kind if settings.subgrid is not None else None
            check_plane(settings.rotation, subgrid)
        self.scalars = scalars_on(transform.grid, settings.scalars)
        self.transported: Sequence[TransportedScalar] = self.scalars
        self.momentum = advection_of(transform)
        self.damps = flow_damping(settings.hyperviscosity, settings.drag)
        self.wave_frequency = 2 * hypot(*self.rotation)

    @classmethod
    def create(cls, settings: Any, make: MakeTransform, files: UserFiles) -> Self:
        model = cls(settings, make())
        if settings.subgrid is not None:
            close(model, settings.subgrid, files)
        return model

    def linear(self) -> dict[str, OverModes]:
        k2 = self.k_squared
        scalars = {s.name: -s.diffusivity * k2 for s in self.transported}
        return {"velocity": -self.viscosity * k2, **scalars}

    def waves(self) -> Waves:
        return HelicalWaves(self.transform.layout, self.rotation) if any(self.rotation) else {}

    def inputs(self, fields: Fields) -> Fields:
        return {**fields, **self.momentum.inputs(fields)}

    def products(self, values: PointValues) -> PointValues:
        u = jnp.unstack(values["velocity"])
        fluxes = {s.name: jnp.stack([values[s.name] * v for v in u]) for s in self.transported}
        return {**self.momentum.products(values), **fluxes}

    def advection(self, values: PointValues) -> PhysicalVector:
        return values["velocity"]

    def body_force(self, fields: Fields) -> SpectralVector | float:
        """The accelerations that are linear in the fields: -2 Omega x u."""
        u = fields["velocity"]
        omega = constant(self.rotation, u.real.dtype)
        return cross(u, jnp.asarray(2 * omega)) if any(self.rotation) else 0.0

    def combine(self, products: Fields, fields: Fields) -> Fields:
        u = fields["velocity"]
        waves = 0.0 if "velocity" in self.integrated else self.body_force(fields)
        rates = {"velocity": self.project(self.momentum.force(products) + waves)}
        for s in self.transported:
            rates[s.name] = -self.divergence(products[s.name])
            if any(s.mean_gradient) and s.name not in self.integrated:
                rates[s.name] -= along(s.mean_gradient, u)
        return rates
