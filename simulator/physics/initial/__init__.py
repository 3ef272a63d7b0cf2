"""Initial conditions. A new one is a class in this package and a line in `STARTS`."""

from simulator.physics.initial.composite_start import STARTS, CompositeStart
from simulator.physics.initial.initial import Initial, StartFiles, start_of
from simulator.registry import Registry, subclass_of

INITIALS = Registry[type[Initial]](
    "simulator.initials", {**STARTS, "composite": CompositeStart}, subclass_of(Initial)
)

__all__ = ["INITIALS", "Initial", "StartFiles", "start_of"]
