"""Energies against the wavenumbers across and along an axis: spectral_maps.h5."""

from typing import TYPE_CHECKING, Literal

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Kind, Subject, Unsupported

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class SpectralMapSettings(SeriesCadence):
    axis: Literal["x", "y", "z"] = "z"
    """The direction that stands out, such as that of rotation, gravity or a mean field."""


class SpectralMaps(Kind):
    name = "spectral_maps"
    description = "Energies against the wavenumbers across and along an axis in spectral_maps.h5."
    Settings = SpectralMapSettings

    def measured(self, subject: Subject, settings: SpectralMapSettings) -> "Measured":
        from simulator.diagnostics.measured import spectral_maps

        model, transform = subject.model, subject.transform
        if not (energies := subject.names(model.spectral_energies)):
            raise Unsupported("needs energies of modes")
        if settings.axis not in (axes := transform.grid.names.values()):
            raise Unsupported(f"the grid has no {settings.axis}; give {' or '.join(axes)}", key="axis")
        return spectral_maps(transform.layout, model, settings.axis, energies)
