"""Joint probability densities and conditional means of two quantities at a point: joint_histograms.h5."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from simulator.measure.cadence import SeriesCadence
from simulator.measure.helicity import check_flow
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.measure.slices import check_scalar
from simulator.settings import Integer, Ratio

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class JointHistogramSettings(SeriesCadence):
    pairs: Annotated[tuple[tuple[str, str], ...], Field(min_length=1, max_length=20)] = (("R", "Q"),)
    """Pairs of quantities: scalar fields, and Q and R, the invariants of the velocity gradient."""
    bins: Annotated[Integer, Field(ge=2, le=1000)] = 100
    """Number of bins along each axis."""
    range: Ratio = 10.0
    """The histograms extend by this many units to both sides."""


class JointHistograms(Kind):
    name = "joint_histograms"
    description = (
        "Joint probability densities and conditional means of pairs of quantities, such as Q and R, in "
        "joint_histograms.h5."
    )
    Settings = JointHistogramSettings

    def measured(self, subject: Subject, settings: JointHistogramSettings) -> "Measured":
        from simulator.diagnostics.joint_histograms import INVARIANTS, joint_histograms

        for number, pair in enumerate(settings.pairs):
            if pair in settings.pairs[:number] or pair[0] == pair[1]:
                raise Unsupported(f"{pair[0]}, {pair[1]} is no pair, or there twice", key=f"pairs.{number}")
            for name in pair:
                if name in INVARIANTS:
                    check_flow(subject)
                    if subject.transform.grid.planar:
                        raise Unsupported(
                            "Q and R are invariants of gradients in three dimensions; name scalar fields",
                            "pairs",
                        )
                else:
                    check_scalar(name, subject, key=f"pairs.{number}")
        return joint_histograms(subject.model, settings.pairs, settings.bins, settings.range)
