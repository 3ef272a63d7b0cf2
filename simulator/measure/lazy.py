"""JAX, and what loads it, imported at their first use: runs are described, read and drawn without JAX."""
# ruff: noqa: F401

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    from jax import lax

    from simulator import spectral
    from simulator.measure.volume import Camera, TransferFunction, Volume
    from simulator.physics import models
    from simulator.physics.initial import StartFiles
    from simulator.physics.models.fluid import strain_rate, transfer
    from simulator.physics.particles import Domain, ParticleSet
    from simulator.physics.particles.domain import Cut, after
    from simulator.physics.particles.interpolation import COMPONENTS
    from simulator.physics.particles.population import Population, Populations
    from simulator.physics.particles.swarm import Swarm
    from simulator.physics.user_function import line_of
    from simulator.spectral.bins import Bins, flux, shell_spectra, spectral_map
    from simulator.spectral.layout import PhysicalLayout
    from simulator.spectral.operators import (
        cross,
        curl,
        divergence,
        fluctuation,
        gradient,
        squared,
        translate,
        wavenumbers,
    )  # fmt: skip
    from simulator.spectral.program import Program
else:

    class _Lazy:
        """An object of a module, or the module itself, which is imported when the object is used."""

        def __init__(self, module: str, name: str = "") -> None:
            self._module, self._name = module, name

        def _object(self) -> Any:
            module = import_module(self._module)
            return getattr(module, self._name) if self._name else module

        def __getattr__(self, name: str) -> Any:
            return getattr(self._object(), name)

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            return self._object()(*arguments, **named)

    jax, jnp, lax = _Lazy("jax"), _Lazy("jax.numpy"), _Lazy("jax.lax")
    models, spectral = _Lazy("simulator.physics.models"), _Lazy("simulator.spectral")
    for _module, _names in {
        "simulator.physics.initial": "StartFiles",
        "simulator.physics.user_function": "line_of",
        "simulator.measure.volume": "Camera TransferFunction Volume",
        "simulator.physics.models.fluid": "strain_rate transfer",
        "simulator.physics.particles": "Domain ParticleSet",
        "simulator.physics.particles.domain": "Cut after",
        "simulator.physics.particles.population": "Population Populations",
        "simulator.physics.particles.interpolation": "COMPONENTS",
        "simulator.physics.particles.swarm": "Swarm",
        "simulator.spectral.bins": "Bins flux shell_spectra spectral_map",
        "simulator.spectral.layout": "PhysicalLayout",
        "simulator.spectral.operators": "cross curl divergence fluctuation gradient squared translate wavenumbers",
        "simulator.spectral.program": "Program",
    }.items():
        globals().update({_name: _Lazy(_module, _name) for _name in _names.split()})
