"""Shell spectra, and spectra across and along an axis: spectra.h5."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Kind, Subject, Unsupported

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class SpectraSettings(SeriesCadence):
    axis: Literal["x", "y", "z"] | None = None
    """Write spectra across and along this axis too."""


class Spectra(Kind):
    name = "spectra"
    description = "Shell spectra in spectra.h5."
    Settings = SpectraSettings
    default = SpectraSettings(every_steps=100)

    def measured(self, subject: Subject, settings: SpectraSettings) -> "Measured":
        from simulator.diagnostics.measured import directional_spectra, in_shells

        model, layout = subject.model, subject.transform.layout
        shells = in_shells(
            layout, subject.names(model.spectra), lambda state: model.spectra(model.contents(state))
        )
        shells = replace(shells, attributes={**shells.attributes, **model.spectra_attributes})
        if settings.axis is None:
            return shells
        if not (energies := subject.names(model.spectral_energies)):
            raise Unsupported("axis: needs energies of modes")
        if settings.axis not in (axes := layout.grid.names.values()):
            raise Unsupported(f"the grid has no {settings.axis}; give {' or '.join(axes)}", key="axis")
        return shells.joined(directional_spectra(layout, model, settings.axis, energies))
