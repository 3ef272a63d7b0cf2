"""Finds the pictures of whatever a run stores. A function that yields pictures is registered by name,
here or, by a package, as an entry point of `simulator.pictures`:

| name | the function's arguments |
| --- | --- |
| of a series | the rows to draw, `Labels`, the columns of the diagnostics |
| of anything else | the run's folder, `Labels`, the `Selection` of what to draw |

It yields names of files without their endings, each with a function that builds the figure. A series
without such a function is drawn by its kind's `pictures` or `curves`."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.measure import KINDS, Curves
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
        "field_statistics": f"{_KINDS}.statistics:no_pictures",
        "helicity": f"{_KINDS}.transfer:helicity_pictures",
        "histograms": f"{_KINDS}.histograms:histogram_pictures",
        "joint_histograms": f"{_KINDS}.histograms:joint_histogram_pictures",
        "pair_correlation": f"{_KINDS}.pair_correlation:pair_correlation_pictures",
        "particle_statistics": f"{_KINDS}.particles:particle_pictures",
        "probes": f"{_KINDS}.probes:probe_pictures",
        "profiles": f"{_KINDS}.profiles:profile_pictures",
        "projections": f"{_KINDS}.slices:projection_pictures",
        "render": f"{_KINDS}.render:render_pictures",
        "shell_to_shell": f"{_KINDS}.transfer:band_pictures",
        "slices": f"{_KINDS}.slices:slice_pictures",
        "spectra": f"{_KINDS}.spectra:spectra_pictures",
        "spectral_maps": f"{_KINDS}.spectra:map_pictures",
        "statistics": f"{_KINDS}.statistics:statistics_pictures",
        "strain": f"{_KINDS}.strain:strain_pictures",
        "structure_functions": f"{_KINDS}.structure_functions:structure_function_pictures",
        "trajectories": f"{_KINDS}.particles:trajectory_pictures",
        "transfer": f"{_KINDS}.transfer:transfer_pictures",
    },
)


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
