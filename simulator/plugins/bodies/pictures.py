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
_QUIET = 1e-6  # A force below this fraction of the largest, or of the drag, is round-off.


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

    @property
    def drag(self) -> float:
        return float(self.columns[f"drag_{self.name}"][self.late].mean())

    @property
    def lifts(self) -> dict[str, np.ndarray]:
        """The lift in these rows by its axis, with the axis `` in two dimensions."""
        start = f"lift_{self.name}"
        lifts = {n: v[self.late] for n, v in self.columns.items() if n.startswith(start)}
        return {name.removeprefix(start).strip("_"): values for name, values in lifts.items()}

    @cached_property
    def sheddings(self) -> dict[str, Shedding]:
        """The spectrum of each lift that oscillates, by its axis."""
        found = {
            axis: shedding(self.time[self.late], lift)
            for axis, lift in self.lifts.items()
            if lift.std() >= _QUIET * abs(self.drag)
        }
        return {axis: each for axis, each in found.items() if each is not None}

    @property
    def turnover(self) -> float:
        """L / U, in whose units the Strouhal number is a frequency."""
        return self.scales["length"] / self.scales["velocity"]

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
        for axis, found in body.sheddings.items():
            stem = "_".join(filter(None, ("lift_spectrum", body.name, axis)))
            yield stem, partial(lift_spectrum, body, found, axis)


def forces(body: BodyForces, labels: Labels) -> Figure:
    """A panel each for drag and lift, or for the components of the force, against time."""
    words = [quantity(name) for name in body.columns]
    height = 0.85 + 1.9 * len(words)
    result, grid = panels(labels.axis(r"time $t$", "time"), *words, height=height, right=0.97)
    # The impulse of a sudden start, in the first few rows, is far above all that follows.
    usual = [values[len(values) // 20 :] for values in body.columns.values()]
    most = max(abs(values).max() for values in usual)
    for axes, values, shown in zip(grid, body.columns.values(), usual, strict=True):
        axes.plot(body.time, values, linewidth=1.3)
        low, high = min(0.0, shown.min()), max(0.0, shown.max())
        if high - low < _QUIET * most:
            low, high = -0.01 * most, 0.01 * most
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low) + 1e-12)
    grid[-1].set_xlim(body.time[0], body.time[-1])
    return result


def lift_spectrum(body: BodyForces, found: Shedding, axis: str = "") -> Figure:
    """The power spectrum of the lift along an axis against f L / U."""
    strouhal = found.frequency * body.turnover
    along = f" along ${axis}$" if axis else ""
    title = rf"$St = {strouhal:.3g}$: lift{along} at ${body.window}$, Hann window"
    words = "$f L / U$", "power of $C_L$"
    result, (axes,) = panels(*words, title=title.replace(" to ", "$ to $"), right=0.97)
    frequencies = found.frequencies * body.turnover
    drawn(axes, [DrawnCurve(frequencies, found.power, how={"marker": None})], "y")
    axes.axvline(strouhal, color="#444444", linewidth=1.0, linestyle="--")
    axes.set_xlim(0, min(6 * strouhal, frequencies[-1]))
    return result


def table_of_bodies(run: Path, choice: Selection) -> TextTable:
    """Mean drag, mean and rms fluctuation of the lift, Strouhal and Reynolds number of each body
    with coefficients, in a row for each axis of the lift."""
    rows: list[Sequence[str]] = []
    for body in (each for each in bodies_of(open_run(run), choice) if each.scales):
        least = _QUIET * abs(body.drag)
        for axis, lift in body.lifts.items():
            found = body.sheddings.get(axis)
            strouhal = np.nan if found is None else found.frequency * body.turnover
            lifts = [x if abs(x) >= least else 0.0 for x in (lift.mean(), lift.std())]
            numbers = body.drag, *lifts, strouhal, body.reynolds
            known = ["" if np.isnan(x) else f"{x:.4g}" for x in numbers]
            along = f", lift along {axis}" if axis else ""
            rows.append([f"{body.name}{along}, {body.window}", *known])
    words = "mean C_D", "mean C_L", "rms of C_L - mean C_L", "St = f L / U", "Re = U L / ν"
    return TextTable(("body, window", *words), rows, {})
