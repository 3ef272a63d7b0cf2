"""Compressible gas with its own gravity, isothermal or polytropic:

drho/dt = -div m,  m = rho v,
dm/dt = -div(m v) - grad p - rho grad Phi + rho (a + f) + mu lap v + (mu / 3 + zeta) grad div v,
lap Phi = 4 pi G (rho - mean),  p = rho_0 c^2 / gamma (rho / rho_0)^gamma,  mu = nu rho_0,

with a constant acceleration a and a forcing f. In this form mass and momentum are conserved to
round-off. The constant part nu lap m of the shear stress is integrated exactly. There is no shock
capturing: the run stops with a message if the gas is no longer resolved or its density becomes
negative.

In two dimensions nothing depends on z, and the velocity lies in the plane: densities are still
masses per volume, the mass of the box is that of a layer of unit depth, and gravity is that of rods
along z."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import jax.numpy as jnp
from pydantic import Field as Key

from simulator.physics.models.damping import Hyperdiffusion, absent
from simulator.physics.models.equation import Equation, Field, Numerics
from simulator.physics.models.extension import Extension
from simulator.physics.models.fields import Fields, along_axes, directed
from simulator.plugins.gravity.density import SelfGravity
from simulator.plugins.gravity.gas_limit import GasLimit
from simulator.plugins.gravity.gas_observables import (
    GasBudget,
    GasFields,
    GasResolution,
    GasSpectra,
    GasTransfers,
)
from simulator.plugins.gravity.gas_variables import GasVariables
from simulator.settings import AxisVector, Integer, NonNegative, Positive, Real, Settings
from simulator.spectral import Transform, arrays, operators
from simulator.spectral.operators import Green


class MomentumDampingSettings(Settings):
    """Damps momentum at the rate coefficient * k^(2 order)."""

    order: Annotated[Integer, Key(ge=1, le=8)]
    """n in the damping rate coefficient * k^(2 n)."""
    coefficient: NonNegative
    """Units length^(2 n) / time."""


class GasSettings(Settings):
    """Settings of gas, apart from gravity."""

    kind: Any
    sound_speed: NonNegative
    """Speed of sound at the background density; 0 is cold gas."""
    polytropic_exponent: Real = Key(default=1.0, ge=1.0, le=3.0)
    """gamma in p ~ rho^gamma; 1 is isothermal."""
    viscosity: NonNegative = 0.0
    """Shear viscosity over background density, length^2 / time."""
    bulk_viscosity: NonNegative = 0.0
    """Bulk viscosity over background density, length^2 / time."""
    hyperviscosity: MomentumDampingSettings | None = None
    """Additional damping of momentum at small scales."""
    background_density: Literal["mean"] | Positive = "mean"
    """The density at which the speed of sound and the viscosities are specified, and the initial
    density if the initial condition sets none. Gravity always acts on the deviation from the
    mean."""
    external_acceleration: AxisVector = (0.0, 0.0, 0.0)
    """A constant acceleration of all the gas, one number for each axis of the grid."""
    max_edge_energy: Positive = 0.05
    """The run stops when modes at the edge of the spectrum hold this part of the squared momentum;
    with 1 it does not."""


class SelfGravitatingGasSettings(GasSettings):
    kind: Literal["self_gravitating_gas"] = "self_gravitating_gas"
    gravitational_constant: NonNegative = 1.0
    """G, length^3 / (mass time^2); 0 turns gravity off."""
    green: Green = "exact"
    """Poisson's equation with -k^2, or with the second-order difference formula."""


class GasExtension(Extension["SelfGravitatingGas"]):
    def diffuses(self, model: "SelfGravitatingGas") -> Sequence[str]:
        """No field: the viscosity of a gas is that of its momentum."""
        return ()


