"""Incompressible magnetohydrodynamics, with the magnetic field in Alfven units (a velocity):

du/dt = P[-(u . grad) u + j x b - 2 Omega x u] + nu lap u,  div u = 0,
db/dt = curl[(u - d j) x b] + eta lap b,  div b = 0,  j = curl b.

The mean magnetic field is the k = 0 mode of `magnetic`; the induction equation keeps it. With
`kinematic` the velocity is prescribed. Biskamp, Magnetohydrodynamic Turbulence (2003), section 2.1.

In two dimensions both fields lie in the plane; vorticity, current and the vector potential are
along its normal. The energy flows to small scales there, too (Biskamp, section 8.1).

The Hall term, of length d, conserves the energy. Along a mean field B waves have omega = k B (sqrt(1
+ (k d / 2)^2) +- k d / 2): Mahajan & Krishan, Mon. Not. R. Astron. Soc. 359, L27 (2005)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from pydantic import model_validator

from simulator.errors import UserError
from simulator.physics.models.advection import PrescribedVelocity, Rotational, advection_of
from simulator.physics.models.damping import Hyperdiffusion, HyperdiffusionSettings, absent
from simulator.physics.models.equation import Field, Numerics
from simulator.physics.models.fields import Fields
from simulator.physics.models.flow_extension import FlowExtension
from simulator.physics.models.flow_settings import FlowSettings
from simulator.physics.models.linear_waves import HelicalWaves, Waves, equally_damped
from simulator.physics.models.navier_stokes import NavierStokes
from simulator.physics.models.observables.budget import Budget
from simulator.physics.models.observables.energy import EnergyBudget
from simulator.physics.models.observables.magnetic import (
    Currents,
    MagneticField,
    MagneticTransfers,
)
from simulator.physics.models.observables.observable import Observable
from simulator.physics.models.observables.scalars import Scalars
from simulator.physics.models.observables.subgrid import SubgridLosses
from simulator.physics.models.observables.turbulence import Turbulence
from simulator.physics.models.observables.velocity_fields import Pressure, VelocityFields
from simulator.physics.models.observables.waves import RossbyNumber
from simulator.settings import Flag, NonNegative, wrong
from simulator.spectral import Transform
from simulator.spectral.arrays import OverModes, PointValues
from simulator.spectral.operators import cross


class MhdSettings(FlowSettings):
    kind: Literal["mhd"] = "mhd"
    resistivity: NonNegative
    """Magnetic diffusivity, length^2 / time."""
    hyperresistivity: HyperdiffusionSettings | None = None
    """Further damping of the magnetic field at the rate coefficient * k^(2 order)."""
    ion_length: NonNegative = 0.0
    """d of the Hall effect, the ion inertial length: the magnetic field moves with u - d j. In a plane
    with three components, grid.shape: [1, ny, nz]."""
    kinematic: Flag = False
    """The velocity keeps its initial value: the kinematic dynamo problem."""

    closed: ClassVar[tuple[str, ...]] = ("velocity", "magnetic")

    @model_validator(mode="after")
    def _kinematic_alone(self) -> Self:
        if not self.kinematic:
            return self
        if self.ion_length:
            problem = "the Hall effect needs the momentum equation; leave this or kinematic out"
            raise wrong("ion_length", problem)
        without_effect = {
            "subgrid": self.subgrid,
            "hyperviscosity": self.hyperviscosity,
            "drag": self.drag,
            "rotation": not absent(*self.rotation),
            "shear": self.shear,
        }
        for key, value in without_effect.items():
            if value:
                problem = "has no effect: model.kinematic prescribes the velocity; leave it out"
                raise wrong(key, problem)
        return self


class Mhd(NavierStokes):
    """Navier-Stokes with the Lorentz force, and the induction equation."""

    Settings = MhdSettings
    numerics = Numerics(decays=True, waves="explicit", waves_about="magnetic")
    energy_weights: Mapping[str, float] = {"velocity": 1.0, "magnetic": 1.0}
    budget: Budget[Any] | None = EnergyBudget()
    has: Sequence[Observable[Any]] = (
        EnergyBudget(),
        SubgridLosses(),
        Turbulence(),
        RossbyNumber(),
        Scalars(),
        MagneticField(),
        MagneticTransfers(),
        VelocityFields(),
        Pressure(),
        Currents(),
    )
    prescribed = (
        EnergyBudget(),
        Turbulence(resolves=False),
        Scalars(),
        MagneticField(),
        MagneticTransfers(),
        VelocityFields(),
        Currents(),
    )
    """The observables of a kinematic dynamo."""

    resistivity: float
    hyperresistivity: HyperdiffusionSettings | None
    ion_length: float
    kinematic: bool
    mean_field: Sequence[float] | jax.Array
    """The mean of `magnetic`, about which exact waves run."""

    def __init__(self, settings: MhdSettings, transform: Transform):
        magnetic = Field("magnetic", vector=True, solenoidal=True, units="length/time")
        super().__init__(settings, transform, [magnetic])
        self.mean_field = (0.0,) * len(transform.grid.axes)
        self.hall = not absent(self.ion_length)
        if self.hall and transform.grid.dimensions == 2:
            shape = ", ".join(map(str, transform.grid.seen(transform.grid.shape)))
            cure = f"grid.shape: [1, {shape}] has them in a plane"
            raise UserError(f"ion_length: the Hall effect needs three components; {cure}")
        # The rotational form has the values of j that the Hall term needs.
        rotational = Rotational(magnetic=True)
        self.momentum = rotational if self.hall else advection_of(transform.grid, magnetic=True)
        if (hyper := settings.hyperresistivity) is not None:
            damping = Hyperdiffusion("magnetic", hyper.order, hyper.coefficient)
            self.damps = (*self.damps, damping)
        if self.kinematic:
            self.constant = ("velocity",)
            self.momentum = PrescribedVelocity(magnetic=True)
            self.extension = FlowExtension(
                unforced="has no effect: model.kinematic prescribes the velocity"
            )
            self.budget = None
            self.has = self.prescribed

    def linear(self) -> dict[str, OverModes]:
        terms = {**super().linear(), "magnetic": -self.resistivity * self.k_squared}
        if self.kinematic:
            del terms["velocity"]
        return terms

    def waves(self) -> Waves:
        if self.kinematic:
            return {}
        layout = self.transform.layout
        mean = jnp.asarray(self.mean_field)
        equal = equally_damped(self, self.viscosity, self.resistivity)
        return HelicalWaves(layout, self.rotation, mean, self.ion_length, equal)

    def inputs(self, fields: Fields) -> Fields:
        if self.integrated:
            mean = jnp.asarray(self.mean_field).reshape(-1, 1, 1, 1)
            b = fields["magnetic"]
            b = jnp.where(self.transform.layout.zero, b - mean, b)
            fields = {**fields, "magnetic": b}
        return super().inputs(fields)

    def products(self, values: PointValues) -> PointValues:
        u = values["velocity"]
        carrier = u - self.ion_length * values["current"] if self.hall else u
        return {**super().products(values), "emf": cross(carrier, values["magnetic"])}

    def advection(self, values: PointValues) -> jax.Array:
        if self.kinematic:
            return values["velocity"]
        # The fastest whistler on the grid travels at k_max d times the Alfven speed.
        whistler = 1 + self.ion_length * self.transform.grid.largest_wavenumber
        return abs(values["velocity"]) + whistler * abs(values["magnetic"])

    def combine(self, products: Fields, fields: Fields) -> Fields:
        rates = {**super().combine(products, fields), "magnetic": self.curl(products["emf"])}
        if self.sheared is not None:
            rates["magnetic"] += self.sheared.along(fields["magnetic"])
        if self.kinematic:
            rates["velocity"] = jnp.zeros_like(fields["velocity"])
        return rates
