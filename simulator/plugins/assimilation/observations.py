"""Observations of a flow: tables of values at points or of spectra, and values of a function of the
state.

A table is a CSV file with a header, or an npz or HDF5 file with arrays:

    time, x, y, z   rows of a CSV; in arrays `time` (T,), and coordinates that broadcast to a common shape S
    velocity_x ...  columns; in arrays also `velocity` (T, component, *S): evolved fields of the model
    time, k         instead of coordinates: shells and spectra such as `kinetic_energy`, (T, K)
    time, values    of a function of the user: `values` (T, ...) as the function returns them
    error           the standard deviation, if the key `error` does not give it

Values that are NaN are missing. `observation_files` reads and checks a file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from simulator.errors import did_you_mean
from simulator.measure.kind import AXES
from simulator.measure.probes import values_at, values_at_points
from simulator.measure.python_series import FieldView
from simulator.physics.models import State, outputs
from simulator.physics.user_function import UserFunction
from simulator.plugins.assimilation.observation_files import (
    RESERVED,
    Arrays,
    Expected,
    Rule,
    checked,
    read_arrays,
)
from simulator.plugins.assimilation.settings import FunctionSettings, ObservationSettings
from simulator.simulation.simulation import Simulation

SPAN = 64  # Points that lie on a lattice with at most so many times their number are summed axis by axis.
_CLOSE = 1e-6


@dataclass(frozen=True)
class Observed:
    """Values of `operator(state)`, shape (n,), at `steps` after the start. `weight` is 1 / error, 0
    for missing values. Values at points have `positions` (n, axis), and `variables` with the field
    and the component of each; the values of one variable at all points follow those of another."""

    steps: np.ndarray
    values: np.ndarray
    weight: np.ndarray
    operator: Callable[[State], jax.Array]
    variables: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    positions: np.ndarray | None = None


class _Table(NamedTuple):
    """A table that fulfils its schema: its arrays, its values (time, n), and the rest of
    `Observed`."""

    arrays: Arrays
    values: np.ndarray
    operator: Callable[[State], jax.Array]
    variables: Mapping[str, tuple[str, int]] = {}
    positions: np.ndarray | None = None


Data = tuple[tuple[np.ndarray, np.ndarray], ...]  # Values and weights by kind of observation.


def read_observations(
    settings: Sequence[ObservationSettings],
    simulation: Simulation,
    refused: Callable[[str, str], Exception],
) -> list[Observed]:
    """The observations. `refused(key, message)` makes the error about a key relative to the list,
    such as `0.table`. Raises UserError for a table that cannot be read, that does not fulfil the
    schema, or that is outside of the box or of the time of the run."""
    observed = []
    for number, entry in enumerate(settings):
        try:
            observed.append(_observed(entry, read_arrays(entry.table), simulation))
        except ValueError as error:
            raise refused(f"{number}.table", f"{entry.table}: {error}") from None
    return observed


def _observed(settings: ObservationSettings, arrays: Arrays, simulation: Simulation) -> Observed:
    if settings.python is not None:
        table = _by_function(settings.python, arrays, simulation)
    elif "k" in arrays:
        table = _spectra(arrays, simulation)
    else:
        table = _at_points(arrays, simulation)
    arrays = table.arrays
    values = table.values
    steps = _steps(arrays["time"], simulation)
    if settings.error is None and "error" not in arrays:
        raise ValueError("has no `error`; give the key error, the standard deviation of the values")
    error = np.asarray(arrays["error"] if settings.error is None else settings.error)
    if error.ndim:
        error = error.reshape(len(steps), -1)
        error = np.tile(error, (1, values.shape[1] // error.shape[1]))
    present = np.isfinite(values)
    kind = simulation.dtype
    weight = np.where(present, 1 / np.where(present, error, 1), 0)
    values = np.where(present, values, 0)
    digits = abs(values * weight).max()
    if digits > 1 / np.finfo(kind).eps:
        raise ValueError(
            f"a value is {digits:.2g} times its error; {np.dtype(kind)} has fewer digits than that"
        )
    return Observed(
        steps,
        values.astype(kind),
        weight.astype(kind),
        table.operator,
        table.variables,
        table.positions,
    )


def step_length(simulation: Simulation) -> float:
    """The fixed time step of the run, which every assimilation has."""
    assert simulation.config.time.dt is not None
    return simulation.config.time.dt


def _steps(times: np.ndarray, simulation: Simulation) -> np.ndarray:
    dt = step_length(simulation)
    first = simulation.first_time
    last = simulation.config.time.stop
    if len(outside := times[(times < first - _CLOSE * dt) | (times > last + _CLOSE * dt)]):
        raise ValueError(
            f"the time {outside[0]:g} is outside of the run, which lasts from {first:g} to {last:g}"
        )
    steps = np.rint((times - first) / dt)
    if len(between := times[abs(times - first - steps * dt) > 1e-3 * dt]):
        raise ValueError(
            f"the time {between[0]:g} is no whole number of steps of time.dt = {dt:g} after the start"
        )
    if len(np.unique(steps)) < len(steps):
        raise ValueError("two times belong to the same step")
    return steps.astype(int)


def _columns(arrays: Arrays, known: Mapping[str, Any], what: str) -> list[str]:
    """The names of the values of a table. Raises ValueError for names that are not in `known`."""
    names = [name for name in arrays if name not in RESERVED]
    if unknown := [name for name in names if name not in known]:
        meant = did_you_mean(unknown[0], known)
        raise ValueError(f"unknown variable {unknown[0]!r}{meant} known {what}: {', '.join(known)}")
    if not names:
        raise ValueError(f"holds no values; known {what}: {', '.join(known)}")
    return names


def _by_function(settings: FunctionSettings, arrays: Arrays, simulation: Simulation) -> _Table:
    if "values" not in arrays:
        raise ValueError("has no `values`, those of the function")
    _columns(arrays, {"values": None}, "values")
    arrays = checked(arrays, Expected({"values": Rule(missing=True)}, {"values": 0}))
    function = UserFunction.of(simulation.inputs, settings, "the fields")
    model = simulation.model

    def operator(state: State) -> jax.Array:
        fields = FieldView(model.at(state.time), outputs.contents(model, state))
        return jnp.ravel(function(fields)).astype(simulation.dtype)

    values = arrays["values"].reshape(len(arrays["time"]), -1)
    shape = jax.eval_shape(operator, simulation.template).shape
    if shape != values.shape[1:]:
        raise ValueError(
            f"holds {values.shape[1]} values at a time; the function returns {shape[0]}"
        )
    return _Table(arrays, values, operator)


def _spectra(arrays: Arrays, simulation: Simulation) -> _Table:
    model = simulation.model
    layout = simulation.transform.layout

    def spectra(state: State) -> dict[str, jax.Array]:
        return outputs.spectra(model.at(state.time), outputs.contents(model, state))

    names = _columns(arrays, jax.eval_shape(spectra, simulation.template), "spectra")
    largest = (layout.shells - 1) * layout.shell_width
    where = f"no shell; shells are multiples of {layout.shell_width:g} up to {largest:g}"
    rule = Rule(low=0, high=largest, is_list=True, where=where)
    arrays = checked(arrays, Expected({"k": rule}, dict.fromkeys(names, 0)))
    waves = np.atleast_1d(arrays["k"])
    shells = np.rint(waves / layout.shell_width).astype(int)
    bad = abs(waves - shells * layout.shell_width) > 1e-3 * layout.shell_width
    if bad.any():
        raise ValueError(f"k = {waves[bad][0]:g} is {where}")
    values = np.concatenate([arrays[name] for name in names], -1)

    def operator(state: State) -> jax.Array:
        values = spectra(state)
        return jnp.concatenate([values[name][shells] for name in names]).astype(simulation.dtype)

    return _Table(arrays, values, operator)


def _at_points(arrays: Arrays, simulation: Simulation) -> _Table:
    model = simulation.model
    grid = simulation.grid
    where = list(grid.names.values())
    if missing := [axis for axis in where if axis not in arrays]:
        raise ValueError(f"has neither `{missing[0]}` nor `k`; places are {', '.join(where)}")
    columns_of = {
        n: [f"{n}_{c}" for c in spec.components] or [n]
        for n, spec in model.fields.items()
        if not spec.complex
    }
    known = {
        column: (n, i) for n, columns in columns_of.items() for i, column in enumerate(columns)
    }
    vectors = {n: columns for n, columns in columns_of.items() if model.fields[n].components}
    columns = _columns(arrays, known | vectors, "fields")
    rules = {
        axis: Rule(0, length, where=f"outside of the box, which extends from 0 to {length:g}")
        for axis, length in zip(where, grid.seen(grid.box), strict=True)
    }
    components = {name: len(vectors.get(name, ())) for name in columns}
    arrays = checked(arrays, Expected(rules, components))
    shape = np.broadcast_shapes(*(arrays[axis].shape for axis in where))
    points = np.stack([np.broadcast_to(arrays[axis], shape).ravel() for axis in where], -1)
    tables: dict[str, np.ndarray] = {}
    for name in columns:
        parts = np.moveaxis(arrays[name], 1, 0) if name in vectors else arrays[name][None]
        for column, part in zip(vectors.get(name, [name]), parts, strict=True):
            if column in tables:
                raise ValueError(f"holds {column} twice, by itself and as a part of its vector")
            tables[column] = part.reshape(len(part), -1)
    variables = {column: known[column] for column in tables}
    fields = list(dict.fromkeys(name for name, _ in variables.values()))
    take = _interpolated(simulation, points)

    def operator(state: State) -> jax.Array:
        fields_at = {name: take(name, state.fields[name]) for name in fields}
        parts = variables.values()
        return jnp.concatenate([fields_at[n].reshape(-1, len(points))[i] for n, i in parts])

    values = np.concatenate(list(tables.values()), 1)
    return _Table(arrays, values, operator, variables, np.tile(points, (len(tables), 1)))


def _interpolated(
    simulation: Simulation, points: np.ndarray
) -> Callable[[str, jax.Array], jax.Array]:
    """The function from a field's name and coefficients to its values (..., point), exact between
    grid points."""
    grid = simulation.grid
    places = np.zeros((len(points), 3))
    for column, axis in enumerate(grid.names):
        places[:, AXES.index(axis)] = points[:, column]
    axes = [np.unique(column, return_inverse=True) for column in places.T]
    lattice = np.prod([len(values) for values, _ in axes]) <= SPAN * len(points)

    def take(name: str, field: jax.Array) -> jax.Array:
        layout = simulation.model.transforms[name].layout
        if lattice:
            values = layout.replicated(values_at(layout, field, [v for v, _ in axes]))
            return values[(..., *(index.ravel() for _, index in axes))]
        return layout.replicated(values_at_points(layout, field, places))

    return take
