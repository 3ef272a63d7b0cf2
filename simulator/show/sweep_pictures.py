"""Draws the pictures of a sweep into OUTPUT/NAME/plots/."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from simulator.errors import UserError, did_you_mean
from simulator.output.series import SeriesReader
from simulator.read.open import Run, open_run
from simulator.show import studies
from simulator.show.spectra import wavenumbers
from simulator.show.studies import Curve, Parameter
from simulator.show.style import draw
from simulator.show.time_series import PANELS
from simulator.sweeps import collect
from simulator.sweeps.study_status import Status, statuses_of
from simulator.sweeps.sweep import Sweep
from simulator.sweeps.table import collected


def plot_sweep(
    sweep: Sweep, *, x: str | None = None, y: Sequence[str] = (), hue: str | None = None
) -> list[Path]:
    """Draws `y` against `x`, and overlays of the series and the latest spectra of all runs; returns the files.

    `x` and `hue` are keys that the sweep sets (by default the first numeric key, and the next one), `y` are
    expressions as in `collect` (by default those of the file). UserError if nothing has been written yet.
    """
    if x is not None and x not in sweep.swept and "." in x and _is_expression(x):
        return _scattered(sweep, _expression(sweep, x, "--x"), [_expression(sweep, t) for t in y], hue)
    across = _parameter(sweep, x, "--x") if x else _first(sweep)
    # By default, line styles show a key only if it has few values.
    others = [key for key in sweep.varied if key != across.key]
    by = _parameter(sweep, hue, "--hue") if hue else None
    if by is None and others and len(_values(sweep, others[0]).distinct) <= len(studies.LINES):
        by = _values(sweep, others[0])
    expressions = [_expression(sweep, text) for text in y] or list(sweep.collected)
    statuses = statuses_of([run.folder for run in sweep.runs])
    pictures = _against(sweep, across, by, expressions, statuses) | _overlays(sweep, across, by)
    if not pictures:
        raise UserError(
            f"{sweep.folder}: no run has written anything yet; simulator sweep run {sweep.file} runs them"
        )
    folder = sweep.folder / "plots"
    return [draw(picture, folder / f"{name}.png") for name, picture in pictures.items()]


def _first(sweep: Sweep) -> Parameter:
    parameters = [_values(sweep, key) for key in sweep.varied]
    return next((parameter for parameter in parameters if parameter.numeric), parameters[0])


def _values(sweep: Sweep, key: str) -> Parameter:
    return Parameter(key, [run.values.get(key) for run in sweep.runs])


def _parameter(sweep: Sweep, key: str, option: str) -> Parameter:
    if key not in sweep.swept:
        meant = did_you_mean(key, sweep.swept, f"; it sets {', '.join(sweep.swept)}")
        raise UserError(f"{option}: the sweep does not set {key!r}{meant}")
    return _values(sweep, key)


def _expression(sweep: Sweep, text: str, option: str = "--y") -> collect.Expression:
    try:
        found = collect.parse(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None
    message = collect.unknown_column(found, {name for run in sweep.runs for name in run.estimate.columns})
    if message is not None:
        raise UserError(f"{option}: {message}")
    return found


def _is_expression(text: str) -> bool:
    """Whether it is a quantity that runs have, and not a key."""
    try:
        collect.parse(text)
    except ValueError:
        return False
    return True


def _scattered(
    sweep: Sweep, x: collect.Expression, ys: Sequence[collect.Expression], hue: str | None
) -> list[Path]:
    """One quantity of all runs against another, means with their standard errors."""
    by = _parameter(sweep, hue, "--hue") if hue else _first(sweep)
    statuses = statuses_of([run.folder for run in sweep.runs])
    wanted = [e for y in (x, *(ys or sweep.collected)) for e in (y, y.error) if e is not None]
    found = [collected(run, wanted, status) for run, status in zip(sweep.runs, statuses, strict=True)]

    def points(e: collect.Expression) -> studies.Points:
        error = [values[e.error.text] for values in found] if e.error is not None else None
        return studies.Points(e.text, [values[e.text] for values in found], error)

    return [
        draw(partial(studies.scatter, points(x), points(y), by), sweep.folder / "plots" / f"{name}.png")
        for y in ys or sweep.collected
        if (name := _file_name(f"{y.text}_against_{x.text}")) and y.text != x.text
    ]


Pictures = dict[str, Callable[[], Figure]]


def _against(
    sweep: Sweep,
    x: Parameter,
    hue: Parameter | None,
    expressions: Sequence[collect.Expression],
    statuses: Sequence[Status],
) -> Pictures:
    rows = [collected(run, expressions, status) for run, status in zip(sweep.runs, statuses, strict=True)]
    joined = set(sweep.varied) <= {x.key, hue.key if hue else x.key}
    return {
        _file_name(f"{e.text}_against_{x.key}"): partial(
            studies.against, x, [values[e.text] for values in rows], e.text, hue, joined=joined
        )
        for e in expressions
        if any(values[e.text] == values[e.text] for values in rows)
    }


def _overlays(sweep: Sweep, colour: Parameter, line: Parameter | None) -> Pictures:
    runs = [_opened(run.folder) for run in sweep.runs]
    pictures: Pictures = {}
    for name in PANELS:
        curves = [_series(run, name) for run in runs]
        if any(curves):
            pictures[f"series_{name}"] = partial(studies.series, curves, name, colour, line)
    latest = [_latest_spectra(run) for run in runs]
    for name in dict.fromkeys(name for spectra in latest for name in spectra):
        curves = [spectra.get(name) for spectra in latest]
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
        spectra: SeriesReader | None = run.spectra if run is not None else None
    except UserError:
        return {}
    if spectra is None or not len(spectra):
        return {}
    last = spectra.at(len(spectra) - 1)
    names = [name for name, dimensions in spectra.variables.items() if dimensions == ("k",)]
    return {name: Curve(wavenumbers(spectra), last[name]) for name in names}


def _file_name(text: str) -> str:
    return re.sub(r"[\W_]+", "_", text).strip("_")
