"""Draws the mass function of halos, and the cores of wave dark matter, from a run's catalogues."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.archive.halo_catalogue import HaloCatalogue, catalogues
from simulator.plugins.pictures.choice import Selection
from simulator.plugins.pictures.lines import (
    MOST_CURVES,
    DrawnCurve,
    Pictures,
    legend_beside,
    panels,
    plotted,
)
from simulator.plugins.pictures.style import Labels, note, powers_of_ten, sequence_colours

_FITS = {
    "press_schechter": ("Press &\nSchechter", ":"),
    "sheth_tormen": ("Sheth &\nTormen", "--"),
    "watson": ("Watson et al.", "-"),
}


def halo_pictures(run: Path, labels: Labels, choice: Selection) -> Pictures:
    """Pictures of each kind of matter with catalogues in the folder of a run, at up to six
    times."""
    all_catalogues = catalogues(run)
    all_catalogues = [
        all_catalogues[row] for row in choice.rows([one.time for one in all_catalogues])
    ]
    for name in dict.fromkeys(one.name for one in all_catalogues):
        every = [one for one in all_catalogues if one.name == name]
        shown = [one for one in every if len(one.columns["id"])] or every[-1:]
        shown = [shown[row] for row in labels.rows([one.time for one in shown], MOST_CURVES)]
        if not shown[0].of_waves:
            yield f"mass_function_{name}", partial(mass_functions, shown, labels)
            continue
        radius = labels.axis("core radius $r_c$", "length")
        relation = "peak_density", "core_radius", "soliton_radius", "solitons"
        yield (
            f"cores_{name}",
            partial(
                core_relation,
                shown,
                labels,
                relation,
                labels.axis("peak density", "density"),
                radius,
            ),
        )
        if "expected_core_mass" in shown[0].columns:
            relation = "mass", "core_mass", "expected_core_mass", "Schive et al.\n(2014)"
            yield (
                f"cores_{name}_mass",
                partial(
                    core_relation, shown, labels, relation, "mass of the halo", "mass of the core"
                ),
            )


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
    found: Sequence[HaloCatalogue],
    labels: Labels,
    relation: tuple[str, str, str, str],
    across: str,
    up: str,
) -> Figure:
    """A property of the cores against another, and a published relation, dashed. Cores that the
    grid does not resolve are counted in the title."""
    x, y, line, label = relation
    measured = np.concatenate([one.columns[y] for one in found])
    unresolved = int(np.isnan(measured).sum())
    title = f"{unresolved} of {len(measured)} cores are unresolved" if unresolved else ""
    each = []
    for one, colour in zip(found, sequence_colours(len(found)), strict=True):
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
