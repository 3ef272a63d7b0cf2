"""Kinds of output that a run can write. A new kind of series is a class in a file of this package
and a line in `OUTPUTS`, whose order is that of rows, files and pictures.

Importing this package, and looking at the names of kinds, does not import JAX; the settings and the
computation of a kind do."""

from collections.abc import Iterator, Mapping
from typing import Any

from simulator.measure.kind import (
    Cadence,
    Carried,
    Curves,
    Kind,
    Measured,
    OutputKind,
    SeriesCadence,
    SnapshotFile,
    Subject,
    Unsupported,
)
from simulator.registry import Registry


def _admitted(name: str, declared: Any) -> OutputKind:
    is_class = isinstance(declared, type) and issubclass(declared, OutputKind)
    kind = declared() if is_class else declared
    if not isinstance(kind, OutputKind):
        raise TypeError(
            f"a subclass of simulator.measure.Kind is needed, or of SnapshotFile, not {declared!r}"
        )
    if kind.name != name:
        raise TypeError(f"its kind calls itself {kind.name!r}; the two names must agree")
    if isinstance(kind, SnapshotFile) and kind.Settings.model_fields.keys() & Cadence.model_fields:
        raise TypeError("a file beside each snapshot has no schedule of its own")
    return kind


OUTPUTS = Registry[OutputKind](
    "simulator.outputs",
    {
        "spectra": "simulator.measure.spectra:Spectra",
        "spectral_maps": "simulator.measure.spectra:SpectralMaps",
        "cospectra": "simulator.measure.spectra:Cospectra",
        "probes": "simulator.measure.probes:Probes",
        "python": "simulator.measure.python_series:PythonOutput",
        "slices": "simulator.measure.slices:Slices",
    },
    _admitted,
)


class _Series(Mapping[str, Kind]):
    """The kinds of series among `OUTPUTS`. The names of our own, which are all series, are known
    without importing their modules."""

    def __iter__(self) -> Iterator[str]:
        return (n for n in OUTPUTS if n in OUTPUTS.own or isinstance(OUTPUTS[n], Kind))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Kind:
        kind = OUTPUTS[name]
        if not isinstance(kind, Kind):
            raise KeyError(name)
        return kind


KINDS = _Series()


def _of_packages(output: Mapping[str, Any]) -> Iterator[OutputKind]:
    """The kinds of packages that a run with the settings `output` asks for; no other is loaded."""
    for name in OUTPUTS.names:
        if name not in OUTPUTS.own and output.get(name) is not None:
            yield OUTPUTS[name]


def snapshot_files(output: Mapping[str, Any]) -> dict[str, SnapshotFile]:
    """The kinds of files that a run with the settings `output` writes beside each snapshot, by
    name. Packages add them. Kinds of series, which may import JAX, are not loaded: they are those
    that have a schedule."""
    unscheduled = {name: block for name, block in output.items() if not _is_scheduled(block)}
    return {k.name: k for k in _of_packages(unscheduled) if isinstance(k, SnapshotFile)}


def _is_scheduled(block: Any) -> bool:
    stored = isinstance(block, Mapping)
    return stored and any(block.get(key) is not None for key in Cadence.model_fields)


def requested(output: Any) -> Iterator[tuple[str, Kind, Any]]:
    """The series that a run with the settings `output` writes: (file name, kind, settings of the
    series). The settings of a series are None if only snapshots add rows."""
    own = (OUTPUTS[name] for name in OUTPUTS.own)
    for kind in (*own, *_of_packages(dict(output))):
        if not isinstance(kind, Kind):
            continue
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
    "SnapshotFile",
    "Subject",
    "Unsupported",
]
