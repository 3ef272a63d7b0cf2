"""Radial profiles of mass densities about the densest point: profiles.h5."""

from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from simulator.measure.cadence import SeriesCadence, check_rises
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Points, Positive

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class ProfileSettings(SeriesCadence):
    bins: Points = 32
    """Number of spherical shells."""
    range: tuple[Positive, Positive] | None = None
    """Smallest and largest radius; by default the grid spacing and half the box."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        check_rises("range", self.range)
        return self


class Profiles(Kind):
    name = "profiles"
    description = "Radial profiles of mass densities about the densest point in profiles.h5."
    Settings = ProfileSettings

    def measured(self, subject: Subject, settings: ProfileSettings) -> "Measured":
        from simulator.diagnostics.density import densities, profiles

        if not (mass := densities(subject.model)):
            raise Unsupported("needs a mass density")
        return profiles(subject.model.density_transform, mass, settings.bins, settings.range)