class SelfGravitatingGas(SelfGravity, Equation):
    Settings = SelfGravitatingGasSettings
    settings: SelfGravitatingGasSettings
    evolved = (
        Field("density", units="mass/length^3"),
        Field("momentum", vector=True, units="mass/(length^2 time)"),
    )
    numerics = Numerics(decays=True, guarded=True)
    dimensions = (2, 3)
    extension = GasExtension({"momentum": "weight", "density": "source"}, pushed="gravity")
    variables = GasVariables()
    step_limit = GasLimit()
    budget = GasBudget()
    has = (budget, GasSpectra(), GasTransfers(), GasFields(), GasResolution())

    sound_speed: float
    polytropic_exponent: float
    gravitational_constant: float
    viscosity: float
    bulk_viscosity: float
    max_edge_energy: float
    green: Green
    reference: arrays.Number
    """The background density, while `products` are computed."""

    def __init__(self, settings: SelfGravitatingGasSettings, transform: Transform):
        super().__init__(settings, transform)
        pull = settings.external_acceleration
        self.gravity = settings.gravitational_constant
        self.pull = along_axes(transform.grid, "external_acceleration", pull)
        self.viscous = not absent(settings.viscosity, settings.bulk_viscosity)
        self.isothermal = absent(settings.polytropic_exponent - 1)
        if (hyper := settings.hyperviscosity) is not None:
            self.damps = (Hyperdiffusion("momentum", hyper.order, hyper.coefficient),)

    def linear(self) -> dict[str, arrays.OverModes]:
        return {"momentum": -self.viscosity * self.k_squared}

    def inputs(self, fields: Fields) -> Fields:
        if absent(self.gravitational_constant):
            return dict(fields)
        return {**fields, "gravity": -self.gradient(self.potential(fields["density"]))}

    def potential(self, density: arrays.SpectralScalar) -> arrays.SpectralScalar:
        """Phi (length^2/time^2)."""
        source = 4 * math.pi * self.gravitational_constant * density
        return operators.solve_poisson(self.transform.layout, source, self.green)

    def reference_density(self, fields: Fields) -> arrays.Number:
        """rho_0."""
        mean = self.transform.layout.at_zero(fields["density"]).real
        reference = self.settings.background_density
        return mean if reference == "mean" else jnp.asarray(reference, mean.dtype)

    def parameters(self, fields: Fields) -> Mapping[str, arrays.Number]:
        return {"reference": self.reference_density(fields)}

    def products(self, values: arrays.PointValues) -> arrays.PointValues:
        rho = values["density"]
        m = values["momentum"]
        v = m / rho
        products = {"flux": jnp.stack([m[i] * v[j] for i, j in operators.symmetric_pairs(len(m))])}
        if not self.isothermal:
            products["pressure"] = self.pressure(rho, self.reference)
        if "gravity" in values:
            products["weight"] = rho * values["gravity"]
        if self.viscous:
            products["velocity"] = v
        return products

    def advection(self, values: arrays.PointValues) -> arrays.PhysicalVector:
        return values["momentum"] / values["density"]

    def pressure(
        self, rho: arrays.PhysicalScalar, reference: arrays.Number
    ) -> arrays.PhysicalScalar:
        """p of the density."""
        gamma = self.polytropic_exponent
        sound = self.sound_speed
        if self.isothermal:
            return sound**2 * rho
        # If the density is negative somewhere, the run is about to stop; the power must not turn it
        # into NaN.
        return reference * sound**2 / gamma * jnp.maximum(rho / reference, 0) ** gamma

    def combine(self, products: Fields, fields: Fields) -> Fields:
        rho = fields["density"]
        m = fields["momentum"]
        pressure = self.sound_speed**2 * rho if self.isothermal else products["pressure"]
        pairs = operators.symmetric_pairs(len(m))
        stress = {
            (i, j): part + pressure if i == j else part
            for (i, j), part in zip(pairs, products["flux"], strict=True)
        }
        rows = []
        for i in range(len(m)):
            rows.append(sum(k * stress[min(i, j), max(i, j)] for j, k in enumerate(self.k)))
        force = -1j * jnp.stack(rows)
        if "weight" in products:
            force = force + products["weight"]
        if not absent(*self.pull):
            force = force + directed(self.pull, rho)
        if self.viscous:
            u = self.reference_density(fields) * products["velocity"]
            spread = sum(k * c for k, c in zip(self.k, u, strict=True))
            stretch = (self.viscosity / 3 + self.bulk_viscosity) * spread
            force = force - self.viscosity * self.k_squared * (u - m)
            force = force - jnp.stack([k * stretch for k in self.k])
        # Gravity makes waves grow, so the part of the plane kz = 0 that is invisible in physical
        # space must be zero.
        momentum = operators.hermitian(self.transform.layout, force)
        density = -self.divergence(m)
        if "source" in products:
            density = density + operators.hermitian(self.transform.layout, products["source"])
        return {"density": density, "momentum": momentum}

    def jeans_frequency_squared(self, k2: float, density: float) -> float:
        """omega^2 = k^2 c^2 - 4 pi G rho of a small wave in gas of this density at rest."""
        reference = self.settings.background_density
        ratio = 1.0 if reference == "mean" else density / reference
        sound2 = self.sound_speed**2 * ratio ** (self.polytropic_exponent - 1)
        return k2 * sound2 - 4 * math.pi * self.gravitational_constant * density
