"""`simulator render RUN`: volume pictures of its snapshots as PNG files."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from PIL import Image

from simulator.config.overrides import Override
from simulator.errors import UserError
from simulator.files import replace_file
from simulator.output.recorder import measured
from simulator.read.analyze import EVERY
from simulator.read.open import open_run
from simulator.read.recompute import Recomputed


def render(
    path: Path, steps: Sequence[int] | None = None, overrides: Sequence[str | Override] = ()
) -> Iterator[Path]:
    """Render the snapshots with these `steps` (None: all; -1: the last) of the run in `path` into
    RUN/plots/render_FIELD_STEP.png, according to its `output.render` with the `overrides`; yields each file when it
    is written. Raises UserError if there is no such snapshot, or if the model has no field to show.
    """
    known = open_run(path).snapshots.steps
    wanted = known if steps is None else tuple(known[-1] if step == -1 and known else step for step in steps)
    for step in wanted:
        if step not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise UserError(f"--step: {path} has no snapshot of step {step}; there are: {listed}")
    asked = Recomputed(path).config.output.render  # pyright: ignore[reportAttributeAccessIssue] - a registered kind
    recomputed = Recomputed(path, [*([] if asked else [f"output.render={EVERY}"]), *overrides])
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
