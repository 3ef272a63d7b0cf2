"""Initial conditions. A new one is a class in this package and a line in `INITIALS`."""

from simulator.initial.composite import composite
from simulator.initial.cosmological import Cosmological, ZeldovichWave
from simulator.initial.initial import Files, Initial, start_of
from simulator.initial.orszag_tang import OrszagTang
from simulator.initial.python import Python
from simulator.initial.random import Random
from simulator.initial.snapshot import Snapshot
from simulator.initial.soliton import Soliton, SolitonMerger
from simulator.initial.uniform import JeansWave, Uniform
from simulator.initial.vortices import Abc, TaylorGreen
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
