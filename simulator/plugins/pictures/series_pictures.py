"""Finds the pictures of whatever a run stores. A function that yields pictures is registered by name,
here or, by a package, as an entry point of `simulator.pictures`:

| name | the function's arguments |
| --- | --- |
| of a series | the rows to draw, `Labels`, the columns of the diagnostics |
| of anything else | the run's folder, `Labels`, the `Selection` of what to draw |

It yields names of files without their endings, each with a function that builds the figure. A series
without such a function is drawn by its kind's `pictures` or `curves`. A function `table.NAME` makes
the `TextTable` of a series from its rows, of anything else from the run's folder and the
`Selection`. A function `columns.NAME` of the `Run` and the `Selection` names the columns of
diagnostics that a picture of several runs shows of NAME."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.open_run import Run
from simulator.archive.series_file import SeriesReader
from simulator.measure import KINDS, Curves
from simulator.plugins.pictures.choice import Selection
from simulator.plugins.pictures.lines import Pictures, generic_pictures
from simulator.plugins.pictures.style import Labels
from simulator.registry import Registry

Diagnostics = Mapping[str, np.ndarray]  # The columns of the run's table.
FigureBuilder = Callable[..., Figure]

_KINDS = "simulator.plugins.pictures.kinds"
PICTURES = Registry[Callable[..., Pictures]](
    "simulator.pictures",
    {
        "cospectra": f"{_KINDS}.spectra:cospectra_pictures",
        "probes": f"{_KINDS}.probes:probe_pictures",
        "render": f"{_KINDS}.render:render_pictures",
        "slices": f"{_KINDS}.slices:slice_pictures",
        "spectra": f"{_KINDS}.spectra:spectra_pictures",
        "spectral_maps": f"{_KINDS}.spectra:map_pictures",
    },
)


class TextTable(NamedTuple):
    """Numbers of a series to read beside its pictures: a table of the report, and further files by
    name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    files: Mapping[str, str]


_TABLE = "table."
_TABLES = Registry[Callable[..., TextTable]](PICTURES.group, {})
_COLUMNS = "columns."
_COLUMN_NAMES = Registry[Callable[..., Iterable[str]]](PICTURES.group, {})


def tables_among(names: Collection[str]) -> Mapping[str, Callable[..., TextTable]]:
    """The functions that make the tables of what is among `names`."""
    return _TABLES.beginning_with(_TABLE, names)


def columns_of(names: Collection[str], run: Run, choice: Selection) -> list[str]:
    """The columns of diagnostics by which several runs are compared in what is among `names`."""
    functions = _COLUMN_NAMES.beginning_with(_COLUMNS, names).values()
    return [column for function in functions for column in function(run, choice)]


def pictured() -> list[str]:
    """The names of everything of which there are pictures."""
    return [name for name in PICTURES.names if not name.startswith((_TABLE, _COLUMNS))]


def series_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    """The pictures of one series, which must have rows."""
    name = series.path.stem
    if name in PICTURES:
        return PICTURES[name](series, labels, diagnostics)
    if (kind := KINDS.get(name)) is None:
        return generic_pictures(series, labels, Curves())
    return kind.pictures(series, labels) or generic_pictures(series, labels, kind.curves)


def variables_over(series: SeriesReader, *dimensions: str) -> list[str]:
    return [name for name, axes in series.variables.items() if axes == dimensions]


def endings(prefix: str, series: SeriesReader) -> list[str]:
    """The parts of the names of variables after `prefix`."""
    return [name.removeprefix(prefix) for name in series.variables if name.startswith(prefix)]


def one_for_each(
    names: Iterable[str], stem: str, build: FigureBuilder, series: SeriesReader, *more: object
) -> Pictures:
    """The pictures STEM_NAME, built by `build(series, NAME, *more)`."""
    for name in names:
        yield f"{stem}_{name}", partial(build, series, name, *more)


def pictures_of_each(
    names: Callable[[SeriesReader], Iterable[str]], stem: str, build: FigureBuilder
) -> Callable[..., Pictures]:
    """The function that yields the pictures STEM_NAME of a series, for each of its `names`, built by
    `build(series, NAME, labels)`."""
    return lambda series, labels, _: one_for_each(names(series), stem, build, series, labels)
