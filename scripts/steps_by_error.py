#!/usr/bin/env python3
"""The error of runs whose steps follow `time.error`, and their work, beside runs of a fixed dt.

    .venv/bin/python scripts/steps_by_error.py [CASE ...] [--asked 1e-3 1e-5] [--halvings 6] [--out FOLDER]

The error is that of a run's last state relative to a run of a far smaller dt, the largest of all
fields, over the time of the run; the work is the number of evaluations of the right-hand side, those
of rejected steps included. The best fixed dt is the one with the same error. Writes
FOLDER/steps_by_error.csv and draws FOLDER/steps_by_error.png."""

import argparse
import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import lax

from simulator import Simulation, load_config
from simulator.physics.models import State
from simulator.simulation.advance import Until
from simulator.simulation.error_control import REJECTED
from simulator.spectral.arrays import Number, Whole

EQUATIONS = Path(__file__).resolve().parent.parent / "configs" / "equations"
PARTS = '''
import jax.numpy as jnp


def front(x):
    return {"u": jnp.cos(x / 8) * (1 + jnp.sin(x / 16))}


def blow(x, y, t):
    """A gust: a force that acts for half a unit of time."""
    gust = 8 * jnp.exp(-(((t - 7) / 0.3) ** 2))
    return {"velocity": (gust * jnp.sin(2 * y) + 0 * x, 0 * (x + y))}
'''
CASES = {
    "kuramoto_sivashinsky": """\
model: {kind: python, path: EQUATIONS/kuramoto_sivashinsky.py, equation: KuramotoSivashinsky}
grid: {shape: [128], box: [32*pi]}
initial: {kind: python, path: parts.py, function: front}
time: {stop: 20, integrator: etdrk4, dt: 4}
""",
    "gray_scott": """\
model: {kind: python, path: EQUATIONS/gray_scott.py, equation: GrayScott, parameters: {feed: 0.03, kill: 0.062}}
grid: {shape: [64, 64], box: [1.25, 1.25]}
initial: {kind: python, path: EQUATIONS/gray_scott.py, function: start, parameters: {length: 1.25, width: 0.06}}
time: {stop: 200, integrator: etdrk4, dt: 20}
""",
    "korteweg_de_vries": """\
model: {kind: python, path: EQUATIONS/korteweg_de_vries.py, equation: KortewegDeVries}
grid: {shape: [128], box: [40]}
initial: {kind: python, path: EQUATIONS/korteweg_de_vries.py, function: solitons,
          parameters: {speeds: [1, 0.5], places: [10, 18]}}
time: {stop: 20, dt: 0.1}
""",
    "taylor_green": """\
model: {kind: navier_stokes, viscosity: 1/400}
grid: {shape: [32, 32, 32]}
initial: {kind: taylor_green}
time: {stop: 8, dt: 0.2}
""",
    "burst": """\
model: {kind: navier_stokes, viscosity: 1/50}
grid: {shape: [48, 48]}
initial: {kind: random, peak: 3, energy: 0.02, seed: 1}
forcing: {kind: python, path: parts.py, function: blow}
time: {stop: 8, dt: 0.1, max_dt: 0.3}
""",
}
"""With the largest fixed dt, which is then halved."""
TITLES = {
    "kuramoto_sivashinsky": "Kuramoto-Sivashinsky",
    "gray_scott": "Gray-Scott",
    "korteweg_de_vries": "Korteweg-de Vries",
    "taylor_green": "Taylor-Green vortex, Re = 400",
    "burst": "a gust",
}
PER_STEP = 4
"""Evaluations of the right-hand side in a step. A rejected step by error takes one more, and so does
the first one of a loop."""


class Run(NamedTuple):
    asked: float | None  # None: a fixed dt.
    steps: int
    rejected: int
    work: int
    error: float  # Per unit of time.


