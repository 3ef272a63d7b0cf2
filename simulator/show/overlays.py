"""Several runs in one picture, and averages over time: diagnostics against time, curves against a coordinate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.errors import UserError
from simulator.output.series import SeriesReader
from simulator.read.open import Run
from simulator.show.choice import Choice, window
from simulator.show.spectra import wavenumbers
from simulator.show.style import (
    COLOURS,
    WIDTH,
    figure,
    note,
    powers_of_ten,
    quantity,
    sequence_colours,
    spectrum_of,
)
from simulator.show.time_series import PANELS, grows, limits

Pictures = Iterator[tuple[str, Callable[[], Figure]]]
_ROUND_OFF = 1e-11
_TELLING = ("model", "grid", "initial", "forcing", "time", "precision")
_MOST_TOLD = 2
_BESIDE = 15
"""Characters of a label that have room beside the axes; longer ones stand above them."""
KOLMOGOROV = 5 / 3
"""The compensation for which energy spectra are drawn in Kolmogorov units."""


@dataclass(frozen=True)
class Curve:
    """y(x) of one run, with the standard error if it is a mean over time."""

    label: str
    x: np.ndarray
    y: np.ndarray
    error: np.ndarray | None = None


def overlays(runs: Sequence[Run], choice: Choice) -> Pictures:
    """Pictures with a curve for each run: `series_NAME` for the diagnostics, `KIND_NAME` for variables with one
    dimension in the chosen series (by default the spectra)."""
    runs = _ordered(runs)
    labels = _labels(runs)
    if choice.takes("diagnostics") and not choice.average and choice.compensate is None:
        for name in _columns(runs, choice):
            yield f"series_{name}", partial(_against_time, runs, labels, name, choice)
    for kind in choice.what or ("spectra",):
        if kind == "diagnostics":
            continue
        read = [_series(run, kind) for run in runs]
        variables = dict.fromkeys(
            n for s in read if s is not None for n, d in s.variables.items() if len(d) == 1
        )
        for name in variables:
            if choice.shows(name.replace("/", "_")):
                stem = f"{'spectrum' if kind == 'spectra' else kind}_{name.replace('/', '_')}"
                yield stem, partial(_curves, runs, read, labels, kind, name, choice)


def _differences(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[str]]:
    """The configuration of each run by dotted key, and the keys of physics in which they differ."""
    values = [dict(_flat(run.config)) for run in runs]
    differ = [
        key
        for key in dict.fromkeys(key for found in values for key in found)
        if key.partition(".")[0] in _TELLING and len({str(found.get(key)) for found in values}) > 1
    ]
    return values, differ


def _ordered(runs: Sequence[Run]) -> list[Run]:
    """The runs of a study of one number in its order, because the folders of a sweep have none; others as given."""
    values, differ = _differences(runs)
    if len(differ) != 1 or not all(isinstance(found.get(differ[0]), int | float) for found in values):
        return list(runs)
    return [run for _, run in sorted(zip(values, runs, strict=True), key=lambda pair: pair[0][differ[0]])]


def _labels(runs: Sequence[Run]) -> list[str]:
    """Labels that distinguish the runs: the one or two values in which their configurations differ, else their
    folders."""
    values, differ = _differences(runs)
    if 0 < len(differ) <= _MOST_TOLD:
        told = [", ".join(f"{k.rpartition('.')[2]} = {_text(v.get(k))}" for k in differ) for v in values]
        if len(set(told)) == len(told):
            return told
    parts = [run.path.absolute().parts for run in runs]
    names = ["/".join(p) for p in parts]
    for depth in range(1, max(map(len, parts))):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            break
    return names


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("_", " ")


def _columns(runs: Sequence[Run], choice: Choice) -> list[str]:
    found = [set(run.diagnostics) for run in runs]
    if choice.fields:
        unknown = [name for name in choice.fields if not any(name in columns for columns in found)]
        return [] if unknown else list(choice.fields)
    return [name for name in PANELS if any(name in columns for columns in found)]


def _series(run: Run, kind: str) -> SeriesReader | None:
    try:
        found = run.series(kind)
    except UserError:
        return None
    return found if len(found) else None


def _against_time(runs: Sequence[Run], labels: Sequence[str], name: str, choice: Choice) -> Figure:
    curves = []
    for run, label in zip(runs, labels, strict=True):
        columns = run.diagnostics
        if name in columns:
            rows = choice.rows(columns["time"])
            curves.append(Curve(label, columns["time"][rows], columns[name][rows]))
    result, axes = _panel(r"time $t$", quantity(name))
    _draw(axes, curves)
    if any(grows(curve.y) for curve in curves):
        axes.set_yscale("log")
        powers_of_ten(axes.yaxis)
    else:
        limits(axes, np.concatenate([curve.y for curve in curves]), single=False)
    return result


def _curves(
    runs: Sequence[Run],
    read: Sequence[SeriesReader | None],
    labels: Sequence[str],
    kind: str,
    name: str,
    choice: Choice,
) -> Figure:
    """A variable of each run at its last time, or its mean over time with the standard error."""
    (dimension,) = next(s.variables[name] for s in read if s is not None and name in s.variables)
    scaled = choice.compensate is not None and dimension == "k"
    kolmogorov = scaled and name == "kinetic_energy" and abs((choice.compensate or 0) - KOLMOGOROV) < 1e-3
    curves, normalised = [], kolmogorov
    for run, series, label in zip(runs, read, labels, strict=True):
        if series is None or name not in series.variables:
            continue
        shown = window(series, choice)
        rows = range(len(shown)) if choice.average else [len(shown) - 1]
        x = wavenumbers(shown) if dimension == "k" else shown.coordinates[dimension]
        values = np.stack([shown.one(name, row) for row in rows])
        if scaled:
            values = values * x ** float(choice.compensate or 0)
        scales = _kolmogorov(run, shown.time[list(rows)]) if kolmogorov else None
        if scales is not None:
            rate, eta = scales
            values, x = values / rate[:, None] ** (2 / 3), x * eta.mean()
        else:
            normalised = False
        when = f"{shown.time[0]:.4g}$ to ${shown.time[-1]:.4g}" if choice.average else f"{shown.time[-1]:.4g}"
        error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
        text = label if len(runs) > 1 else f"$t = {when}$"
        curves.append(Curve(text, x, values.mean(0), error))
    words = spectrum_of(name) if kind == "spectra" else quantity(name.replace("/", " "))
    if normalised and curves:
        x_label, y_label = r"wavenumber $k\eta$", r"$k^{5/3} E(k) / \varepsilon^{2/3}$"
    else:
        x_label = r"wavenumber $k$" if dimension == "k" else dimension.replace("_", " ")
        power = Fraction(choice.compensate or 0).limit_denominator(12)
        y_label = rf"{words} $\times\, k^{{{power}}}$" if scaled else words
    result, axes = _panel(x_label, y_label)
    _draw(axes, curves, logarithmic=dimension == "k" and all((c.y >= 0).all() for c in curves))
    if normalised and any(_has_range(c) for c in curves):
        axes.axhline(1.6, color="#444444", linewidth=1.0, linestyle="--")
        axes.annotate("1.6", (1, 1.6), xycoords=("axes fraction", "data"), xytext=(-4, 3),
                      textcoords="offset points", ha="right", color="#444444")  # fmt: skip
    return result


def _kolmogorov(run: Run, times: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Dissipation and Kolmogorov scale of a run at these times; None if the run has no such columns."""
    columns = run.diagnostics
    rate = columns.get("viscous_dissipation", columns.get("dissipation"))
    if rate is None or "kolmogorov_scale" not in columns:
        return None
    found = [np.interp(times, columns["time"], v) for v in (rate, columns["kolmogorov_scale"])]
    if not all(np.isfinite(v).all() and (v > 0).all() for v in found):
        return None
    return found[0], found[1]


