"""Initial conditions. A new one is a class in this package and a line in `INITIALS`."""

from simulator.physics.initial.composite import composite
from simulator.physics.initial.cosmological import Cosmological, ZeldovichWave
from simulator.physics.initial.initial import Files, Initial, start_of
from simulator.physics.initial.orszag_tang import OrszagTang
from simulator.physics.initial.python import Python
from simulator.physics.initial.random import Random
from simulator.physics.initial.snapshot import Snapshot
from simulator.physics.initial.soliton import Soliton, SolitonMerger
from simulator.physics.initial.uniform import JeansWave, Uniform
from simulator.physics.initial.vortices import Abc, TaylorGreen
from simulator.registry import Registry, subclass_of

_ALONE: dict[str, type[Initial]] = {
    "taylor_green": TaylorGreen,
    "abc": Abc,
    "random": Random,
    "orszag_tang": OrszagTang,
    "snapshot": Snapshot,
    "python": Python,
    "uniform": Uniform,
    "jeans_wave": JeansWave,
    "zeldovich_wave": ZeldovichWave,
    "cosmological": Cosmological,
    "soliton": Soliton,
    "soliton_merger": SolitonMerger,
}
INITIALS = Registry[type[Initial]](
    "simulator.initials", {**_ALONE, "composite": composite(_ALONE)}, subclass_of(Initial)
)

__all__ = ["INITIALS", "Files", "Initial", "start_of"]
