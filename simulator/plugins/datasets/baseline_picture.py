"""`simulator baseline`: the error of a solver on coarser grids against its cost."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from simulator.plugins.datasets.baseline import Point, Trial
from simulator.plugins.pictures.lines import legend_beside, logarithmic, panels
from simulator.plugins.pictures.style import COLOURS, draw

_MARKS = "osD^vP"


def draw_baseline(
    folder: Path, trials: Sequence[Trial], points: Sequence[Point], floor: float | None
) -> Path:
    """Draws `folder`/baseline.png; returns its path."""
    return draw(lambda: error_against_cost(trials, points, floor), folder / "baseline.png")


def error_against_cost(
    trials: Sequence[Trial], points: Sequence[Point], floor: float | None
) -> Figure:
    """A mark for each trial, filled and joined for the best of each grid; a star for each learned
    solver; a line at `floor`, the distance of the data set to the next finer grid."""
    figure, (axes,) = panels("time of a trajectory (s)", "error (VRMSE)", right=0.68)
    grids = list(dict.fromkeys(trial.grid for trial in trials))
    for i, grid in enumerate(grids):
        style: dict[str, Any] = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": _MARKS[i % len(_MARKS)],
        }
        there = [t for t in trials if t.grid == grid and math.isfinite(t.error)]
        others = [t for t in there if not t.best]
        axes.plot(
            [t.seconds for t in others],
            [t.error for t in others],
            linestyle="",
            fillstyle="none",
            alpha=0.6,
            markersize=4,
            **style,
        )
        for t in (t for t in there if t.best):
            label = f"{grid}:\n{t.integrator}, CFL {t.cfl:.3g}"
            axes.plot([t.seconds], [t.error], linestyle="", markersize=8, label=label, **style)
    best = sorted((t for t in trials if t.best), key=lambda t: t.seconds)
    axes.plot([t.seconds for t in best], [t.error for t in best], "-", color="0.5", zorder=0)
    for i, point in enumerate(points):
        colour = COLOURS[(len(grids) + i) % len(COLOURS)]
        axes.plot(
            [point.seconds], [point.error], "*", markersize=13, color=colour, label=point.name
        )
    if floor is not None:
        axes.axhline(floor, color="0.4", linestyle=":", label="data set against\ntwice its grid")
    logarithmic(axes, "xy")
    legend_beside(axes)
    return figure
