"""Spectra over shells and over wavenumbers across and along an axis, and spectra of fluxes,
helicities and parts of the energy: spectra.h5, spectral_maps.h5 and cospectra.h5."""

from dataclasses import replace
from functools import partial
from typing import Literal

import jax

from simulator.measure.kind import Curves, Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.rows import in_one_file, in_shells, row_names
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.physics.models.split_equation import density_transform
from simulator.spectral.bins import Bins, shell_spectra, spectral_map

Axis = Literal["x", "y", "z"]
DIRECTIONS = ("perpendicular", "parallel")


class SpectraSettings(SeriesCadence):
    axis: Axis | None = None
    """Also write spectra over the wavenumbers across and along this axis."""


class Spectra(Kind):
    sheared = True
    name = "spectra"
    description = "Shell spectra in spectra.h5."
    Settings = SpectraSettings
    default = SpectraSettings(every_steps=100)

    def measured(self, subject: Subject, settings: SpectraSettings) -> Measured:
        """`NAME` (k): the shell spectra of the model. With an axis also `perpendicular/NAME` and
        `parallel/NAME`: spectra over the wavenumbers across and along the axis."""
        model = subject.model
        layout = subject.transform.layout
        shells = in_shells(
            layout,
            row_names(subject, partial(outputs.spectra, model)),
            lambda state: outputs.spectra(model, outputs.contents(model, state)),
        )
        shells = replace(
            shells, attributes={**shells.attributes, **outputs.spectra_attributes(model)}
        )
        if settings.axis is None:
            return shells
        names, bins = _bins(subject, settings.axis, "axis: needs energies of modes")

        def compute(state: models.State) -> dict[str, jax.Array]:
            row = dict[str, jax.Array]()
            both = (bins["perpendicular"], bins["parallel"])
            for name, energy in outputs.spectral_energies(model, state.fields).items():
                plane = spectral_map(*both, layout, energy)
                row[f"perpendicular/{name}"] = plane.sum(1) * both[1].width
                row[f"parallel/{name}"] = plane.sum(0) * both[0].width
            return row

        coordinates = {f"k_{d}": b.wavenumbers() for d, b in bins.items()}
        variables = {f"{d}/{n}": (f"k_{d}",) for d in bins for n in names}
        return in_one_file(
            shells, Measured(coordinates, variables, compute, {"axis": settings.axis})
        )


def _bins(subject: Subject, axis: str, missing: str) -> tuple[tuple[str, ...], dict[str, Bins]]:
    """The names of the energies of modes, and the bins of the wavenumbers across and along an
    axis."""
    layout = subject.transform.layout
    if not (names := row_names(subject, partial(outputs.spectral_energies, subject.model))):
        raise Unsupported(missing)
    if axis not in (axes := layout.grid.names.values()):
        raise Unsupported(f"the grid has no {axis}; give {' or '.join(axes)}", key="axis")
    return names, {d: Bins(layout, axis, d) for d in DIRECTIONS}  # pyright: ignore[reportArgumentType]


class SpectralMapSettings(SeriesCadence):
    axis: Axis = "z"
    """The direction that stands out, such as that of rotation, gravity or a mean field."""


class SpectralMaps(Kind):
    sheared = True
    name = "spectral_maps"
    description = "Energies against the wavenumbers across and along an axis in spectral_maps.h5."
    Settings = SpectralMapSettings

    def measured(self, subject: Subject, settings: SpectralMapSettings) -> Measured:
        """`NAME` (k_perpendicular, k_parallel): energy per area of the plane of the wavenumbers
        across and along an axis. The sum along one of them, times the bins' width, is the spectrum
        over the other."""
        model = subject.model
        layout = subject.transform.layout
        names, bins = _bins(subject, settings.axis, "needs energies of modes")

        def compute(state: models.State) -> dict[str, jax.Array]:
            energies = outputs.spectral_energies(model, state.fields)
            both = bins["perpendicular"], bins["parallel"]
            return {n: spectral_map(*both, layout, e) for n, e in energies.items()}

        coordinates = {f"k_{d}": b.wavenumbers() for d, b in bins.items()}
        return Measured(
            coordinates, dict.fromkeys(names, tuple(coordinates)), compute, {"axis": settings.axis}
        )


class Cospectra(Kind):
    sheared = True
    name = "cospectra"
    description = "Spectra of fluxes and helicities, and of parts of the energy, in cospectra.h5."
    curves = Curves(coordinates={"k": r"wavenumber $k$"}, log="x")

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        model = subject.model
        layout = density_transform(subject.model).layout
        if not (names := row_names(subject, partial(outputs.cospectra, model))):
            raise Unsupported(
                "needs scalars, rotation, stratification, a magnetic field, gas or waves"
            )
        return in_shells(
            layout,
            names,
            lambda state: shell_spectra(layout, outputs.cospectra(model, state.fields)),
        )
