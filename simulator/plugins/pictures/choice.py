"""The choice of the drawn series, fields, times and file formats."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.archive.series_file import SeriesReader
from simulator.errors import UserError

MEASURES = "simulator analyze RUN --what slices output.slices.fields=[NAME] measures others"
"""The command that cuts planes of further fields."""
Format = Literal["png", "pdf", "svg"]


@dataclass(frozen=True)
class Selection:
    """`what`: the drawn series and `diagnostics` (None: all). `fields`: the only drawn fields.
    `time`: first and last time, infinite at an open end. `compensate`: the power of k that
    multiplies spectra. `average`: draw means over time instead of single times. `shift`: times to
    be added to those of each of several runs."""

    what: tuple[str, ...] | None = None
    fields: tuple[str, ...] = ()
    time: tuple[float, float] | None = None
    compensate: float | None = None
    average: bool = False
    formats: tuple[Format, ...] = ("png",)
    style: str = "screen"
    shift: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.time is not None and not self.time[0] <= self.time[1]:
            raise UserError(f"time: a first and a last time are needed, not {self.time}")

    def takes(self, kind: str) -> bool:
        return self.what is None or kind in self.what

    def shows(self, name: str) -> bool:
        """Whether the picture or variable `name` is chosen: if fields are given, `name` must end
        with one of them."""
        return not self.fields or any(_is(name, field) for field in self.fields)

    def refuse_unknown(
        self, drawn: Collection[str], fields: Iterable[str], columns: Collection[str]
    ) -> None:
        """Raises UserError if none of the pictures `drawn` shows a chosen field. `fields` are those
        of the snapshots, `columns` those of the diagnostics."""
        unknown = [field for field in self.fields if not any(_is(name, field) for name in drawn)]
        if not unknown:
            return
        if set(unknown) <= set(columns) and not self.names_diagnostics:
            typed = f"--what diagnostics --field {','.join(unknown)}"
            words = "is a column" if len(unknown) == 1 else "are columns"
            raise UserError(
                f"--field: {', '.join(unknown)} {words} of diagnostics: simulator plot RUN {typed}"
            )
        there = ", ".join(sorted({*fields, *columns}))
        raise UserError(
            f"--field: no picture of {', '.join(unknown)}; there are: {there}. {MEASURES}"
        )

    @property
    def draws_diagnostics(self) -> bool:
        """Whether diagnostics can be drawn so: not as means, nor multiplied by a power of k."""
        return not self.average and self.compensate is None

    @property
    def names_diagnostics(self) -> bool:
        """Whether the diagnostics are asked for by name, and not only because all is drawn."""
        return "diagnostics" in (self.what or ())

    def rows(self, time: Sequence[float] | np.ndarray) -> np.ndarray:
        """The indices of the chosen times; round-off at both ends of the interval is allowed
        for."""
        time = np.asarray(time)
        low, high = self.time or (-np.inf, np.inf)
        return np.flatnonzero((time >= low - 1e-9 * abs(low)) & (time <= high + 1e-9 * abs(high)))

    def chosen_rows(self, time: Sequence[float] | np.ndarray, where: object) -> np.ndarray:
        """The indices of the chosen times. Raises UserError if no row has a chosen time."""
        rows = self.rows(time)
        if self.time is not None and not len(rows):
            low, high = self.time
            there = (
                f"its times go from {time[0]:g} to {time[-1]:g}"
                if len(time)
                else "it has no rows yet"
            )
            raise UserError(f"--time: {where} has no row from {low:g} to {high:g}; {there}")
        return rows


def _is(name: str, field: str) -> bool:
    return name == field or name.endswith(f"_{field}")


class Window(SeriesReader):
    """A series that consists of some rows of another series, `shift` later."""

    def __init__(self, base: SeriesReader, rows: np.ndarray, shift: float = 0.0) -> None:
        self._base = base
        self._rows = rows
        self.path = base.path
        self.attributes = base.attributes
        self.variables = base.variables
        self.beside = base.beside
        self.coordinates = base.coordinates
        self.step = base.step[rows]
        self.time = base.time[rows] + shift

    def __getitem__(self, name: str) -> np.ndarray:
        return self._base[name][self._rows]

    def one(self, name: str, index: int) -> np.ndarray:
        return self._base.one(name, int(self._rows[index]))


def window(series: SeriesReader, choice: Selection) -> SeriesReader:
    """The chosen rows of a series. Raises UserError if no row is chosen."""
    return (
        series
        if choice.time is None
        else Window(series, choice.chosen_rows(series.time, series.path))
    )
