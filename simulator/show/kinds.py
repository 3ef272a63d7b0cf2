"""Draws the pictures of each kind of series; `Kind.curves` describes those of kinds that `PICTURES`
lacks."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from simulator.analysis.frequencies import FrequencySpectrum, WaveSpectrum, probe_spectrum
from simulator.archive.series_file import SeriesReader
from simulator.errors import UserError
from simulator.measure import KINDS, Curves
from simulator.measure.statistics import FEWEST
from simulator.show import lines, style
from simulator.show.lines import (
    DrawnCurve,
    Pictures,
    at_times,
    drawn,
    level,
    logarithmic,
    moments,
    panels,
    plotted,
)
from simulator.show.slices import fields, projections, slices
from simulator.show.style import PLAIN, Labels, in_words, note, quantity, spectrum_of

Diagnostics = Mapping[str, np.ndarray]  # The columns of the run's table.
TURBULENT = 20.0, 0.15
"""The Taylor-scale Reynolds number and the dissipation in units of u_rms^3 / L above which pictures
show Kolmogorov's scaling laws; turbulence dissipates 0.4 to 1 of these units (Sreenivasan 1998,
Phys. Fluids 10, 528), a flow whose cascade has not begun much less."""
KOLMOGOROV_AXES = r"wavenumber $k\eta$", r"$k^{5/3} E(k) / \varepsilon^{2/3}$"
"""The labels of both axes for energy spectra in Kolmogorov units."""
_DENSITY = "probability density"


def pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    """The pictures of one series, which must have rows."""
    name = series.path.stem
    if name in PICTURES:
        yield from PICTURES[name](series, labels, diagnostics)
        return
    kind = KINDS.get(name)
    own = kind.pictures(series, labels) if kind is not None else None
    yield from own or lines.described(series, labels, kind.curves if kind is not None else Curves())


def over(series: SeriesReader, *dimensions: str) -> list[str]:
    return [name for name, own in series.variables.items() if own == dimensions]


def after(prefix: str, series: SeriesReader) -> list[str]:
    """The parts of the names of variables after `prefix`."""
    return [name.removeprefix(prefix) for name in series.variables if name.startswith(prefix)]


def _words(name: str) -> str:
    return name.replace("_", " ")


def wavenumbers(series: SeriesReader) -> np.ndarray:
    """The wavenumber of each shell: the centre n dk; for the shell about k = 0 the mean wavenumber
    of its modes (0 if the mean flow is its only mode)."""
    k = series.coordinates["k"]
    return np.where(k > 0, k, series.coordinates.get("k_mean", k))


def _spectra(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in over(series, "k"):
        plain = partial(spectrum, series, name, labels, guide=may_be_turbulent(series, diagnostics))
        yield (
            f"spectrum_{name}",
            partial(power, series, labels, name) if name.endswith("_power") else plain,
        )
    flow = "kinetic_energy" in series.variables and may_be_turbulent(series, diagnostics)
    if flow and (scales := kolmogorov(diagnostics, series.time[-1])) is not None:
        yield "spectrum_compensated", partial(compensated, series, *map(float, scales))
    for name in after("perpendicular/", series):
        yield f"spectrum_directional_{name}", partial(directional, series, name)


def spectrum(
    series: SeriesReader, name: str, labels: Labels = PLAIN, *, guide: bool = True
) -> Figure:
    """E(k), log-log, at up to six times; with `guide` also a line of slope -5/3 if the last has
    about that slope."""
    k = wavenumbers(series)
    each = at_times(series, name, k, labels)
    result, axes, shown = plotted(each, r"wavenumber $k$", spectrum_of(name), "xy")
    if not shown:
        return result
    shown = np.array(shown)
    top, first = float(np.nanmax(shown)), float(k[k > 0][0])
    reached = k[np.isfinite(shown).any(0)]
    if len(reached) == 1:
        axes.set_title(f"all of it is at $k = {reached[0]:.3g}$")
    axes.set_xlim(first * 0.9, max(reached[-1] * 1.15, 10 * first))
    highest = _guide(axes, k, shown[-1], np.nan_to_num(shown).max(0)) if guide else 0.0
    lowest = min(float(np.nanmin(shown)) / 2, top * 1e-3)
    axes.set_ylim(max(lowest, top * 1e-11), max(top, highest) * 2)
    logarithmic(axes, "xy")
    return result


def _guide(axes: Axes, k: np.ndarray, last: np.ndarray, envelope: np.ndarray) -> float:
    """Draws a line of slope -5/3 above all spectra, whose largest values are the `envelope`, if the
    `last` spectrum extends well beyond the range of the line and has about that slope. Returns the
    highest value of the line."""
    first = k[k > 0][0]
    ends = np.array([2.5, 12]) * first
    inside = (k >= ends[0]) & (k <= ends[1])
    if inside.sum() < 3 or k[-1] < 1.5 * ends[1] or not np.isfinite(last[inside]).all():
        return 0.0
    if not -2.6 < np.polyfit(np.log(k[inside]), np.log(last[inside]), 1)[0] < -1.0:
        return 0.0
    factor = 2.2 * (envelope[inside] * k[inside] ** (5 / 3)).max()
    axes.plot(ends, factor * ends ** (-5 / 3), color="#444444", linewidth=1.0, linestyle="--")
    middle = math.sqrt(ends.prod())
    axes.annotate(
        r"$k^{-5/3}$",
        (middle, factor * middle ** (-5 / 3)),
        xytext=(5, 4),
        textcoords="offset points",
        color="#444444",
    )
    return float(factor * ends[0] ** (-5 / 3))


def power(series: SeriesReader, labels: Labels, name: str = "density_power") -> Figure:
    """P(k) at up to six times; in an expanding background also, dashed in the colour of each time,
    the prediction of linear theory: the first P(k) times (D(a) / D(a_first))^2."""
    k, first = wavenumbers(series), series.one(name, 0)
    of = _words(name.removesuffix("density_power"))
    words = (
        labels.axis(r"wavenumber $k$", "wavenumber"),
        labels.axis(rf"{of}power spectrum $P(k)$", "volume"),
    )
    result, axes, shown = plotted(at_times(series, name, k, labels), *words, "xy")
    if not shown:
        return result
    top = float(np.nanmax(shown))
    if labels.background is not None and len(shown) > 1:
        start = labels.background.growth(labels.scale_factor(float(series.time[0])))
        for row, colour, _ in moments(series, labels):
            growth = labels.background.growth(labels.scale_factor(float(series.time[row]))) / start
            there = (k > 0) & (first * growth**2 > 1e-11 * top)
            if row > 0:
                axes.loglog(
                    k[there], first[there] * growth**2, color=colour, linewidth=1.0, linestyle="--"
                )
        axes.add_line(
            Line2D([], [], color="black", linewidth=1.0, linestyle="--", label="linear growth")
        )
        lines.legend_beside(axes)
    axes.set_ylim(max(float(np.nanmin(shown)) / 2, top * 1e-11), top * 3)
    logarithmic(axes, "xy")
    return result


def may_be_turbulent(series: SeriesReader, diagnostics: Diagnostics) -> bool:
    """Whether the flow may have an inertial range at the last row's time; a laminar flow has
    none."""
    columns = {
        name: np.interp(series.time[-1], diagnostics["time"], v) for name, v in diagnostics.items()
    }
    reynolds, rate = columns.get("reynolds_taylor", 0.0), math.inf
    if {
        "kolmogorov_scale",
        "dissipation",
        "integral_scale",
    } <= columns.keys():  # energy cascades to small scales
        rate = (
            columns["dissipation"] * columns["integral_scale"] / max(columns["u_rms"], 1e-300) ** 3
        )
    if "kinetic_energy" in series.variables:
        energy = series.one("kinetic_energy", -1)
        if np.count_nonzero(energy > 1e-9 * energy.max()) <= 3:  # an ABC flow is in one shell
            return False
    return bool(reynolds >= TURBULENT[0] and rate >= TURBULENT[1])


def kolmogorov(diagnostics: Diagnostics, times: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Dissipation and Kolmogorov scale at `times`; None if the run lacks these columns."""
    rate = diagnostics.get("viscous_dissipation", diagnostics.get("dissipation"))
    if rate is None or "kolmogorov_scale" not in diagnostics:
        return None
    found = [
        np.interp(times, diagnostics["time"], v) for v in (rate, diagnostics["kolmogorov_scale"])
    ]
    return (found[0], found[1]) if all((np.isfinite(v) & (v > 0)).all() for v in found) else None


