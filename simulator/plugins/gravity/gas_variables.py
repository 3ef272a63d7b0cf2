"""The variables of a gas: users state density and velocity, the equations density and momentum."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from simulator.errors import UserError
from simulator.physics.models.fields import Fields, products_of
from simulator.physics.models.variables import Variables
from simulator.spectral.arrays import PhysicalVector, PointValues, SpectralVector, holds
from simulator.spectral.operators import hermitian

if TYPE_CHECKING:
    from simulator.plugins.gravity.self_gravitating_gas import SelfGravitatingGas


class GasVariables(Variables["SelfGravitatingGas"]):
    def shapes(self, model: SelfGravitatingGas) -> Mapping[str, tuple[int, ...]]:
        return {"density": (), "velocity": model.shapes["momentum"]}

    def accelerated(self, model: SelfGravitatingGas) -> Mapping[str, tuple[int, ...]]:
        return {"velocity": model.shapes["momentum"]}

    def primitives(self, values: PointValues) -> PointValues:
        return {"density": values["density"], "velocity": values["momentum"] / values["density"]}

    def evolved_rates(self, rates: PointValues, values: PointValues) -> PointValues:
        """A source of mass moves with the gas: dm/dt = rho dv/dt + v drho/dt."""
        if not rates:
            return {}
        rho = values["density"]
        source = rates.get("density", jnp.zeros_like(rho))
        momentum = source * (values["momentum"] / rho)
        if "velocity" in rates:
            momentum = momentum + rho * rates["velocity"]
        evolved = {"momentum": momentum}
        return {**evolved, "density": source} if "density" in rates else evolved

    def velocity(self, model: SelfGravitatingGas, fields: Fields) -> SpectralVector:
        """The momentum over the density."""

        def quotient(values: PointValues) -> PhysicalVector:
            return values["momentum"] / values["density"]

        return products_of(model.transform, dict(fields), quotient)

    def evolved(self, model: SelfGravitatingGas, fields: Fields, names: Collection[str]) -> Fields:
        """Density and momentum from the density and velocity, or momentum, of an initial condition.
        Without a density, it is the background density everywhere; raises UserError if that is not
        set."""
        layout = model.transform.layout
        background = model.settings.background_density
        if "density" not in names or not holds(jnp.any(fields["density"] != 0)):
            if background == "mean":
                raise UserError(
                    "gives no density; give one, or a uniform one as model.background_density: NUMBER"
                )
            density = jnp.where(layout.zero, background, fields["density"])
            fields = {**fields, "density": layout.constrain(density)}

        def product(values: PointValues) -> PhysicalVector:
            return values["density"] * values["velocity"]

        @jax.jit
        def begun(fields: Fields) -> Fields:
            momentum = fields.get("momentum")
            if momentum is None:
                momentum = products_of(model.transform, fields, product)
            evolved = {"density": fields["density"], "momentum": momentum}
            return {
                name: layout.constrain(hermitian(layout, field)) for name, field in evolved.items()
            }

        return begun(fields)
