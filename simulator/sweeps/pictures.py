"""The pictures of a sweep, into OUTPUT/NAME/plots/."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from simulator.config.messages import nearest
from simulator.errors import UserError
from simulator.plotting import studies
from simulator.plotting.studies import Curve, Parameter
from simulator.plotting.style import draw
from simulator.plotting.time_series import PANELS
from simulator.run.open import Run, open_run
from simulator.run.series import SeriesReader
from simulator.sweeps import collect
from simulator.sweeps.status import Status, statuses_of
from simulator.sweeps.sweep import Sweep
from simulator.sweeps.table import collected


def plot_sweep(
    sweep: Sweep, *, x: str | None = None, y: Sequence[str] = (), hue: str | None = None
) -> list[Path]:
    """Draws `y` against `x`, and every run's series and latest spectra in one picture each; returns the files.

    `x` and `hue` are keys that the sweep sets (by default its first with numbers, and the next one), `y`
    expressions like those of `collect` (by default those). UserError where nothing was written yet.
    """
    across = _parameter(sweep, x, "--x") if x else _first(sweep)
    # Without a word, a key with many values is no line style.
    others = [key for key in sweep.varied if key != across.key]
    by = _parameter(sweep, hue, "--hue") if hue else None
    if by is None and others and len(_values(sweep, others[0]).distinct) <= len(studies.LINES):
        by = _values(sweep, others[0])
    expressions = [_expression(sweep, text) for text in y] or list(sweep.collected)
    statuses = statuses_of([run.folder for run in sweep.runs])
    pictures = _against(sweep, across, by, expressions, statuses) | _overlays(sweep, across, by)
    if not pictures:
        raise UserError(
            f"{sweep.folder}: no run has written anything yet; simulator sweep run {sweep.file} does"
        )
    folder = sweep.folder / "plots"
    return [draw(picture, folder / f"{name}.png") for name, picture in pictures.items()]


def _first(sweep: Sweep) -> Parameter:
    found = [_values(sweep, key) for key in sweep.varied]
    return next((parameter for parameter in found if parameter.numeric), found[0])


def _values(sweep: Sweep, key: str) -> Parameter:
    return Parameter(key, [run.values.get(key) for run in sweep.runs])


def _parameter(sweep: Sweep, key: str, option: str) -> Parameter:
    if key not in sweep.swept:
        close = nearest(key, sweep.swept)
        meant = f", did you mean {close}?" if close else f"; it sets {', '.join(sweep.swept)}"
        raise UserError(f"{option}: the sweep does not set {key!r}{meant}")
    return _values(sweep, key)


def _expression(sweep: Sweep, text: str) -> collect.Expression:
    try:
        found = collect.parse(text)
    except ValueError as error:
        raise UserError(f"--y: {error}") from None
    message = collect.unknown_column(found, {name for run in sweep.runs for name in run.estimate.columns})
    if message is not None:
        raise UserError(f"--y: {message}")
    return found


Pictures = dict[str, Callable[[], Figure]]


def _against(
    sweep: Sweep,
    x: Parameter,
    hue: Parameter | None,
    expressions: Sequence[collect.Expression],
    statuses: Sequence[Status],
) -> Pictures:
    found = [collected(run, expressions, status) for run, status in zip(sweep.runs, statuses, strict=True)]
    joined = set(sweep.varied) <= {x.key, hue.key if hue else x.key}
    return {
        _file_name(f"{e.text}_against_{x.key}"): partial(
            studies.against, x, [values[e.text] for values in found], e.text, hue, joined=joined
        )
        for e in expressions
        if any(values[e.text] == values[e.text] for values in found)
    }


def _overlays(sweep: Sweep, colour: Parameter, line: Parameter | None) -> Pictures:
    runs = [_opened(run.folder) for run in sweep.runs]
    pictures: Pictures = {}
    for name in PANELS:
        curves = [_series(run, name) for run in runs]
        if any(curves):
            pictures[f"series_{name}"] = partial(studies.series, curves, name, colour, line)
    latest = [_latest_spectra(run) for run in runs]
    for name in dict.fromkeys(name for found in latest for name in found):
        curves = [found.get(name) for found in latest]
        pictures[f"spectrum_{name}"] = partial(studies.spectra, curves, name, colour, line)
    return pictures


def _opened(folder: Path) -> Run | None:
    try:
        return open_run(folder)
    except UserError:
        return None


def _series(run: Run | None, name: str) -> Curve | None:
    try:
        columns: Any = run.diagnostics if run is not None else {}
    except UserError:
        return None
    if name not in columns or not len(columns[name]):
        return None
    return Curve(columns["time"], columns[name])


def _latest_spectra(run: Run | None) -> dict[str, Curve]:
    try:
        found: SeriesReader | None = run.spectra if run is not None else None
    except UserError:
        return {}
    if found is None or not len(found):
        return {}
    last = found.at(len(found) - 1)
    names = [name for name, dimensions in found.variables.items() if dimensions == ("k",)]
    return {name: Curve(found.coordinates["k"], last[name]) for name in names}


def _file_name(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text).strip("_")
