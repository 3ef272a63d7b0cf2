"""Pictures of the mass function of halos, of the cores of wave dark matter, from a run's
catalogues, and of the soliton in a density profile."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.archive.series_file import SeriesReader
from simulator.plugins.cosmology.halo_catalogue import HaloCatalogue, catalogues
from simulator.plugins.pictures.choice import Selection
from simulator.plugins.pictures.lines import (
    MOST_CURVES,
    DrawnCurve,
    Pictures,
    legend_beside,
    panels,
    plotted,
)
from simulator.plugins.pictures.series_pictures import one_for_each
from simulator.plugins.pictures.slices import projections, series_fields
from simulator.plugins.pictures.style import Labels, note, powers_of_ten, sequence_colours

_FITS = {
    "press_schechter": ("Press &\nSchechter", ":"),
    "sheth_tormen": ("Sheth &\nTormen", "--"),
    "watson": ("Watson et al.", "-"),
}


def halo_pictures(run: Path, labels: Labels, choice: Selection) -> Pictures:
    """Pictures of each kind of matter with catalogues in the folder of a run, at up to six
    times."""
    stored = catalogues(run)
    chosen = [stored[row] for row in choice.rows([one.time for one in stored])]
    for name in dict.fromkeys(one.name for one in chosen):
        every = [one for one in chosen if one.name == name]
        shown = [one for one in every if len(one.columns["id"])] or every[-1:]
        shown = [shown[row] for row in labels.rows([one.time for one in shown], MOST_CURVES)]
        if shown[0].of_waves:
            yield from _core_pictures(name, shown, labels)
        else:
            yield f"mass_function_{name}", partial(mass_functions, shown, labels)


def _core_pictures(name: str, shown: Sequence[HaloCatalogue], labels: Labels) -> Pictures:
    relation = "peak_density", "core_radius", "soliton_radius", "solitons"
    words = labels.axis("peak density", "density"), labels.axis("core radius $r_c$", "length")
    yield f"cores_{name}", partial(core_relation, shown, labels, relation, *words)
    if "expected_core_mass" in shown[0].columns:
        relation = "mass", "core_mass", "expected_core_mass", "Schive et al.\n(2014)"
        words = "mass of the halo", "mass of the core"
        yield f"cores_{name}_mass", partial(core_relation, shown, labels, relation, *words)


def lightcone_pictures(series: SeriesReader, labels: Labels, _: object) -> Pictures:
    return one_for_each(series_fields(series), "lightcone", projections, series, labels)


def draw_soliton(axes: Axes, series: SeriesReader, last: DrawnCurve, labels: Labels) -> None:
    """Draw the isolated ground state of waves with the last peak density beside the profiles, if
    the last curve is like it and the grid resolves its core."""
    from simulator.plugins.cosmology.halos import CELLS
    from simulator.plugins.cosmology.soliton import radial_ground_state

    constants = _attraction(labels.model)
    if constants is None or "peak_density" not in series:
        return
    hbar, gravity = constants
    peak = float(series.one("peak_density", -1))
    length = (hbar**2 / (labels.scale_factor(series.time[-1]) * gravity * peak)) ** 0.25
    state = radial_ground_state()
    core = length * state.core
    if not 0.3 < np.interp(core, last.x, last.y) / peak < 0.7:
        return
    if core < CELLS * series.attributes.get("spacing", 0.0):
        axes.plot([], [], " ", label=f"soliton core\nbelow {CELLS} cells")
        legend_beside(axes)
        return
    # Not below the innermost bin, where the grid resolves nothing.
    r = np.geomspace(last.x[last.x > 0].min(), axes.get_xlim()[1], 200)
    density = peak * np.interp(r / length, state.radius, state.amplitude, right=0.0) ** 2
    unit = labels.unit("length")
    text = f"soliton,\n$r_c = {core:.3g}" + (rf"\,{unit}$" if unit else "$")
    axes.plot(r, density, color="black", linewidth=1.1, linestyle="--", zorder=3, label=text)
    legend_beside(axes)


def _attraction(model: Mapping[str, Any]) -> tuple[float, float] | None:
    """hbar / m and G of waves under their own gravity alone, whose cores are ground states; None
    for other models."""
    if model.get("kind") != "schrodinger_poisson" or model.get("self_interaction"):
        return None
    if model.get("external_potential"):
        return None
    from simulator.plugins.gravity.schrodinger_poisson import SchrodingerPoissonSettings

    settings = SchrodingerPoissonSettings.model_validate(model)
    return (settings.hbar, settings.gravity) if settings.gravity > 0 else None


def mass_functions(shown: Sequence[HaloCatalogue], labels: Labels) -> Figure:
    """dn/dlnM at each time with the errors of counting; lines: published fits for the run's linear
    power spectrum."""
    per = "comoving volume" if labels.comoving else "volume"
    words = (
        labels.with_unit("mass of the halo $M$", "mass"),
        labels.with_unit(rf"$dn / d\ln M$ per {per}", "number_density"),
    )
    title = f"friends-of-friends, linking length $b = {shown[0].attributes['linking_length']:g}$"
    result, (axes,) = panels(*words, title=title)
    tables = [one.tables["mass_function"] for one in shown]
    handles = []
    top = max(float(table["dn_dlnm"].max()) for table in tables)
    if not top:
        note(axes, "no halos yet")
        return result
    for one, colour in zip(shown, sequence_colours(len(shown)), strict=True):
        handles.append(_draw_counts(axes, one, labels.moment(one.time), colour))
    if "fits" in shown[0].tables:
        handles += [
            Line2D([], [], color="black", linewidth=1.0, ls=dash, label=word)
            for word, dash in _FITS.values()
        ]
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(tables[-1]["edges"][0] / 1.1, tables[-1]["edges"][-1] * 1.1),
    )
    lowest = min(table["dn_dlnm"][table["count"] > 0].min(initial=top) for table in tables)
    axes.set_ylim(lowest / 4, 4 * top)
    powers_of_ten(axes.xaxis)
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), handlelength=1.4)
    return result


def _draw_counts(axes: Axes, one: HaloCatalogue, label: str, colour: Any) -> ErrorbarContainer:
    """Draw the mass function of a catalogue, and the fits at its time, in one colour; returns the
    points for the legend."""
    table = one.tables["mass_function"]
    there = table["count"] > 0
    x = table["mass"][there]
    y = table["dn_dlnm"][there]
    error = y / np.sqrt(table["count"][there])
    points = axes.errorbar(x, y, error, fmt="o", color=colour, markersize=4, label=label)
    fits = one.tables.get("fits", {}) if len(x) else {}
    for name, (_, dash) in _FITS.items():
        if name in fits:
            axes.plot(fits["mass"], fits[name], color=colour, linewidth=1.0, linestyle=dash)
    return points


def core_relation(
    catalogues: Sequence[HaloCatalogue],
    labels: Labels,
    relation: tuple[str, str, str, str],
    across: str,
    up: str,
) -> Figure:
    """A property of the cores against another, and a published relation, dashed. Cores that the
    grid does not resolve are counted in the title."""
    x, y, line, label = relation
    measured = np.concatenate([one.columns[y] for one in catalogues])
    unresolved = int(np.isnan(measured).sum())
    title = f"{unresolved} of {len(measured)} cores are unresolved" if unresolved else ""
    each = []
    for one, colour in zip(catalogues, sequence_colours(len(catalogues)), strict=True):
        order = np.argsort(one.columns[x])
        values = [one.columns[name][order] for name in (x, y, line)]
        each.append(
            DrawnCurve(values[0], values[1], labels.moment(one.time), colour, how={"ls": ""})
        )
        each.append(
            DrawnCurve(values[0], values[2], None, colour, how={"ls": "--", "marker": None})
        )
    result, axes, shown = plotted(each, across, up, "xy", "no cores yet", title=title)
    if shown:
        axes.plot([], [], color="black", ls="--", label=label)
        legend_beside(axes)
    return result
