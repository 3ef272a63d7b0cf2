"""The choice of what is drawn, at which times, and into which files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.errors import UserError
from simulator.output.series import SeriesReader

Format = Literal["png", "pdf", "svg"]
FORMATS: tuple[Format, ...] = ("png", "pdf", "svg")
STYLES = ("screen", "paper")


@dataclass(frozen=True)
class Choice:
    """`what`: series and `diagnostics` (None: all). `fields`: draw only these. `time`: first and last time.
    `compensate`: spectra are multiplied by k to this power. `average`: means over time instead of single times."""

    what: tuple[str, ...] | None = None
    fields: tuple[str, ...] = ()
    time: tuple[float, float] | None = None
    compensate: float | None = None
    average: bool = False
    formats: tuple[Format, ...] = ("png",)
    style: str = "screen"

    def takes(self, kind: str) -> bool:
        """Whether a series, or `diagnostics`, is chosen."""
        return self.what is None or kind in self.what

    def shows(self, name: str) -> bool:
        """Whether a picture or variable of this name is chosen: if fields are named, its name must end with one."""
        return not self.fields or any(name == field or name.endswith(f"_{field}") for field in self.fields)

    def rows(self, time: Sequence[float] | np.ndarray) -> np.ndarray:
        """The indices of the chosen times."""
        time = np.asarray(time)
        low, high = self.time or (-np.inf, np.inf)
        margin = 1e-9 * max(abs(low), abs(high)) if self.time else 0.0
        return np.flatnonzero((time >= low - margin) & (time <= high + margin))


class Window(SeriesReader):
    """Some rows of a series, as a series."""

    def __init__(self, base: SeriesReader, rows: np.ndarray) -> None:
        self._base, self._rows = base, rows
        self.path, self.attributes, self.variables = base.path, base.attributes, base.variables
        self.beside, self.coordinates = base.beside, base.coordinates
        self.step, self.time = base.step[rows], base.time[rows]

    def __getitem__(self, name: str) -> np.ndarray:
        return self._base[name][self._rows]

    def at(self, index: int) -> dict[str, np.ndarray]:
        return self._base.at(int(self._rows[index]))

    def one(self, name: str, index: int) -> np.ndarray:
        return self._base.one(name, int(self._rows[index]))


def window(series: SeriesReader, choice: Choice) -> SeriesReader:
    """The chosen rows of a series. Raises UserError if there are none."""
    if choice.time is None:
        return series
    rows = choice.rows(series.time)
    if not len(rows):
        low, high = choice.time
        raise UserError(
            f"--time: {series.path} has no row from {low:g} to {high:g}; its times go from {series.time[0]:g} "
            f"to {series.time[-1]:g}"
        )
    return Window(series, rows)
