"""`simulator plot RUN`: the standard pictures of a run, finished or not."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simulator.errors import UserError
from simulator.plotting.slices import colour_map, fields, slices
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

    `diagnostics.png`, `spectrum_QUANTITY.png` and `slices_FIELD.png`. UserError where `path` is not a run, or
    one without anything to draw.
    """
    run = open_run(path)
    folder = run.path / "plots"
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
        files += [
            draw(partial(spectrum, found, name), folder / f"spectrum_{name}.png") for name in names(found)
        ]
    if (found := _series(run, "slices", missing)) is not None:
        files += [
            draw(partial(slices, found, name), folder / f"slices_{name}.png", colour_map(name))
            for name in fields(found)
        ]
    if not files:
        raise UserError("\n".join(missing) or f"{run.path}: nothing to draw yet")
    return Plotted(tuple(files), tuple(missing))


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
