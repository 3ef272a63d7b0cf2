"""`simulator plot RUN...`: draws the pictures of a run, of several runs together, and means over
time."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.archive.open_run import Run, open_run
from simulator.archive.series_file import TABLE, SeriesReader
from simulator.errors import RunFailure, UserError
from simulator.files import replace_file
from simulator.measure import OUTPUTS
from simulator.plugins.pictures import lines
from simulator.plugins.pictures.choice import Selection, Window, window
from simulator.plugins.pictures.kinds.spectra import (
    KOLMOGOROV_AXES,
    has_range,
    kolmogorov,
    may_be_turbulent,
    shell_wavenumbers,
    spectrum_axes,
)
from simulator.plugins.pictures.series_pictures import (
    PICTURES,
    TextTable,
    columns_of,
    pictured,
    series_pictures,
    tables_among,
)
from simulator.plugins.pictures.space_time import cuts
from simulator.plugins.pictures.style import (
    COLOURS,
    PLAIN,
    Labels,
    draw,
    quantity,
    sequence_colours,
)
from simulator.run.folder import CONFIG, PLAN, series_names
from simulator.words import brief, flat

T = TypeVar("T")
_USUAL_SERIES = ("spectra", "slices")  # Runs write them unless their configuration forbids it.
ALL = Selection()
_TELLING = ("model", "grid", "initial", "forcing", "time", "precision")
_MOST_TOLD = 2
_BESIDE = 15  # The largest number of characters of a label beside the axes; longer labels stand above the axes.
# The power of k with which compensated energy spectra are drawn in Kolmogorov units.
KOLMOGOROV = 5 / 3


@dataclass(frozen=True)
class Plotted:
    """The written files, and a line for each picture that could not be drawn yet."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]


def plot_run(path: str | Path, choice: Selection = ALL, output: Path | None = None) -> Plotted:
    """Draw the present output of the run in `path` into `output` (default: its folder `plots/`).

    Draws `diagnostics.png`, the pictures of every series (see `series_pictures`), and mid-planes of the
    snapshots' fields that are not among the slices. Raises UserError if `path` is not a run, or if
    there is nothing to draw."""
    run = open_run(path)
    folder = output or run.path / "plots"
    missing: list[str] = []
    labels = _labels_of(run)
    diagnostics = _diagnostics(run, choice, missing)
    stored: Collection[str] = ()
    chosen = list(_of_run(run, choice, labels, diagnostics, missing))
    if choice.takes("slices") and (run.path / "snapshots").is_dir():
        from simulator.plugins.pictures.frames import SnapshotPlanes, fields_in_snapshots, usual

        there = [stem.removeprefix("slices_") for stem, _ in chosen]
        stored = fields_in_snapshots(run)
        for field in [f for f in choice.fields if f in stored and f not in there] or usual(
            run, there
        ):
            pictured = [stem for stem, _ in chosen]
            again = not choice.fields and _repeats(f"slices_{field}", pictured, labels)
            if choice.shows(field) and not again:
                build = partial(cuts, window(SnapshotPlanes(run, field), choice), field, labels)
                chosen.append((f"slices_{field}", build))
    choice.refuse_unknown([stem for stem, _ in chosen], stored, diagnostics)
    if not chosen:
        _ = run.diagnostics if (run.path / TABLE).exists() else None  # fails if it is damaged
        raise UserError(*(missing or [f"{run.path}: nothing to draw yet"]))
    written = list(_drawn(chosen, folder, choice))
    for table in () if choice.fields else tables_of(run, choice):
        for name, text in table.files.items():
            written.append(folder / name)
            replace_file(written[-1], text)
    return Plotted(tuple(written), tuple(missing))


def _drawn(
    chosen: Sequence[tuple[str, Callable[[], Figure]]],
    folder: Path,
    choice: Selection,
    suffix: str = "",
) -> tuple[Path, ...]:
    return tuple(
        draw(build, folder / f"{stem}{suffix}.{kind}", choice.style)
        for stem, build in chosen
        for kind in choice.formats
    )


