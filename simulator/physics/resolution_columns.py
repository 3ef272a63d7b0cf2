"""How well the grid resolves the fields of a run, judged by columns of diagnostics: the one place
where a run's warnings, summary and report, and the certificate of a data set get it from.

Commands that read tables use this module without JAX."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

RESOLVED = 1.0
"""The smallest k_max eta of a resolved flow."""
LIMITS = (
    "at least 1 for low-order statistics (a rule of thumb), 1.5 for velocity gradients (Pope, "
    "Turbulent Flows, section 9.1.2)"
)
"""The limits of k_max eta in words, as `columns.md` has them too."""
UNDER_RESOLVED = 1e-3
"""The largest share at the edge of the spectrum of a resolved field."""
UNRESOLVED = " is under-resolved: "
"""Part of the lines that warn of a field that is not resolved."""
LARGE_STEP = "the CFL number exceeds "
"""The beginning of the line that warns of a large fixed time step; the limit follows."""


class Resolution(NamedTuple):
    """A measure of how well the grid resolves a field: a share at the edge of the spectrum and, of
    cascades, the length at which the spectrum ends. Without the latter the share alone counts."""

    field: str
    edge: str  # Column: the share of the field at the edge of the spectrum.
    scale: str = ""  # Column: k_max times the length at which the spectrum of the field ends.
    words: str = ""
    part: str = "of its squared gradients lies near the grid's edge"
    cure: str = "a finer grid or more damping resolves it"
    criterion: str = "1 resolves the Batchelor scale, where diffusion is as fast as the strain"
    noise: float = 0.3  # The share above which small scales are noise; of white noise it is 2/3.

    @property
    def column(self) -> str:
        return self.scale or self.edge


CASCADES = (
    Resolution(
        "the flow",
        "edge_enstrophy",
        "k_max_eta",
        "k_max eta",
        criterion=LIMITS,
    ),
    Resolution(
        "the magnetic field",
        "edge_magnetic_enstrophy",
        "k_max_resistive",
        "k_max resistive scale",
        criterion="1 resolves the resistive scale",
    ),
)
WAVES = Resolution(
    "the wave function",
    "edge_mass",
    words="mass near the largest velocity of the grid",
    part="of its mass moves near the largest velocity that the grid carries",
    cure="a finer grid or a smaller box resolves it",
    noise=0.01,
)
GAS = Resolution(
    "the gas",
    "edge_energy",
    words="squared momentum near the grid's edge",
    part="of its squared momentum lies near the grid's edge",
    cure="a finer grid or more viscosity resolves it",
    noise=0.05,
)
BATCHELOR = "_k_max_batchelor"
"""The end of the name of a scalar's column: k_max times its Batchelor scale."""


def measured_resolutions(columns: Iterable[str]) -> list[Resolution]:
    """The measures of resolution among the columns of diagnostics."""
    columns = list(columns)
    measures = [measure for measure in CASCADES if {measure.scale, measure.edge} <= {*columns}]
    for name in columns:
        if name.endswith(BATCHELOR):
            scalar = name.removesuffix(BATCHELOR)
            words = f"{scalar}: k_max Batchelor scale"
            measures.append(Resolution(scalar, f"{scalar}_edge_gradient", name, words))
        elif name.endswith(WAVES.edge):
            measures.append(_of_component(WAVES, name))
        elif (
            name.endswith(GAS.edge) and f"{name.removesuffix(GAS.edge)}{WAVES.edge}" not in columns
        ):
            measures.append(_of_component(GAS, name))
    return measures


def uniform_scalars(columns: Mapping[str, np.ndarray]) -> list[str]:
    """The scalars without a fluctuation in any row."""
    names = [name.removesuffix(BATCHELOR) for name in columns if name.endswith(BATCHELOR)]
    variances = {name: columns.get(f"{name}_variance") for name in names}
    return [name for name, values in variances.items() if values is not None and not values.any()]


def _of_component(matter: Resolution, column: str) -> Resolution:
    """The measure in a composite, where the name of the component precedes its columns."""
    if not (component := column.removesuffix(matter.edge).removesuffix("_")):
        return matter
    field, words = (f"{component}: {text}" for text in (matter.field, matter.words))
    return matter._replace(field=field, words=words, edge=column)


@dataclass(frozen=True)
class Judgement:
    """The resolution of a field over rows of diagnostics, judged by the worst of them."""

    measure: Resolution
    time: np.ndarray
    values: np.ndarray  # Of the column `measure.column`.
    lost: np.ndarray
    """The share at the edge of the spectrum, and 0 in rows where the scale of a cascade is
    resolved: before a cascade reaches it, as after a start at large scales, the edge is empty and
    nothing is lost."""

    @property
    def worst(self) -> int:
        """The row of the smallest scale, or of the largest share."""
        return int(self.values.argmin() if self.measure.scale else self.values.argmax())

    @property
    def verdict(self) -> Literal["good", "note", "warn", "bad"]:
        most = self.lost.max()
        if most > UNDER_RESOLVED:
            return "bad" if most > self.measure.noise else "warn"
        return "note" if self.measure.scale and self.values.min() < RESOLVED else "good"

    def number(self, row: int) -> str:
        value = float(self.values[row])
        if not self.measure.scale:
            return f"{100 * value:.3g}%"
        # As many digits as show on which side of the limit the number lies.
        texts = (f"{value:.{digits}g}" for digits in range(3, 18))
        return next(text for text in texts if (float(text) < RESOLVED) == (value < RESOLVED))

    @property
    def least(self) -> str:
        return f"{'minimum' if self.measure.scale else 'maximum'} {self.number(self.worst)}"

    @property
    def warning(self) -> str:
        """A line about the row with the largest loss; empty if the field is resolved."""
        if self.verdict not in ("warn", "bad"):
            return ""
        field, _, scale, _, part, cure, *_ = self.measure
        row = int(self.lost.argmax())
        part = f"{self.lost[row]:.1%} {part}"
        if scale:
            part = f"{scale} = {self.number(row)}, below {RESOLVED:g}, and {part}"
        noise = "; its small scales are noise of the grid" if self.verdict == "bad" else ""
        return f"{field}{UNRESOLVED}{part}{noise}; {cure}"


def judged(columns: Mapping[str, np.ndarray]) -> list[Judgement]:
    """A judgement of each field with a measure among the columns, by the rows in which all numbers
    of the measure are finite: a flow that has overflowed has no scale and no spectrum. A uniform
    scalar has no small scales to judge."""
    results = []
    uniform = uniform_scalars(columns)
    for measure in measured_resolutions(columns):
        if measure.field in uniform:
            continue
        known = np.isfinite(columns[measure.column]) & np.isfinite(columns[measure.edge])
        if known.any():
            values, edge = (columns[name][known] for name in (measure.column, measure.edge))
            lost = np.where(values < RESOLVED, edge, 0) if measure.scale else edge
            results.append(Judgement(measure, columns["time"][known], values, lost))
    return results
