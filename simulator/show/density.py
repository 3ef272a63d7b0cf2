"""Gas and matter waves: density profiles and solitons, power spectra and their linear prediction, log densities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.output.series import SeriesReader
from simulator.show.labels import Labels
from simulator.show.scales import is_density
from simulator.show.spectra import wavenumbers
from simulator.show.style import WIDTH, figure, note, powers_of_ten, sequence_colours

MOST_CURVES = 6
_ROUND_OFF = 1e-11
"""Power below this fraction of the largest is not shown."""
_CORE_SHELLS = 3
_FITS = 0.5
"""Largest root mean square of ln(density / soliton) for which a core counts as a soliton."""


def _panel(x: str, y: str) -> tuple[Figure, Axes]:
    result = figure(WIDTH, 4.2)
    axes = result.subplots()
    result.subplots_adjust(left=0.14, right=0.775, top=0.965, bottom=0.13)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return result, axes


def _curves(series: SeriesReader, labels: Labels) -> list[tuple[int, Any]]:
    """The rows to draw, each with its colour."""
    rows = labels.rows(series.time, MOST_CURVES)
    colours = sequence_colours(len(rows))
    return list(zip(rows, colours, strict=True))


def _legend(axes: Axes) -> None:
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4, labelspacing=0.35, borderaxespad=0.2
    )


def _words(name: str) -> str:
    """`density`, or `gas density`."""
    return name.replace("_", " ")


# ---- profiles --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Core:
    """The ground state fitted to a profile: psi^2 = central * f(r / length)^2."""

    radius: float
    """Radius at which the density is half of its central value."""
    central: float
    length: float
    deviation: float
    """Root mean square of ln(density / ground state) over the shells of the fit."""

    def density(self, radius: np.ndarray) -> np.ndarray:
        from simulator.initial.ground_state import radial_ground_state

        state = radial_ground_state()
        s = radius / self.length
        inside = np.interp(s, state.radius, state.amplitude)
        return self.central * np.where(s <= state.radius[-1], inside, 0.0) ** 2


def fitted_core(radius: np.ndarray, density: np.ndarray, hbar: float, gravity: float) -> Core | None:
    """The isolated ground state that fits a profile best. Its only free parameter is the central density, since
    length^4 = hbar^2 / (G central). Least squares of ln(density) over the shells within 2.5 core radii; None if fewer
    than three shells hold any mass."""
    from simulator.initial.ground_state import radial_ground_state

    state = radial_ground_state()
    usable = np.isfinite(density) & (density > 0) & np.isfinite(radius)
    if usable.sum() < _CORE_SHELLS:
        return None
    radius, density = radius[usable], density[usable]
    best: Core | None = None
    first = (hbar**2 / (gravity * float(density[0]))) ** 0.25
    for reach, steps in ((2.0, 161), (1.03, 121)):
        middle = first if best is None else best.length
        for length in middle * np.geomspace(1 / reach, reach, steps):
            core = Core(length * state.core, hbar**2 / (gravity * length**4), length, np.inf)
            near = radius < 2.5 * core.radius
            if near.sum() < _CORE_SHELLS:
                continue
            off = np.log(density[near] / np.maximum(core.density(radius[near]), 1e-300))
            deviation = float(np.sqrt((off**2).mean()))
            if best is None or deviation < best.deviation:
                best = Core(core.radius, core.central, length, deviation)
    return best


def _solitons(model: Mapping[str, Any]) -> tuple[float, float] | None:
    """hbar / m and G of a model whose cores are ground states: waves under their own gravity alone."""
    if model.get("kind") != "schrodinger_poisson" or model.get("self_interaction"):
        return None
    if model.get("external_potential"):
        return None
    from simulator.models.schrodinger_poisson import SchrodingerPoissonSettings

    settings = SchrodingerPoissonSettings.model_validate(model)
    return (settings.hbar, settings.gravity) if settings.gravity > 0 else None


def profile_names(series: SeriesReader) -> list[str]:
    """The densities with measured profiles."""
    return [n for n, dimensions in series.variables.items() if dimensions == ("r",) and is_density(n)]


def profile(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """Density against the distance from the densest point at up to six times; for waves with the soliton fitted to
    the last core, if one fits."""
    result, axes = _panel(
        labels.axis(r"radius $r$", "length"), labels.axis(rf"{_words(name)} $\rho$", "density")
    )
    drawn: list[np.ndarray] = []
    for index, colour in _curves(series, labels):
        row = series.at(index)
        shown = np.isfinite(row[name]) & (row[name] > 0)
        drawn.append(row[name][shown])
        axes.plot(
            row["radius"][shown], row[name][shown], color=colour, linewidth=1.3, marker="o", markersize=3.0,
            label=labels.moment(series.time[index]),
        )  # fmt: skip
    values = np.concatenate(drawn) if drawn else np.empty(0)
    if not len(values):
        note(axes, "nothing above zero yet")
        return result
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(values.min() / 2, values.max() * 2)
    last, constants = series.at(len(series) - 1), _solitons(labels.model)
    if constants is not None and name == "density":
        hbar, gravity = constants
        a = labels.scale_factor(series.time[-1])
        core = fitted_core(last["radius"], last[name], hbar, a * gravity)
        if core is not None and core.deviation < _FITS:
            r = np.geomspace(*axes.get_xlim(), 200)
            unit = labels.unit("length")
            axes.plot(
                r, core.density(r), color="black", linewidth=1.1, linestyle="--", zorder=3,
                label=f"soliton,\n$r_c = {core.radius:.3g}" + (rf"\,{unit}$" if unit else "$"),
            )  # fmt: skip
    powers_of_ten(axes.xaxis)
    powers_of_ten(axes.yaxis)
    _legend(axes)
    return result


# ---- power spectrum --------------------------------------------------------------------------------------


def power(series: SeriesReader, labels: Labels, name: str = "density_power") -> Figure:
    """P(k) at up to six times; in an expanding background with the linear prediction, the first P(k) times
    (D(a) / D(a_first))^2, dashed in the colour of its time."""
    result, axes = _panel(
        labels.axis(r"wavenumber $k$", "wavenumber"), labels.axis(r"power spectrum $P(k)$", "volume")
    )
    k, first = wavenumbers(series), series.at(0)[name]
    rows = {index: series.at(index)[name] for index, _ in _curves(series, labels)}
    top = max(float(np.nanmax(np.where(k > 0, p, 0), initial=0)) for p in rows.values())
    if not top > 0:
        note(axes, "nothing above zero yet")
        return result
    lowest = top
    for index, colour in _curves(series, labels):
        shown = (k > 0) & (rows[index] > _ROUND_OFF * top)
        if not shown.any():
            continue
        lowest = min(lowest, float(rows[index][shown].min()))
        axes.loglog(
            k[shown], rows[index][shown], color=colour, linewidth=1.3, marker="o", markersize=3.0,
            label=labels.moment(series.time[index]),
        )  # fmt: skip
        if labels.background is not None and index > 0:
            d = [labels.background.growth(labels.scale_factor(float(series.time[i]))) for i in (0, index)]
            linear = first * (d[1] / d[0]) ** 2
            there = (k > 0) & (linear > _ROUND_OFF * top)
            axes.loglog(k[there], linear[there], color=colour, linewidth=1.0, linestyle="--")
    axes.set_ylim(max(lowest / 2, top * _ROUND_OFF), top * 3)
    if labels.background is not None and len(rows) > 1:
        axes.add_line(Line2D([], [], color="black", linewidth=1.0, linestyle="--", label="linear growth"))
    powers_of_ten(axes.xaxis)
    powers_of_ten(axes.yaxis)
    _legend(axes)
    return result


# ---- histogram -------------------------------------------------------------------------------------------


def log_histogram_names(series: SeriesReader) -> list[str]:
    """The histograms of a density on a logarithmic scale."""
    return [
        name
        for name, dimensions in series.variables.items()
        if dimensions == ("contrast",) and not name.endswith("_mass")
    ]


def log_histogram(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """Shares of the volume per decade of density at up to six times, and of the mass at the last (dashed)."""
    words = _words(name.removeprefix("log_"))
    result, axes = _panel(rf"{words} $\log_{{10}}(\rho/\bar\rho)$", "share per decade")
    x = series.coordinates["contrast"]
    ends: list[float] = []
    lowest = 1.0
    last = len(series) - 1
    for index, colour in _curves(series, labels):
        row = series.at(index)
        for values, style in ((row[name], "-"), (row[f"{name}_mass"], "--")):
            if style == "--" and index != last:
                continue
            shown = values > 0
            if not shown.any():
                continue
            ends += [float(x[shown].min()), float(x[shown].max())]
            if style == "-":
                lowest = min(lowest, float(values[shown].min()))
            axes.step(
                x, np.where(shown, values, np.nan), style, where="mid", color=colour, linewidth=1.3,
                label=labels.moment(series.time[index]) if style == "-" else "mass at\nthe last time",
            )  # fmt: skip
    if not ends:
        note(axes, "nothing above zero yet")
        return result
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(lowest / 2, 1e-8))
    margin = 0.05 * (max(ends) - min(ends)) + float(x[1] - x[0])
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    powers_of_ten(axes.yaxis)
    _legend(axes)
    return result