def has_range(curve: DrawnCurve) -> bool:
    """Whether a spectrum in Kolmogorov units comes near the level of an inertial range, unlike a
    laminar spectrum."""
    inside = (curve.x > 0.01) & (curve.x < 0.3)
    return bool(inside.any() and 0.5 < np.nanmax(curve.y[inside]) < 4)


def compensated(series: SeriesReader, rate: float, eta: float) -> Figure:
    """k^(5/3) E(k) / rate^(2/3) against k eta, at the last time; with the level 1.6 of a Kolmogorov
    range (Sreenivasan 1995) if the spectrum comes near it."""
    k, e = wavenumbers(series), series.one("kinetic_energy", -1)
    values = np.maximum(k, 0) ** (5 / 3) * e / rate ** (2 / 3)
    curve = DrawnCurve(
        k * eta, np.where(values > 1e-6, values, np.nan), PLAIN.moment(series.time[-1])
    )
    return plotted(
        [curve], *KOLMOGOROV_AXES, "xy", levels=[(1.6, r"$C = 1.6$")] if has_range(curve) else []
    )[0]


def directional(series: SeriesReader, name: str) -> Figure:
    """Spectra across and along the axis of the series, at the last time."""
    axis = series.attributes.get("axis", "z")
    each = [
        DrawnCurve(
            series.coordinates[f"k_{d}"], series.one(f"{d}/{name}", -1), label, how={"marker": mark}
        )
        for d, label, mark in (
            ("perpendicular", f"across {axis}", "o"),
            ("parallel", f"along {axis}", "s"),
        )
    ]
    words = r"wavenumber $k_\perp$, $k_\parallel$", f"spectrum of {_words(name)}"
    return plotted(each, *words, "xy", title=PLAIN.moment(series.time[-1]))[0]


