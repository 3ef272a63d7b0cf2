"""Means, variances and standard errors over time, from correlated samples: statistics.h5. Means and
variances of whole fields, in snapshots: field_statistics.h5 counts their samples.

The error of a mean of correlated samples follows from means of blocks of 2, 4, 8, ... samples: when
blocks are longer than the correlation time, their means are independent and the estimate levels off
(Flyvbjerg and Petersen 1989, J. Chem. Phys. 91, 461). Each level gets its samples from the previous
one as pairs become complete, so that the memory grows with the logarithm of the number of
samples."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from pydantic import AfterValidator, Field, create_model

from simulator.measure.kind import (
    Carried,
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
    check_field_names,
    distinct,
)
from simulator.measure.rows import in_shells
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.plugins.statistics.transfer import transfers_and_fluxes
from simulator.settings import Real

# `from` is a keyword of Python, so that a class statement cannot define the field.
_FROM: Any = {"from": (Real, Field(default=0.0, description="The time of the first sample."))}
StatisticsSettings: Any = create_model("StatisticsSettings", __base__=SeriesCadence, **_FROM)

OF = ("mean", "variance", "error")


class Statistics(Kind):
    sheared = True
    name = "statistics"
    description = (
        "Means over time of diagnostics, spectra and transfer, with error bars, in statistics.h5."
    )
    Settings = StatisticsSettings
    frequent = True

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        model = subject.model
        layout = subject.transform.layout
        start = float(getattr(settings, "from"))

        def quantities(state: models.State) -> dict[str, jax.Array]:
            values = {n: value for n, value in subject.row(state).items() if n != "rate"}
            values |= {
                f"spectrum/{n}": e
                for n, e in outputs.spectra(model, outputs.contents(model, state)).items()
            }
            values |= transfers_and_fluxes(model, state.fields)
            return dict(sorted(values.items()))

        shapes = {name: a.shape for name, a in jax.eval_shape(quantities, subject.template).items()}
        sizes = [shape[0] if shape else 1 for shape in shapes.values()]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]

        def begin() -> dict[str, jax.Array]:
            return empty(ends[-1])._asdict()

        def update(state: models.State, sums: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            active = state.time >= start * (1 - 1e-12)
            return taken_in(Moments(**sums), flattened(quantities(state)), active)._asdict()

        def compute(state: models.State, sums: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            moments = Moments(**sums)
            row = {"samples": moments.blocks[0]}
            for kind, values in results(moments).items():
                parts = zip(shapes.items(), jnp.split(values, ends[:-1]), strict=True)
                row |= {f"{kind}/{name}": part.reshape(shape) for (name, shape), part in parts}
            return row

        curves = [name for name, shape in shapes.items() if shape]
        shells = in_shells(layout, curves, lambda state: {})
        over = {name: ("k",) if shape else () for name, shape in shapes.items()}
        variables = {"samples": ()} | {
            f"{kind}/{name}": axes for kind in OF for name, axes in over.items()
        }
        attributes = {**shells.attributes, "from": start}
        carried = Carried(begin, update, samples=True)
        return Measured(shells.coordinates, variables, compute, attributes, shells.beside, carried)


LEVELS = 32
FEWEST = 8  # Smallest number of blocks for which the estimate of a level is used.


class Moments(NamedTuple):
    """For a vector of n quantities, on each level: the number of blocks (levels,); the mean and the
    sum of squared deviations of the blocks' means (levels, n); the mean of a block that waits for
    its partner (levels, n), and whether a block waits (levels,), 0 or 1."""

    blocks: jax.Array
    mean: jax.Array
    squares: jax.Array
    waiting: jax.Array
    waits: jax.Array


def empty(n: int) -> Moments:
    zeros = jnp.zeros((LEVELS, n))
    return Moments(jnp.zeros(LEVELS, jnp.int64), zeros, zeros, zeros, jnp.zeros(LEVELS, jnp.int64))


def with_sample(
    count: jax.Array, mean: jax.Array, squares: jax.Array, value: jax.Array, on: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The mean and the sum of squared deviations of `count` samples, the last of which is `value`,
    if `on` (Welford 1962, Technometrics 4, 419)."""
    away = jnp.where(on, value - mean, 0)
    mean = mean + away / jnp.maximum(count, 1).astype(mean.dtype)
    return mean, squares + away * jnp.where(on, value - mean, 0)


