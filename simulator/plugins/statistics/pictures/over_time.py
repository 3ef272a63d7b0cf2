"""Means over time, with their standard errors."""

import math
import re
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.open_run import open_run
from simulator.archive.series_file import SeriesReader
from simulator.plugins.pictures.choice import Window
from simulator.plugins.pictures.frames import SnapshotPlanes, fields_in_snapshots
from simulator.plugins.pictures.health import STEADY, changes
from simulator.plugins.pictures.kinds.spectra import shell_wavenumbers
from simulator.plugins.pictures.lines import DrawnCurve, Pictures, level, plotted, reach_of
from simulator.plugins.pictures.runs import table_of, turbulent
from simulator.plugins.pictures.series_pictures import Diagnostics, TextTable, endings
from simulator.plugins.pictures.slices import slices
from simulator.plugins.pictures.style import PLAIN, Labels, as_words, plain, quantity, spectrum_of

OF_TURBULENCE = "reynolds_taylor", "taylor_scale", "gradient_skewness", "gradient_flatness"


def statistics_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    spectra = endings("mean/spectrum/", series)
    powers = [f"spectrum/{name}" for name in spectra if name.endswith("_power")]
    energies = [f"spectrum/{name}" for name in spectra if not name.endswith("_power")]
    alone = all(name.endswith("energy") or "/elsasser" in name for name in energies)
    fluxes = [f"flux/{name}" for name in endings("mean/flux/", series)]
    for stem, names, words, log in (
        ("spectrum", energies, "energy spectrum $E(k)$" if alone else "shell spectrum", "xy"),
        ("power", powers, "power spectrum $P(k)$", "xy"),
        ("flux", fluxes, r"flux $\Pi(k)$", "x"),
    ):
        if names:
            yield f"statistics_{stem}", partial(mean_curves, series, labels, names, words, log)


def field_statistics_pictures(series: SeriesReader, labels: Labels, _: Diagnostics) -> Pictures:
    """Mid-planes of the means and variances in the last snapshot of the chosen rows; the series
    only counts their samples."""
    run = open_run(series.path.parent)
    for field in fields_in_snapshots(run):
        if re.fullmatch(r".+_(mean|variance)(_([xyz]|magnitude))?", field):
            planes = SnapshotPlanes(run, field)
            last = np.flatnonzero(planes.time <= series.time[-1] * (1 + 1e-9))[-1:]
            if len(last):
                yield f"slices_{field}", partial(slices, Window(planes, last), field, labels)


def _samples(series: SeriesReader) -> str:
    """The number of samples, whether they are too few for errors, and whether the flow has
    changed from their first half to the second."""
    errors = [error for _, error in _time_means(series).values()]
    remarks = [] if any(map(math.isfinite, errors)) else ["too few for errors"]
    table = table_of(open_run(series.path.parent))
    time = np.asarray(table.get("time", ()))
    inside = (time >= float(series.attributes["from"])) & (time <= series.time[-1])
    if inside.sum() > 1:
        change = changes({name: values[inside] for name, values in table.items()}, 0.0)
        if any(abs(each) >= STEADY for each in change.values()):
            remarks.append("the run is not stationary")
    number = f"{int(series.one('samples', -1))} samples"
    return f"{number} ({', '.join(remarks)})" if remarks else number


def _averaged(series: SeriesReader, labels: Labels) -> str:
    first = float(series.attributes["from"])
    return f"{_samples(series)} from {labels.moment(first)} to {labels.moment(series.time[-1])}"


def _time_means(series: SeriesReader) -> dict[str, tuple[float, float]]:
    """Mean and standard error of every number at the last row, without those that are always 0, and
    without the only part of a sum, such as the kinetic energy of a fluid without other energy."""
    means = {}
    for name in endings("mean/", series):
        if not series.variables[f"mean/{name}"]:
            mean = float(series.one(f"mean/{name}", -1))
            error = float(series.one(f"error/{name}", -1))
            if mean or error > 0:
                means[name] = mean, error
    sums = {name: pair for name, pair in means.items() if name in ("energy", "dissipation")}
    totals = {mean for mean, _ in sums.values()}
    return sums | {name: pair for name, pair in means.items() if pair[0] not in totals}


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


def table_of_means(series: SeriesReader) -> TextTable:
    """The means of a run, with files to read and for programs. Only the latter has numbers
    `OF_TURBULENCE` of a flow that is none."""
    means = _time_means(series)
    meaningless = () if turbulent(open_run(series.path.parent)) else OF_TURBULENCE
    rows = [
        (plain(quantity(name)), with_error(*pair))
        for name, pair in means.items()
        if name not in meaningless
    ]
    text = [f"{'mean +- standard error':>30}  {_averaged(series, PLAIN).replace('$', '')}"]
    text += [f"{value.replace('±', '+-'):>30}  {words}" for words, value in rows]
    csv = ["name,mean,error", *(f"{n},{mean!r},{error!r}" for n, (mean, error) in means.items())]
    files = {f"statistics_means.{kind}": lines for kind, lines in (("txt", text), ("csv", csv))}
    written = {name: "\n".join(lines) + "\n" for name, lines in files.items()}
    return TextTable((_samples(series), "mean ± standard error"), rows, written)


def mean_curves(
    series: SeriesReader, labels: Labels, names: list[str], words: str, log: str
) -> Figure:
    """Mean spectra or fluxes with bands of a standard error."""
    k = shell_wavenumbers(series)
    each = []
    for name in names:
        mean = np.asarray(series.one(f"mean/{name}", -1))
        error = np.nan_to_num(series.one(f"error/{name}", -1))
        label = as_words(name.partition("/")[2]) if len(names) > 1 else None
        reach = reach_of(series, f"mean/{name}")
        each.append(DrawnCurve(k, mean, label, error=error, reach=reach))
    if len(names) == 1:
        kind, _, name = names[0].partition("/")
        words = spectrum_of(name) if kind == "spectrum" else f"{words} of {as_words(name)}"
    x = labels.axis(r"wavenumber $k$", "wavenumber")
    result, axes, _ = plotted(each, x, words, log, title=_averaged(series, labels))
    if "y" not in log:
        level(axes)
    return result
