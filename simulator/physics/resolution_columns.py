"""Which columns of diagnostics say how well the grid resolves a flow, and whether it does.

Commands that read tables use this module without JAX."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

RESOLVED = 1.0
"""The smallest k_max eta of a resolved flow; gradients need 1.5 (Pope, Turbulent Flows, section
9.1.2)."""
UNDER_RESOLVED = 1e-3
"""The largest part of enstrophy, or of waves' energy, at the edge of the spectrum."""


class Resolution(NamedTuple):
    """A measure of how well the grid resolves a field."""

    field: str
    scale: str  # Column: k_max times the length at which the spectrum of the field ends.
    words: str
    edge: str  # Column: the share of the field's squared gradients at the edge of the spectrum.


FIELDS = (
    Resolution("the flow", "k_max_eta", "k_max eta", "edge_enstrophy"),
    Resolution(
        "the magnetic field", "k_max_resistive", "k_max resistive scale", "edge_magnetic_enstrophy"
    ),
)
BATCHELOR = "_k_max_batchelor"
"""The end of the name of a scalar's column: k_max times its Batchelor scale."""


def measured_resolutions(columns: Iterable[str]) -> list[Resolution]:
    """The measures of resolution among the columns of diagnostics, of flow, magnetic field and
    scalars."""
    columns = list(columns)
    scalars = [c.removesuffix(BATCHELOR) for c in columns if c.endswith(BATCHELOR)]
    return [measure for measure in FIELDS if measure.scale in columns] + [
        Resolution(s, s + BATCHELOR, f"{s}: k_max Batchelor scale", f"{s}_edge_gradient")
        for s in scalars
    ]


def unresolved(
    row: Mapping[str, float], measures: Iterable[Resolution] | None = None
) -> dict[str, str]:
    """Warnings about the resolution of a flow from a row of diagnostics, by the field that the grid
    cuts off.

    k_max times the dissipation scale describes where a cascade ends. Before the cascade reaches it,
    as after a start at large scales, the edge of the spectrum is empty and nothing is lost."""
    lines = {}
    for field, column, _, edge in measured_resolutions(row) if measures is None else measures:
        if row[column] < RESOLVED and row[edge] > UNDER_RESOLVED:
            resolution = f"{column} = {row[column]:.2g}, below {RESOLVED:g}"
            part = f"{row[edge]:.1%} of its squared gradients lies near the grid's edge"
            cure = "a finer grid or more damping resolves it"
            lines[field] = f"{field} is under-resolved: {resolution}, and {part}; {cure}"
    return lines
