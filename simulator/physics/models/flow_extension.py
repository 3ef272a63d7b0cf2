"""How terms are added to an incompressible flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulator.physics.models.advection import Rotational
from simulator.physics.models.extension import Extension
from simulator.physics.models.observables.velocity_fields import Pressure
from simulator.physics.terms.term import Term

if TYPE_CHECKING:
    from simulator.physics.models.navier_stokes import NavierStokes


@dataclass(frozen=True)
class FlowExtension(Extension["NavierStokes"]):
    """Terms are added to the products of the flow, so that they need no further transforms: a
    force to u x omega, a stress to that of the advection, a flux to u theta."""

    def add(self, model: NavierStokes, terms: Sequence[Term]) -> None:
        super().add(model, terms)
        fluxes = {scalar.name: scalar.name for scalar in model.transported}
        extension = replace(self, transports={"velocity": "stress", **fluxes})
        if any("velocity" in term.acts_on for term in terms):
            extension = replace(extension, receives={"velocity": "force"})
            model.momentum = Rotational(model.momentum.magnetic)
            # The pressure of these terms is that of a moment, which derived fields do not know.
            model.has = tuple(part for part in model.has if not isinstance(part, Pressure))
        model.extension = extension

    def diffuses(self, model: NavierStokes) -> Sequence[str]:
        return ["velocity", *super().diffuses(model)]

    def gradients(self, model: NavierStokes) -> Mapping[str, Sequence[float]]:
        return {scalar.name: scalar.mean_gradient for scalar in model.transported}
