"""JAX, and modules that import JAX, imported at their first use: runs are described, read and drawn
without JAX."""
# ruff: noqa: F401

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    from jax import lax

    from simulator import spectral
    from simulator.measure.volume import Camera, TransferFunction, Volume
    from simulator.physics import models
    from simulator.physics.initial import StartFiles
    from simulator.physics.models import outputs
    from simulator.physics.models.observables.modes import energy_transfer
    from simulator.physics.models.observables.velocity_fields import strain_rate
    from simulator.physics.particles import Domain, ParticleSet
    from simulator.physics.particles.interpolation import COMPONENTS
    from simulator.physics.particles.particle_start import PairPlaces
    from simulator.physics.particles.population import Population, Populations
    from simulator.physics.particles.swarm import Swarm
    from simulator.physics.user_function import UserFunction
    from simulator.spectral import operators
    from simulator.spectral.arrays import Number, ParticleVectors, PhysicalScalar, SpectralVector
    from simulator.spectral.bins import Bins, flux, shell_spectra, spectral_map
    from simulator.spectral.collectives import after
    from simulator.spectral.layout import PhysicalLayout
    from simulator.spectral.program import Program
else:

    class _Lazy:
        """Stands for a module or an object in a module, and imports the module at its use. The
        names are those of the imports above, read from this file."""

        def __init__(self, module: str, name: str = "") -> None:
            self._module, self._name = module, name

        def _object(self) -> Any:
            module = import_module(self._module)
            if self._name and not hasattr(module, self._name):
                return import_module(f"{self._module}.{self._name}")
            return getattr(module, self._name) if self._name else module

        def __getattr__(self, name: str) -> Any:
            return getattr(self._object(), name)

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            return self._object()(*arguments, **named)

    _names = next(
        block for block in ast.parse(Path(__file__).read_text()).body if isinstance(block, ast.If)
    )
    for _line in _names.body:
        for _name in _line.names:
            _proxy = (
                _Lazy(_name.name)
                if isinstance(_line, ast.Import)
                else _Lazy(_line.module, _name.name)
            )
            globals()[_name.asname or _name.name] = _proxy
