"""Kinds of series that a run can write. A new kind is a class in a file of this package and a line
in `KINDS`, whose order is that of rows, files and pictures.

Importing this package, and looking at the names of kinds, does not import JAX; the settings and the
computation of a kind do."""

from collections.abc import Iterator
from typing import Any

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
from simulator.registry import Registry


def _admitted(name: str, declared: Any) -> Kind:
    kind = declared() if isinstance(declared, type) and issubclass(declared, Kind) else declared
    if not isinstance(kind, Kind):
        raise TypeError(f"a subclass of simulator.measure.Kind is needed, not {declared!r}")
    if kind.name != name:
        raise TypeError(f"its kind calls itself {kind.name!r}; the two names must agree")
    return kind


KINDS = Registry[Kind](
    "simulator.outputs",
    {
        "spectra": "simulator.measure.spectra:Spectra",
        "spectral_maps": "simulator.measure.spectra:SpectralMaps",
        "cospectra": "simulator.measure.spectra:Cospectra",
        "transfer": "simulator.measure.transfer:Transfer",
        "structure_functions": "simulator.measure.structure_functions:StructureFunctions",
        "histograms": "simulator.measure.histograms:Histograms",
        "joint_histograms": "simulator.measure.histograms:JointHistograms",
        "strain": "simulator.measure.strain:Strain",
        "profiles": "simulator.measure.profiles:Profiles",
        "projections": "simulator.measure.profiles:Projections",
        "lightcone": "simulator.measure.lightcone:Lightcone",
        "probes": "simulator.measure.probes:Probes",
        "python": "simulator.measure.python_series:PythonOutput",
        "particle_statistics": "simulator.measure.particles:ParticleStatistics",
        "pair_correlation": "simulator.measure.pair_correlation:PairCorrelation",
        "trajectories": "simulator.measure.particles:Trajectories",
        "helicity": "simulator.measure.transfer:Helicity",
        "shell_to_shell": "simulator.measure.transfer:ShellToShell",
        "statistics": "simulator.measure.statistics:Statistics",
        "field_statistics": "simulator.measure.statistics:FieldStatistics",
        "slices": "simulator.measure.slices:Slices",
    },
    _admitted,
)


def requested(output: Any) -> Iterator[tuple[str, Kind, Any]]:
    """The series that a run with the settings `output` writes: (file name, kind, settings of the
    series). The settings of a series are None if only snapshots add rows."""
    names = (n for n in KINDS.names if n in KINDS.own or getattr(output, n, None) is not None)
    for kind in map(KINDS.__getitem__, names):
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
