"""The start of a composite, whose components start from any other of `INITIALS`."""

from collections.abc import Collection
from typing import Annotated, Any, Literal

import jax

from simulator.errors import UserError, prefixed
from simulator.physics.initial import INITIALS
from simulator.physics.initial.initial import Initial, StartFiles, start_of
from simulator.physics.models import Equation
from simulator.physics.particles import ParticleSet
from simulator.plugins.gravity.component import PARTICLES
from simulator.plugins.gravity.composite import Composite, joined
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.registry import PartsOf
from simulator.settings import Settings


class CompositeInitialSettings(Settings):
    kind: Literal["composite"] = "composite"
    components: Annotated[dict[str, Any], PartsOf(INITIALS, without="composite")]
    """The initial condition of each component, by the component's name."""


class CompositeStart(Initial):
    """Each component starts as its own model alone would, under the composite's gravity."""

    of_all = True
    Settings = CompositeInitialSettings

    def start_time(self, model: Equation, files: StartFiles) -> float:
        for name, settings in self.settings.components.items():
            if INITIALS[settings.kind](settings).keeps_time:
                raise UserError(
                    f"components.{name}.time: keep: only initial.kind: snapshot sets the clock"
                )
        return 0.0

    def outlook(self, model: Equation, stop: float, files: StartFiles) -> dict[str, bool]:
        assert isinstance(model, Composite)
        lines = {}
        for name, start in self.settings.components.items():
            part = INITIALS[start.kind](start).outlook(model.parts[name].alone, stop, files)
            lines |= {f"{name}: {line}": resolved for line, resolved in part.items()}
        shares = [getattr(s, "share", None) for s in self.settings.components.values()]
        whole = sum(share or 0.0 for share in shares)
        if whole > 1 + 1e-6 or (None not in shares and whole < 1 - 1e-6):
            means = (
                f"share: those of the components add up to {whole:.6g} of the background's matter"
            )
            lines[f"{means}; they need to add up to 1"] = False
        return lines

    def build(self, model: Equation, files: StartFiles) -> dict[str, Any]:
        if not isinstance(model, Composite):
            raise UserError("kind: composite needs model.kind: composite")
        starts = self.settings.components
        _check_components(model, starts)
        fields = {}
        undecided = None
        for name, part in model.parts.items():
            initial = INITIALS[starts[name].kind](starts[name])
            try:
                with prefixed(f"components.{name}", ": "):
                    if part.population is None:
                        fields[name] = start_of(initial, part.alone, files)
                    else:
                        fields[name] = {PARTICLES: _placed(initial, part, files)}
            except jax.errors.JAXTypeError as error:
                # A run that is only checked has no values to decide by; the other components are
                # checked too.
                undecided = error
        if undecided is not None:
            raise undecided
        return joined(fields)


def _placed(initial: Initial, matter: ParticleComponent, files: StartFiles) -> ParticleSet:
    if type(initial).place is Initial.place:
        *kinds, last = (name for name, kind in INITIALS.items() if kind.place is not Initial.place)
        begin = f"particles begin from {', '.join(kinds)} or {last}"
        raise UserError(f"kind: {initial.settings.kind} gives fields; {begin}")
    return initial.place(matter, files)


def _check_components(model: Composite, starts: Collection[str]) -> None:
    """Refuses components without an initial condition, and initial conditions without a
    component."""
    for name in (*model.parts, *starts):
        if name not in model.parts:
            raise UserError(
                f"components.{name}: the model's components are {', '.join(model.parts)}"
            )
        if name not in starts:
            raise UserError(
                f"components.{name}: missing; every component needs an initial condition"
            )
