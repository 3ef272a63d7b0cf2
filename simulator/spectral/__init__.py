"""Floor 1: grids, layouts, distributed transforms and the operators written against them."""

from simulator.spectral.backends import make_transform, slab_limit
from simulator.spectral.grid import Grid
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.local import Points
from simulator.spectral.transform import Evaluated, Local, Transform

__all__ = [
    "Evaluated",
    "Grid",
    "Layout",
    "Local",
    "PhysicalLayout",
    "Points",
    "Transform",
    "make_transform",
    "slab_limit",
]
