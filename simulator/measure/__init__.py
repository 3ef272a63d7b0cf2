"""Kinds of series that a run can write. A new kind is a class in a file of this package and a line
in `_OWN`.

The order of `_OWN` is that of rows, files and pictures."""

from collections.abc import Iterator
from typing import Any

from simulator.measure.histograms import Histograms, JointHistograms
from simulator.measure.kind import (
    Cadence,
    Carried,
    Curves,
    Kind,
    Measured,
    SeriesCadence,
    Subject,
    Unsupported,
)
from simulator.measure.lightcone import Lightcone
from simulator.measure.pair_correlation import PairCorrelation
from simulator.measure.particles import ParticleStatistics, Trajectories
from simulator.measure.probes import Probes
from simulator.measure.profiles import Profiles, Projections
from simulator.measure.python_series import PythonOutput
from simulator.measure.render import Render
from simulator.measure.slices import Slices
from simulator.measure.spectra import Cospectra, Spectra, SpectralMaps
from simulator.measure.statistics import FieldStatistics, Statistics
from simulator.measure.strain import Strain
from simulator.measure.structure_functions import StructureFunctions
from simulator.measure.transfer import Helicity, ShellToShell, Transfer
from simulator.registry import Registry


def _admitted(name: str, declared: Any) -> Kind:
    kind = declared() if isinstance(declared, type) and issubclass(declared, Kind) else declared
    if not isinstance(kind, Kind):
        raise TypeError(f"a subclass of simulator.measure.Kind is needed, not {declared!r}")
    if kind.name != name:
        raise TypeError(f"its kind calls itself {kind.name!r}; the two names must agree")
    return kind


_OWN: tuple[Kind, ...] = (
    Spectra(),
    SpectralMaps(),
    Cospectra(),
    Transfer(),
    StructureFunctions(),
    Histograms(),
    JointHistograms(),
    Strain(),
    Profiles(),
    Projections(),
    Lightcone(),
    Probes(),
    PythonOutput(),
    ParticleStatistics(),
    PairCorrelation(),
    Trajectories(),
    Helicity(),
    ShellToShell(),
    Statistics(),
    FieldStatistics(),
    Slices(),
    Render(),
)
KINDS = Registry[Kind]("simulator.outputs", {kind.name: kind for kind in _OWN}, _admitted)


def requested(output: Any) -> Iterator[tuple[str, Kind, Any]]:
    """The series that a run with the settings `output` writes: (file name, kind, settings of the
    series). The settings of a series are None if only snapshots add rows."""
    for kind in KINDS.values():
        series = dict(kind.series(getattr(output, kind.name, None)))
        if kind.with_snapshots and not series and output.snapshots.index:
            series = {kind.name: None}
        yield from ((name, kind, settings) for name, settings in series.items())


__all__ = [
    "Cadence",
    "Carried",
    "Curves",
    "Kind",
    "Measured",
    "SeriesCadence",
    "Subject",
    "Unsupported",
]
