"""Validation cases, whose computed numbers are compared with a source, and the table of a
validation on the console, as Markdown and as JSON, with plots of the curves."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from simulator import Simulation
from simulator.config import run_config_class
from simulator.files import replace_file
from simulator.physics.models import State


@dataclass(frozen=True)
class Check:
    """One number, which passes if |measured - expected| <= allowed; relative to the expected value
    unless `absolute`."""

    quantity: str
    expected: float
    measured: float
    allowed: float
    source: str
    absolute: bool = False

    @property
    def error(self) -> float:
        """Absolute, or relative to the expected value."""
        difference = abs(self.measured - self.expected)
        return difference if self.absolute else difference / abs(self.expected)

    @property
    def passed(self) -> bool:
        return bool(np.isfinite(self.measured) and self.error <= self.allowed)


@dataclass(frozen=True)
class Curve:
    """A measured curve, and points of a reference."""

    name: str
    x: np.ndarray
    y: np.ndarray
    reference_x: np.ndarray
    reference_y: np.ndarray
    labels: tuple[str, str]
    source: str


@dataclass(frozen=True)
class Result:
    checks: Sequence[Check]
    curves: Sequence[Curve] = ()


@dataclass(frozen=True)
class Case:
    name: str
    what: str
    """A description in one line."""
    run: Callable[[], Result]
    full: bool = False
    """Whether only `--full` runs it, because it needs a GPU or a night."""


def simulation(
    model: dict[str, Any], initial: dict[str, Any], shape: Sequence[int], **blocks: Any
) -> Simulation:
    """A simulation on all available devices, without a run folder."""
    grid = {"shape": list(shape), **blocks.pop("grid", {})}
    config = {"model": model, "initial": initial, "grid": grid, "time": {"stop": 1.0}, **blocks}
    return Simulation(run_config_class().model_validate(config))


def march(
    simulation: Simulation, dt: float, steps: int, every: int = 0
) -> tuple[State, dict[str, np.ndarray]]:
    """The state after `steps` steps, and the diagnostics by name at the first, the last and every
    `every`-th step."""
    step = jax.jit(simulation.step)
    state = simulation.state
    rows = []
    for number in range(steps + 1):
        if number in (0, steps) or (every and number % every == 0):
            row = jax.device_get(simulation.diagnostics(state))
            rows.append({"time": float(state.time), **{name: float(v) for name, v in row.items()}})
        if number < steps:
            state = step(state, dt)
    return state, {name: np.array([row[name] for row in rows]) for name in rows[0]}


def followed(
    simulation: Simulation, dt: float, steps: int, measure: Callable[[State], jax.Array]
) -> tuple[np.ndarray, Any]:
    """The times of the initial state and of all steps, and the values of `measure` at these
    times."""
    step = jax.jit(simulation.step)
    measure = jax.jit(measure)
    state = simulation.state
    values = []
    for number in range(steps + 1):
        values.append(complex(measure(state)))
        if number < steps:
            state = step(state, dt)
    return dt * np.arange(steps + 1), np.array(values)


def with_fields(simulation: Simulation, **fields: jax.Array) -> State:
    """The initial state with the given fields replaced."""
    state = simulation.state
    kind = next(iter(state.fields.values())).dtype
    hold = simulation.transform.layout.constrain
    held = {n: hold(f.astype(kind)) for n, f in fields.items()}
    return replace(state, fields={**state.fields, **held})


HEADER = ("case", "quantity", "expected", "measured", "error", "allowed", "")


@dataclass(frozen=True)
class CaseOutcome:
    case: Case
    result: Result
    seconds: float

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.result.checks)


def row(case: str, check: Check) -> tuple[str, ...]:
    kind = "" if check.absolute else " rel"
    values = f"{check.expected:.10g}", f"{check.measured:.10g}"
    numbers = *values, f"{check.error:.2g}{kind}", f"{check.allowed:.2g}"
    return (case, check.quantity, *numbers, "pass" if check.passed else "MISS")


def write(folder: Path, outcomes: Sequence[CaseOutcome]) -> list[Path]:
    """`validation.md`, `validation.json` and a picture of each curve; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = [curve for outcome in outcomes for curve in outcome.result.curves]
    from simulator.plugins.pictures.style import draw  # the tests use cases without pictures

    files = [draw(partial(_picture, curve), folder / f"{curve.name}.png") for curve in curves]
    markdown = folder / "validation.md"
    table = folder / "validation.json"
    replace_file(markdown, _markdown(outcomes))
    replace_file(table, json.dumps([_entry(outcome) for outcome in outcomes], indent=1) + "\n")
    return [markdown, table, *files]


def _markdown(outcomes: Sequence[CaseOutcome]) -> str:
    header = (*HEADER[:-1], "", "source")
    rows = [(*row(o.case.name, check), check.source) for o in outcomes for check in o.result.checks]
    table = [f"| {' | '.join(r)} |" for r in (header, ("---",) * len(header), *rows)]
    cases = [f"- `{o.case.name}`: {o.case.what} ({o.seconds:.1f} s)" for o in outcomes]
    pictures = [f"![{c.name}]({c.name}.png)" for o in outcomes for c in o.result.curves]
    return "\n".join(["# Validation", "", *table, "", *cases, "", *pictures]) + "\n"


def _entry(outcome: CaseOutcome) -> dict[str, Any]:
    checks = [{**asdict(c), "error": c.error, "passed": c.passed} for c in outcome.result.checks]
    case = outcome.case
    return {"case": case.name, "what": case.what, "seconds": outcome.seconds, "checks": checks}


def _picture(curve: Curve) -> Figure:
    from simulator.plugins.pictures.style import WIDTH, figure

    result = figure(WIDTH, 3.6)
    axes = result.subplots()
    result.subplots_adjust(left=0.15, right=0.97, top=0.9, bottom=0.15)
    axes.plot(curve.x, curve.y, label="this program")
    axes.plot(
        curve.reference_x, curve.reference_y, "o", markersize=4, color="black", label="reference"
    )
    axes.set(xlabel=curve.labels[0], ylabel=curve.labels[1])
    axes.set_title(curve.source, fontsize=9)
    axes.legend()
    return result
