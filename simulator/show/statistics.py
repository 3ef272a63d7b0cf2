"""Transfer and flux, compensated and directional spectra, structure functions, histograms."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.output.series import SeriesReader
from simulator.show.spectra import wavenumbers
from simulator.show.style import WIDTH, evenly, figure, note, powers_of_ten, sequence_colours

MOST_CURVES = 6
TURBULENT = 20.0
"""Taylor-scale Reynolds number above which lines of Kolmogorov's theory are drawn."""
_WORDS = {"kinetic_energy": "kinetic energy", "magnetic_energy": "magnetic energy"}


def _words(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " "))


def _times(series: SeriesReader) -> tuple[list[int], np.ndarray]:
    """The rows to draw, and a colour for each."""
    rows = evenly(len(series), MOST_CURVES)
    return rows, sequence_colours(len(rows))


def _one_panel(x: str, y: str) -> tuple[Figure, Axes]:
    result = figure(WIDTH, 4.0)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.8, top=0.965, bottom=0.13)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return result, axes


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4, labelspacing=0.35)


def transfers(series: SeriesReader) -> list[str]:
    """The quantities with a measured transfer."""
    return [name.removeprefix("flux/") for name in series.variables if name.startswith("flux/")]


def transfer(series: SeriesReader, name: str) -> Figure:
    """T(k), and the flux Pi(k) below it, at up to six times."""
    k = wavenumbers(series)
    inside = (k > 0) & (series.coordinates.get("modes", k) > 0)
    result = figure(WIDTH, 5.2)
    upper, lower = result.subplots(2, 1, sharex=True, gridspec_kw={"hspace": 0.08})
    result.subplots_adjust(left=0.15, right=0.8, top=0.94, bottom=0.1)
    rows, colours = _times(series)
    for index, colour in zip(rows, colours, strict=True):
        values = series.at(index)
        upper.plot(k[inside], (k * values[f"transfer/{name}"])[inside], color=colour, linewidth=1.3)
        label = f"$t = {series.time[index]:.4g}$"
        lower.plot(k[inside], values[f"flux/{name}"][inside], color=colour, linewidth=1.3, label=label)
    for panel, words in ((upper, r"$k\,T(k)$"), (lower, r"flux $\Pi(k)$")):
        panel.axhline(0, color="#888888", linewidth=0.7)
        panel.set_ylabel(words)
    upper.set_title(f"{_words(name)}: transfer between scales")
    lower.set_xscale("log")
    powers_of_ten(lower.xaxis)
    lower.set_xlabel(r"wavenumber $k$")
    _legend(lower)
    result.align_ylabels()
    return result


def may_be_turbulent(series: SeriesReader, diagnostics: Mapping[str, np.ndarray]) -> bool:
    """Whether the flow may have an inertial range at the last row's time; a laminar flow has none."""
    if "reynolds_taylor" not in diagnostics:
        return True
    return float(np.interp(series.time[-1], diagnostics["time"], diagnostics["reynolds_taylor"])) >= TURBULENT


def kolmogorov_scales(
    series: SeriesReader, diagnostics: Mapping[str, np.ndarray]
) -> tuple[float, float] | None:
    """Dissipation and Kolmogorov scale at the last spectrum's time; None if the run has no such columns."""
    wanted = ("time", "viscous_dissipation", "kolmogorov_scale", "dissipation")
    eps = diagnostics.get(wanted[1], diagnostics.get(wanted[3]))
    if "kinetic_energy" not in series.variables or "kolmogorov_scale" not in diagnostics or eps is None:
        return None
    time = float(series.time[-1])
    rate, eta = (
        float(np.interp(time, diagnostics["time"], values))
        for values in (eps, diagnostics["kolmogorov_scale"])
    )
    if not may_be_turbulent(series, diagnostics):
        return None
    return (rate, eta) if np.isfinite(rate) and np.isfinite(eta) and rate > 0 and eta > 0 else None


