"""`simulator plot RUN...`: the pictures of a run, finished or not; several runs in one picture; means over time."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.archive.open_run import Run, open_run
from simulator.archive.series import SeriesReader
from simulator.errors import UserError
from simulator.measure import KINDS
from simulator.run.folder import CONFIG, PLAN, series_names
from simulator.show.choice import Selection, window
from simulator.show.kinds import kolmogorov, pictures, wavenumbers
from simulator.show.lines import (
    PANELS,
    DrawnCurve,
    Pictures,
    chosen_panels,
    drawn,
    grows,
    limits,
    logarithmic,
    panels,
    time_series,
)  # fmt: skip
from simulator.show.slices import slices
from simulator.show.style import COLOURS, Labels, draw, quantity, sequence_colours, spectrum_of

ALL = Selection()
_TELLING = ("model", "grid", "initial", "forcing", "time", "precision")
_MOST_TOLD = 2
_BESIDE = 15
"""Characters of a label that have room beside the axes; longer ones stand above them."""
KOLMOGOROV = 5 / 3
"""The compensation for which energy spectra are drawn in Kolmogorov units."""


@dataclass(frozen=True)
class Plotted:
    """The written files, and a line for each picture that could not be drawn yet."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]


# ---- one run --------------------------------------------------------------------------------------------


def plot_run(path: str | Path, choice: Selection = ALL, output: Path | None = None) -> Plotted:
    """Draw the present output of the run in `path` into `output` (default: its folder `plots/`).

    Draws `diagnostics.png`, the pictures of every series (`show.kinds`), and mid-planes of the snapshots' fields that
    are not among the slices. Raises UserError if `path` is not a run, or if there is nothing to draw.
    """
    run = open_run(path)
    folder = output or run.path / "plots"
    missing: list[str] = []
    labels, diagnostics = Labels(_model(run)), _diagnostics(run, choice, missing)
    stored: Collection[str] = ()
    chosen = list(_of_run(run, choice, labels, diagnostics, missing))
    if choice.takes("slices") and (run.path / "snapshots").is_dir():
        from simulator.show.frames import SnapshotPlanes, fields_in_snapshots, usual

        there = [stem.removeprefix("slices_") for stem, _ in chosen]
        stored = fields_in_snapshots(run)
        for field in [f for f in choice.fields if f in stored and f not in there] or usual(run, there):
            if choice.shows(field):
                build = partial(slices, window(SnapshotPlanes(run, field), choice), field, labels)
                chosen.append((f"slices_{field}", build))
    choice.refuse_unknown([stem for stem, _ in chosen], {*stored, *diagnostics})
    if not chosen:
        raise UserError("\n".join(missing) or f"{run.path}: nothing to draw yet")
    return Plotted(_drawn(chosen, folder, choice), tuple(missing))


def _drawn(
    chosen: Sequence[tuple[str, Callable[[], Figure]]], folder: Path, choice: Selection, suffix: str = ""
) -> tuple[Path, ...]:
    return tuple(
        draw(build, folder / f"{stem}{suffix}.{kind}", choice.style)
        for stem, build in chosen
        for kind in choice.formats
    )


def _of_run(
    run: Run, choice: Selection, labels: Labels, diagnostics: Mapping[str, np.ndarray], missing: list[str]
) -> Pictures:
    """The chosen pictures of the table and of the series."""
    if chosen_panels(diagnostics) and choice.takes("diagnostics") and not choice.fields:
        yield "diagnostics", partial(time_series, diagnostics)
    for name in series_names(run.path):
        if choice.takes(name) and (series := _if_any(run, name, missing)) is not None:
            for stem, build in pictures(window(series, choice), labels, diagnostics):
                if choice.shows(stem):
                    yield stem, build


def _diagnostics(run: Run, choice: Selection, missing: list[str]) -> Mapping[str, np.ndarray]:
    """The chosen rows of the table; a line in `missing` if there are none."""
    try:
        columns = run.diagnostics
    except UserError as error:
        missing.append(str(error))
        return {}
    rows = choice.rows(columns["time"])
    found = {name: values[rows] for name, values in columns.items()}
    if not chosen_panels(found):
        missing.append(f"{run.path / 'diagnostics.csv'}: no rows {'there' if choice.time else 'yet'}")
    return found


def _model(run: Run) -> dict[str, Any]:
    """The block `model` of the configuration; empty if it cannot be read."""
    try:
        return dict(run.config.get("model") or {})
    except UserError:
        return {}


