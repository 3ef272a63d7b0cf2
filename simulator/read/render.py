"""`simulator render RUN`: volume pictures of its snapshots as PNG files."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from simulator.config.overrides import Override
from simulator.errors import UserError
from simulator.files import replace_file
from simulator.measure.render import USUAL
from simulator.output.recorder import measured
from simulator.read.analyze import EVERY
from simulator.read.open import open_run
from simulator.read.recompute import Recomputed


def render(
    path: Path,
    steps: Sequence[int] | None = None,
    overrides: Sequence[str | Override] = (),
    fields: Sequence[str] = (),
) -> Iterator[Path]:
    """Render the snapshots with these `steps` (None: all; -1: the last) of the run in `path` into
    RUN/plots/render_FIELD_STEP.png, according to its `output.render` with the `overrides`; yields each file when it
    is written. `fields` are shown instead of those that `output.render` names; a field that it names, too, keeps its
    transfer function. Raises UserError if there is no such snapshot, or if the model has no field to show.
    """
    known = open_run(path).snapshots.steps
    wanted = known if steps is None else tuple(known[-1] if step == -1 and known else step for step in steps)
    for step in wanted:
        if step not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise UserError(f"--step: {path} has no snapshot of step {step}; there are: {listed}")
    asked = Recomputed(path).config.output.render  # pyright: ignore[reportAttributeAccessIssue] - a registered kind
    instead = [*([] if asked else [f"output.render={EVERY}"]), *_showing(fields, asked)]
    recomputed = Recomputed(path, [*instead, *overrides])
    simulation = recomputed.simulation
    kind = measured(simulation, "render")
    draw = jax.jit(kind.compute)
    for state in recomputed.states(wanted):
        picture = np.asarray(draw(state)["image"])
        if simulation.cluster.is_first:
            file = path / "plots" / f"render_{kind.attributes['field']}_{int(state.step):08d}.png"
            file.parent.mkdir(exist_ok=True)
            data = io.BytesIO()
            Image.fromarray(picture).save(data, "png", optimize=True)
            replace_file(file, data.getvalue())
            yield file


def _showing(fields: Sequence[str], asked: Any) -> list[Override]:
    """Overrides that show `fields` instead of those in `asked`, the run's settings."""
    if not fields:
        return []
    known: dict[str, Any] = {}
    if asked is not None:
        own = (asked.field,) if asked.field else USUAL
        known = asked.fields or dict.fromkeys(own, asked.transfer)
    functions = {name: known.get(name, "auto") for name in fields}
    if len(functions) > 1:
        new: dict[str, Any] = {"field": None, "transfer": None, "fields": functions}
    else:
        ((name, function),) = functions.items()
        new = {"field": name, "transfer": function, "fields": None}
    return [Override(("output", "render", key), value) for key, value in new.items()]