def compensated(series: SeriesReader, rate: float, eta: float) -> Figure:
    """k^(5/3) E(k) / rate^(2/3) against k eta, with the level 1.6 of a Kolmogorov range (Sreenivasan 1995), at the
    last time."""
    time = float(series.time[-1])
    k, e = wavenumbers(series), series.at(len(series) - 1)["kinetic_energy"]
    shown = (k > 0) & (e > 0)
    values = k[shown] ** (5 / 3) * e[shown] / rate ** (2 / 3)
    result, axes = _one_panel(r"wavenumber $k\eta$", r"$k^{5/3} E(k) / \varepsilon^{2/3}$")
    keep = values > 1e-6
    axes.loglog(k[shown][keep] * eta, values[keep], marker="o", markersize=3.2, label=f"$t = {time:.4g}$")
    axes.axhline(1.6, color="#444444", linewidth=1.0, linestyle="--", label=r"$C = 1.6$")
    powers_of_ten(axes.xaxis)
    powers_of_ten(axes.yaxis)
    _legend(axes)
    return result


def directional(series: SeriesReader, name: str) -> Figure:
    """Spectra across and along the axis, at the last time."""
    axis = series.attributes.get("axis", "z")
    axis = axis.decode() if isinstance(axis, bytes) else axis
    result, axes = _one_panel(r"wavenumber $k_\perp$, $k_\parallel$", f"spectrum of {_words(name)}")
    drawn = False
    for direction, mark in (("perpendicular", "o"), ("parallel", "s")):
        k, e = series.coordinates[f"k_{direction}"], series.at(len(series) - 1)[f"{direction}/{name}"]
        shown = (k > 0) & (e > 1e-11 * max(float(np.nanmax(e)), 1e-300))
        if shown.any():
            word = "across" if direction == "perpendicular" else "along"
            axes.loglog(k[shown], e[shown], marker=mark, markersize=3.2, label=f"{word} {axis}")
            drawn = True
    if not drawn:
        note(axes, "nothing above zero yet")
        return result
    powers_of_ten(axes.xaxis)
    powers_of_ten(axes.yaxis)
    axes.set_title(f"$t = {series.time[-1]:.4g}$")
    result.subplots_adjust(top=0.92)
    _legend(axes)
    return result


def structure(series: SeriesReader) -> Figure:
    """Second-order structure functions, longitudinal and transverse, averaged over the axes, at the last time; below
    them the third order, compensated: -S_3 / r is 4/5 of the dissipation in an inertial range (Kolmogorov 1941)."""
    r, last = series.coordinates["r"], series.at(len(series) - 1)
    third = "longitudinal_3" in last
    result = figure(WIDTH, 5.2 if third else 3.6)
    panels = np.atleast_1d(result.subplots(2 if third else 1, 1, sharex=True, gridspec_kw={"hspace": 0.08}))
    result.subplots_adjust(left=0.15, right=0.8, top=0.93, bottom=0.1 if third else 0.15)
    orders = sorted(int(n.rpartition("_")[2]) for n in last if n.startswith("longitudinal_"))
    even = [p for p in orders if p % 2 == 0]
    for number, p in enumerate(even):
        for kind, style in (("longitudinal", "-"), ("transverse", "--")):
            values = last[f"{kind}_{p}"].mean(0)
            mark = f"{'long.' if kind == 'longitudinal' else 'transv.'} $p = {p}$"
            panels[0].plot(r, values, style, color=f"C{number}", label=mark, marker="o", markersize=2.8)
    if even:
        panels[0].set_yscale("log")
        powers_of_ten(panels[0].yaxis)
        _legend(panels[0])
    panels[0].set_ylabel(r"$\langle \delta u^p \rangle$")
    panels[0].set_title(f"structure functions, $t = {series.time[-1]:.4g}$")
    if third:
        panels[1].plot(r, -last["longitudinal_3"].mean(0) / r, marker="o", markersize=2.8)
        panels[1].axhline(0, color="#888888", linewidth=0.7)
        panels[1].set_ylabel(r"$-\langle \delta u_\parallel^3 \rangle / r$")
    panels[-1].set_xscale("log")
    powers_of_ten(panels[-1].xaxis)
    panels[-1].set_xlabel(r"separation $r$")
    result.align_ylabels()
    return result


