"""Checks whether a run can be trusted: its resolution, energy budget, conserved quantities, and its
end."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.archive.open_run import Run
from simulator.physics.resolution_columns import UNDER_RESOLVED, UNRESOLVED, judged
from simulator.plugins.pictures.page import Cell, Verdict
from simulator.plugins.pictures.runs import table_of
from simulator.registry import Registry

LARGE_RESIDUAL = 1e-2
"""The residual of the energy budget, as a fraction of the dissipation, above which the check
warns."""
STEADY = 0.1
"""The relative change of mean energy and mean dissipation, from the third quarter of a run to the
last, up to which a forced flow counts as stationary."""
TURNOVERS = 2.0
"""Turnover times that each of these quarters must last: over shorter times the energy of a flow
that still grows hardly changes, and that of a stationary one fluctuates."""
REPORTS = Registry[Callable[..., Any]]("simulator.reports", {})
_WARNING = re.compile(r"^\S+ \S+ warning: (.*)$", re.MULTILINE)
_LOSS = {"double": 1e-9, "single": 1e-4}
"""The relative change of conserved quantities, by precision, that exceeds the round-off of many
steps."""


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check: its subject, verdict and number, and the meaning of the number."""

    name: str
    verdict: Verdict
    value: str
    meaning: str

    @property
    def cell(self) -> Cell:
        """The name as a marked cell of a table."""
        return Cell(self.name, self.verdict)


def log_of(run: Run) -> str:
    """The run's log; empty if there is none."""
    with suppress(OSError):
        return (run.path / "run.log").read_text(errors="replace")
    return ""


def checks(run: Run) -> list[HealthCheck]:
    """All checks that apply to the run."""
    columns = table_of(run)
    # A warning of the resolution was written before the worst row; the check below is of all rows.
    warnings = [w for w in dict.fromkeys(_WARNING.findall(log_of(run))) if UNRESOLVED not in w]
    precision = str(run.config.get("precision", "double"))
    results = [*_how_it_ended(run)]
    for health in REPORTS.beginning_with("health.").values():
        results += [HealthCheck(*fields) for fields in health(run)]
    if len(columns.get("time", ())):
        results += [*_resolution(columns), *_balances(columns, precision)]
        failed = run.state is not None and run.state.state == "failed"
        results += _stationarity(columns) if run.config.get("forcing") and not failed else []
    results += [HealthCheck("warning", "warn", "", text) for text in warnings]
    return results


def worst(checks: list[HealthCheck]) -> Verdict:
    """The worst verdict: `bad` before `warn` before `good`."""
    verdicts = {check.verdict for check in checks}
    return "bad" if "bad" in verdicts else "warn" if "warn" in verdicts else "good"


def _how_it_ended(run: Run) -> Iterator[HealthCheck]:
    state = run.state
    if state is None:
        yield HealthCheck("state", "note", "not begun", "no step was taken yet")
        return
    why = f": {state.reason}" if state.reason else ""
    verdicts: Mapping[str, Verdict] = {
        "finished": "good",
        "failed": "bad",
        "stopped": "warn",
        "running": "note",
    }
    reached = f"step {state.step}, t = {state.time:g} of {state.stop:g}"
    yield HealthCheck("state", verdicts[state.state], state.state + why, reached)
    starts = 1 + len(run.provenance.get("earlier", ()))
    if starts > 1:
        yield HealthCheck(
            "restarts",
            "note",
            str(starts - 1),
            "continued from a checkpoint; the steps are the same",
        )


def _resolution(columns: Mapping[str, np.ndarray]) -> Iterator[HealthCheck]:
    """The resolution of each field by its worst and its last row."""
    for field in judged(columns):
        limits = f"up to {UNDER_RESOLVED:.1%} is resolved, above {field.measure.noise:.0%} noise"
        meaning = f"{field.measure.words}; {limits}"
        if field.measure.scale:
            meaning = "1 resolves low-order statistics, 1.5 those of velocity gradients (Pope, section 9.1.2)"
            if field.verdict in ("warn", "bad"):
                meaning += f"; up to {field.lost.max():.1%} {field.measure.part}"
            elif field.verdict == "note":
                meaning += "; the cascade did not reach the grid's edge"
        name = f"resolution ({field.measure.column})"
        value = f"{field.least}, now {field.number(-1)}"
        yield HealthCheck(name, field.verdict, value, meaning)


