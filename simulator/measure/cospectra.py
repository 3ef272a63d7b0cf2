"""Spectra of fluxes and helicities, and of parts of the energy: cospectra.h5."""

from typing import TYPE_CHECKING

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Curves, Kind, Subject, Unsupported

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class Cospectra(Kind):
    name = "cospectra"
    description = "Spectra of fluxes and helicities, and of parts of the energy, in cospectra.h5."
    curves = Curves(coordinates={"k": r"wavenumber $k$"}, log="x")

    def measured(self, subject: Subject, settings: SeriesCadence) -> "Measured":
        from simulator.diagnostics.measured import in_shells
        from simulator.spectral.bins import shell_spectra

        model, layout = subject.model, subject.model.density_transform.layout
        if not (names := subject.names(model.cospectra)):
            raise Unsupported("needs scalars, rotation, stratification, a magnetic field, gas or waves")
        return in_shells(layout, names, lambda state: shell_spectra(layout, model.cospectra(state.fields)))
