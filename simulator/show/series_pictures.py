"""The pictures of each kind of series.

A kind without an entry in `PICTURES` is drawn as its `curves` describe (`show.curves`), so that a new kind needs
no line here. An entry is for pictures that such a description cannot express.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from simulator.measure import KINDS, Curves
from simulator.output.series import SeriesReader
from simulator.show import curves, density, particles, probes, statistics, strain
from simulator.show.joint_histograms import joint_histogram, pairs
from simulator.show.labels import Labels
from simulator.show.slices import fields, projections, slices
from simulator.show.spectra import names, spectrum
from simulator.show.spectral_maps import spectral_map
from simulator.show.volumes import volume_picture

Pictures = Iterator[tuple[str, Callable[[], Figure]]]
"""Names of files without their endings, and functions that build the figures."""
Diagnostics = Mapping[str, np.ndarray]


def pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    """The pictures of one series, which must have rows. `diagnostics` are the columns of the run's table."""
    name = series.path.stem
    if name in PICTURES:
        yield from PICTURES[name](series, labels, diagnostics)
        return
    kind = KINDS.get(name)
    own = kind.pictures(series, labels) if kind is not None else None
    yield from own or curves.pictures(series, labels, kind.curves if kind is not None else Curves())


def _spectra(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in names(series):
        power = partial(density.power, series, labels, name)
        plain = partial(spectrum, series, name, guide=statistics.may_be_turbulent(series, diagnostics))
        yield f"spectrum_{name}", power if name.endswith("_power") else plain
    scales = statistics.kolmogorov_scales(series, diagnostics)
    if scales is not None:
        yield "spectrum_compensated", partial(statistics.compensated, series, *scales)
    for name in series.variables:
        if name.startswith("perpendicular/"):
            quantity = name.partition("/")[2]
            yield f"spectrum_directional_{quantity}", partial(statistics.directional, series, quantity)


def _transfer(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in statistics.transfers(series):
        yield f"transfer_{name}", partial(statistics.transfer, series, name)


def _structure_functions(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    yield "structure_functions", partial(statistics.structure, series)
    for name in series.variables:
        if name.startswith("mixed_"):
            yield f"structure_functions_{name}", partial(statistics.mixed, series, name, diagnostics)


def _histograms(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in statistics.histogram_names(series):
        yield f"histogram_{name}", partial(statistics.histogram, series, name)
    for name in density.log_histogram_names(series):
        yield f"histogram_{name}", partial(density.log_histogram, series, name, labels)


def _joint_histograms(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for first, second in pairs(series):
        yield f"joint_histogram_{first}_{second}", partial(joint_histogram, series, first, second, labels)


def _profiles(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in density.profile_names(series):
        yield f"profile_{name}", partial(density.profile, series, name, labels)


def _projections(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in fields(series):
        yield f"projection_{name}", partial(projections, series, name, labels)


def _slices(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in fields(series):
        yield f"slices_{name}", partial(slices, series, name, labels)


def _trajectories(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in particles.species(series):
        yield f"trajectories_{name}", partial(particles.paths, series, name)


def _particle_statistics(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    stored = [name.partition("/")[2] for name in series.variables]
    if "dispersion_x" in stored:
        yield "dispersion", partial(particles.dispersion, series)
    if "settling_velocity" in stored:
        yield "settling_velocity", partial(particles.settling, series)
    for name in particles.species(series):
        yield f"acceleration_{name}", partial(particles.acceleration, series, name)


def _pair_correlation(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    yield "pair_correlation", partial(particles.pair_correlation, series)


def _render(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    field = series.attributes.get("field", "volume")
    last = len(series) - 1
    yield (
        f"render_{field}",
        lambda: volume_picture(series.one("image", last), labels.moment(series.time[last])),
    )


def _probes(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    return probes.pictures(series, labels)


def _strain(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    return strain.pictures(series, labels)


def _cospectra(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    described = KINDS["cospectra"].curves
    for name in names(series):
        if name.endswith("_energy") or name.startswith("elsasser"):
            yield f"cospectra_{name}", partial(spectrum, series, name, guide=False)
        else:
            yield f"cospectra_{name}", partial(curves.curves, series, name, labels, described)


def _spectral_maps(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    for name in series.variables:
        yield f"spectral_map_{name}", partial(spectral_map, series, name, labels)


PICTURES: dict[str, Callable[[SeriesReader, Labels, Diagnostics], Pictures]] = {
    "spectra": _spectra,
    "transfer": _transfer,
    "structure_functions": _structure_functions,
    "histograms": _histograms,
    "joint_histograms": _joint_histograms,
    "profiles": _profiles,
    "projections": _projections,
    "slices": _slices,
    "trajectories": _trajectories,
    "particle_statistics": _particle_statistics,
    "pair_correlation": _pair_correlation,
    "render": _render,
    "probes": _probes,
    "spectral_maps": _spectral_maps,
    "cospectra": _cospectra,
    "strain": _strain,
}
