"""Shell spectra, and spectra across and along an axis: spectra.h5."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported, in_shells
from simulator.measure.lazy import Bins, jax, models, spectral


class SpectraSettings(SeriesCadence):
    axis: Literal["x", "y", "z"] | None = None
    """Write spectra across and along this axis too."""


class Spectra(Kind):
    name = "spectra"
    description = "Shell spectra in spectra.h5."
    Settings = SpectraSettings
    default = SpectraSettings(every_steps=100)

    def measured(self, subject: Subject, settings: SpectraSettings) -> Measured:
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


def directional_spectra(
    layout: spectral.Layout, model: models.Model, axis: str, names: tuple[str, ...]
) -> Measured:
    """Spectra of the wavenumber across and along an axis, `perpendicular/NAME` and `parallel/NAME`."""
    bins = {d: Bins(layout, axis, d) for d in ("perpendicular", "parallel")}

    def compute(state: models.State) -> dict[str, jax.Array]:
        energies = model.spectral_energies(state.fields)
        return {f"{d}/{n}": b.spectrum(e) for d, b in bins.items() for n, e in energies.items()}

    return Measured(
        {f"k_{d}": b.wavenumbers() for d, b in bins.items()},
        {f"{d}/{n}": (f"k_{d}",) for d in bins for n in names},
        compute,
        {"axis": axis},
    )
