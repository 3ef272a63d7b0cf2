"""How terms are added to an incompressible flow."""

from collections.abc import Sequence

from simulator.physics.models.advection import Rotational
from simulator.physics.models.extension import Extension
from simulator.physics.models.kinds import IncompressibleFlow
from simulator.physics.models.observables.velocity_fields import Pressure
from simulator.physics.terms.term import Term


class FlowExtension(Extension[IncompressibleFlow]):
    """Terms are added to the products of the flow, so that they need no further transforms: a
    force to u x omega, a stress to that of the advection, a flux to u theta."""

    def add(self, model: IncompressibleFlow, terms: Sequence[Term]) -> None:
        super().add(model, terms)
        model.transports = {"velocity": "stress", **{s.name: s.name for s in model.transported}}
        if not any("velocity" in term.acts_on for term in terms):
            return
        model.momentum = Rotational(model.momentum.magnetic)
        model.receives = {"velocity": "force"}
        # The pressure of these terms is that of a moment, which derived fields do not know.
        model.has = tuple(part for part in model.has if not isinstance(part, Pressure))
