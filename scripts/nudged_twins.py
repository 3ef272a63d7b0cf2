#!/usr/bin/env python3
"""Twins of forced turbulence that begin with another flow and are nudged to a stored run below a
wavenumber k_c: which of them synchronise, and how fast.

    .venv/bin/python scripts/nudged_twins.py [--points 48] [--stop 8] [--below 1.2 2.4 3.6] [--out FOLDER]

Yoshida, Yamaguchi & Kaneda, Phys. Rev. Lett. 94, 014501 (2005): the small scales follow the large
ones if k_c eta >= 0.2, with the dissipation length eta of the stored run, and do not at 0.1. Prints
k_c eta, the relative error at the end and its rate of change in units of the Kolmogorov time tau_eta,
fitted over the second half of the fall, and draws FOLDER/nudged_twins.png."""

import argparse
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from simulator import Simulation, open_run
from simulator.archive.open_run import Run

FLOOR = 2e-3
"""Errors below this may be those of the interpolation in time, and are not fitted."""


def configured(folder: Path, points: int, viscosity: float, stop: float, **blocks: Any) -> Run:
    """The run of forced turbulence in a folder, continued or run now."""
    force = {"kind": "ornstein_uhlenbeck", "rate": 0.5, "correlation_time": 0.8, "seed": 3}
    output = {"directory": str(folder), **blocks.pop("output")}
    simulation = Simulation(
        model={"kind": "navier_stokes", "viscosity": viscosity},
        grid={"shape": [points] * 3},
        forcing=force | {"band": [1, 2]},
        time={"stop": stop, "dt": 0.0125},  # the random force is drawn for each step
        devices={"platform": "cpu", "count": 1},
        output=output,
        report=lambda line: None,
        **blocks,
    )
    if simulation.run():
        raise SystemExit(f"{folder}: did not end")
    return open_run(folder)


def error(run: Run, reference: Run) -> tuple[np.ndarray, np.ndarray]:
    """Times of the run's snapshots, and their distance to the reference over its velocity."""
    stored = {round(s.attributes["time"], 6): s for s in reference.snapshots[:]}
    times: list[float] = []
    errors: list[float] = []
    for snapshot in run.snapshots[:]:
        time = round(float(snapshot.attributes["time"]), 6)
        wanted = np.asarray(stored[time]["velocity"])
        difference = np.asarray(snapshot["velocity"]) - wanted
        times.append(time)
        errors.append(float(np.sqrt((difference**2).mean() / (wanted**2).mean())))
    return np.array(times), np.array(errors)


def rate(times: np.ndarray, errors: np.ndarray) -> float:
    """The rate of ln(error) in the second half of the time in which it is above FLOOR."""
    above = times[errors > FLOOR]
    late = (times >= above[-1] / 2) & (errors > FLOOR)
    return float(np.polyfit(times[late], np.log(errors[late]), 1)[0])


def draw(curves: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    """The errors over time."""
    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    for name, (times, errors) in curves.items():
        axis.semilogy(times, errors, label=name.replace("k_c eta", r"$k_c \eta$"))
    axis.set(xlabel=r"t / $\tau_\eta$", ylabel="error / velocity of the stored run")
    axis.legend()
    figure.savefig(path, bbox_inches="tight", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=48)
    parser.add_argument("--viscosity", type=float, default=0.027)
    parser.add_argument("--spin-up", type=float, default=6.0)
    parser.add_argument("--stop", type=float, default=8.0)
    parser.add_argument("--below", type=float, nargs="*", default=[1.2, 2.4, 3.6, 4.8])
    parser.add_argument("--out", type=Path, default=Path("outputs/nudged_twins"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    flow = (given.points, given.viscosity)
    early = {"snapshots": {"every": given.spin_up / 2}}
    start = {"kind": "random", "spectrum": "pao", "peak": 2, "energy": 1.0, "seed": 1}
    before = configured(given.out / "spin_up", *flow, given.spin_up, initial=start, output=early)
    paths = [str(snapshot.path) for snapshot in before.snapshots[:]]
    often = {"snapshots": {"every": 0.05}, "diagnostics": {"every": 0.05}}
    stored = given.out / "stored"
    first = {"kind": "snapshot", "path": paths[-1]}
    reference = configured(stored, *flow, given.stop, initial=first, output=often)
    dissipation = reference.diagnostics["dissipation"].mean()
    eta = (given.viscosity**3 / dissipation) ** 0.25
    unit = (given.viscosity / dissipation) ** 0.5
    speed = (2 * reference.diagnostics["kinetic_energy"].mean() / 3) ** 0.5
    reynolds = speed**2 * (15 / (given.viscosity * dissipation)) ** 0.5
    k_max = (given.points - 1) // 3
    print(
        f"Re_lambda {reynolds:.0f}, eta {eta:.4f}, k_max eta {k_max * eta:.2f}, tau_eta {unit:.3f}"
    )
    curves = {}
    for below in given.below:
        target = {"velocity": {"series": str(stored)}}
        nudge = {"name": "nudge", "kind": "relax", "relaxation_time": 0.02, "target": target}
        run = configured(
            given.out / f"below_{below:g}",
            *flow,
            given.stop,
            initial={"kind": "snapshot", "path": paths[-2]},
            terms=[nudge | {"below": below}],
            output={"snapshots": {"every": 0.25}, "diagnostics": {"every": 0.25}},
        )
        times, errors = error(run, reference)
        slope = rate(times, errors) * unit
        name = f"k_c eta = {below * eta:.2f}"
        print(
            f"k_c = {below:g}, {name}: error {errors[-1]:.2e}, rate {slope:.3f} / tau_eta",
            flush=True,
        )
        curves[name] = times / unit, errors
    draw(curves, given.out / "nudged_twins.png")
    print(given.out / "nudged_twins.png")


if __name__ == "__main__":
    main()
