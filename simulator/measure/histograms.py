"""Probability densities of fields, their gradients and the logarithm of mass densities: histograms.h5."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from simulator.measure.cadence import SeriesCadence, check_rises
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Points, Ratio, Real

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured

Decade = Annotated[Real, Field(ge=-50, le=50)]


class HistogramSettings(SeriesCadence):
    bins: Points = 200
    """Number of bins."""
    range: Ratio = 20.0
    """The histograms extend by this many standard deviations to both sides of the mean."""
    decades: tuple[Decade, Decade] = (-6.0, 6.0)
    """Logarithmic range of the histograms of a mass density: powers of ten of its mean."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        check_rises("decades", self.decades)
        return self


class Histograms(Kind):
    name = "histograms"
    description = (
        "Probability densities of the fields and their gradients, and of log density, in histograms.h5."
    )
    Settings = HistogramSettings

    def measured(self, subject: Subject, settings: HistogramSettings) -> "Measured":
        from simulator.diagnostics.density import densities, log_densities
        from simulator.diagnostics.histograms import histograms

        model, transform = subject.model, subject.transform
        mass = densities(model)
        # Fields with their own transforms are measured by their densities only.
        separate = any(spec.transform is not None for spec in model.fields.values())
        plain = {} if separate or not transform.layout.real else model.shapes
        if not plain and not mass:
            raise Unsupported("needs real fields or a mass density")
        linear = histograms(transform, plain, settings.bins, settings.range)
        if not mass:
            return linear
        return linear.joined(log_densities(model.density_transform, mass, settings.bins, settings.decades))