@dataclass
class Case:
    path: Path
    halvings: int

    def simulation(self, *overrides: str) -> Simulation:
        one = ("devices.platform=cpu", "devices.count=1")
        return Simulation(load_config(self.path, [*one, *overrides]), report=lambda _: None)

    @cached_property
    def fixed(self) -> Simulation:
        return self.simulation()

    @cached_property
    def exact(self) -> State:
        return self.marched(2 ** (self.halvings + 1))

    def marched(self, finer: int) -> State:
        """The last state after steps of the case's dt over `finer`."""
        run = self.fixed
        time = run.config.time
        assert time.dt is not None
        steps = round(finer * time.stop / time.dt)

        def march(state: State, dt: Number, steps: Whole) -> State:
            return lax.fori_loop(0, steps, lambda _, s: run.step(s, dt), state)

        return jax.jit(march)(run.state, jnp.float64(time.stop / steps), jnp.int64(steps))

    def error(self, state: State) -> float:
        def relative(name: str) -> Number:
            inner = self.fixed.model.transforms[name].layout.inner
            wanted = self.exact.fields[name]
            off = state.fields[name] - wanted
            return jnp.sqrt(inner(off, off).sum() / inner(wanted, wanted).sum())

        largest = max(float(relative(name)) for name in state.fields)
        return largest / self.fixed.config.time.stop

    def with_fixed_dt(self) -> Iterable[Run]:
        """Stable runs."""
        for finer in (2**n for n in range(self.halvings)):
            state = self.marched(finer)
            if (error := self.error(state)) < 0.1:
                yield Run(None, int(state.step), 0, PER_STEP * int(state.step), error)

    def by_error(self, asked: float) -> Run:
        run = self.simulation("time.dt=null", f"time.error={asked:g}")
        end = Until(np.float64(run.config.time.stop), np.inf, np.int64(1 << 40))
        state = run.advance(run.state, end)
        taken, rejected = int(state.step), int(state.memory.control[REJECTED])
        return Run(
            asked,
            taken,
            rejected,
            PER_STEP * taken + (PER_STEP + 1) * rejected + 1,
            self.error(state),
        )


def best_work(run: Run, fixed: list[Run]) -> float:
    """The work of the fixed dt with the error of `run`, between or beyond the runs of fixed dt."""
    errors, works = np.log([[r.error for r in fixed], [r.work for r in fixed]])
    below = np.clip(np.searchsorted(-errors, -np.log(run.error)), 1, len(fixed) - 1)
    slope = (works[below] - works[below - 1]) / (errors[below] - errors[below - 1])
    return float(np.exp(works[below] + slope * (np.log(run.error) - errors[below])))


def measured(case: Case, asked: list[float]) -> tuple[list[Run], list[Run]]:
    fixed = list(case.with_fixed_dt())
    runs = []
    for error in asked:
        run = case.by_error(error)
        runs.append(run)
        ratios = f"{run.error / error:.2f} of it", f"{run.work / best_work(run, fixed):.2f}"
        print(
            f"{case.path.stem}: asked {error:g}, reached {ratios[0]}; {run.steps} steps, "
            f"{run.rejected} rejected; work / that of the best fixed dt {ratios[1]}",
            flush=True,
        )
    return runs, fixed


Results = dict[str, tuple[list[Run], list[Run]]]


def draw(results: Results, path: Path) -> None:
    """The errors over the work, a panel for each case."""
    figure, axes = plt.subplots(
        1, len(results), figsize=(3.1 * len(results), 3.0), squeeze=False, layout="constrained"
    )
    for (name, (runs, fixed)), axis in zip(results.items(), axes[0], strict=True):
        axis.loglog(
            [r.work for r in fixed], [r.error for r in fixed], "s-", color="0.6", label="fixed dt"
        )
        axis.loglog([r.work for r in runs], [r.error for r in runs], "o-", label="time.error")
        for run in runs:
            axis.plot(run.work, run.asked, "k_", ms=9)
        axis.plot([], [], "k_", ms=9, label="asked")
        axis.set(title=TITLES.get(name, name), xlabel="evaluations of the right-hand side")
    axes[0, 0].set(ylabel="relative error per unit of time")
    axes[0, 0].legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=[*CASES], metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--asked", type=float, nargs="*", default=[1e-3, 1e-4, 1e-5, 1e-6, 1e-7])
    parser.add_argument("--halvings", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("outputs/steps_by_error"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "parts.py").write_text(PARTS)
    results: Results = {}
    for name in given.cases:
        path = given.out / f"{name}.yaml"
        path.write_text(CASES[name].replace("EQUATIONS", str(EQUATIONS)))
        results[name] = measured(Case(path, given.halvings), given.asked)
    with (given.out / "steps_by_error.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["case", *Run._fields, "best_fixed_work"])
        for name, (runs, fixed) in results.items():
            table.writerows([name, *run, round(best_work(run, fixed))] for run in runs)
            table.writerows([name, *run, ""] for run in fixed)
    draw(results, given.out / "steps_by_error.png")
    print(given.out / "steps_by_error.png")


if __name__ == "__main__":
    main()
