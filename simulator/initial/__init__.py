"""Initial conditions. A new one is a class here and a line in `INITIALS`."""

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

INITIALS: dict[str, type] = {
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
INITIALS["composite"] = composite(INITIALS)

__all__ = ["INITIALS", "Files", "Initial", "start_of"]
