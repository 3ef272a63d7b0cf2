"""`simulator plot RUN`: the standard pictures of a run, finished or not."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from simulator.errors import UserError
from simulator.measure import KINDS
from simulator.output.series import SeriesReader
from simulator.read.open import Run, open_run
from simulator.run.folder import CONFIG, PLAN, series_names
from simulator.show.choice import Choice, window
from simulator.show.labels import Labels
from simulator.show.overlays import overlays
from simulator.show.series_pictures import pictures
from simulator.show.slices import slices
from simulator.show.style import draw
from simulator.show.time_series import drawable, time_series

ALL = Choice()


@dataclass(frozen=True)
class Plotted:
    """The written files, and a line for each picture that could not be drawn yet."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]


def plot_run(path: str | Path, choice: Choice = ALL, output: Path | None = None) -> Plotted:
    """Draw the present output of the run in `path` into `output` (default: its folder `plots/`).

    Draws `diagnostics.png`, the pictures of every series (`show.series_pictures`), and mid-planes of the
    snapshots' fields that are not among the slices. Raises UserError if `path` is not a run, or if there is nothing
    to draw.
    """
    run = open_run(path)
    folder = output or run.path / "plots"
    labels = Labels(_model(run))
    files: list[Path] = []
    missing: list[str] = []

    def drawn(stem: str, build: Callable[[], Figure]) -> None:
        files.extend(draw(build, folder / f"{stem}.{kind}", choice.style) for kind in choice.formats)

    try:
        diagnostics = run.diagnostics
    except UserError as error:
        diagnostics = {}
        missing.append(str(error))
    else:
        rows = choice.rows(diagnostics["time"])
        diagnostics = {name: values[rows] for name, values in diagnostics.items()}
        if drawable(diagnostics) and choice.takes("diagnostics") and not choice.fields:
            drawn("diagnostics", partial(time_series, diagnostics))
        elif not drawable(diagnostics):
            missing.append(f"{run.path / 'diagnostics.csv'}: no rows {'there' if choice.time else 'yet'}")
    for name in series_names(run.path):
        if choice.takes(name) and (series := _series(run, name, missing)) is not None:
            for stem, build in pictures(window(series, choice), labels, diagnostics):
                if choice.shows(stem):
                    drawn(stem, build)
    stored: Collection[str] = ()
    if choice.takes("slices") and (run.path / "snapshots").is_dir():
        from simulator.show.planes import SnapshotPlanes, fields_in_snapshots, usual

        there = [path.stem.removeprefix("slices_") for path in files]
        stored = fields_in_snapshots(run)
        for field in [f for f in choice.fields if f in stored and f not in there] or usual(run, there):
            if choice.shows(field):
                planes = window(SnapshotPlanes(run, field), choice)
                drawn(f"slices_{field}", partial(slices, planes, field, labels))
    if not files:
        known = sorted({*stored, *diagnostics})
        if choice.fields:
            raise UserError(
                f"--field: nothing of {', '.join(choice.fields)} to draw; there are: {', '.join(known)}"
            )
        raise UserError("\n".join(missing) or f"{run.path}: nothing to draw yet")
    return Plotted(tuple(files), tuple(missing))


def plot_runs(paths: Sequence[str | Path], choice: Choice = ALL, output: Path | None = None) -> Plotted:
    """Draw several runs together, or means over time: `show.overlays`, into `output` (default: `plots/` in the
    run's folder; for several runs beside the first one). One run without means or compensation is drawn by
    `plot_run`."""
    runs = [run for path in paths for run in _runs_in(Path(path))]
    if len(runs) == 1 and not choice.average and choice.compensate is None:
        return plot_run(runs[0].path, choice, output)
    first = runs[0].path
    folder = output or (first if len(runs) == 1 else first.absolute().parent) / "plots"
    suffix = "_mean" if choice.average else "_compensated" if choice.compensate is not None else ""
    files = [
        draw(build, folder / f"{stem}{suffix}.{kind}", choice.style)
        for stem, build in overlays(runs, choice)
        for kind in choice.formats
    ]
    if not files:
        raise UserError(f"{', '.join(map(str, paths))}: nothing to draw together")
    return Plotted(tuple(files), ())


def _runs_in(path: Path) -> list[Run]:
    """The run in a folder, or all runs in the folder of a sweep."""
    if not (path / PLAN).is_file() or (path / CONFIG).is_file():
        return [open_run(path)]
    found = [open_run(folder.parent) for folder in sorted(path.glob(f"*/{CONFIG}"))]
    return [run for run in found if run.state is not None] or [open_run(path)]


def _model(run: Run) -> dict[str, Any]:
    """The block `model` of the configuration; empty if it cannot be read."""
    try:
        return dict(run.config.get("model") or {})
    except UserError:
        return {}


def _series(run: Run, name: str, missing: list[str]) -> SeriesReader | None:
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
