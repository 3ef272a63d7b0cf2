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

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from simulator.physics.models.advection import advection_of
from simulator.physics.models.closures import CLOSURES, varied_arrays
from simulator.physics.models.damping import HyperdiffusionSettings, absent, flow_damping
from simulator.physics.models.equation import Equation, Field, MakeTransform, Numerics
from simulator.physics.models.extension import Extension
from simulator.physics.models.fields import Fields, along, constant
from simulator.physics.models.flow_extension import FlowExtension
from simulator.physics.models.flow_settings import FlowSettings
from simulator.physics.models.linear_waves import HelicalWaves, Waves
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.observables.energy import AdvectiveTransfers, EnergyBudget
from simulator.physics.models.observables.observable import Observable
from simulator.physics.models.observables.scalars import Scalars
from simulator.physics.models.observables.subgrid import SubgridLosses
from simulator.physics.models.observables.turbulence import Turbulence
from simulator.physics.models.observables.velocity_fields import Pressure, VelocityFields
from simulator.physics.models.observables.waves import InertialWaves, RossbyNumber
from simulator.physics.models.passive_scalars import check_plane, scalar_fluxes, scalars_on
from simulator.physics.models.shear import follow_shear, turned
from simulator.physics.user_function import UserFiles
from simulator.spectral import Transform
from simulator.spectral.arrays import Number, OverModes, PhysicalVector, PointValues, SpectralVector
from simulator.spectral.operators import cross
from simulator.spectral.sheared import ShearedFrame
from simulator.spectral.transform import Tree


class NavierStokesSettings(FlowSettings):
    kind: Literal["navier_stokes"] = "navier_stokes"


class NavierStokes(Equation):
    Settings = NavierStokesSettings
    numerics = Numerics(decays=True, waves="explicit")
    extension: Extension[Any] = FlowExtension()
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

    viscosity: float
    rotation: Sequence[float]
    hyperviscosity: HyperdiffusionSettings | None
    varied_arrays: Mapping[str, Tree] = {}
    """Trees of arrays by which a run can be differentiated, by their keys in the configuration."""
    energy_weights: Mapping[str, float] = {"velocity": 1.0}
    """w of the energy, the sum of w <f . f> / 2 over some evolved fields f."""
    sheared: ShearedFrame | None = None
    """The frame of a uniform shear flow, whose wavenumbers turn; None: a box at rest."""

    def __init__(self, settings: FlowSettings, transform: Transform, further: Sequence[Field] = ()):
        """`further`: fields that a subclass evolves besides velocity and scalars."""
        velocity = Field("velocity", vector=True, solenoidal=True, units="length/time")
        self.evolved = (velocity, *further, *(Field(s.name) for s in settings.scalars))
        if not absent(settings.shear):
            self.sheared = ShearedFrame(settings.shear, transform)
            transform = self.sheared.transform
        super().__init__(settings, transform)
        if transform.grid.dimensions == 2:
            check_plane(settings.rotation, settings.subgrid and settings.subgrid.kind)
        self.rotates = not absent(*self.rotation)
        self.transported = self.scalars = scalars_on(transform.grid, settings.scalars)
        self.momentum = advection_of(transform.grid)
        self.damps = flow_damping(settings.hyperviscosity, settings.drag)
        self.wave_frequency = 2 * sum(component**2 for component in self.rotation) ** 0.5
        if self.sheared is not None:
            follow_shear(self, settings.shear)

    @classmethod
    def create(cls, settings: Any, make: MakeTransform, files: UserFiles) -> Self:
        model = cls(settings, make())
        if (subgrid := settings.subgrid) is not None:
            model.closure = CLOSURES[subgrid.kind](subgrid, model.transform, files)
            model.varied_arrays = varied_arrays(model)
        return model

    def at(self, time: Number | float, since: Number | float | None = None) -> Self:
        return self if self.sheared is None else turned(self, time, since)

    def linear(self) -> dict[str, OverModes]:
        terms = {"velocity": -self.viscosity * self.k_squared}
        for s in self.transported:
            terms[s.name] = -s.diffusivity * self.k_squared
        return terms

    def waves(self) -> Waves:
        return HelicalWaves(self.transform.layout, self.rotation) if self.rotates else {}

    def inputs(self, fields: Fields) -> Fields:
        return {**fields, **self.momentum.inputs(self.transform.layout, fields)}

    def products(self, values: PointValues) -> PointValues:
        products = self.momentum.products(values)
        return (
            {**products, **scalar_fluxes(self.transported, values)}
            if self.transported
            else products
        )

    def advection(self, values: PointValues) -> PhysicalVector:
        return values["velocity"]

    def body_force(self, fields: Fields) -> SpectralVector | float:
        """The accelerations that are linear in the fields: -2 Omega x u - 2 S u_x e_y."""
        u = fields["velocity"]
        force = cross(u, 2 * constant(self.rotation, u.real.dtype)) if self.rotates else 0.0
        return force if self.sheared is None else force - 2 * self.sheared.along(u)

    def combine(self, products: Fields, fields: Fields) -> Fields:
        u = fields["velocity"]
        waves = 0.0 if "velocity" in self.integrated else self.body_force(fields)
        rates = {"velocity": self.momentum.rate(self.transform.layout, products, waves)}
        if self.sheared is not None:  # whose gradient turns k, too
            rates["velocity"] += self.sheared.along(u)
        for s in self.transported:
            rates[s.name] = -self.divergence(products[s.name])
            if not absent(*s.mean_gradient) and s.name not in self.integrated:
                rates[s.name] -= along(s.mean_gradient, u)
        return rates


def sheared_frame(model: Equation) -> ShearedFrame | None:
    """The frame of the uniform shear flow of a model; None: a box at rest."""
    return model.sheared if isinstance(model, NavierStokes) else None
