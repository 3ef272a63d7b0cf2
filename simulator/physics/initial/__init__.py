"""Initial conditions. A new one is a class in this package and a line in `INITIALS`."""

from simulator.physics.initial.cosmological import Cosmological, ZeldovichWave
from simulator.physics.initial.initial import Initial, StartFiles, composite, start_of
from simulator.physics.initial.python_start import PythonStart
from simulator.physics.initial.random import Random
from simulator.physics.initial.soliton import Soliton, SolitonMerger
from simulator.physics.initial.stored import GadgetStart, MusicStart, SnapshotStart
from simulator.physics.initial.uniform import JeansWave, Uniform
from simulator.physics.initial.vortices import AbcStart, OrszagTang, TaylorGreenStart
from simulator.registry import Registry, subclass_of

_ALONE: dict[str, type[Initial]] = {
    "taylor_green": TaylorGreenStart,
    "abc": AbcStart,
    "random": Random,
    "orszag_tang": OrszagTang,
    "snapshot": SnapshotStart,
    "python": PythonStart,
    "uniform": Uniform,
    "jeans_wave": JeansWave,
    "zeldovich_wave": ZeldovichWave,
    "cosmological": Cosmological,
    "gadget": GadgetStart,
    "music": MusicStart,
    "soliton": Soliton,
    "soliton_merger": SolitonMerger,
}
INITIALS = Registry[type[Initial]](
    "simulator.initials", {**_ALONE, "composite": composite(_ALONE)}, subclass_of(Initial)
)

__all__ = ["INITIALS", "Initial", "StartFiles", "start_of"]
