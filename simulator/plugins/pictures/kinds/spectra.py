"""Spectra over shells, across and along an axis, and power spectra; spectra of fluxes, helicities and
parts of the energy."""

import math
from functools import partial
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.archive.series_file import SeriesReader
from simulator.measure import Curves
from simulator.plugins.pictures.lines import (
    MOST_PLANES,
    DrawnCurve,
    Pictures,
    at_times,
    curves,
    drawn_rows,
    images,
    legend_beside,
    logarithmic,
    panels,
    plotted,
    reach_of,
)
from simulator.plugins.pictures.series_pictures import (
    Diagnostics,
    endings,
    one_for_each,
    pictures_of_each,
    variables_over,
)
from simulator.plugins.pictures.style import PLAIN, Labels, as_words, note, spectrum_of

LEAST_REYNOLDS = 20.0
"""The Taylor-scale Reynolds number above which pictures show Kolmogorov's scaling laws."""
LEAST_DISSIPATION = 0.15
"""The dissipation in units of u_rms^3 / L above which pictures show these laws; turbulence dissipates
0.4 to 1 of these units (Sreenivasan 1998, Phys. Fluids 10, 528), a flow whose cascade has not begun
much less."""
LEAST_RANGE = 5.0
"""The ratio of wavenumbers over which the level of an inertial range has to be seen."""
KOLMOGOROV_AXES = r"wavenumber $k\eta$", r"$k^{5/3} E(k) / \varepsilon^{2/3}$"
"""The labels of both axes for energy spectra in Kolmogorov units."""


def spectra_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    turbulent = may_be_turbulent(series, diagnostics, labels)
    for name in variables_over(series, "k"):
        plain = partial(spectrum, series, name, labels, guide=turbulent)
        is_power = name.endswith("_power")
        yield (
            f"spectrum_{name}",
            partial(power_spectrum, series, name, labels, diagnostics) if is_power else plain,
        )
    scales = kolmogorov(diagnostics, series.time[-1])
    if "kinetic_energy" in series.variables and turbulent and scales is not None:
        yield "spectrum_compensated", partial(compensated, series, *map(float, scales))
    names = endings("perpendicular/", series)
    yield from one_for_each(names, "spectrum_directional", directional, series)


def shell_wavenumbers(series: SeriesReader) -> np.ndarray:
    """The wavenumber of each shell: the centre n dk; for the shell about k = 0 the mean wavenumber
    of its modes (0 if the mean flow is its only mode)."""
    k = series.coordinates["k"]
    return np.where(k > 0, k, series.coordinates.get("k_mean", k))


def spectrum_axes(name: str, labels: Labels) -> tuple[str, str]:
    """The labels of both axes of a spectrum over shells, with the units that the run has."""
    x = labels.axis(r"wavenumber $k$", "wavenumber")
    if not name.endswith("_power"):
        return x, spectrum_of(name)
    of = as_words(name.removesuffix("density_power"))
    return x, labels.axis(rf"{of}power spectrum $P(k)$", "volume")


def spectrum(
    series: SeriesReader, name: str, labels: Labels = PLAIN, *, guide: bool = True
) -> Figure:
    """E(k), log-log, at up to six times; with `guide` also a line of slope -5/3 if the last has
    about that slope."""
    k = shell_wavenumbers(series)
    each = at_times(series, name, k, labels)
    result, axes, shown = plotted(each, *spectrum_axes(name, labels), "xy")
    if not shown:
        return result
    shown = np.array(shown)
    top = float(np.nanmax(shown))
    first = float(k[k > 0][0])
    reached = k[np.isfinite(shown).any(0)]
    if len(reached) == 1:
        axes.set_title(f"all energy is at $k = {reached[0]:.3g}$")
    end = reach_of(series, name)
    last = max(reached[-1], end if np.isfinite(end) else 0.0)
    axes.set_xlim(first * 0.9, max(last * 1.15, 10 * first))
    highest = _guide(axes, k, shown[-1], np.nan_to_num(shown).max(0)) if guide else 0.0
    lowest = min(float(np.nanmin(shown)) / 2, top * 1e-3)
    axes.set_ylim(max(lowest, top * 1e-11), max(top, highest) * 2)
    logarithmic(axes, "xy")
    return result


def _guide(axes: Axes, k: np.ndarray, last: np.ndarray, envelope: np.ndarray) -> float:
    """Draws a line of slope -5/3 above all spectra, whose largest values are the `envelope`, if the
    `last` spectrum extends well beyond the range of the line and has about that slope. Returns the
    highest value of the line."""
    ends = np.array([2.5, 12]) * k[k > 0][0]
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