def _stationarity(columns: Mapping[str, np.ndarray]) -> Iterator[HealthCheck]:
    """Whether energy and dissipation of a forced flow have stopped changing: their means over the
    last two quarters of the run, if these last long enough."""
    changes = {name: _late_change(columns, name) for name in ("energy", "dissipation")}
    known = {name: change for name, change in changes.items() if change is not None}
    lasted = _late_turnovers(columns)
    if "energy" not in known or lasted is None:
        return
    meaning = (
        f"means, from the third quarter to the last, of {lasted:.2g} turnover times each; below "
        f"{STEADY:.0%} counts as stationary"
    )
    value = ", ".join(f"{name} {_percentage(change)}" for name, change in known.items())
    steady = all(abs(change) < STEADY for change in known.values())
    if lasted < TURNOVERS:
        value = "too short to tell"
        meaning = (
            f"a quarter of the run lasts {lasted:.2g} turnover times; the last two quarters are "
            f"compared if each lasts {TURNOVERS:g}"
        )
    verdict = "good" if steady and lasted >= TURNOVERS else "note"
    yield HealthCheck("stationarity", verdict, value, meaning)


def _late_change(columns: Mapping[str, np.ndarray], name: str) -> float | None:
    """The relative change of the mean of a column from the third quarter of the time to the last;
    None without a positive mean."""
    times = columns["time"]
    values = columns.get(name, np.empty(0))
    bounds = np.searchsorted(times, times[0] + np.ptp(times) * np.array([0.5, 0.75]))
    third, last = (each[np.isfinite(each)] for each in np.split(values, bounds)[1:])
    if not (len(third) and len(last) and third.mean() > 0):
        return None
    return float(last.mean() / third.mean() - 1)


def _late_turnovers(columns: Mapping[str, np.ndarray]) -> float | None:
    """The turnover times that a quarter of the run lasts, by their mean over its second half; by
    energy / dissipation for flows whose tables have no turnover time. None without either."""
    times = columns["time"]
    late = times >= times[0] + np.ptp(times) / 2
    period = columns.get("turnover_time")
    if period is None and {"energy", "dissipation"} <= columns.keys():
        with np.errstate(divide="ignore", invalid="ignore"):
            period = columns["energy"] / columns["dissipation"]
    if period is None:
        return None
    periods = period[late & np.isfinite(period) & (period > 0)]
    return float(np.ptp(times) / 4 / periods.mean()) if len(periods) else None


def _percentage(change: float) -> str:
    return f"{change:+.1%}" if abs(change) < 10 else "grew more than tenfold"


def _balances(columns: Mapping[str, np.ndarray], precision: str) -> Iterator[HealthCheck]:
    if len(residual := _finite(columns, "budget_residual")):
        most = float(abs(residual).max())
        meaning = "largest residual of energy change, gain and dissipation, over the dissipation"
        verdict = "good" if most <= LARGE_RESIDUAL else "warn"
        yield HealthCheck("energy budget", verdict, f"maximum {most:.2g}", meaning)
    loss = _LOSS.get(precision, _LOSS["single"])
    for name in (name for name in columns if name == "mass" or name.endswith("_mass")):
        values = _finite(columns, name)
        if not len(values) or values[0] == 0:
            continue
        change = float(abs(values / values[0] - 1).max())
        what = f"conservation ({name.replace('_', ' ')})"
        verdict = "good" if change <= loss else "bad"
        yield HealthCheck(
            what, verdict, f"{change:.2g}", "largest relative change since the first row"
        )
    if "max_divergence" in columns and "enstrophy" in columns:
        gradient = np.sqrt(2 * np.nanmax(columns["enstrophy"]))
        if gradient > 0:
            most = float(np.nanmax(columns["max_divergence"]) / gradient)
            meaning = "largest divergence over the root mean square vorticity"
            yield HealthCheck(
                "divergence", "good" if most < loss else "bad", f"{most:.2g}", meaning
            )
    if len(cfl := _finite(columns, "cfl")):
        yield HealthCheck(
            "CFL number", "note", f"maximum {float(cfl.max()):.3g}", "over all rows of diagnostics"
        )


def _finite(columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    values = columns.get(name, np.empty(0))
    return values[np.isfinite(values)]
