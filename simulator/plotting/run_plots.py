"""`simulator plot RUN`: the standard pictures of a run, finished or not."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from simulator.errors import UserError
from simulator.plotting import matter, statistics
from simulator.plotting.labels import Labels
from simulator.plotting.slices import fields, projections, slices
from simulator.plotting.spectra import names, spectrum
from simulator.plotting.style import draw
from simulator.plotting.time_series import drawable, time_series
from simulator.run.open import Run, open_run
from simulator.run.series import SeriesReader


@dataclass(frozen=True)
class Plotted:
    """The files that were written, and a line for each picture that could not be drawn yet."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]


def plot_run(path: str | Path) -> Plotted:
    """Draw what the run in `path` has written so far into its folder `plots/`.

    `diagnostics.png`, `spectrum_QUANTITY.png`, `spectrum_compensated.png`, `slices_FIELD.png`, and of the series that
    the run was asked for `transfer_QUANTITY.png`, `structure_functions.png`, `histogram_QUANTITY.png`,
    `profile_DENSITY.png`, `projection_DENSITY.png`.
    UserError where `path` is not a run, or one without anything to draw.
    """
    run = open_run(path)
    folder = run.path / "plots"
    labels = Labels(_model(run))
    files: list[Path] = []
    missing: list[str] = []
    try:
        diagnostics = run.diagnostics
    except UserError as error:
        missing.append(str(error))
    else:
        if drawable(diagnostics):
            files.append(draw(partial(time_series, diagnostics), folder / "diagnostics.png"))
        else:
            missing.append(f"{run.path / 'diagnostics.csv'}: no rows yet")
    if (found := _series(run, "spectra", missing)) is not None:
        files += _spectra(run, found, folder, labels)
    files += _statistics(run, folder, missing, labels)
    if (found := _series(run, "slices", missing)) is not None:
        files += [
            draw(partial(slices, found, name, labels), folder / f"slices_{name}.png")
            for name in fields(found)
        ]
    if not files:
        raise UserError("\n".join(missing) or f"{run.path}: nothing to draw yet")
    return Plotted(tuple(files), tuple(missing))


def _model(run: Run) -> dict[str, Any]:
    """The model's block of the configuration; empty where that cannot be read."""
    try:
        return dict(run.config.get("model") or {})
    except UserError:
        return {}


def _spectra(run: Run, series: SeriesReader, folder: Path, labels: Labels) -> list[Path]:
    def picture(name: str) -> Any:
        return (
            partial(matter.power, series, labels, name)
            if name.endswith("_power")
            else partial(spectrum, series, name)
        )

    files = [draw(picture(name), folder / f"spectrum_{name}.png") for name in names(series)]
    try:
        diagnostics = run.diagnostics
    except UserError:
        diagnostics = {}
    if statistics.compensated(series, diagnostics) is not None:
        build = partial(statistics.compensated, series, diagnostics)
        files.append(draw(cast(Any, build), folder / "spectrum_compensated.png"))
    for name in series.variables:
        if name.startswith("perpendicular/"):
            quantity = name.partition("/")[2]
            build = partial(statistics.directional, series, quantity)
            files.append(draw(build, folder / f"spectrum_directional_{quantity}.png"))
    return files


def _statistics(run: Run, folder: Path, missing: list[str], labels: Labels) -> list[Path]:
    """Pictures of the series that are only there where asked for."""
    files: list[Path] = []
    for kind in ("transfer", "structure_functions", "histograms", "profiles", "projections"):
        if not (run.path / f"{kind}.h5").exists() or (found := _series(run, kind, missing)) is None:
            continue
        match kind:
            case "transfer":
                for name in statistics.transfers(found):
                    files.append(
                        draw(partial(statistics.transfer, found, name), folder / f"transfer_{name}.png")
                    )
            case "structure_functions":
                files.append(draw(partial(statistics.structure, found), folder / "structure_functions.png"))
            case "histograms":
                for name in statistics.histogram_names(found):
                    build = partial(statistics.histogram, found, name)
                    files.append(draw(build, folder / f"histogram_{name}.png"))
                for name in matter.log_histogram_names(found):
                    build = partial(matter.log_histogram, found, name, labels)
                    files.append(draw(build, folder / f"histogram_{name}.png"))
            case "profiles":
                for name in matter.profile_names(found):
                    files.append(
                        draw(partial(matter.profile, found, name, labels), folder / f"profile_{name}.png")
                    )
            case "projections":
                for name in fields(found):
                    files.append(
                        draw(partial(projections, found, name, labels), folder / f"projection_{name}.png")
                    )
    return files


def _series(run: Run, name: str, missing: list[str]) -> SeriesReader | None:
    try:
        found = run.series(name)
    except UserError as error:
        missing.append(str(error))
        return None
    if not len(found):
        missing.append(f"{found.path}: no rows yet")
        return None
    return found
