"""Initial conditions. A new one is a class in this package and a line in `INITIALS`."""

from simulator.physics.initial.initial import Initial, StartFiles, start_of
from simulator.registry import Registry, subclass_of

INITIALS = Registry[type[Initial]](
    "simulator.initials",
    {
        "taylor_green": "simulator.physics.initial.vortices:TaylorGreenStart",
        "abc": "simulator.physics.initial.vortices:AbcStart",
        "random": "simulator.physics.initial.random:Random",
        "orszag_tang": "simulator.physics.initial.vortices:OrszagTang",
        "snapshot": "simulator.physics.initial.stored:SnapshotStart",
        "file": "simulator.physics.initial.file_start:FileStart",
        "python": "simulator.physics.initial.python_start:PythonStart",
        "uniform": "simulator.physics.initial.uniform:Uniform",
        "jeans_wave": "simulator.physics.initial.uniform:JeansWave",
        "zeldovich_wave": "simulator.physics.initial.zeldovich:ZeldovichWave",
        "composite": "simulator.physics.initial.composite_start:CompositeStart",
    },
    subclass_of(Initial),
)

__all__ = ["INITIALS", "Initial", "StartFiles", "start_of"]
