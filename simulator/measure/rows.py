"""Functions that compute rows of several kinds of series."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator import spectral
from simulator.measure.kind import Kind, Measured, Subject, Unsupported
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.physics.models.navier_stokes import sheared_frame
from simulator.spectral.collectives import after


def measurement(kind: Kind, subject: Subject, settings: Any) -> Measured:
    """The measurement of a kind; if the wavenumbers of the model depend on time, it is made again
    for the time of each state.

    Raises Unsupported if the model does not have the quantities."""
    if sheared_frame(subject.model) is None:
        return kind.measured(subject, settings)
    if not kind.sheared:
        raise Unsupported("does not follow a background shear; leave it out", of_model=False)

    def at(time: Any) -> Measured:
        return kind.measured(replace(subject, model=subject.model.at(time)), settings)

    def compute(state: models.State, *arrays: Any) -> dict[str, jax.Array]:
        return at(state.time).compute(state, *arrays)

    def update(state: models.State, arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        carried = at(state.time).carried
        assert carried is not None
        return carried.update(state, arrays)

    first = at(0.0)
    carried = first.carried and replace(first.carried, update=update)
    return replace(first, compute=compute, carried=carried)


def row_names(
    subject: Subject, function: Callable[[models.Fields], Mapping[str, Any]]
) -> tuple[str, ...]:
    """The names in the result of a function of the fields, which is traced and not computed."""
    return tuple(jax.eval_shape(function, outputs.contents(subject.model, subject.template)))


def in_one_file(one: Measured, other: Measured) -> Measured:
    """Both measurements in one file; neither may carry arrays."""

    def compute(state: models.State) -> dict[str, jax.Array]:
        row = one.compute(state)
        return row | other.compute(following(state, row))

    return Measured(
        {**one.coordinates, **other.coordinates},
        {**one.variables, **other.variables},
        compute,
        {**one.attributes, **other.attributes},
        lambda: {**one.beside(), **other.beside()},
    )


def following(state: models.State, row: Mapping[str, jax.Array]) -> models.State:
    """The state, with a data dependence that keeps its arrays from being sent to other devices
    before `row` is computed. Exchanges of one program that do not depend on each other may start in
    a different order on each process, and the processes then wait for one another for ever."""
    first = next(iter(row.values()))

    def later(array: jax.Array) -> jax.Array:
        return after(array, first) if jnp.issubdtype(array.dtype, jnp.inexact) else array

    return replace(
        state,
        fields=jax.tree.map(later, state.fields),
        particles=jax.tree.map(later, state.particles),
    )


def in_shells(
    layout: spectral.Layout,
    names: Iterable[str],
    compute: Callable[[models.State], dict[str, jax.Array]],
) -> Measured:
    """Shell spectra as functions of the shells' wavenumbers `k`, with the number of `modes` in each
    shell and the mean wavenumber `k_mean` of these modes. Beyond the `largest_wavenumber`, the
    radius of the largest sphere of kept modes, a shell has only the modes in the corners."""

    def beside() -> dict[str, tuple[str, np.ndarray]]:
        modes, mean = layout.once(layout.shell_modes)
        return {
            "modes": ("k", np.asarray(modes).astype(np.int64)),
            "k_mean": ("k", np.asarray(mean)),
        }

    variables = {name: ("k",) for name in names}
    attributes = {"shell_width": layout.shell_width}
    attributes["largest_wavenumber"] = layout.largest_wavenumber
    return Measured({"k": layout.shell_wavenumbers()}, variables, compute, attributes, beside)


def binned(place: jax.Array, bins: int, values: jax.Array | float = 1.0) -> jax.Array:
    """The sum (bins,) of `values`, by default 1, over the places from i to i + 1 for each bin i."""
    numbers = bin_numbers(place.ravel(), bins)
    return jnp.zeros(bins + 1, jnp.float64).at[numbers].add(values)[:bins]


def bin_numbers(place: jax.Array, bins: int, counted: jax.Array | bool = True) -> jax.Array:
    """The bin of each place, which bin i has from i to i + 1; `bins` for places in none, and for
    those that are not `counted`."""
    place = jnp.floor(place)
    inside = counted & (place >= 0) & (place < bins)
    return jnp.where(inside, place, bins).astype(jnp.int32)
