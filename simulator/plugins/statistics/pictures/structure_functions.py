"""Moments of velocity increments."""

from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures.lines import (
    DrawnCurve,
    Pictures,
    drawn,
    drawn_rows,
    level,
    panels,
    plotted,
)
from simulator.plugins.pictures.series_pictures import Diagnostics, endings, one_for_each
from simulator.plugins.pictures.style import PLAIN, Labels, as_words

_MIXED = {
    "velocity": ("u", r"|\delta\mathbf{u}|^2"),
    "elsasser_plus": ("z^-", r"|\delta\mathbf{z}^+|^2"),
    "elsasser_minus": ("z^+", r"|\delta\mathbf{z}^-|^2"),
}
"""Symbols of the field whose longitudinal increment enters a third moment, and of the square."""


def structure_function_pictures(
    series: SeriesReader, labels: Labels, diagnostics: Diagnostics
) -> Pictures:
    yield "structure_functions", partial(structure_functions, series)
    stem = "structure_functions_mixed"
    names = endings("mixed_", series)
    yield from one_for_each(names, stem, third_moment, series, labels, diagnostics)


def structure_functions(series: SeriesReader) -> Figure:
    """Structure functions of even orders, longitudinal and transverse, averaged over the axes, at
    the last time; in a second panel -S_3 / r, which is 4/5 of the dissipation in an inertial range
    (Kolmogorov 1941)."""
    r = series.coordinates["r"]
    last = series.at(len(series) - 1)
    third = [r"$-\langle \delta u_\parallel^3 \rangle / r$"] * ("longitudinal_3" in last)
    result, grid = panels(
        r"separation $r$",
        r"$\langle \delta u^p \rangle$",
        *third,
        height=5.2 if third else 3.6,
        title=f"structure functions, {PLAIN.moment(series.time[-1])}",
    )
    if third:
        drawn(grid[1], [DrawnCurve(r, -last["longitudinal_3"].mean(0) / r)], "x")
        level(grid[1])
    even = sorted(p for p in map(int, endings("longitudinal_", series)) if p % 2 == 0)
    each = []
    for number, p in enumerate(even):
        for component, word, line in (
            ("longitudinal", "long.", "-"),
            ("transverse", "transv.", "--"),
        ):
            if (name := f"{component}_{p}") not in last:
                continue
            values = last[name].mean(0)
            label = f"{word} $p = {p}$"
            each.append(DrawnCurve(r, values, label, f"C{number}", how={"ls": line}))
    if even:
        drawn(grid[0], each, "xy")
    return result


def third_moment(
    series: SeriesReader, name: str, labels: Labels, diagnostics: Diagnostics
) -> Figure:
    """A third moment over -r, averaged over the axes, at up to six times; dashed, its value in an
    isotropic inertial range at the last time: 4/3 of the dissipation of energy, 2/3 of the
    dissipation of a scalar's variance."""
    first, second = _MIXED.get(name, ("u", r"(\delta\theta)^2"))
    words = rf"$-\langle \delta {first}_\parallel\, {second} \rangle / r$"
    r = series.coordinates["r"]
    levels: list[tuple[float, str | None]] = [(0.0, None)]
    if name == "velocity":
        factor = 4 / 3
        column = "viscous_dissipation"
        label = r"$4\varepsilon/3$"
        has_law = "mixed_elsasser_plus" not in series.variables
    else:
        factor = 2 / 3
        column = f"{name}_dissipation"
        label = r"$4\varepsilon_\theta/3$"
        has_law = True
    if has_law and column in diagnostics:
        rate = float(np.interp(series.time[-1], diagnostics["time"], diagnostics[column]))
        levels.insert(0, (factor * rate, label))
    each = [
        DrawnCurve(r, -series.one(f"mixed_{name}", row).mean(0) / r, moment, colour)
        for row, colour, moment in drawn_rows(series, labels)
    ]
    return plotted(each, r"separation $r$", words, "x", levels=levels, title=as_words(name))[0]
