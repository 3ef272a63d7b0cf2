"""Means and variances over time of whole fields, in snapshots: field_statistics.h5 counts their samples."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, create_model

from simulator.errors import did_you_mean
from simulator.measure.cadence import SeriesCadence, distinct
from simulator.measure.kind import Kind, Subject, Unsupported
from simulator.settings import Real

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured

Names: Any = Annotated[tuple[str, ...], AfterValidator(distinct)]
# `from` is a word of Python, so that the class cannot be written as such.
FieldStatisticsSettings: Any = create_model(
    "FieldStatisticsSettings",
    __base__=SeriesCadence,
    **{  # pyright: ignore
        "from": (Real, Field(default=0.0, description="The time from which on samples are taken.")),
        "fields": (
            Names | None,
            Field(
                default=None, description="Fields of real values, derived ones too; by default the model's."
            ),
        ),
    },
)


class FieldStatistics(Kind):
    name = "field_statistics"
    description = (
        "Means and variances over time of whole fields, in every snapshot as NAME_mean and NAME_variance."
    )
    Settings = FieldStatisticsSettings

    def measured(self, subject: Subject, settings: Any) -> "Measured":
        from simulator.diagnostics.field_statistics import field_statistics

        model = subject.model
        known = [name for name, spec in model.specs().items() if not spec.complex]
        names = settings.fields or tuple(name for name in model.fields if name in known)
        for name in names:
            if name not in known:
                meant = did_you_mean(name, known)
                raise Unsupported(
                    f"{name} is not a field of real values{meant} known: {', '.join(known)}", key="fields"
                )
            if taken := {f"{name}_mean", f"{name}_variance"} & model.specs().keys():
                raise Unsupported(f"{min(taken)} is a field itself; rename it", key="fields")
        if not names:
            raise Unsupported("needs a field of real values")
        if subject.transform.grid.planar:
            raise Unsupported("needs three dimensions", key="fields")
        return field_statistics(model, names, float(getattr(settings, "from")))