def _of_run(
    run: Run,
    choice: Selection,
    labels: Labels,
    diagnostics: Mapping[str, np.ndarray],
    missing: list[str],
) -> lines.Pictures:
    if lines.chosen_panels(diagnostics) and choice.takes("diagnostics") and not choice.fields:
        yield "diagnostics", partial(lines.time_series, diagnostics, labels)
    if choice.fields and choice.names_diagnostics:
        yield from overlays([run], replace(choice, what=("diagnostics",)))
    for name in series_names(run.path):
        if choice.takes(name) and (series := _if_any(run, name, missing)) is not None:
            drawn = dict(series_pictures(window(series, choice), labels, diagnostics))
            for stem, build in drawn.items():
                if choice.shows(stem) and (choice.fields or not _repeats(stem, drawn, labels)):
                    yield stem, build
    for name in _beside_series(choice):
        for stem, build in PICTURES[name](run.path, labels, choice):
            if choice.shows(stem):
                yield stem, build


def kind_drawing(paths: Sequence[str | Path], word: str, kinds: Iterable[str]) -> str | None:
    """The one of `kinds` that draws pictures of the runs with names that begin with `word`:
    `bodies` of `lift`."""
    for run, kind in product([run for path in paths for run in _runs_in(Path(path))], kinds):
        drawn = _of_run(run, Selection((kind,)), _labels_of(run), table_of(run), [])
        if any(stem.startswith(word) for stem, _ in drawn):
            return kind
    return None


def _beside_series(choice: Selection) -> list[str]:
    """The names of everything chosen that has pictures and is no series."""
    return [name for name in pictured() if name not in OUTPUTS.names and choice.takes(name)]


def tables_of(run: Run, choice: Selection = ALL) -> Iterator[TextTable]:
    """The tables of what is chosen of a run."""
    for table in tables_among(_beside_series(choice)).values():
        yield table(run.path, choice)
    there = [path.stem for path in run.path.glob("*.h5") if choice.takes(path.stem)]
    for name, table in tables_among(there).items():
        if (series := series_of(run, name)) is not None:
            yield table(window(series, choice))


def _repeats(stem: str, drawn: Collection[str], labels: Labels) -> bool:
    """Whether a picture shows the density of the only component of a composite, and one of `drawn`
    shows the same as the total density."""
    alone = [component["name"] for component in labels.model.get("components") or ()]
    if len(alone) != 1:
        return False
    total = re.sub(rf"_{re.escape(alone[0])}_density(_power|_mass)?$", r"_density\1", stem)
    return total != stem and total in drawn


def _diagnostics(run: Run, choice: Selection, missing: list[str]) -> Mapping[str, np.ndarray]:
    """The chosen rows of the diagnostics; adds a line to `missing` if there are none."""
    columns = known(lambda: run.diagnostics, {}, missing)
    if not columns:
        return {}
    rows = choice.rows(columns["time"])
    chosen = {name: values[rows] for name, values in columns.items()}
    if not lines.chosen_panels(chosen):
        missing.append(
            f"{run.path / 'diagnostics.csv'}: no rows {'there' if choice.time else 'yet'}"
        )
    return chosen


def _if_any(run: Run, name: str, missing: list[str]) -> SeriesReader | None:
    """The series `name`; None if it has no rows. Adds a line to `missing` if every run writes such
    a series."""
    if name not in _USUAL_SERIES and not (run.path / f"{name}.h5").exists():
        return None
    series = known(lambda: run.series(name), None, missing)
    if series is not None and not len(series):
        missing.append(f"{series.path}: no rows yet")
    return series or None


def plot_runs(
    paths: Sequence[str | Path], choice: Selection = ALL, output: Path | None = None
) -> Plotted:
    """Draw several runs together, or means over time, into `output` (default: `plots/` in the
    folder of the run or of the sweep; for several runs `plots/with_OTHERS/` in the folder of the
    first run). `plot_run` draws one run without means or compensation."""
    runs = [run for path in paths for run in _runs_in(Path(path))]
    if choice.shift and len(choice.shift) != len(runs):
        raise UserError(
            f"--shift: {len(choice.shift)} times for {len(runs)} runs; one for each is needed, e.g. 0,2.5"
        )
    if len(runs) == 1 and not choice.average and choice.compensate is None and not choice.shift:
        return plot_run(runs[0].path, choice, output)
    others = "_".join(dict.fromkeys(run.path.absolute().name for run in runs[1:3]))
    others += f"_and_{len(runs) - 3}_more" if len(runs) > 3 else ""
    one = Path(paths[0]) if len(paths) == 1 else runs[0].path
    folder = output or one / "plots" / (f"with_{others}" if len(paths) > 1 else "")
    suffix = "_mean" if choice.average else "_compensated" if choice.compensate is not None else ""
    chosen = list(overlays(runs, choice))
    columns = {name for run in runs for name in run.diagnostics}
    choice.refuse_unknown([stem for stem, _ in chosen], (), columns)
    left_out = _left_out(runs, choice, [stem for stem, _ in chosen])
    if not chosen:
        kinds = ", ".join(choice.what or ("spectra",))
        raise UserError(
            f"{', '.join(map(str, paths))}: {kinds}: no curves to draw; a picture of several runs, or "
            "of means, shows series with one coordinate, such as spectra"
        )
    return Plotted(_drawn(chosen, folder, choice, suffix), left_out)


