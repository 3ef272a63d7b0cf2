"""Pictures and numbers of the forces on bodies: drag and lift against time, the spectrum of the lift
and the Strouhal number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from simulator.archive.open_run import Run, open_run
from simulator.plugins.pictures.choice import Selection
from simulator.plugins.pictures.lines import DrawnCurve, Pictures, drawn, panels
from simulator.plugins.pictures.runs import table_of
from simulator.plugins.pictures.series_pictures import TextTable
from simulator.plugins.pictures.style import Labels, quantity

LEAST_PERIODS = 4
"""Periods of the lift that the window of its spectrum must hold."""
_QUIET = 1e-6  # The oscillation of a lift below this fraction of the drag is round-off.


class Shedding(NamedTuple):
    """The spectrum of a lift by frequency, and the frequency of its largest peak."""

    frequencies: np.ndarray
    power: np.ndarray
    frequency: float


def shedding(time: np.ndarray, lift: np.ndarray) -> Shedding | None:
    """The spectrum of the lift, without its mean, under a Hann window over all of `time`. A parabola
    through the logarithms of the largest value and its neighbours places the peak between them.
    None for fewer than `LEAST_PERIODS` periods."""
    if len(time) < 4 * LEAST_PERIODS:
        return None
    even = np.linspace(time[0], time[-1], len(time))
    values = np.interp(even, time, lift)
    power = abs(np.fft.rfft((values - values.mean()) * np.hanning(len(even)))) ** 2
    peak = int(power.argmax())
    if not LEAST_PERIODS <= peak < len(power) - 1:
        return None
    below, top, above = np.log(np.maximum(power[peak - 1 : peak + 2], 1e-300))
    place = peak + (below - above) / (2 * (below - 2 * top + above))
    step = 1 / (len(even) * (even[1] - even[0]))
    return Shedding(step * np.arange(len(power)), power, float(place * step))


@dataclass(frozen=True)
class BodyForces:
    """The rows of a body: `columns` of drag and lift, or of the force without these, and the
    `scales` of the coefficients, if given."""

    name: str
    time: np.ndarray
    columns: Mapping[str, np.ndarray]
    scales: Mapping[str, Any]
    viscosity: float

    @property
    def late(self) -> np.ndarray:
        """The rows of means and of the spectrum: those of the second half of the time."""
        return self.time >= (self.time[0] + self.time[-1]) / 2

    def mean(self, kind: str) -> float:
        return float(self.columns[f"{kind}_{self.name}"][self.late].mean())

    @property
    def lift(self) -> np.ndarray:
        """The lift in these rows; in three dimensions the component that varies most."""
        lifts = [v[self.late] for n, v in self.columns.items() if n.startswith("lift_")]
        return max(lifts, key=lambda values: values.std())

    @cached_property
    def shedding(self) -> Shedding | None:
        if not self.scales or self.lift.std() < _QUIET * abs(self.mean("drag")):
            return None
        return shedding(self.time[self.late], self.lift)

    @property
    def strouhal(self) -> float:
        """f L / U of the lift; nan if it does not oscillate."""
        found = self.shedding
        turnover = self.scales["length"] / self.scales["velocity"]
        return found.frequency * turnover if found is not None else np.nan

    @property
    def reynolds(self) -> float:
        return self.scales["velocity"] * self.scales["length"] / self.viscosity

    @property
    def window(self) -> str:
        first, *_, last = self.time[self.late]
        return f"t = {first:.4g} to {last:.4g}"


def bodies_of(run: Run, choice: Selection) -> list[BodyForces]:
    """The bodies whose forces a run has measured, in the chosen rows."""
    table = table_of(run)
    rows = choice.rows(table.get("time", ()))
    viscosity = (run.config.get("model") or {}).get("viscosity")
    found = []
    for term in run.config.get("terms") or ():
        name, scales = term.get("name"), term.get("coefficients") or {}
        kinds = ("drag", "lift") if scales else ("force",)
        wanted = tuple(f"{kind}_{name}" for kind in kinds)
        exact = (*wanted, *(f"{each}_{axis}" for each in wanted for axis in "xyz"))
        columns = {column: table[column][rows] for column in exact if column in table}
        if columns and len(rows) > 1:
            nu = viscosity if isinstance(viscosity, float | int) and viscosity else np.nan
            found.append(BodyForces(str(name), table["time"][rows], columns, scales, nu))
    return found


def columns_of_bodies(run: Run, choice: Selection) -> list[str]:
    return [column for body in bodies_of(run, choice) for column in body.columns]


def body_pictures(run: Path, labels: Labels, choice: Selection) -> Pictures:
    for body in bodies_of(open_run(run), choice):
        yield f"forces_{body.name}", partial(forces, body, labels)
        if body.shedding is not None:
            yield f"lift_spectrum_{body.name}", partial(lift_spectrum, body, body.shedding)


def forces(body: BodyForces, labels: Labels) -> Figure:
    """A panel each for drag and lift, or for the components of the force, against time."""
    words = [quantity(name) for name in body.columns]
    height = 0.85 + 1.9 * len(words)
    result, grid = panels(labels.axis(r"time $t$", "time"), *words, height=height, right=0.97)
    for axes, values in zip(grid, body.columns.values(), strict=True):
        axes.plot(body.time, values, linewidth=1.3)
        # The impulse of a sudden start, in the first few rows, is far above all that follows.
        usual = values[len(values) // 20 :]
        low, high = min(0.0, usual.min()), max(0.0, usual.max())
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low) + 1e-12)
    grid[-1].set_xlim(body.time[0], body.time[-1])
    return result


def lift_spectrum(body: BodyForces, found: Shedding) -> Figure:
    """The power spectrum of the lift against f L / U."""
    turnover = body.scales["length"] / body.scales["velocity"]
    title = rf"$St = {body.strouhal:.3g}$: lift at ${body.window}$, Hann window"
    words = "$f L / U$", "power of $C_L$"
    result, (axes,) = panels(*words, title=title.replace(" to ", "$ to $"), right=0.97)
    line = DrawnCurve(found.frequencies * turnover, found.power, how={"marker": None})
    drawn(axes, [line], "y")
    axes.axvline(body.strouhal, color="#444444", linewidth=1.0, linestyle="--")
    axes.set_xlim(0, min(6 * body.strouhal, found.frequencies[-1] * turnover))
    return result


def table_of_bodies(run: Path, choice: Selection) -> TextTable:
    """Mean drag, standard deviation of the lift, Strouhal and Reynolds number of each body with
    coefficients."""
    bodies = [body for body in bodies_of(open_run(run), choice) if body.scales]
    rows: list[Sequence[str]] = []
    for body in bodies:
        numbers = body.mean("drag"), body.lift.std(), body.strouhal, body.reynolds
        known = ["" if np.isnan(x) else f"{x:.4g}" for x in numbers]
        rows.append([f"{body.name}, {body.window}", *known])
    return TextTable(
        ("body, window", "mean C_D", "rms C_L", "St = f L / U", "Re = U L / ν"), rows, {}
    )