def power_spectrum(
    series: SeriesReader, name: str, labels: Labels, diagnostics: Diagnostics = MappingProxyType({})
) -> Figure:
    """P(k) at up to six times; in an expanding background also, dashed in the colour of each time,
    the prediction of linear theory for cold matter: the first P(k) times (D(a) / D(a_first))^2, for
    waves below their Jeans wavenumber. For particles, the shot noise V / N and their Nyquist
    wavenumber pi (N / V)^(1/3)."""
    k = shell_wavenumbers(series)
    first = series.one(name, 0)
    each = at_times(series, name, k, labels)
    result, axes, shown = plotted(each, *spectrum_axes(name, labels), "xy")
    if not shown:
        return result
    top = float(np.nanmax(shown))
    dashed = {"linewidth": 1.0, "linestyle": "--"}
    if labels.background is not None and len(shown) > 1:
        begin = labels.scale_factor(float(series.time[0]))
        start = labels.background.growth(begin)
        cold = k < jeans_wavenumber(labels, name, begin)
        for row, colour, _ in drawn_rows(series, labels):
            growth = labels.background.growth(labels.scale_factor(float(series.time[row])))
            linear = first * (growth / start) ** 2
            there = (k > 0) & cold & (linear > 1e-11 * top)
            if row > 0 and there.any():
                axes.loglog(k[there], linear[there], color=colour, **dashed)
        if (cold & (k > 0)).any():
            axes.add_line(Line2D([], [], color="black", label="linear growth", **dashed))
            legend_beside(axes)
    low = max(float(np.nanmin(shown)) / 2, top * 1e-11)
    if shot := shot_noise(name, labels, diagnostics):
        dotted = {"color": "#444444", "linewidth": 1.0, "linestyle": ":"}
        axes.axhline(shot, label="shot noise", **dotted)
        axes.axvline(
            math.pi / shot ** (1 / 3), label="particles'\nNyquist", **{**dotted, "linestyle": "-."}
        )
        legend_beside(axes)
        low = min(low, shot / 2)
    axes.set_ylim(low, top * 3)
    logarithmic(axes, "xy")
    return result


def shot_noise(name: str, labels: Labels, diagnostics: Diagnostics) -> float:
    """V / N of the particles whose power `name` is, or of the only matter; 0 for other matter."""
    parts = [part["name"] for part in labels.model.get("components") or ()]
    of = parts if len(parts) == 1 else [part for part in parts if name.startswith(f"{part}_")]
    columns = [
        diagnostics[f"{part}_shot_noise"] for part in of if f"{part}_shot_noise" in diagnostics
    ]
    return float(columns[0][-1]) if columns and len(columns[0]) else 0.0


def jeans_wavenumber(labels: Labels, name: str, scale_factor: float) -> float:
    """The comoving wavenumber above which waves in the density `name` do not grow, at a scale
    factor."""
    model = labels.model
    parts = [model, *(model.get("components") or ())]
    named = [part for part in parts[1:] if name.startswith(f"{part['name']}_")]
    from simulator.physics.models import MODELS
    from simulator.plugins.gravity.cosmology import CosmologySettings
    from simulator.plugins.gravity.density import SelfGravity

    background = CosmologySettings(**model["cosmology"])
    kinds = [(part, MODELS.get(part["kind"])) for part in named or parts]
    limits = [
        kind.jeans_wavenumber({"units": model.get("units"), **part}, background, scale_factor)
        for part, kind in kinds
        if kind is not None and issubclass(kind, SelfGravity)
    ]
    return next(filter(math.isfinite, limits), math.inf)


def may_be_turbulent(
    series: SeriesReader | None, diagnostics: Diagnostics, labels: Labels = PLAIN
) -> bool:
    """Whether Re_lambda and the laws of homogeneous turbulence have a meaning at the time of the
    last row: in a homogeneous flow in three dimensions whose energy lies in more than three shells,
    with `LEAST_REYNOLDS` and `LEAST_DISSIPATION`. The flow about a body, or a laminar one, has
    none."""
    if not labels.homogeneous or not len(diagnostics.get("time", ())):
        return False
    time = diagnostics["time"][-1] if series is None else series.time[-1]
    now = {name: np.interp(time, diagnostics["time"], v) for name, v in diagnostics.items()}
    if series is not None and "kinetic_energy" in series.variables:
        energy = series.one("kinetic_energy", -1)
        if np.count_nonzero(energy > 1e-9 * energy.max()) <= 3:  # an ABC flow is in one shell
            return False
    cascades = {"kolmogorov_scale", "dissipation", "integral_scale"} <= now.keys()
    if cascades:
        unit = max(now["u_rms"], 1e-300) ** 3 / now["integral_scale"]
        cascades = now["dissipation"] >= LEAST_DISSIPATION * unit
    else:  # energy does not cascade to small scales
        cascades = True
    return bool(cascades and now.get("reynolds_taylor", 0.0) >= LEAST_REYNOLDS)