def mixed(series: SeriesReader, name: str, diagnostics: Mapping[str, np.ndarray]) -> Figure:
    """A third moment over -r, averaged over the axes, at up to six times; and, dashed, its value in an isotropic
    inertial range at the last of them: 4/3 of the dissipation of energy, 2/3 of that of the variance of a scalar."""
    what = name.removeprefix("mixed_")
    second = {
        "velocity": r"|\delta\mathbf{u}|^2",
        "elsasser_plus": r"|\delta\mathbf{z}^+|^2",
        "elsasser_minus": r"|\delta\mathbf{z}^-|^2",
    }.get(what, r"(\delta\theta)^2")
    first = {"elsasser_plus": r"z^-", "elsasser_minus": r"z^+"}.get(what, "u")
    words = rf"$-\langle \delta {first}_\parallel\, {second} \rangle / r$"
    result, axes = _one_panel(r"separation $r$", words)
    axes.set_title(_words(what))
    result.subplots_adjust(top=0.93)
    rows, colours = _times(series)
    for index, colour in zip(rows, colours, strict=True):
        r, values = series.coordinates["r"], series.at(index)[name].mean(0)
        axes.plot(
            r, -values / r, color=colour, marker="o", markersize=2.8, label=f"$t = {series.time[index]:.4g}$"
        )
    factor, column = (4 / 3, "viscous_dissipation") if what == "velocity" else (2 / 3, f"{what}_dissipation")
    if column in diagnostics and not (what == "velocity" and "mixed_elsasser_plus" in series.variables):
        law = factor * float(np.interp(series.time[-1], diagnostics["time"], diagnostics[column]))
        text = r"$4\varepsilon/3$" if what == "velocity" else r"$4\varepsilon_\theta/3$"
        axes.axhline(law, color="#444444", linewidth=1.0, linestyle="--", label=text)
    axes.axhline(0, color="#888888", linewidth=0.7)
    axes.set_xscale("log")
    powers_of_ten(axes.xaxis)
    _legend(axes)
    return result


def histogram_names(series: SeriesReader) -> list[str]:
    """The quantities with a histogram."""
    return [name for name, dimensions in series.variables.items() if dimensions == ("sigma",)]


def histogram(series: SeriesReader, name: str) -> Figure:
    """Probability density in units of the standard deviation, at up to six times, with a Gaussian."""
    sigma = series.coordinates["sigma"]
    result, axes = _one_panel(rf"{_words(name)}, in standard deviations $\sigma$", "probability density")
    rows, colours = _times(series)
    lowest, reach = 1.0, 3.0
    for index, colour in zip(rows, colours, strict=True):
        density = series.at(index)[name]
        shown = density > 0
        if not shown.any():
            continue
        lowest, reach = min(lowest, float(density[shown].min())), max(reach, float(abs(sigma[shown]).max()))
        label = f"$t = {series.time[index]:.4g}$"
        axes.plot(sigma, np.where(shown, density, np.nan), color=colour, linewidth=1.3, label=label)
    axes.plot(
        sigma,
        np.exp(-(sigma**2) / 2) / np.sqrt(2 * np.pi),
        color="#444444",
        linewidth=1.0,
        linestyle="--",
        label="Gaussian",
    )
    axes.set_yscale("log")
    axes.set_ylim(lowest / 2, 2)
    axes.set_xlim(-reach * 1.05, reach * 1.05)
    _legend(axes)
    return result