def _if_any(run: Run, name: str, missing: list[str]) -> SeriesReader | None:
    """The series, if it has rows. If a series that every run writes has none, a line is added to `missing`."""
    kind = KINDS.get(name)
    always = kind is not None and (kind.default is not None or kind.with_snapshots)
    if not always and not (run.path / f"{name}.h5").exists():
        return None
    try:
        found = run.series(name)
    except UserError as error:
        missing.append(str(error))
        return None
    if not len(found):
        missing.append(f"{found.path}: no rows yet")
        return None
    return found


# ---- several runs, and means ----------------------------------------------------------------------------


def plot_runs(paths: Sequence[str | Path], choice: Selection = ALL, output: Path | None = None) -> Plotted:
    """Draw several runs together, or means over time, into `output` (default: `plots/` in the run's folder; for
    several runs beside the first one). One run without means or compensation is drawn by `plot_run`."""
    runs = [run for path in paths for run in _runs_in(Path(path))]
    if len(runs) == 1 and not choice.average and choice.compensate is None:
        return plot_run(runs[0].path, choice, output)
    first = runs[0].path
    folder = output or (first if len(runs) == 1 else first.absolute().parent) / "plots"
    suffix = "_mean" if choice.average else "_compensated" if choice.compensate is not None else ""
    chosen = list(overlays(runs, choice))
    choice.refuse_unknown([stem for stem, _ in chosen], {name for run in runs for name in run.diagnostics})
    if not chosen:
        raise UserError(f"{', '.join(map(str, paths))}: nothing to draw together")
    return Plotted(_drawn(chosen, folder, choice, suffix), ())


def _runs_in(path: Path) -> list[Run]:
    """The run in a folder, or all runs in the folder of a sweep."""
    if not (path / PLAN).is_file() or (path / CONFIG).is_file():
        return [open_run(path)]
    found = [open_run(folder.parent) for folder in sorted(path.glob(f"*/{CONFIG}"))]
    return [run for run in found if run.state is not None] or [open_run(path)]


def overlays(runs: Sequence[Run], choice: Selection) -> Pictures:
    """Pictures with a curve for each run: `series_NAME` for the diagnostics, `KIND_NAME` for variables with one
    dimension in the chosen series (by default the spectra)."""
    runs, labels = _ordered(runs)
    if choice.takes("diagnostics") and not choice.average and choice.compensate is None:
        for name in _columns(runs, choice):
            yield f"series_{name}", partial(_against_time, runs, labels, name, choice)
    for kind in choice.what or ("spectra",):
        if kind == "diagnostics":
            continue
        read = [series_of(run, kind) for run in runs]
        variables = dict.fromkeys(n for s in read if s for n, d in s.variables.items() if len(d) == 1)
        for name in variables:
            if choice.shows(name.replace("/", "_")):
                stem = f"{'spectrum' if kind == 'spectra' else kind}_{name.replace('/', '_')}"
                yield stem, partial(_curves, runs, read, labels, kind, name, choice)