def _has_range(curve: Curve) -> bool:
    """Whether a spectrum in Kolmogorov units comes near the level of an inertial range; a laminar one does not."""
    inside = (curve.x > 0.01) & (curve.x < 0.3)
    return bool(inside.any() and 0.5 < np.nanmax(curve.y[inside]) < 4)


def _panel(x: str, y: str) -> tuple[Figure, Axes]:
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.14, right=0.76, top=0.965, bottom=0.125)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return result, axes


def _draw(axes: Axes, curves: Sequence[Curve], *, logarithmic: bool = False) -> None:
    colours = [*COLOURS] if len(curves) <= len(COLOURS) else [*sequence_colours(len(curves))]
    top = max((float(np.nanmax(c.y, initial=0)) for c in curves), default=0.0)
    drawn = False
    for curve, colour in zip(curves, colours, strict=False):
        shown = np.isfinite(curve.y)
        if logarithmic:
            shown &= (curve.x > 0) & (curve.y > _ROUND_OFF * top)
        if not shown.any():
            continue
        drawn = True
        x, y = curve.x[shown], curve.y[shown]
        mark = "o" if len(x) == 1 else None  # which has no line
        axes.plot(x, y, color=colour, linewidth=1.4, label=curve.label, marker=mark, markersize=4)
        if curve.error is not None:
            error = curve.error[shown]
            low = np.maximum(y - error, y * 1e-3) if logarithmic else y - error
            axes.fill_between(x, low, y + error, color=colour, alpha=0.25, linewidth=0)
    if not drawn:
        note(axes, "nothing to show yet")
        return
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        powers_of_ten(axes.xaxis)
        powers_of_ten(axes.yaxis)
    if max(len(curve.label.replace("$", "")) for curve in curves) <= _BESIDE:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4, labelspacing=0.35)
    else:
        axes.figure.subplots_adjust(right=0.97, top=0.965 - 0.055 * -(-len(curves) // 2))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, handlelength=1.4, labelspacing=0.35)
