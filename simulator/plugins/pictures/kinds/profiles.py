"""Radial profiles of mass densities."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures.lines import (
    DrawnCurve,
    drawn_rows,
    legend_beside,
    logarithmic,
    plotted,
)
from simulator.plugins.pictures.series_pictures import pictures_of_each, variables_over
from simulator.plugins.pictures.style import Labels, as_words, is_density


def _densities(series: SeriesReader) -> list[str]:
    return [name for name in variables_over(series, "r") if is_density(name)]


def density_profile(series: SeriesReader, name: str, labels: Labels) -> Figure:
    """The density against the distance from the densest point at up to six times; for waves also
    the soliton with the last peak density, if its core radius is near the measured one."""
    x = labels.axis(r"radius $r$", "length")
    y = labels.axis(rf"{as_words(name)} $\rho$", "density")
    each = list[DrawnCurve]()
    for row, colour, label in drawn_rows(series, labels):
        r = series.one("radius", row)
        density = series.one(name, row)
        there = np.isfinite(density)  # bins near the centre may have no grid points
        each.append(DrawnCurve(r[there], density[there], label, colour))
    result, axes, shown = plotted(each, x, y, "xy")
    if not shown:
        return result
    axes.set_ylim(min(map(np.nanmin, shown)) / 2, max(map(np.nanmax, shown)) * 2)
    constants = _solitons(labels.model)
    if constants is not None and name == "density" and "peak_density" in series:
        peak = float(series.one("peak_density", -1))
        gravity = labels.scale_factor(series.time[-1]) * constants[1]
        length_scale = (constants[0] ** 2 / (gravity * peak)) ** 0.25
        _draw_soliton(axes, each[-1], peak, length_scale, labels.unit("length"))
    logarithmic(axes, "xy")
    return result


profile_pictures = pictures_of_each(_densities, "profile", density_profile)


def _draw_soliton(
    axes: Axes, measured: DrawnCurve, peak: float, length_scale: float, unit: str
) -> None:
    """The isolated ground state with this central density, if the measured one is like it."""
    from simulator.physics.initial.soliton import radial_ground_state

    state = radial_ground_state()
    core = length_scale * state.core
    if not 0.3 < np.interp(core, measured.x, measured.y) / peak < 0.7:
        return
    # Not below the innermost bin, where the grid resolves nothing.
    r = np.geomspace(measured.x[measured.x > 0].min(), axes.get_xlim()[1], 200)
    density = peak * np.interp(r / length_scale, state.radius, state.amplitude, right=0.0) ** 2
    text = f"soliton,\n$r_c = {core:.3g}" + (rf"\,{unit}$" if unit else "$")
    axes.plot(r, density, color="black", linewidth=1.1, linestyle="--", zorder=3, label=text)
    legend_beside(axes)


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
