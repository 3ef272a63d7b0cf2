"""Grids, layouts, distributed transforms and the operators written against them."""

from functools import cache
from typing import Any

from simulator.jax_versions import refuse_faulty_jax
from simulator.registry import Registry
from simulator.spectral.backends import DECOMPOSITIONS, make_transform
from simulator.spectral.candidates import Modes
from simulator.spectral.grid import Grid
from simulator.spectral.layout import Layout, PhysicalLayout
from simulator.spectral.points import Points, seen_points
from simulator.spectral.transform import Evaluated, Fields, Local, Transform

__all__ = [
    "DECOMPOSITIONS",
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


@cache
def _names() -> Registry[Any]:
    return Registry("simulator.names", {})


def __getattr__(name: str) -> Any:
    """A name that a package adds to this one, as `spectral.NAME` of `simulator.names`."""
    if name.startswith("_") or f"spectral.{name}" not in _names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _names()[f"spectral.{name}"]


refuse_faulty_jax()  # whatever computes with this package passes here: commands and other programs
