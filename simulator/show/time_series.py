"""Energy, dissipation, enstrophy and measures of collapse against time."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from simulator.show.style import WIDTH, figure, powers_of_ten, quantity

PANELS = ("energy", "dissipation", "enstrophy", "virial_ratio", "max_density", "vortex_faces")
CLOCK = ("step", "time", "dt", "cfl")
_FEW = 25
_STEADY = 2e-3
"""The smallest change that an axis shows, relative to the value."""
_WIDE = 30.0
"""A density or virial ratio that varies by more than this factor gets a logarithmic axis."""


def drawable(diagnostics: Mapping[str, np.ndarray]) -> bool:
    """Whether there is a row with data to show."""
    return len(diagnostics.get("time", ())) > 0 and bool(_panels(diagnostics))


def _panels(diagnostics: Mapping[str, np.ndarray]) -> list[str]:
    """The usual quantities; if there are none, as for a user's own equation, the first columns."""
    found = [name for name in PANELS if name in diagnostics]
    return found or [name for name in diagnostics if name not in CLOCK][: len(PANELS)]


def time_series(diagnostics: Mapping[str, np.ndarray]) -> Figure:
    """One panel each for energy (with its parts if there are several), dissipation, enstrophy, virial ratio, maximum
    density and vortices, against the scale factor if the background expands, else against time.

    `diagnostics` as from `open_run`: arrays of shape (row,) by name. Missing quantities are left out.
    """
    panels_of = _panels(diagnostics)
    names = [n for n in panels_of if n == "energy" or np.any(diagnostics[n])] or panels_of[:1]
    expanding = "scale_factor" in diagnostics
    time = diagnostics["scale_factor" if expanding else "time"]
    parts = {name: _parts(diagnostics) if name == "energy" else [] for name in names}
    top, height = 0.36 if any(parts.values()) else 0.12, 0.6 + 1.75 * len(names)
    result = figure(WIDTH, height + top)
    panels = np.atleast_1d(result.subplots(len(names), 1, sharex=True, gridspec_kw={"hspace": 0.1}))
    for panel, name in zip(panels, names, strict=True):
        curves = {name: diagnostics[name], **{part: diagnostics[part] for part in parts[name]}}
        wide = name in ("max_density", "virial_ratio") and _wide(diagnostics[name])
        wide = wide or any(grows(values) for values in curves.values())
        power = 0 if wide else _power_of_ten(curves)
        for number, (curve, values) in enumerate(curves.items()):
            total = curve == name and parts[name]
            panel.plot(
                time,
                values / 10.0**power,
                color="black" if total else f"C{max(number - 1, 0)}",
                label="total" if total else curve.removesuffix("_energy").replace("_", " "),
                marker="o" if len(time) <= _FEW else None,
                markersize=3.5,
                clip_on=False,
            )
        if parts[name]:
            panel.legend(ncols=len(curves), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.1)
        panel.set_ylabel(quantity(name) + (rf" ($10^{{{power}}}$)" if power else ""))
        if wide:
            panel.set_yscale("log")
            powers_of_ten(panel.yaxis)
        else:
            limits(panel, np.concatenate(list(curves.values())) / 10.0**power, single=len(time) == 1)
    panels[-1].set_xlabel("scale factor $a$" if expanding else r"time $t$")
    if time[-1] > time[0]:
        panels[-1].set_xlim(time[0], time[-1])
    else:
        panels[-1].set_xticks([time[0]])
    result.align_ylabels()
    result.subplots_adjust(left=0.13, right=0.97, top=1 - top / (height + top), bottom=0.52 / (height + top))
    return result


def grows(values: np.ndarray) -> bool:
    """Whether a nonnegative quantity ends far above its initial value, as in an instability or a dynamo."""
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    return len(positive) > 1 and finite.min() >= 0 and float(finite[-1]) > _WIDE * float(positive[0])


def _wide(values: np.ndarray) -> bool:
    finite = values[np.isfinite(values)]
    # A logarithmic axis cannot show values that are not positive; only zeros, as at a start, may be left out.
    positive = finite[finite > 0]
    return len(positive) > 0 and finite.min() >= 0 and float(positive.max()) > _WIDE * float(positive.min())


def _parts(diagnostics: Mapping[str, np.ndarray]) -> list[str]:
    """The energies that add up to the total, without fractions and without those of a composite's components."""
    owners = tuple(name.removesuffix("mass") for name in diagnostics if name.endswith("_mass"))
    parts = [
        name
        for name, values in diagnostics.items()
        if name.endswith("_energy") and name != "edge_energy" and not name.startswith(owners)
        # Parts that a run does not have are zero throughout.
        if np.any(np.isfinite(values) & (values != 0))
    ]
    return parts if len(parts) > 1 else []


def _power_of_ten(curves: Mapping[str, np.ndarray]) -> int:
    """The power of ten by which the tick labels are multiplied, so that they stay short; 0 for ordinary numbers."""
    most = max(
        (float(np.nanmax(np.abs(values))) for values in curves.values() if np.isfinite(values).any()),
        default=0,
    )
    power = math.floor(math.log10(most)) if most > 0 and math.isfinite(most) else 0
    return power if power < -2 or power > 3 else 0


def limits(panel: Axes, values: np.ndarray, *, single: bool) -> None:
    """Starts at zero, which shows the relative change, unless the change is a small part of the whole."""
    values = values[np.isfinite(values)]
    if (
        len(values)
        and values.min() >= 0
        and values.max() > 0
        and (single or np.ptp(values) > 0.15 * values.max())
    ):
        panel.set_ylim(0, 1.08 * values.max())
    elif len(values) and 0 < np.ptp(values) < _STEADY * (size := float(abs(values).max())):
        # Conserved quantities look constant, and their tick labels stay short.
        middle = (values.max() + values.min()) / 2
        panel.set_ylim(middle - 1.4 * _STEADY * size, middle + 1.4 * _STEADY * size)
    counted = len(values) and bool((values == np.round(values)).all())
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=bool(counted)))
    panel.ticklabel_format(axis="y", style="plain", useOffset=False)
