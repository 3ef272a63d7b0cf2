"""`simulator analyze RUN`: measures a run's snapshots with the code that measures during a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from simulator.config import dump_config
from simulator.config.overrides import Override
from simulator.errors import RunFailure, UserError
from simulator.files import remove_tree, replace_file
from simulator.measure import KINDS, requested
from simulator.output.output import Output
from simulator.output.recorder import series_of
from simulator.read.recompute import Recomputed
from simulator.run.folder import CONFIG
from simulator.simulation.simulation import Simulation

FOLDER = "analysis"
EVERY = "{every_steps: 1}"
"""The cadence of kinds that the run's configuration does not request; only snapshots give rows."""


@dataclass(frozen=True)
class Analysed:
    folder: Path
    series: tuple[str, ...]
    rows: int
    refused: tuple[str, ...]
    """A line for each kind that the model does not allow."""


def analyze(
    path: Path,
    kinds: Sequence[str] | None = None,
    overrides: Sequence[str | Override] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Analysed:
    """Measure every snapshot of the run in `path` into the folder RUN/analysis, which replaces an earlier one.

    The diagnostics and the series of the named `kinds` are measured (default: those of the run's configuration;
    `all`: every kind that the model allows). Raises UserError if there is nothing to measure, or if a kind does not
    exist or cannot be measured.
    """
    known = list(KINDS)
    every = kinds is not None and "all" in kinds
    for kind in kinds or ():
        if kind != "all" and kind not in known:
            raise UserError(f"--what: no kind of output {kind!r}; known: all, {', '.join(known)}")
    wanted = known if every else list(kinds or ())
    plain = Recomputed(path, overrides).config.output
    added = [f"output.{k}={EVERY}" for k in wanted if getattr(plain, k) is None]
    refused: list[str] = []
    if every:
        added, refused = _possible(path, overrides, added)
    left_out = [k for k in known if kinds is not None and k not in wanted and getattr(plain, k) is not None]
    recomputed = Recomputed(path, [*overrides, *added, *(f"output.{k}=null" for k in left_out)])
    folder = path / FOLDER
    simulation = recomputed.simulation
    if simulation.cluster.is_first:
        remove_tree(folder)
        folder.mkdir()
        replace_file(folder / CONFIG, dump_config(recomputed.config))
    output = Output(simulation, folder, cast(Any, None))
    series = tuple(name for name, _, _ in requested(recomputed.config.output))
    for number, state in enumerate(recomputed.states(), 1):
        output.take(("diagnostics", *series), state, cast(Any, None))
        if output.trouble:
            raise RunFailure(output.trouble)
        progress(number, len(recomputed.snapshots))
    output.close()
    return Analysed(folder, series, len(recomputed.snapshots), tuple(refused))


def _possible(
    path: Path, overrides: Sequence[str | Override], added: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The added kinds that the run's model allows, and a line for each of the others."""
    simulation: Simulation | None = None
    allowed, refused = [], []
    for override in added:
        recomputed = Recomputed(path, [*overrides, override])
        try:
            if simulation is None:
                simulation = recomputed.simulation
            simulation.config = recomputed.config
            series_of(simulation)
            allowed.append(override)
        except UserError as error:
            refused.append(str(error))
    return allowed, refused