def taken_in(moments: Moments, sample: jax.Array, on: jax.Array) -> Moments:
    """The moments with one more sample (n,), if `on`."""

    def level(
        carry: tuple[jax.Array, jax.Array], old: Moments
    ) -> tuple[tuple[jax.Array, jax.Array], Moments]:
        value, active = carry
        count = old.blocks + active
        mean, squares = with_sample(count, old.mean, old.squares, value, active)
        complete = active & (old.waits > 0)
        waiting = jnp.where(active & ~complete, value, old.waiting)
        waits = jnp.where(active, 1 - old.waits, old.waits)
        return ((old.waiting + value) / 2, complete), Moments(count, mean, squares, waiting, waits)

    return lax.scan(level, (sample, on), moments)[1]


def results(moments: Moments) -> dict[str, jax.Array]:
    """`mean`, `variance` of the samples and standard `error` of the mean, (n,) each; nan for too
    few samples."""
    count = moments.blocks[:, None]
    spread = moments.squares / jnp.maximum(count - 1, 1)
    squared = jnp.where(count >= FEWEST, spread / jnp.maximum(count, 1), 0.0).max(0)
    few = moments.blocks[0] < FEWEST
    return {
        "mean": jnp.where(moments.blocks[0] > 0, moments.mean[0], jnp.nan),
        "variance": jnp.where(moments.blocks[0] > 1, spread[0], jnp.nan),
        "error": jnp.where(few, jnp.nan, jnp.sqrt(squared)),
    }


def flattened(quantities: Mapping[str, jax.Array]) -> jax.Array:
    """All quantities as one vector, in double precision."""
    return jnp.concatenate([jnp.ravel(value).astype(jnp.float64) for value in quantities.values()])


class FieldStatisticsSettings(StatisticsSettings):
    fields: Annotated[tuple[str, ...], AfterValidator(distinct)] | None = None
    """Real fields, evolved or derived; by default the evolved ones."""


_KEPT = ("mean", "squares")


class FieldStatistics(Kind):
    name = "field_statistics"
    description = "Means and variances over time of whole fields, in every snapshot as NAME_mean and NAME_variance."
    Settings = FieldStatisticsSettings

    def measured(self, subject: Subject, settings: FieldStatisticsSettings) -> Measured:
        """Statistics over the samples from the time `from` on, updated with two further arrays for
        every component, in the run's precision. A row holds the number n of `samples`; `NAME_mean`
        and `NAME_variance` (with the divisor n - 1) go into snapshots, and are zero if n is too
        small."""
        model = subject.model
        names = _averaged(subject, settings.fields)
        start = float(getattr(settings, "from"))
        physical = model.transform.physical
        dtype = model.transform.dtype
        shapes = {
            name: (*outputs.field_specs(model)[name].shape, *physical.shape) for name in names
        }

        def begin() -> dict[str, jax.Array]:
            arrays = {
                f"{kind}_{name}": jnp.zeros(s, dtype)
                for name, s in shapes.items()
                for kind in _KEPT
            }
            return {"samples": jnp.int64(0), **arrays}

        def update(state: models.State, arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            on = state.time >= start * (1 - 1e-12)
            count = arrays["samples"] + on
            fields = state.fields
            updated = {"samples": count}
            for name in names:
                values = outputs.grid_values(model, name, fields)
                old = arrays[f"mean_{name}"], arrays[f"squares_{name}"]
                mean, squares = with_sample(count, *old, values, on)
                updated |= {f"mean_{name}": mean, f"squares_{name}": squares}
                # Fields are updated one after the other, so that the values of only one are in
                # memory.
                fields, updated = jax.lax.optimization_barrier((fields, updated))
            return updated

        def fields(arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            rest = jnp.maximum(arrays["samples"] - 1, 1).astype(dtype)
            means = {f"{name}_mean": arrays[f"mean_{name}"] for name in names}
            return means | {f"{name}_variance": arrays[f"squares_{name}"] / rest for name in names}

        places = {f"{kind}_{name}": physical for name in names for kind in _KEPT}
        carried = Carried(begin, update, places, fields, samples=True)

        def compute(state: models.State, arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            return {"samples": arrays["samples"]}

        return Measured({}, {"samples": ()}, compute, {"from": start}, carried=carried)


def _averaged(subject: Subject, asked: tuple[str, ...] | None) -> tuple[str, ...]:
    """The names of the fields to average. Refuses complex fields, and fields NAME if NAME_mean or
    NAME_variance is itself a field of the model."""
    model = subject.model
    known = [name for name, spec in outputs.field_specs(model).items() if not spec.complex]
    names = asked or tuple(name for name in model.fields if name in known)
    check_field_names(names, known, "a field of real values")
    for name in names:
        if taken := {f"{name}_mean", f"{name}_variance"} & outputs.field_specs(model).keys():
            raise Unsupported(f"{min(taken)} is a field itself; rename it", key="fields")
    if not names:
        raise Unsupported("needs a field of real values")
    if subject.transform.grid.dimensions < 3:
        raise Unsupported("needs three dimensions", key="fields")
    return names