def _cospectra(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    by = KINDS["cospectra"].curves
    for name in over(series, "k"):
        energy = name.endswith("_energy") or name.startswith("elsasser")
        plain = partial(lines.curves, series, name, labels, by)
        yield (
            f"cospectra_{name}",
            partial(spectrum, series, name, labels, guide=False) if energy else plain,
        )


def spectral_map(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """log E(k_perpendicular, k_parallel) at up to four times, on one colour scale over eight
    decades."""
    rows = labels.rows(series.time, lines.MOST_PLANES)
    top = max(float(np.nanmax(series.one(name, row))) for row in rows)
    if not top > 0:
        result, (axes,) = panels(r"$k_\perp$", r"$k_\parallel$")
        note(axes, "nothing above zero yet")
        return result
    shown = [(row, np.log10(np.maximum(series.one(name, row), top * 1e-9))) for row in rows]
    return lines.images(
        series,
        labels,
        shown,
        (r"$k_\perp$", rf"$k_\parallel = |k_{series.attributes.get('axis', 'z')}|$"),
        rf"$\log_{{10}}$ {spectrum_of(name).partition(' $')[0]}",
        extend="min",
        cmap="magma",
        points=(series.coordinates["k_perpendicular"], series.coordinates["k_parallel"]),
        vmin=math.log10(top) - 8,
        vmax=math.log10(top),
    )


def transfer(series: SeriesReader, name: str, labels: Labels = PLAIN) -> Figure:
    """Two panels with k T(k) and the flux Pi(k), at up to six times."""
    k = wavenumbers(series)
    inside = (k > 0) & (series.coordinates.get("modes", k) > 0)
    title = f"{_words(name)}: transfer between scales"
    result, (upper, lower) = panels(
        r"wavenumber $k$", r"$k\,T(k)$", r"flux $\Pi(k)$", title=title, height=5.2
    )
    for row, colour, label in moments(series, labels):
        rate, flux = (series.one(f"{kind}/{name}", row)[inside] for kind in ("transfer", "flux"))
        upper.plot(k[inside], k[inside] * rate, color=colour, linewidth=1.3)
        lower.plot(k[inside], flux, color=colour, linewidth=1.3, label=label)
    level(upper)
    level(lower)
    logarithmic(lower, "x")
    lines.legend_beside(lower)
    return result


def _structure_functions(
    series: SeriesReader, labels: Labels, diagnostics: Diagnostics
) -> Pictures:
    yield "structure_functions", partial(structure, series)
    for name in after("mixed_", series):
        yield f"structure_functions_mixed_{name}", partial(mixed, series, name, labels, diagnostics)


def structure(series: SeriesReader) -> Figure:
    """Structure functions of even orders, longitudinal and transverse, averaged over the axes, at
    the last time; in a second panel -S_3 / r, which is 4/5 of the dissipation in an inertial range
    (Kolmogorov 1941)."""
    r, last = series.coordinates["r"], series.at(len(series) - 1)
    third = [r"$-\langle \delta u_\parallel^3 \rangle / r$"] * ("longitudinal_3" in last)
    result, grid = panels(
        r"separation $r$",
        r"$\langle \delta u^p \rangle$",
        *third,
        height=5.2 if third else 3.6,
        title=f"structure functions, {PLAIN.moment(series.time[-1])}",
    )
    even = sorted(p for p in map(int, after("longitudinal_", series)) if p % 2 == 0)
    kinds = (("longitudinal", "long.", "-"), ("transverse", "transv.", "--"))
    if third:
        drawn(grid[1], [DrawnCurve(r, -last["longitudinal_3"].mean(0) / r)], "x")
        level(grid[1])
    if even:
        each = [
            DrawnCurve(
                r, last[f"{kind}_{p}"].mean(0), f"{word} $p = {p}$", f"C{n}", how={"ls": line}
            )
            for n, p in enumerate(even)
            for kind, word, line in kinds
        ]
        drawn(grid[0], each, "xy")
    return result


def mixed(series: SeriesReader, name: str, labels: Labels, diagnostics: Diagnostics) -> Figure:
    """A third moment over -r, averaged over the axes, at up to six times; dashed, its value in an
    isotropic inertial range at the last time: 4/3 of the dissipation of energy, 2/3 of the
    dissipation of a scalar's variance."""
    first, second = {
        "velocity": ("u", r"|\delta\mathbf{u}|^2"),
        "elsasser_plus": ("z^-", r"|\delta\mathbf{z}^+|^2"),
        "elsasser_minus": ("z^+", r"|\delta\mathbf{z}^-|^2"),
    }.get(name, ("u", r"(\delta\theta)^2"))
    words = rf"$-\langle \delta {first}_\parallel\, {second} \rangle / r$"
    of_flow, r = name == "velocity", series.coordinates["r"]
    levels: list[tuple[float, str | None]] = [(0.0, None)]
    factor, column = (4 / 3, "viscous_dissipation") if of_flow else (2 / 3, f"{name}_dissipation")
    if column in diagnostics and not (of_flow and "mixed_elsasser_plus" in series.variables):
        law = factor * float(np.interp(series.time[-1], diagnostics["time"], diagnostics[column]))
        levels.insert(0, (law, r"$4\varepsilon/3$" if of_flow else r"$4\varepsilon_\theta/3$"))
    rows = moments(series, labels)
    each = [
        DrawnCurve(r, -series.one(f"mixed_{name}", i).mean(0) / r, label, c) for i, c, label in rows
    ]
    return plotted(each, r"separation $r$", words, "x", levels=levels, title=_words(name))[0]


def _histograms(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in over(series, "sigma"):
        yield f"histogram_{name}", partial(histogram, series, name, labels)
    for name in over(series, "contrast"):
        if not name.endswith("_mass"):
            yield f"histogram_{name}", partial(log_histogram, series, name, labels)


def histogram(series: SeriesReader, name: str, labels: Labels = PLAIN) -> Figure:
    """The probability density in units of the standard deviation, at up to six times, and a
    Gaussian."""
    sigma = series.coordinates["sigma"]
    gauss = np.exp(-(sigma**2) / 2) / np.sqrt(2 * np.pi)
    theory = {"linewidth": 1.0, "linestyle": "--", "marker": None}
    each = at_times(series, name, sigma, labels, marker=None)
    each.append(DrawnCurve(sigma, gauss, "Gaussian", "#444444", how=theory))
    result, axes, shown = plotted(
        each, rf"{_words(name)}, in standard deviations $\sigma$", _DENSITY, "y"
    )
    shown = np.array(shown[:-1])
    axes.set_ylim(min(np.nanmin(shown, initial=1.0), 1.0) / 2, 2)
    reach = max(3.0, *abs(sigma[np.isfinite(shown).any(0)])) * 1.05
    axes.set_xlim(-reach, reach)
    style.powers_of_ten(axes.yaxis)
    return result


def log_histogram(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """The fraction of the volume per decade of density at up to six times; dashed, of the mass at
    the last time."""
    words = _words(name.removeprefix("log_"))
    x, step = series.coordinates["contrast"], {"marker": None, "drawstyle": "steps-mid"}
    each = at_times(series, name, x, labels, **step)
    dashed, colour = {**step, "linestyle": "--"}, each[-1].colour
    each.append(
        DrawnCurve(x, series.one(f"{name}_mass", -1), "mass at\nthe last time", colour, how=dashed)
    )
    result, axes, shown = plotted(
        each, rf"{words} $\log_{{10}}(\rho/\bar\rho)$", "share per decade", "y"
    )
    if not shown:
        return result
    shown = np.array(shown)
    axes.set_ylim(bottom=max(np.nanmin(shown[:-1], initial=1.0) / 2, 1e-8))
    ends = x[np.isfinite(shown).any(0)][[0, -1]]
    margin = 0.05 * np.ptp(ends) + float(x[1] - x[0])
    axes.set_xlim(ends[0] - margin, ends[1] + margin)
    style.powers_of_ten(axes.yaxis)
    return result


_INVARIANTS = {"Q": r"$Q / Q_\omega$", "R": r"$R / Q_\omega^{3/2}$"}


def joint_histogram(series: SeriesReader, pair: str, labels: Labels) -> Figure:
    """The logarithm of the joint probability density at the last time, where it is not zero, with
    the conditional mean of the second quantity; for Q and R also the line that separates strain
    from vortices."""
    first, second = pair.split(" ")
    density = np.asarray(series.one(f"{first}_{second}", -1))
    x, y = series.coordinates["first"], series.coordinates["second"]
    words = (
        _INVARIANTS.get(n, f"{quantity(n)}, deviations from the mean") for n in (first, second)
    )
    result, (axes,) = panels(*words, title=labels.moment(series.time[-1]), height=4.6, right=0.82)
    axes.grid(False)
    if not density.any():
        note(axes, "nothing in range")
        return result
    logs = np.log10(np.where(density > 0, density, np.nan))
    mesh = axes.pcolormesh(x, y, logs.T, cmap="viridis", shading="nearest")
    for i, (c, limit) in enumerate(((x, axes.set_xlim), (y, axes.set_ylim))):
        reached, step = c[(density > 0).any(1 - i)], c[1] - c[0]
        limit(max(reached[0] - 3 * step, c[0] - step), min(reached[-1] + 3 * step, c[-1] + step))
    given = f"{second}_given_{first}"
    if given in series.variables and (unit := float(series.one(f"{second}_scale", -1))) > 0:
        centre = 0.0 if second in _INVARIANTS else float(series.one(f"{second}_mean", -1))
        axes.plot(
            x, (np.asarray(series.one(given, -1)) - centre) / unit, color="#D55E00", linewidth=1.3
        )
        axes.set_title(f"{labels.moment(series.time[-1])}; the line is the mean at each abscissa")
    if (first, second) == ("R", "Q"):
        curve = np.linspace(*axes.get_xlim(), 401)
        axes.plot(
            curve, -np.cbrt(27 / 4 * curve**2), color="#444444", linewidth=1.0, linestyle="--"
        )
        axes.axhline(0, color="#888888", linewidth=0.6)
        axes.axvline(0, color="#888888", linewidth=0.6)
    lines.colour_bar(result, mesh, rf"$\log_{{10}}$ {_DENSITY}")
    return result


_SYMBOLS = {"alpha": r"$\alpha$", "beta": r"$\beta$", "gamma": r"$\gamma$"}


def _strain(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    yield from lines.numbers(series, labels, Curves())
    label = r"eigenvalue of the strain $/\ \langle S_{ij}S_{ij}\rangle^{1/2}$"
    yield "strain_eigenvalues", partial(_three, series, "{}", "rate", label, labels)
    shape = Curves(title=lambda name: _DENSITY, coordinates={"shape": r"$s^*$"})
    yield "strain_s_star", partial(lines.curves, series, "s_star", labels, shape)
    for vector in map(str, series.attributes["vectors"]):
        label = rf"$|\cos|$ between {quantity(vector).partition(' $')[0]} and the eigenvectors"
        yield (
            f"strain_alignment_{vector}",
            partial(_three, series, vector + "_{}", "cosine", label, labels),
        )


def _three(
    series: SeriesReader, variable: str, coordinate: str, words: str, labels: Labels
) -> Figure:
    """The probability densities of one quantity for each of the three eigenvalues, at the last
    time. The cosines of a vector without preferred direction have the density 1."""
    x, cosine = series.coordinates[coordinate], coordinate == "cosine"
    each = [(symbol, series.one(variable.format(e), -1)) for e, symbol in _SYMBOLS.items()]
    how = {"marker": None}
    curves = [DrawnCurve(x, np.where(y > 0, y, np.nan), symbol, how=how) for symbol, y in each]
    layout = {"title": labels.moment(series.time[-1]), "right": 0.86}
    result, axes, shown = plotted(
        curves, words, _DENSITY, "" if cosine else "y", "nothing in range", **layout
    )
    if shown and cosine:
        axes.axhline(1, color="#888888", linewidth=0.8, linestyle="--")
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
    return result


def profile(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """The density against the distance from the densest point at up to six times; for waves also
    the soliton with the last peak density, if its core radius is near the measured one."""
    words = labels.axis(r"radius $r$", "length"), labels.axis(rf"{_words(name)} $\rho$", "density")
    rows = moments(series, labels)
    curves = list[DrawnCurve]()
    for i, colour, label in rows:
        r, density = series.one("radius", i), series.one(name, i)
        there = np.isfinite(density)  # bins near the centre may have no grid points
        curves.append(DrawnCurve(r[there], density[there], label, colour))
    result, axes, shown = plotted(curves, *words, "xy")
    if not shown:
        return result
    axes.set_ylim(min(map(np.nanmin, shown)) / 2, max(map(np.nanmax, shown)) * 2)
    if (
        (constants := _solitons(labels.model)) is not None
        and name == "density"
        and "peak_density" in series
    ):
        from simulator.physics.initial.soliton import radial_ground_state

        gravity, peak = (
            labels.scale_factor(series.time[-1]) * constants[1],
            float(series.one("peak_density", -1)),
        )
        # The isolated ground state with this central density.
        state, scale = radial_ground_state(), (constants[0] ** 2 / (gravity * peak)) ** 0.25
        core = scale * state.core
        if 0.3 < np.interp(core, curves[-1].x, curves[-1].y) / peak < 0.7:
            r, unit = np.geomspace(*axes.get_xlim(), 200), labels.unit("length")
            text = f"soliton,\n$r_c = {core:.3g}" + (rf"\,{unit}$" if unit else "$")
            density = peak * np.interp(r / scale, state.radius, state.amplitude, right=0.0) ** 2
            axes.plot(
                r, density, color="black", linewidth=1.1, linestyle="--", zorder=3, label=text
            )
            lines.legend_beside(axes)
    logarithmic(axes, "xy")
    return result


def _solitons(model: Mapping[str, Any]) -> tuple[float, float] | None:
    """hbar / m and G of waves under their own gravity alone, whose cores are ground states; None
    for other models."""
    if model.get("kind") != "schrodinger_poisson" or model.get("self_interaction"):
        return None
    if model.get("external_potential"):
        return None
    from simulator.physics.models.schrodinger_poisson import SchrodingerPoissonSettings

    settings = SchrodingerPoissonSettings.model_validate(model)
    return (settings.hbar, settings.gravity) if settings.gravity > 0 else None


def _render(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    words, row = labels.moment(series.time[-1]), len(series) - 1
    name = f"render_{series.attributes.get('field', 'volume')}"
    yield name, lambda: volume_picture(series.one("image", row), words, colours_of(series, row))


def colours_of(series: SeriesReader, row: int) -> dict[str, np.ndarray]:
    """The colours of each field in a volume picture of a series, as `volume_picture` takes them."""
    return {name: series.one(f"colours/{name}", row) for name in after("colours/", series)}


def volume_picture(
    image: np.ndarray, words: str, colours: Mapping[str, np.ndarray], onto: Figure | None = None
) -> Figure:
    """A figure that shows `image` (row, column, channel), of 8 bits, pixel by pixel, with `words`
    in a corner and a bar for each field of `colours`: rows of value, red, green, blue and
    absorption; the bar fades with it. `onto`: a figure of this size to be drawn again."""
    rows, columns = image.shape[:2]
    result = onto or style.figure(columns / style.DPI, rows / style.DPI)
    result.clear()
    axes = result.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.imshow(image, interpolation="nearest", aspect="auto")
    axes.text(0.03, 0.03, words, transform=axes.transAxes, color="white", fontsize=11)
    for number, (name, table) in enumerate(colours.items()):
        low, high, words = table[0, 0], table[-1, 0], quantity(name)
        at = np.linspace(low, high, 256)
        if 0 < 9 * low < high:
            at, words = np.geomspace(low, high, 256), rf"$\log_{{10}}$ {words}"
            low, high = math.log10(low), math.log10(high)
        red, green, blue, dense = (np.interp(at, table[:, 0], table[:, i]) for i in range(1, 5))
        seen = np.stack([red, green, blue], 1) * np.sqrt(dense / max(dense.max(), 1e-300))[:, None]
        bar = result.add_axes((0.95 - 0.17 * number, 0.04, 0.03, 0.3))
        bar.imshow(seen[:, None], origin="lower", aspect="auto", extent=(0, 1, low, high))
        bar.set_xticks([])
        bar.yaxis.set_major_locator(MaxNLocator(4))
        bar.tick_params(colors="white", labelsize=8, length=2, pad=2)
        bar.yaxis.get_offset_text().set(color="white", size=8)
        bar.set_ylabel(words, color="white", fontsize=8, labelpad=2)
        for spine in bar.spines.values():
            spine.set_color("#808080")
    return result


def species(series: SeriesReader, variable: str = "") -> list[str]:
    """The names of the particles in a series; with `variable`, only of particles that have this
    variable."""
    names = dict.fromkeys(name.partition("/")[0] for name in series.variables)
    return [name for name in names if not variable or f"{name}/{variable}" in series]


def paths(series: SeriesReader, name: str, labels: Labels = PLAIN) -> Figure:
    """The paths of up to 60 particles, seen along z, through the faces of the box, with a dot at
    the end."""
    few = style.evenly(len(series.coordinates[f"{name}_id"]), 60)
    ways = [_way(series, name, axis, few) for axis in "xy"]
    title = f"{name}: {len(few)} paths, $t = {series.time[0]:.4g}$ to ${series.time[-1]:.4g}$"
    result, (axes,) = panels("$x$", "$y$", title=title, height=5.6, right=0.97)
    axes.set_prop_cycle(color=style.sequence_colours(len(few)))
    axes.plot(*ways, linewidth=0.9)
    axes.scatter(ways[0][-1], ways[1][-1], s=7, color="black", zorder=3)
    axes.set_aspect("equal", adjustable="datalim")
    return result


def _way(series: SeriesReader, name: str, axis: str, few: list[int]) -> np.ndarray:
    """One coordinate (row, particle) of the particles `few`, continued through the faces of the
    box. Without a stored displacement, a particle is assumed to move by less than half the box
    between two rows."""
    position = series[f"{name}/position_{axis}"][:, few]
    if f"{name}/displacement_{axis}" in series:
        way = series[f"{name}/displacement_{axis}"][:, few]
        return position[0] - way[0] + way
    return np.unwrap(position, axis=0, period=float(series.attributes["box"]["xyz".index(axis)]))


def _particle_statistics(
    series: SeriesReader, labels: Labels, diagnostics: Diagnostics
) -> Pictures:
    if species(series, "dispersion_x"):
        yield "dispersion", partial(dispersion, series)
    if species(series, "settling_velocity"):
        yield "settling_velocity", partial(settling, series)
    for name in species(series, "pair_dispersion"):
        yield f"pair_dispersion_{name}", partial(pair_dispersion, series, name)
    for name in species(series):
        yield f"acceleration_{name}", partial(acceleration, series, name, labels)


def settling(series: SeriesReader) -> Figure:
    """The mean velocity along gravity, of each species on which gravity acts, against time."""
    names, how = species(series, "settling_velocity"), {"marker": None}
    each = [
        DrawnCurve(series.time, series[f"{name}/settling_velocity"], name, how=how)
        for name in names
    ]
    return plotted(each, "$t$", r"settling velocity $\langle v \cdot g / |g| \rangle$", height=3.4)[
        0
    ]


def dispersion(series: SeriesReader) -> Figure:
    """The mean squared displacement since the first row, and the autocorrelation of the velocity,
    against time."""
    words = r"$\langle |x(t) - x(0)|^2 \rangle$", r"$\langle v(t) \cdot v(0) \rangle$, normalised"
    result, (above, below) = panels("time since the start", *words, height=5.2)
    names, how = species(series, "dispersion_x"), {"marker": None}
    time = series.time - series.time[0]
    squares = [np.sum([series[f"{n}/dispersion_{axis}"] for axis in "xyz"], axis=0) for n in names]
    curves = [
        DrawnCurve(time, square, n, how=how) for n, square in zip(names, squares, strict=True)
    ]
    if drawn(above, curves, "xy", "nothing has moved yet"):
        drawn(
            below,
            [DrawnCurve(time, series[f"{n}/velocity_autocorrelation"], how=how) for n in names],
            "x",
        )
        level(below)
    return result


def pair_dispersion(series: SeriesReader, name: str) -> Figure:
    """The mean squared change of the separation of pairs against time, by the separation at the
    start, and the ballistic law t^2."""
    time, change = series.time - series.time[0], series[f"{name}/pair_change"]
    curves = [
        DrawnCurve(time, change[:, i], rf"$r_0$ = {r:.3g}", how={"marker": None})
        for i, r in enumerate(series.coordinates[f"{name}_separation"])
    ]
    if len(time) > 2:
        law, how = (
            change[1, 0] * (time[1:] / time[1]) ** 2,
            {"marker": None, "linestyle": "--", "linewidth": 0.8},
        )
        curves.append(DrawnCurve(time[1:], law, "$t^2$", "0.4", how=how))
    words = r"$\langle |r(t) - r(0)|^2 \rangle$"
    return plotted(
        curves, "time since the start", words, "xy", "no pair has changed yet", title=name
    )[0]


def acceleration(series: SeriesReader, name: str, labels: Labels = PLAIN) -> Figure:
    """The probability density of the acceleration's components over their root mean square, at up
    to six times."""
    curves = at_times(
        series, f"{name}/acceleration", series.coordinates["sigma"], labels, marker="."
    )
    words = r"acceleration $a / a_{\mathrm{rms}}$", _DENSITY
    return plotted(curves, *words, "y", "nothing is accelerated yet", title=name)[0]


def pair_correlation(series: SeriesReader, labels: Labels = PLAIN) -> Figure:
    """The radial distribution function of each species at up to six times; the last time is bold,
    with error bars."""
    result, (axes,) = panels("$r$", "radial distribution function $g(r)$", right=0.97)
    r, curves = series.coordinates["r"], list[DrawnCurve]()
    for number, name in enumerate(species(series)):
        for row, _, moment in moments(series, labels):
            g, pairs = (series.one(f"{name}/{variable}", row) for variable in ("g", "pairs"))
            y, last = np.where(pairs > 0, g, np.nan), row == len(series) - 1
            how = {} if last else {"alpha": 0.3, "linewidth": 0.8, "marker": None}
            curves.append(
                DrawnCurve(r, y, f"{name}, {moment}" if last else None, f"C{number}", how=how)
            )
            if last:
                axes.errorbar(
                    r,
                    y,
                    y / np.sqrt(np.maximum(pairs, 1)),
                    fmt="none",
                    color=f"C{number}",
                    elinewidth=1.0,
                )
    level(axes, 1.0)
    shown = drawn(axes, curves, "xy", "no pairs at these distances")
    if shown:
        axes.set_ylim(np.nanmin(shown) / 2, np.nanmax(shown) * 2)
        style.powers_of_ten(axes.yaxis)
        axes.legend()
    return result


def _probes(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name, (dimension,) in series.variables.items():
        stem = f"probes_{name.replace('/', '_')}"
        values, spectrum = (record, frequencies) if dimension == "point" else (space_time, waves)
        yield stem, partial(values, series, name, labels)
        yield f"{stem}_frequency", partial(spectrum, series, name, labels)


def record(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """A quantity at up to six points against time."""
    values = series[name]
    points = style.evenly(values.shape[1], lines.MOST_CURVES)
    where = [series.coordinates[axis] for axis in "xyz" if axis in series.coordinates]
    words = [f"$({', '.join(style.position(float(c[point])) for c in where)})$" for point in points]
    each = [
        DrawnCurve(series.time, values[:, point], word, colour, how={"marker": None})
        for point, word, colour in zip(
            points, words, style.sequence_colours(len(points)), strict=True
        )
    ]
    time = labels.axis(r"time $t$", "time")
    return plotted(each, time, quantity(name), height=3.6, right=0.74)[0]


def _spectrum(axes: Axes, series: SeriesReader, name: str) -> Any:
    """The spectrum of a variable of probes; if it cannot be computed, None and a note on the
    axes."""
    try:
        found: FrequencySpectrum | WaveSpectrum = probe_spectrum(series, name)
    except UserError:
        note(
            axes,
            "too few rows at even intervals of time:\nuse a fixed dt, or every with align: true",
        )
        return None
    if not found.energy.any():
        note(axes, "nothing varies")
        return None
    return found


def frequencies(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """E(omega), the mean over all points."""
    words = rf"$E(\omega)$ of {quantity(name)}"
    result, (axes,) = panels(r"angular frequency $\omega$", words, height=4.0, right=0.96)
    if (found := _spectrum(axes, series, name)) is not None:
        drawn(
            axes,
            [DrawnCurve(found.omega, found.energy, how={"marker": None, "linewidth": 1.2})],
            "xy",
        )
    return result


def space_time(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """A quantity on a line against position and time."""
    (line,) = series.variables[name]
    result, (axes,) = panels(rf"${line[-1]}$", labels.axis(r"time $t$", "time"), right=0.83)
    axes.grid(False)
    along, values = series.coordinates[line], series[name]
    if len(series) < 2:
        note(axes, "one row so far")
        return result
    scale = style.scale_of(name, [values])
    mesh = axes.pcolormesh(
        along,
        series.time,
        scale.shown(values),
        vmin=scale.low,
        vmax=scale.high,
        cmap=scale.colours,
        shading="nearest",
        rasterized=True,
    )
    if len(along) > 1:
        style.lengths(axes.xaxis, 0.0, float(along[-1] + along[1]), 4)
    lines.colour_bar(result, mesh, scale.label(quantity(name.partition("/")[2])), scale.extend)
    return result


def waves(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """log E(omega, k) of a quantity on a line, over five decades; waves with k > 0 travel along the
    axis."""
    axis = series.variables[name][0][-1]
    result, (axes,) = panels(rf"wavenumber $k_{axis}$", r"angular frequency $\omega$", right=0.83)
    axes.grid(False)
    if (found := _spectrum(axes, series, name)) is None:
        return result
    high = math.log10(float(found.energy.max()))
    logs = np.log10(np.maximum(found.energy, 10.0 ** (high - 6)))
    mesh = axes.pcolormesh(
        found.k,
        found.omega,
        logs,
        vmin=high - 5,
        vmax=high,
        cmap="magma",
        shading="nearest",
        rasterized=True,
    )
    # Without a limit, frequencies with almost no energy would take most of the picture.
    held = np.cumsum(found.energy.sum(1))
    last = int(np.searchsorted(held, (1 - 1e-4) * held[-1]))
    axes.set_ylim(0, found.omega[min(2 * last + 4, len(found.omega) - 1)])
    words = rf"$\log_{{10}} E(\omega, k_{axis})$ of {quantity(name.partition('/')[2])}"
    lines.colour_bar(result, mesh, words, "min")
    return result


def _statistics(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    yield "statistics_means", partial(table_of_means, series, labels)
    spectra, fluxes = (after(f"mean/{kind}/", series) for kind in ("spectrum", "flux"))
    powers = [name for name in spectra if name.endswith("_power")]
    energies = [name for name in spectra if name not in powers]
    for stem, kind, names, words, log in (
        ("spectrum", "spectrum", energies, "energy spectrum $E(k)$", "xy"),
        ("power", "spectrum", powers, "power spectrum $P(k)$", "xy"),
        ("flux", "flux", fluxes, r"flux $\Pi(k)$", "x"),
    ):
        if names:
            yield (
                f"statistics_{stem}",
                partial(mean_curves, series, labels, kind, names, words, log),
            )


def samples_of(series: SeriesReader) -> str:
    """The number of samples, and whether they are too few for errors."""
    samples = int(series.one("samples", -1))
    return f"{samples} samples" + ("" if samples >= FEWEST else f" (errors need {FEWEST})")


def _averaged(series: SeriesReader, labels: Labels) -> str:
    first = float(series.attributes["from"])
    return f"{samples_of(series)} from {labels.moment(first)} to {labels.moment(series.time[-1])}"


def means(series: SeriesReader) -> dict[str, tuple[float, float]]:
    """Mean and standard error of every number at the last row, without those that are always 0, and
    without a part that is the whole, such as the kinetic energy of a fluid without other energy."""
    names = (name for name in after("mean/", series) if not series.variables[f"mean/{name}"])
    found = {
        n: (float(series.one(f"mean/{n}", -1)), float(series.one(f"error/{n}", -1))) for n in names
    }
    shown = {name: pair for name, pair in found.items() if pair[0] or pair[1] > 0}
    whole = {name: pair for name, pair in shown.items() if name in ("energy", "dissipation")}
    totals = {mean for mean, _ in whole.values()}
    return whole | {name: pair for name, pair in shown.items() if pair[0] not in totals}


def with_error(mean: float, error: float) -> str:
    """`0.1234 ± 0.0056`, `(1.234 ± 0.056) 1e-7`: the error to two digits; without an error, the
    mean to five."""
    if not (math.isfinite(mean) and 0 < error < math.inf):
        return f"{mean:.5g}"
    power = math.floor(math.log10(max(abs(mean), error)))
    power = 0 if -4 <= power <= 4 else power
    decimals = max(0, 1 - math.floor(math.log10(error)) + power)
    both = f"{mean / 10.0**power:.{decimals}f} ± {error / 10.0**power:.{decimals}f}"
    return f"({both}) 1e{power}" if power else both


def tables_of_means(series: SeriesReader) -> dict[str, str]:
    """The means of a run as a table to read, and as CSV for programs, by the ending of the file."""
    text, lines = (
        [f"{'mean +- standard error':>30}  {_averaged(series, PLAIN).replace('$', '')}"],
        ["name,mean,error"],
    )
    for name, pair in means(series).items():
        text.append(f"{with_error(*pair).replace('±', '+-'):>30}  {in_words(name)}")
        lines.append(f"{name},{pair[0]!r},{pair[1]!r}")
    return {".txt": "\n".join(text) + "\n", ".csv": "\n".join(lines) + "\n"}


def table_of_means(series: SeriesReader, labels: Labels) -> Figure:
    """Means with their standard errors, as text in two columns."""
    rows = [("mean ± standard error", _averaged(series, labels))]
    rows += [(with_error(*pair), quantity(name)) for name, pair in means(series).items()]
    result = style.figure(style.WIDTH, 0.3 + 0.21 * len(rows))
    for n, (value, words) in enumerate(rows):
        height = 1 - (0.25 + 0.21 * n) / result.get_figheight()
        weight = "bold" if n == 0 else "normal"
        result.text(0.36, height, value, ha="right", va="center", weight=weight)
        result.text(0.40, height, words, va="center", weight=weight)
    return result


def mean_curves(
    series: SeriesReader, labels: Labels, kind: str, names: list[str], words: str, log: str
) -> Figure:
    """Mean spectra or fluxes with bands of a standard error."""
    k, each = wavenumbers(series), []
    for name in names:
        mean, error = (
            np.asarray(series.one(f"{of}/{kind}/{name}", -1)) for of in ("mean", "error")
        )
        each.append(
            DrawnCurve(
                k, mean, _words(name) if len(names) > 1 else None, error=np.nan_to_num(error)
            )
        )
    if len(names) == 1:
        words = spectrum_of(names[0]) if kind == "spectrum" else f"{words} of {_words(names[0])}"
    title = _averaged(series, labels)
    result, axes, _ = plotted(
        each, labels.axis(r"wavenumber $k$", "wavenumber"), words, log, title=title
    )
    if "y" not in log:
        level(axes)
    return result


Builder = Callable[[SeriesReader, Labels, Diagnostics], Pictures]


def _each(
    stem: str, names: Callable[[SeriesReader], Iterable[str]], build: Callable[..., Figure]
) -> Builder:
    return lambda series, labels, diagnostics: (
        (f"{stem}_{name}", partial(build, series, name, labels)) for name in names(series)
    )


PICTURES: dict[str, Builder] = {
    "transfer": _each("transfer", partial(after, "flux/"), transfer),
    "profiles": _each(
        "profile", lambda series: filter(style.is_density, over(series, "r")), profile
    ),
    "projections": _each("projection", fields, projections),
    "lightcone": _each("lightcone", fields, projections),
    "slices": _each("slices", fields, slices),
    "trajectories": _each("trajectories", species, paths),
    "spectral_maps": _each("spectral_map", lambda series: series.variables, spectral_map),
    "joint_histograms": lambda series, labels, _: (
        (
            f"joint_histogram_{pair.replace(' ', '_')}",
            partial(joint_histogram, series, pair, labels),
        )
        for pair in map(str, series.attributes["pairs"])
    ),
    "pair_correlation": lambda *of: iter(
        [("pair_correlation", partial(pair_correlation, *of[:2]))]
    ),
    "spectra": _spectra,
    "structure_functions": _structure_functions,
    "histograms": _histograms,
    "particle_statistics": _particle_statistics,
    "render": _render,
    "probes": _probes,
    "cospectra": _cospectra,
    "strain": _strain,
    "statistics": _statistics,
}
"""The functions that yield the pictures, by the kind of series."""
