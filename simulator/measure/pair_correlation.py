"""The radial distribution function of particles: pair_correlation.h5."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from simulator.measure.cadence import SeriesCadence, check_rises, distinct
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Integer, Positive

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class PairCorrelationSettings(SeriesCadence):
    range: tuple[Positive, Positive] | None = None
    """The smallest and the largest distance (length); by default from 1/16 to 4 grid spacings."""
    bins: Annotated[Integer, Field(ge=1, le=1000)] = 24
    """Number of bins between them, of equal width in the logarithm."""
    count: Annotated[Integer, Field(ge=2, le=10**8)] = 100000
    """The largest number of particles of each species that take part, with evenly spaced ids."""
    particles: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Names of the species; by default all."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        check_rises("range", self.range)
        return self


class PairCorrelation(Kind):
    name = "pair_correlation"
    description = (
        "Radial distribution function g(r) of particles in pair_correlation.h5: how much they cluster."
    )
    Settings = PairCorrelationSettings

    def measured(self, subject: Subject, settings: PairCorrelationSettings) -> "Measured":
        import numpy as np

        from simulator.diagnostics.pair_correlation import pair_correlation

        particles, grid = subject.particles, subject.transform.grid
        names = particles.species(settings.particles)
        long = [i for i in (0, 1, 2) if grid.shape[i] > 1]
        spacing = min(grid.spacing[i] for i in long)
        low, high = settings.range or (spacing / 16, 4 * spacing)
        half = min(grid.box[i] for i in long) / 2
        if high > half:
            raise Unsupported(
                f"distances reach {high:g}, and only up to half the box, {half:g}, does a pair have one",
                "range",
            )
        edges = np.geomspace(low, high, settings.bins + 1)
        return pair_correlation(particles.populations, names, edges, settings.count)
