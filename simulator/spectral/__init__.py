"""Grids, layouts, distributed transforms and the operators written against them."""

from simulator.jax_versions import refuse_faulty_jax
from simulator.spectral.backends import DECOMPOSITIONS, make_transform
from simulator.spectral.candidates import Modes
from simulator.spectral.distributed_fft import DistributedFFT
from simulator.spectral.grid import Grid
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.points import Points, seen_points
from simulator.spectral.transform import Evaluated, Fields, Local, Transform

__all__ = [
    "DECOMPOSITIONS",
    "DistributedFFT",
    "Evaluated",
    "Fields",
    "Grid",
    "Layout",
    "Local",
    "Modes",
    "PhysicalLayout",
    "Points",
    "Transform",
    "make_transform",
    "seen_points",
]

refuse_faulty_jax()  # whatever computes with this package passes here: commands and other programs
