"""Energies against the wavenumbers across and along an axis: spectral_maps.h5."""

from __future__ import annotations

from typing import Literal

from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.lazy import Bins, jax, models, spectral, spectral_map


class SpectralMapSettings(SeriesCadence):
    axis: Literal["x", "y", "z"] = "z"
    """The direction that stands out, such as that of rotation, gravity or a mean field."""


class SpectralMaps(Kind):
    name = "spectral_maps"
    description = "Energies against the wavenumbers across and along an axis in spectral_maps.h5."
    Settings = SpectralMapSettings

    def measured(self, subject: Subject, settings: SpectralMapSettings) -> Measured:
        model, transform = subject.model, subject.transform
        if not (energies := subject.names(model.spectral_energies)):
            raise Unsupported("needs energies of modes")
        if settings.axis not in (axes := transform.grid.names.values()):
            raise Unsupported(f"the grid has no {settings.axis}; give {' or '.join(axes)}", key="axis")
        return spectral_maps(transform.layout, model, settings.axis, energies)


def spectral_maps(
    layout: spectral.Layout, model: models.Model, axis: str, names: tuple[str, ...]
) -> Measured:
    """`NAME` (k_perpendicular, k_parallel): energy per area of the plane of the wavenumbers across and along an axis.
    Sums along either, times the bins' width, are the spectra of `directional_spectra`."""
    across, along = Bins(layout, axis, "perpendicular"), Bins(layout, axis, "parallel")

    def compute(state: models.State) -> dict[str, jax.Array]:
        energies = model.spectral_energies(state.fields)
        return {n: spectral_map(across, along, layout, e) for n, e in energies.items()}

    coordinates = {"k_perpendicular": across.wavenumbers(), "k_parallel": along.wavenumbers()}
    return Measured(coordinates, dict.fromkeys(names, tuple(coordinates)), compute, {"axis": axis})
