"""Renders snapshots of a run again, for `simulator render`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simulator.analysis.recompute import EVERY, Recomputed
from simulator.archive.open_run import open_run
from simulator.archive.series_recorder import measured_series
from simulator.config.overrides import Override
from simulator.errors import UserError
from simulator.measure.kind import SHOWN_FIRST
from simulator.plugins.pictures.render import RenderSettings


def rendered_pictures(
    path: Path,
    steps: Sequence[int] | None = None,
    overrides: Sequence[str | Override] = (),
    fields: Sequence[str] = (),
) -> Iterator[tuple[str, float, dict[str, np.ndarray]]]:
    """Render the snapshots with these `steps` (None: all; -1: the last) of the run in `path`,
    according to the run's `output.render` with the `overrides`. On process 0 yields `FIELD_STEP`,
    the time, and by name the `image` (row, column, channel) and `colours/NAME` of each field, rows
    of value, red, green, blue and absorption. `fields` replace the fields that `output.render`
    names; a field named in both keeps its transfer function. Raises UserError if there is no such
    snapshot, or if the model has no field to show."""
    known = open_run(path).snapshots.steps
    wanted = (
        known
        if steps is None
        else tuple(known[-1] if step == -1 and known else step for step in steps)
    )
    for step in wanted:
        if step not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise UserError(f"--step: {path} has no snapshot of step {step}; there are: {listed}")
    asked = getattr(Recomputed(path).config.output, "render", None)
    instead = [*([] if asked else [f"output.render={EVERY}"]), *_showing(fields, asked)]
    recomputed = Recomputed(path, [*instead, *overrides])
    simulation = recomputed.simulation
    kind = measured_series(simulation)["render"]
    draw = jax.jit(kind.compute)
    for state in recomputed.states(wanted):
        drawn = {name: np.asarray(values) for name, values in draw(state).items()}
        if simulation.cluster.is_first:
            yield f"{kind.attributes['field']}_{int(state.step):08d}", float(state.time), drawn


def _showing(fields: Sequence[str], asked: RenderSettings | None) -> list[Override]:
    """Overrides that replace the fields in `asked`, the run's settings of `output.render`, by
    `fields`."""
    if not fields:
        return []
    known: dict[str, Any] = {}
    if asked is not None:
        shown = (asked.field,) if asked.field else SHOWN_FIRST
        known = asked.fields or dict.fromkeys(shown, asked.transfer)
    functions = {name: known.get(name, "auto") for name in fields}
    if len(functions) > 1:
        new: dict[str, Any] = {"field": None, "transfer": None, "fields": functions}
    else:
        ((name, function),) = functions.items()
        new = {"field": name, "transfer": function, "fields": None}
    return [Override(("output", "render", key), value) for key, value in new.items()]