def _left_out(runs: Sequence[Run], choice: Selection, drawn: Collection[str]) -> tuple[str, ...]:
    """Lines about what is chosen of these runs, by default everything, and not among the pictures
    `drawn`."""
    said = []
    if not choice.draws_diagnostics and choice.takes("diagnostics"):
        option = "--average" if choice.average else "--compensate"
        if any(len(run.diagnostics) for run in runs):
            said = [f"diagnostics: not drawn with {option}, which is for spectra and other series"]
    written = dict.fromkeys(n for run in runs for n in series_names(run.path) if series_of(run, n))

    def is_drawn(name: str) -> bool:
        start = "spectrum_" if name == "spectra" else f"{name}_"
        return any(stem.startswith(start) for stem in drawn)

    others = [name for name in written if choice.takes(name) and not is_drawn(name)]
    if others and not choice.fields:
        which = "--what NAME draws series with one coordinate; a plot of one run draws all"
        said.append(f"{', '.join(others)}: left out of a picture of several runs or means; {which}")
    return tuple(said)


def _runs_in(path: Path) -> list[Run]:
    if not (path / PLAN).is_file() or (path / CONFIG).is_file():
        return [open_run(path)]
    members = [open_run(folder.parent) for folder in sorted(path.glob(f"*/{CONFIG}"))]
    return [run for run in members if run.state is not None] or [open_run(path)]


@dataclass(frozen=True)
class Looks:
    """How the curves of several runs are distinguished: for each run further fields of its
    `DrawnCurve`, and a function that adds the legends to a picture with all curves."""

    runs: Sequence[Mapping[str, Any]]
    add_legends: Callable[[Figure, Axes], None] = lambda figure, axes: None


