"""Means and variances over time of whole fields, in snapshots: field_statistics.h5 counts their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model

from simulator.errors import did_you_mean
from simulator.measure.kind import Carried, Kind, Measured, SeriesCadence, Subject, Unsupported, distinct
from simulator.measure.lazy import jax, jnp, models
from simulator.settings import Real

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

    def measured(self, subject: Subject, settings: Any) -> Measured:
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


KINDS = ("mean", "squares")


def field_statistics(model: models.Model, names: Sequence[str], start: float) -> Measured:
    """Statistics over the samples from the time `start` on, updated as by Welford (1962, Technometrics 4, 419): two
    arrays more for every component, in the run's precision. A row holds the number of `samples`; `NAME_mean` and
    `NAME_variance`, that over n - 1, go into snapshots and are zero where there are too few."""
    physical, dtype = model.transform.physical, model.transform.dtype
    shapes = {name: (*model.specs()[name].shape, *physical.shape) for name in names}

    def begin() -> dict[str, jax.Array]:
        arrays = {f"{kind}_{name}": jnp.zeros(s, dtype) for name, s in shapes.items() for kind in KINDS}
        return {"samples": jnp.int64(0), **arrays}

    def update(state: models.State, arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        on = state.time >= start * (1 - 1e-12)
        count = arrays["samples"] + on
        fields, found = state.fields, {"samples": count}
        for name in names:
            values, mean = model.whole_values(name, fields), arrays[f"mean_{name}"]
            away = jnp.where(on, values - mean, 0)
            mean = mean + away / jnp.maximum(count, 1).astype(dtype)
            squares = arrays[f"squares_{name}"] + away * jnp.where(on, values - mean, 0)
            found |= {f"mean_{name}": mean, f"squares_{name}": squares}
            # One field after the other, so that their values are not in memory together.
            fields, found = jax.lax.optimization_barrier((fields, found))
        return found

    def fields(arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        rest = jnp.maximum(arrays["samples"] - 1, 1).astype(dtype)
        return {
            key: value
            for name in names
            for key, value in (
                (f"{name}_mean", arrays[f"mean_{name}"]),
                (f"{name}_variance", arrays[f"squares_{name}"] / rest),
            )
        }

    places = {f"{kind}_{name}": physical for name in names for kind in KINDS}
    carried = Carried(begin, update, places, fields)
    return Measured(
        {},
        {"samples": ()},
        lambda state, arrays: {"samples": arrays["samples"]},
        {"from": start},
        carried=carried,
    )
