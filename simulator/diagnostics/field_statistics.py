"""Means and variances over time of fields at every grid point."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from simulator.diagnostics.measured import Carried, Measured
from simulator.models import Model, State

KINDS = ("mean", "squares")


def field_statistics(model: Model, names: Sequence[str], start: float) -> Measured:
    """Statistics over the samples from the time `start` on, updated as by Welford (1962, Technometrics 4, 419): two
    arrays more for every component, in the run's precision. A row holds the number of `samples`; `NAME_mean` and
    `NAME_variance`, that over n - 1, go into snapshots and are zero where there are too few."""
    physical, dtype = model.transform.physical, model.transform.dtype
    shapes = {name: (*model.specs()[name].shape, *physical.shape) for name in names}

    def begin() -> dict[str, jax.Array]:
        arrays = {f"{kind}_{name}": jnp.zeros(s, dtype) for name, s in shapes.items() for kind in KINDS}
        return {"samples": jnp.int64(0), **arrays}

    def update(state: State, arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
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
