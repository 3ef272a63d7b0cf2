"""Equations are pages: few methods, no tendency of their own, and everything else as objects."""

import inspect
from pathlib import Path

import pytest

from simulator.equations import NonNegative
from simulator.physics.models import MODELS, Equation, SplitEquation
from simulator.physics.models.calculus import SpectralCalculus
from simulator.physics.models.flow_settings import FlowSettings
from simulator.physics.models.navier_stokes import NavierStokes

FLOWS = ("navier_stokes", "boussinesq", "mhd")
MOST_METHODS = 20
LONGEST_PAGE = 150


def methods(kind: type) -> set[str]:
    """The methods and properties of a class, inherited, public and private, without the derivatives
    of spectral fields."""
    kinds = (classmethod, staticmethod, property)
    return {
        name
        for base in kind.__mro__[:-1]
        if base is not SpectralCalculus
        for name, member in vars(base).items()
        if inspect.isfunction(member) or isinstance(member, kinds) or hasattr(member, "func")
        if not (name.startswith("__") and name.endswith("__"))
    }


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_has_few_methods(name: str):
    assert len(methods(MODELS[name])) <= MOST_METHODS


def test_navier_stokes_is_one_page():
    page = Path(inspect.getfile(NavierStokes)).read_text()
    assert len(page.splitlines()) <= LONGEST_PAGE


@pytest.mark.parametrize("name", [name for name in MODELS if name != "python"])
def test_one_tendency_serves_all_equations(name: str):
    assert issubclass(MODELS[name], Equation)
    assert not methods(MODELS[name]) & {"tendency", "linear_terms", "fastest", "pointwise"}


def test_a_subclass_of_a_flow_may_annotate_further_parameters():
    class Rubbed(NavierStokes):
        friction: NonNegative = 0.5

    settings = Rubbed.Settings(viscosity=1.0)
    assert isinstance(settings, FlowSettings)
    assert settings.friction == 0.5 and settings.viscosity == 1.0
    assert not issubclass(Rubbed, SplitEquation)