def kolmogorov(
    diagnostics: Diagnostics, times: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Dissipation and Kolmogorov scale at `times`; None if the run lacks these columns."""
    dissipation = diagnostics.get("viscous_dissipation", diagnostics.get("dissipation"))
    if dissipation is None or "kolmogorov_scale" not in diagnostics:
        return None
    time = diagnostics["time"]
    rate = np.asarray(np.interp(times, time, dissipation))
    scale = np.asarray(np.interp(times, time, diagnostics["kolmogorov_scale"]))
    usable = all((np.isfinite(v) & (v > 0)).all() for v in (rate, scale))
    return (rate, scale) if usable else None


def has_range(curve: DrawnCurve) -> bool:
    """Whether a compensated spectrum in Kolmogorov units has an inertial range: it lies within a
    quarter of a level of 1 to 3 over a factor of five in wavenumber, below the bump before the
    dissipation range (at k eta = 0.1, Saddoughi & Veeravalli 1994, J. Fluid Mech. 268, 333)."""
    k, level = (values[(curve.x > 0) & np.isfinite(curve.y)] for values in (curve.x, curve.y))
    for i in range(len(k)):
        inside = (k >= k[i]) & (k <= LEAST_RANGE * k[i])
        if LEAST_RANGE * k[i] > min(0.1, k[-1]):
            return False
        middle = np.median(level[inside])
        if 1 < middle < 3 and (abs(level[inside] / middle - 1) < 0.25).all():
            return True
    return False


def compensated(series: SeriesReader, rate: float, eta: float) -> Figure:
    """k^(5/3) E(k) / rate^(2/3) against k eta, at the last time; with the level 1.6 of a Kolmogorov
    range (Sreenivasan 1995) if the spectrum comes near it."""
    k = shell_wavenumbers(series)
    energy = series.one("kinetic_energy", -1)
    values = np.maximum(k, 0) ** (5 / 3) * energy / rate ** (2 / 3)
    shown = np.where(values > 1e-6, values, np.nan)
    reach = eta * reach_of(series, "kinetic_energy")
    curve = DrawnCurve(k * eta, shown, PLAIN.moment(series.time[-1]), reach=reach)
    levels = [(1.6, r"$C = 1.6$")] if has_range(curve) else []
    return plotted([curve], *KOLMOGOROV_AXES, "xy", levels=levels)[0]


def directional(series: SeriesReader, name: str) -> Figure:
    """Spectra across and along the axis of the series, at the last time."""
    axis = series.attributes.get("axis", "z")

    def curve(direction: str, label: str, marker: str) -> DrawnCurve:
        k = series.coordinates[f"k_{direction}"]
        return DrawnCurve(k, series.one(f"{direction}/{name}", -1), label, how={"marker": marker})

    across = curve("perpendicular", f"across {axis}", "o")
    along = curve("parallel", f"along {axis}", "s")
    x = r"wavenumber $k_\perp$, $k_\parallel$"
    y = f"spectrum of {as_words(name)}"
    return plotted([across, along], x, y, "xy", title=PLAIN.moment(series.time[-1]))[0]


def energy_map(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """log E(k_perpendicular, k_parallel) at up to four times, on one colour scale over eight
    decades."""
    rows = labels.rows(series.time, MOST_PLANES)
    top = max(float(np.nanmax(series.one(name, row))) for row in rows)
    if not top > 0:
        result, (axes,) = panels(r"$k_\perp$", r"$k_\parallel$")
        note(axes, "nothing above zero yet")
        return result
    axis = series.attributes.get("axis", "z")
    return images(
        series,
        labels,
        [(row, np.log10(np.maximum(series.one(name, row), top * 1e-9))) for row in rows],
        (r"$k_\perp$", rf"$k_\parallel = |k_{axis}|$"),
        rf"$\log_{{10}}$ {spectrum_of(name).partition(' $')[0]}",
        extend="min",
        cmap="magma",
        points=(series.coordinates["k_perpendicular"], series.coordinates["k_parallel"]),
        vmin=math.log10(top) - 8,
        vmax=math.log10(top),
    )


map_pictures = pictures_of_each(lambda series: series.variables, "spectral_map", energy_map)


_BY = Curves(coordinates={"k": r"wavenumber $k$"}, log="x")


def cospectra_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    for name in variables_over(series, "k"):
        if name.endswith("_energy") or name.startswith("elsasser"):
            yield f"cospectra_{name}", partial(spectrum, series, name, labels, guide=False)
        else:
            yield f"cospectra_{name}", partial(curves, series, name, labels, _BY)
