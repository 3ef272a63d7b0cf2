"""Closures of large-eddy simulations. A new one is a file beside these, a line in `CLOSURES` and one in
`SubgridSettings`."""

from typing import Annotated, Any

from pydantic import Field

from simulator.physics.models.closures.closure import Closure
from simulator.physics.models.closures.python_closure import PythonStress, PythonStressSettings
from simulator.physics.models.closures.smagorinsky import Smagorinsky, SmagorinskySettings
from simulator.physics.models.closures.spectral import Spectral, SpectralSettings
from simulator.spectral import Transform

CLOSURES: dict[str, type[Closure]] = {
    "smagorinsky": Smagorinsky,
    "spectral": Spectral,
    "python": PythonStress,
}
SubgridSettings = Annotated[
    SmagorinskySettings | SpectralSettings | PythonStressSettings, Field(discriminator="kind")
]


def make_closure(settings: Any, transform: Transform, files: Any) -> Closure:
    """The closure that the settings describe."""
    return CLOSURES[settings.kind](settings, transform, files)


__all__ = ["CLOSURES", "Closure", "SubgridSettings", "make_closure"]