def _ordered(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs and their labels: the one or two values of physics in which their configurations differ, else their
    folders. A study of one number is in its order, because the folders of a sweep have none."""
    values = [dict(_flat(run.config)) for run in runs]
    differ = [
        key
        for key in dict.fromkeys(key for found in values for key in found)
        if key.partition(".")[0] in _TELLING and len({str(found.get(key)) for found in values}) > 1
    ]
    if len(differ) == 1 and all(isinstance(found.get(differ[0]), int | float) for found in values):
        order = sorted(range(len(runs)), key=lambda number: values[number][differ[0]])
        runs, values = [runs[number] for number in order], [values[number] for number in order]
    if 0 < len(differ) <= _MOST_TOLD:
        told = [", ".join(f"{k.rpartition('.')[2]} = {_text(v.get(k))}" for k in differ) for v in values]
        if len(set(told)) == len(told):
            return list(runs), told
    parts = [run.path.absolute().parts for run in runs]
    names = ["/".join(p) for p in parts]
    for depth in range(1, max(map(len, parts))):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            break
    return list(runs), names


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("_", " ")


def _columns(runs: Sequence[Run], choice: Selection) -> list[str]:
    found = [set(run.diagnostics) for run in runs]
    if choice.fields:
        return [name for name in choice.fields if any(name in columns for columns in found)]
    return [name for name in PANELS if any(name in columns for columns in found)]


def series_of(run: Run | None, kind: str) -> SeriesReader | None:
    """A series of a run; None without rows."""
    try:
        found = run.series(kind) if run is not None else None
    except UserError:
        return None
    return found if found is not None and len(found) else None


def _against_time(runs: Sequence[Run], labels: Sequence[str], name: str, choice: Selection) -> Figure:
    curves = []
    for run, label in zip(runs, labels, strict=True):
        columns = run.diagnostics
        if name in columns:
            rows = choice.chosen_rows(columns["time"], run.path / "diagnostics.csv")
            curves.append(DrawnCurve(columns["time"][rows], columns[name][rows], label))
    result, (axes,) = panels(r"time $t$", quantity(name), right=0.76)
    log = "y" if any(grows(curve.y) for curve in curves) else ""
    if _draw(axes, curves, log) and not log:
        limits(axes, np.concatenate([curve.y for curve in curves]), single=False)
    return result


def _curves(
    runs: Sequence[Run], read: Sequence[SeriesReader | None], labels: Sequence[str], kind: str, name: str,
    choice: Selection,
) -> Figure:  # fmt: skip
    """A variable of each run at its last time, or its mean over time with the standard error."""
    (dimension,) = next(s.variables[name] for s in read if s is not None and name in s.variables)
    scaled = choice.compensate is not None and dimension == "k"
    power = float(choice.compensate or 0) if scaled else 0.0
    in_kolmogorov = scaled and name == "kinetic_energy" and abs(power - KOLMOGOROV) < 1e-3
    there = [
        (r, window(s, choice), words)
        for r, s, words in zip(runs, read, labels, strict=True)
        if s and name in s
    ]
    steps = slice(None) if choice.average else slice(-1, None)
    # In Kolmogorov units if all runs have them.
    units = (
        [kolmogorov(run.diagnostics, shown.time[steps]) for run, shown, _ in there] if in_kolmogorov else []
    )
    curves = []
    for number, (_, shown, label) in enumerate(there):
        rows = range(len(shown))[steps]
        x = wavenumbers(shown) if dimension == "k" else shown.coordinates[dimension]
        values = np.stack([shown.one(name, row) for row in rows]) * (x**power if scaled else 1)
        if units and (scales := units[number]) is not None and None not in units:
            values, x = values / scales[0][:, None] ** (2 / 3), x * scales[1].mean()
        when = f"{shown.time[0]:.4g}$ to ${shown.time[-1]:.4g}" if choice.average else f"{shown.time[-1]:.4g}"
        error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
        curves.append(DrawnCurve(x, values.mean(0), label if len(runs) > 1 else f"$t = {when}$", error=error))
    words = spectrum_of(name) if kind == "spectra" else quantity(name.replace("/", " "))
    in_kolmogorov = bool(units) and None not in units
    if in_kolmogorov:
        result, (axes,) = panels(r"wavenumber $k\eta$", r"$k^{5/3} E(k) / \varepsilon^{2/3}$", right=0.76)
    else:
        times = rf" $\times\, k^{{{Fraction(power).limit_denominator(12)}}}$" if scaled else ""
        x_label = r"wavenumber $k$" if dimension == "k" else dimension.replace("_", " ")
        result, (axes,) = panels(x_label, words + times, right=0.76)
    _draw(axes, curves, "xy" if dimension == "k" and all((c.y >= 0).all() for c in curves) else "")
    if in_kolmogorov and any(_has_range(c) for c in curves):
        axes.axhline(1.6, color="#444444", linewidth=1.0, linestyle="--")
        axes.annotate("1.6", (1, 1.6), xycoords=("axes fraction", "data"), xytext=(-4, 3),
                      textcoords="offset points", ha="right", color="#444444")  # fmt: skip
    return result


def _has_range(curve: DrawnCurve) -> bool:
    """Whether a spectrum in Kolmogorov units comes near the level of an inertial range; a laminar one does not."""
    inside = (curve.x > 0.01) & (curve.x < 0.3)
    return bool(inside.any() and 0.5 < np.nanmax(curve.y[inside]) < 4)


def _draw(axes: Axes, curves: Sequence[DrawnCurve], log: str) -> bool:
    """Curves of runs in colours of their own; long labels stand above the axes."""
    colours = [*COLOURS] if len(curves) <= len(COLOURS) else [*sequence_colours(len(curves))]
    each = [
        DrawnCurve(
            c.x, c.y, c.label, colour, c.error, {"linewidth": 1.4, "marker": "o" if len(c.x) == 1 else None}
        )
        for c, colour in zip(curves, colours, strict=False)
    ]
    if not drawn(axes, each, log, "nothing to show yet"):
        return False
    logarithmic(axes, log)
    if max(len((curve.label or "").replace("$", "")) for curve in curves) > _BESIDE:
        axes.figure.subplots_adjust(right=0.97, top=0.965 - 0.055 * -(-len(curves) // 2))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, handlelength=1.4, labelspacing=0.35)
    return True
