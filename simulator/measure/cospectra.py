"""Spectra of fluxes and helicities, and of parts of the energy: cospectra.h5."""

from __future__ import annotations

from simulator.measure.kind import Curves, Kind, Measured, SeriesCadence, Subject, Unsupported, in_shells
from simulator.measure.lazy import shell_spectra


class Cospectra(Kind):
    name = "cospectra"
    description = "Spectra of fluxes and helicities, and of parts of the energy, in cospectra.h5."
    curves = Curves(coordinates={"k": r"wavenumber $k$"}, log="x")

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        model, layout = subject.model, subject.model.density_transform.layout
        if not (names := subject.names(model.cospectra)):
            raise Unsupported("needs scalars, rotation, stratification, a magnetic field, gas or waves")
        return in_shells(layout, names, lambda state: shell_spectra(layout, model.cospectra(state.fields)))