def labelled(labels: Sequence[str]) -> Looks:
    """A colour and a label for each run. Long labels stand above the axes, because the room beside
    them is small."""
    colours = [*COLOURS] if len(labels) <= len(COLOURS) else [*sequence_colours(len(labels))]

    def add_legends(figure: Figure, axes: Axes) -> None:
        words = axes.get_legend_handles_labels()[1]
        if max((len(label.replace("$", "")) for label in words), default=0) > _BESIDE:
            figure.subplots_adjust(right=0.97, top=0.965 - 0.055 * -(-len(words) // 2))
            axes.legend(
                loc="lower left",
                bbox_to_anchor=(0, 1),
                ncols=2,
                handlelength=1.4,
                labelspacing=0.35,
            )

    return Looks(
        [{"label": n, "colour": c} for n, c in zip(labels, colours, strict=False)], add_legends
    )


def overlays(
    runs: Sequence[Run], choice: Selection = ALL, looks: Looks | None = None
) -> lines.Pictures:
    """Pictures with a curve for each run: `series_NAME` for the diagnostics, `KIND_NAME` for
    variables with one dimension in the chosen series (by default the spectra). Without `looks` each
    run has a colour and a label."""
    shifts = (
        dict(zip((run.path for run in runs), choice.shift, strict=True)) if choice.shift else {}
    )
    if looks is None:
        runs, names = _ordered(runs)
        looks = labelled(names) if len(runs) > 1 else Looks([{}])
    labels = _common_labels(runs)
    tables = [_later(table_of(run), shifts.get(run.path, 0.0)) for run in runs]
    if choice.draws_diagnostics:
        names = _columns(tables, choice) if choice.takes("diagnostics") else []
        beside = [name for run in runs for name in columns_of(_beside_series(choice), run, choice)]
        for name in dict.fromkeys([*names, *filter(choice.shows, beside)]):
            build = partial(_against_time, runs, tables, labels, looks, name, choice)
            yield f"series_{name}", build
    for kind in choice.what or ("spectra",):
        read = [series_of(run, kind, shifts.get(run.path, 0.0)) for run in runs]
        variables = dict.fromkeys(
            n for s in read if s for n, d in s.variables.items() if len(d) == 1
        )
        for name in variables:
            if choice.shows(name.replace("/", "_")):
                stem = f"{'spectrum' if kind == 'spectra' else kind}_{name.replace('/', '_')}"
                yield stem, partial(_curves, tables, read, labels, looks, kind, name, choice)


def _labels_of(run: Run) -> Labels:
    return Labels.of(known(lambda: run.config, {}))


def _common_labels(runs: Sequence[Run]) -> Labels:
    """The labels of runs with the same units and background; else labels without units."""
    labels = [_labels_of(run) for run in runs]
    bases = {f"{each.model.get('units')} {each.model.get('cosmology')}" for each in labels}
    return labels[0] if len(bases) == 1 else PLAIN


def _ordered(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs and their labels: the one or two values of physics in which their configurations
    differ, else the names of their folders. Runs that differ in one number are sorted by this
    number."""
    values = [flat(run.config) for run in runs]
    keys = dict.fromkeys(key for settings in values for key in settings)
    differ = [
        key
        for key in keys
        if key.partition(".")[0] in _TELLING
        and len({str(settings.get(key)) for settings in values}) > 1
    ]
    if len(differ) == 1 and all(
        isinstance(settings.get(differ[0]), int | float) for settings in values
    ):
        order = sorted(range(len(runs)), key=lambda number: values[number][differ[0]])
        runs = [runs[number] for number in order]
        values = [values[number] for number in order]
    if 0 < len(differ) <= _MOST_TOLD:
        words = [
            ", ".join(
                f"{k.rpartition('.')[2]} = {brief(v.get(k)).replace('_', ' ')}" for k in differ
            )
            for v in values
        ]
        if len(set(words)) == len(words):
            return list(runs), words
    parts = [run.path.absolute().parts for run in runs]
    names = ["/".join(p) for p in parts]
    for depth in range(1, max(map(len, parts))):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            break
    return list(runs), names


def known(read: Callable[[], T], otherwise: T, missing: list[str] | None = None) -> T:
    """The result of `read`; `otherwise` if a file is missing or cannot be read, which `missing` then
    says."""
    try:
        return read()
    except (RunFailure, UserError) as error:
        if missing is not None:
            missing.append(str(error))
        return otherwise


def table_of(run: Run) -> Mapping[str, np.ndarray]:
    """The diagnostics of a run; empty if there are none yet."""
    return known(lambda: run.diagnostics, {})


def turbulent(run: Run) -> bool:
    """Whether the flow of a run may be turbulent at its last row, see `may_be_turbulent`."""
    return may_be_turbulent(series_of(run, "spectra"), table_of(run), _labels_of(run))


def _columns(tables: Sequence[Mapping[str, np.ndarray]], choice: Selection) -> list[str]:
    written = {name for columns in tables for name in columns if len(columns[name])}
    return [name for name in choice.fields or lines.PANELS if name in written]


def _later(columns: Mapping[str, np.ndarray], shift: float) -> Mapping[str, np.ndarray]:
    return {**columns, "time": columns["time"] + shift} if columns and shift else columns


def series_of(run: Run, kind: str, shift: float = 0.0) -> SeriesReader | None:
    """A series of a run, `shift` later; None if it is missing or has no rows."""
    series = known(lambda: run.series(kind), None) or None
    return Window(series, np.arange(len(series)), shift) if shift and series else series


def overlay(
    curves: Sequence[lines.DrawnCurve | None], x: str, y: str, looks: Looks, log: str = ""
) -> tuple[Figure, Axes]:
    """The curves of all runs, None for a run without data."""
    result, (axes,) = lines.panels(x, y, right=0.76)
    each = []
    for curve, look in zip(curves, looks.runs, strict=True):
        if curve is not None:
            how = {**curve.how, **look.get("how", {})}
            each.append(replace(curve, **{**look, "how": how}))
    values = lines.drawn(axes, each, log, "nothing to show yet")
    if values and not log:
        axes.margins(x=0.02)
        lines.limits(axes, np.concatenate(values), single=False)
    looks.add_legends(result, axes)
    return result, axes


def _against_time(
    runs: Sequence[Run],
    tables: Sequence[Mapping[str, np.ndarray]],
    labels: Labels,
    looks: Looks,
    name: str,
    choice: Selection,
) -> Figure:
    curves: list[lines.DrawnCurve | None] = []
    for run, columns in zip(runs, tables, strict=True):
        there = name in columns and len(columns[name])
        rows = choice.chosen_rows(columns["time"], run.path / "diagnostics.csv") if there else []
        mark = {"marker": "o" if len(rows) == 1 else None, "linewidth": 1.4}
        curves.append(
            lines.DrawnCurve(columns["time"][rows], columns[name][rows], how=mark)
            if there
            else None
        )
    log = "y" if any(lines.grows(curve.y) for curve in curves if curve) else ""
    x = labels.with_unit(r"time $t$", "time")
    return overlay(curves, x, quantity(name), looks, log)[0]


def _curves(
    tables: Sequence[Mapping[str, np.ndarray]],
    read: Sequence[SeriesReader | None],
    labels: Labels,
    looks: Looks,
    kind: str,
    name: str,
    choice: Selection,
) -> Figure:
    """A variable of each run at the run's last time, or its mean over time with the standard
    error."""
    (dimension,) = next(s.variables[name] for s in read if s is not None and name in s.variables)
    scaled = choice.compensate is not None and dimension == "k"
    power = float(choice.compensate or 0) if scaled else 0.0
    steps = slice(None) if choice.average else slice(-1, None)
    read = [window(s, choice) if s and name in s else None for s in read]
    in_kolmogorov = scaled and name == "kinetic_energy" and abs(power - KOLMOGOROV) < 1e-3
    # In Kolmogorov units if all runs have them.
    units = [
        kolmogorov(table, s.time[steps])
        for table, s in zip(tables, read, strict=True)
        if in_kolmogorov and s
    ]
    in_kolmogorov = bool(units) and None not in units
    scales = iter(units if in_kolmogorov else repeat(None))
    curves = [_last_or_mean(s, name, steps, power, next(scales)) if s else None for s in read]
    if kind == "spectra" and dimension == "k":
        x, words = spectrum_axes(name, labels)
    else:
        x = r"wavenumber $k$" if dimension == "k" else dimension.replace("_", " ")
        words = quantity(name.replace("/", " "))
    times = rf" $\times\, k^{{{Fraction(power).limit_denominator(12)}}}$" if scaled else ""
    if in_kolmogorov:
        x, words = KOLMOGOROV_AXES
        times = ""
    log = "xy" if dimension == "k" and all((c.y >= 0).all() for c in curves if c) else ""
    result, axes = overlay(curves, x + _moments(read, labels, choice), words + times, looks, log)
    if in_kolmogorov and any(has_range(c) for c in curves if c):
        axes.axhline(1.6, color="#444444", linewidth=1.0, linestyle="--")
        axes.annotate(
            "1.6",
            (1, 1.6),
            xycoords=("axes fraction", "data"),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            color="#444444",
        )
    return result


def _moments(read: Sequence[SeriesReader | None], labels: Labels, choice: Selection) -> str:
    """`, at $t = 4$` or `, at redshift 9`, the last time of all runs, or `, means over $t = 2$ to
    $4$`; in words if the runs differ in these times."""
    each = [series for series in read if series]
    close = (1e-2 if choice.average else 1e-4) * each[0].time[-1]
    same = [np.ptp([series.time[row] for series in each]) <= close for row in (0, -1)]
    first, last = each[0].time[[0, -1]]
    if not choice.average:
        return f", at {labels.moment(last)}" if same[1] else ", at the last time of each"
    return f", means over $t = {first:.3g}$ to ${last:.3g}$" if all(same) else ", means over time"


def _last_or_mean(
    shown: SeriesReader,
    name: str,
    steps: slice,
    power: float,
    units: tuple[np.ndarray, np.ndarray] | None,
) -> lines.DrawnCurve:
    """The mean over the rows `steps`, multiplied by k to a power; in Kolmogorov units if `units`
    has them by row."""
    (dimension,) = shown.variables[name]
    x = shell_wavenumbers(shown) if dimension == "k" else shown.coordinates[dimension]
    values = np.stack([shown.one(name, row) for row in range(len(shown))[steps]])
    values = values * x**power if power else values
    reach = lines.reach_of(shown, name)
    if units is not None:
        values = values / units[0][:, None] ** (2 / 3)
        x = x * (eta := units[1].mean())
        reach *= eta
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
    when = f"{shown.time[0]:.4g}$ to $" if steps.start is None else ""
    mark = {"marker": "o" if len(x) == 1 else None, "linewidth": 1.4}
    return lines.DrawnCurve(
        x, values.mean(0), f"$t = {when}{shown.time[-1]:.4g}$", error=error, how=mark, reach=reach
    )
