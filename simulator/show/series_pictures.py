"""Finds the function that draws a kind of series; every module of `simulator.show.kinds` registers
its own with `draws`."""

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.series_file import SeriesReader
from simulator.measure import KINDS, Curves
from simulator.registry import Registry
from simulator.show import kinds
from simulator.show.lines import Pictures, generic_pictures
from simulator.show.style import Labels

Diagnostics = Mapping[str, np.ndarray]  # The columns of the run's table.
PictureMaker = Callable[..., Pictures]
FigureBuilder = Callable[..., Figure]
_MAKERS: dict[str, PictureMaker] = {}
PICTURES = Registry[PictureMaker]("simulator.pictures", {})
"""The functions of packages, by the name of a series or of what else a run stores."""


def draws(kind: str, *, with_diagnostics: bool = False) -> Callable[[PictureMaker], PictureMaker]:
    """Registers a function of (series, labels), and of the run's table if `with_diagnostics`, for a
    kind of series. The function yields the names of the pictures' files without their endings, and
    functions that build the figures."""

    def register(maker: PictureMaker) -> PictureMaker:
        _MAKERS[kind] = (
            maker if with_diagnostics else lambda series, labels, _: maker(series, labels)
        )
        return maker

    return register


def draws_each(
    kind: str, stem: str, names: Callable[[SeriesReader], Iterable[str]]
) -> Callable[[FigureBuilder], FigureBuilder]:
    """Registers a function that builds the pictures STEM_NAME of a kind of series, for each of the
    `names` in the series, from (series, NAME, labels)."""

    def register(build: FigureBuilder) -> FigureBuilder:
        @draws(kind)
        def pictures(series: SeriesReader, labels: Labels) -> Pictures:
            return one_for_each(names(series), stem, build, series, labels)

        return build

    return register


@cache
def picture_makers() -> Mapping[str, PictureMaker]:
    """The registered functions by the name of the kind."""
    for module in pkgutil.iter_modules(kinds.__path__, f"{kinds.__name__}."):
        import_module(module.name)
    return _MAKERS


def series_pictures(series: SeriesReader, labels: Labels, diagnostics: Diagnostics) -> Pictures:
    """The pictures of one series, which must have rows. If no function is registered, the kind's
    `pictures` or `curves` describe them."""
    name = series.path.stem
    if (maker := picture_makers().get(name)) is not None:
        return maker(series, labels, diagnostics)
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
    names: Iterable[str],
    stem: str,
    build: FigureBuilder,
    series: SeriesReader,
    *more: object,
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """The pictures STEM_NAME, built by `build(series, NAME, *more)`."""
    for name in names:
        yield f"{stem}_{name}", partial(build, series, name, *more)
