"""Checks whether a run can be trusted: its resolution, energy budget, conserved quantities, and its
end."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.archive.open_run import Run
from simulator.archive.run_state import RunState
from simulator.physics.resolution_columns import (
    LARGE_STEP,
    UNDER_RESOLVED,
    UNRESOLVED,
    judged,
    uniform_scalars,
)
from simulator.plugins.pictures.page import Cell, Verdict
from simulator.plugins.pictures.runs import table_of
from simulator.registry import Registry

LARGE_RESIDUAL = 1e-2
"""The residual of the energy budget, as a fraction of the dissipation, above which the check
warns; above 1 the budget is wrong."""
FAR_ABOVE = 2.0
"""The ratio of the largest CFL number to its limit above which a run cannot be trusted."""
STEADY = 0.1
"""The relative change of mean energy and mean dissipation, from the third quarter of a run to the
last, up to which a flow counts as stationary."""
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


def checks(run: Run, state: RunState | None) -> list[HealthCheck]:
    """All checks that apply to the run in `state`, which a running one replaces meanwhile."""
    columns = table_of(run)
    log = dict.fromkeys(_WARNING.findall(log_of(run)))
    # These warnings were written before the worst row; the checks below are of all rows.
    warnings = [text for text in log if UNRESOLVED not in text and LARGE_STEP not in text]
    precision = str(run.config.get("precision", "double"))
    results = [*_how_it_ended(run, state)]
    for health in REPORTS.beginning_with("health.").values():
        results += [HealthCheck(*fields) for fields in health(run)]
    if len(columns.get("time", ())):
        results += [*_resolution(columns), *_balances(columns, precision)]
        results += _conservation(columns, run.provenance.get("conserved", ()), precision)
        failed = state is not None and state.state == "failed"
        results += _step(columns, log, failed)
        results += [] if failed else _stationarity(columns)
    results += [HealthCheck("warning", "warn", "", text) for text in warnings]
    return results


def worst(checks: list[HealthCheck]) -> Verdict:
    """The worst verdict: `bad` before `warn` before `good`."""
    verdicts = {check.verdict for check in checks}
    return "bad" if "bad" in verdicts else "warn" if "warn" in verdicts else "good"


def _how_it_ended(run: Run, state: RunState | None) -> Iterator[HealthCheck]:
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
            meaning = field.measure.criterion
            if field.verdict in ("warn", "bad"):
                part = field.measure.part.replace("its", f"{field.measure.field}'s", 1)
                meaning += f"; up to {field.lost.max():.1%} {part}"
            elif field.verdict == "note":
                meaning += "; the cascade did not reach the grid's edge"
        name = f"resolution ({field.measure.column})"
        value = f"{field.least}, now {field.number(-1)}"
        yield HealthCheck(name, field.verdict, value, meaning)
    for scalar in uniform_scalars(columns):
        where = "uniform" if columns[f"{scalar}_mean"].any() else "zero everywhere"
        line = f"{scalar} is {where}: give initial.scalars or a mean_gradient"
        yield HealthCheck(f"scalar ({scalar})", "note", "", line)


def _stationarity(columns: Mapping[str, np.ndarray]) -> Iterator[HealthCheck]:
    """Whether energy and dissipation of a flow have stopped changing: their means over the last two
    quarters of the run, if these last long enough."""
    known = changes(columns, 0.5)
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


def changes(columns: Mapping[str, np.ndarray], since: float) -> dict[str, float]:
    """The relative changes of mean energy and dissipation, where these are positive, from the first
    half to the second of the time after the fraction `since`."""
    times = columns["time"]
    found = {}
    for name in ("energy", "dissipation"):
        values = columns.get(name, np.empty(0))
        bounds = np.searchsorted(
            times, times[0] + np.ptp(times) * np.array([since, (1 + since) / 2])
        )
        first, last = (each[np.isfinite(each)] for each in np.split(values, bounds)[1:])
        if len(first) and len(last) and first.mean() > 0:
            found[name] = float(last.mean() / first.mean() - 1)
    return found


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
        verdict = "good" if most <= LARGE_RESIDUAL else "warn" if most <= 1 else "bad"
        yield HealthCheck("energy budget", verdict, f"maximum {most:.2g}", meaning)
    loss = _LOSS.get(precision, _LOSS["single"])
    if {"max_divergence", "enstrophy"} <= columns.keys():
        most, gradient = columns["max_divergence"].max(), np.sqrt(2 * columns["enstrophy"].max())
        if gradient != 0:
            value = f"{most / gradient:.2g}" if np.isfinite(most + gradient) else "not finite"
            meaning = "largest divergence over the root mean square vorticity"
            verdict = "good" if most < loss * gradient < np.inf else "bad"
            yield HealthCheck("divergence", verdict, value, meaning)


def _step(
    columns: Mapping[str, np.ndarray], warnings: Iterable[str], failed: bool
) -> Iterator[HealthCheck]:
    """The largest CFL number, marked where the log warns of it, because `time.dt` exceeds the limit
    of `time.cfl`."""
    if not (cfl := _finite(columns, "cfl")).any():  # 0 without a velocity
        return
    most = float(cfl.max())
    verdict = "note"
    meaning = "over all rows of diagnostics"
    for limit in (text.partition(LARGE_STEP)[2].partition(",")[0] for text in warnings):
        if limit:
            verdict = "bad" if failed or most > FAR_ABOVE * float(limit) else "warn"
            meaning = f"the limit of the integrator is {limit}; use a smaller time.dt, or time.cfl"
    yield HealthCheck("CFL number", verdict, f"maximum {most:.3g}", meaning)


def _conservation(
    columns: Mapping[str, np.ndarray], names: Iterable[str], precision: str
) -> Iterator[HealthCheck]:
    """The columns that the model declares as conserved."""
    loss = _LOSS.get(precision, _LOSS["single"])
    for name in names:
        values = _finite(columns, name)
        if len(values) and values[0] != 0:
            change = float(abs(values / values[0] - 1).max())
            what = f"conservation ({name.replace('_', ' ')})"
            meaning = "largest relative change since the first row"
            yield HealthCheck(what, "good" if change <= loss else "bad", f"{change:.2g}", meaning)


def _finite(columns: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    values = columns.get(name, np.empty(0))
    return values[np.isfinite(values)]
