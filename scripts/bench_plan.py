#!/usr/bin/env python3
"""Compares the planned with the measured duration of a step, for every model, on this machine's
processors.

    .venv/bin/python scripts/bench_plan.py [--shapes 64,128] [--devices 1,2] [--models all]
        [--measured 32] [--cpu-time]

A plan measures the run's own step on a grid of at most --measured points along an axis (128 in
`simulator plan`) and extrapolates to larger grids. --cpu-time compares seconds of processor time
per device, for a machine on which other programs run. simulator/docs/internals/planning.md holds
the table."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax

from simulator import Simulation
from simulator.cluster import discover, environment
from simulator.cluster.start import Cluster
from simulator.config import RunConfig, load_config
from simulator.plan import Step, this_machine
from simulator.plan.measured import TimedSteps
from simulator.plan.step_time import step_seconds
from simulator.simulation.abstract_run import prepare_virtual_devices

CONFIGS = {
    "navier_stokes": "taylor_green",
    "boussinesq": "stratified",
    "mhd": "orszag_tang",
    "self_gravitating_gas": "self_gravitating_turbulence",
    "schrodinger_poisson": "fuzzy_dark_matter_box",
    "composite": "gas_and_waves",
}


class Compared(NamedTuple):
    """The planned and the measured duration of a step, in seconds."""

    planned: float
    measured: float

    @property
    def ratio(self) -> float:
        return self.planned / self.measured


def compare(config: RunConfig, devices: int, clock: Callable[[], float], largest: int) -> Compared:
    """Plan a step with `this_machine`, and measure it."""
    machine = this_machine(config, devices, clock, largest)
    cluster = Cluster(discover({}), "cpu", tuple(jax.devices("cpu")[:devices]))
    steps = TimedSteps(Simulation(config, cluster=cluster, report=lambda line: None), clock)
    return Compared(step_seconds(Step(config, devices).work, machine).all, steps.time())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="64,128", help="points along an axis (default: 64,128)")
    parser.add_argument("--devices", default="1,2", help="numbers of devices (default: 1,2)")
    parser.add_argument("--models", default=",".join(CONFIGS), help="default: all")
    parser.add_argument(
        "--measured", type=int, default=32, help="points that a plan measures (default: 32)"
    )
    parser.add_argument(
        "--cpu-time", action="store_true", help="time the processor's work, not the clock"
    )
    args = parser.parse_args()
    prepare_virtual_devices()
    environment.apply("cpu", print)
    sides, counts = ([int(n) for n in text.split(",")] for text in (args.shapes, args.devices))
    cases = [(devices, precision) for devices in counts for precision in ("double", "single")]
    heads = [f"{precision}, {devices}" for devices, precision in cases]
    rows: dict[tuple[str, int], list[str]] = {
        (m, n): [] for m in args.models.split(",") for n in sides
    }
    ratios = []
    for devices, precision in cases:

        def clock(devices: int = devices) -> float:
            return time.process_time() / devices if args.cpu_time else time.perf_counter()

        for name, side in rows:
            compared = compare(config_of(name, side, precision), devices, clock, args.measured)
            planned = 1e3 * compared.planned
            measured = 1e3 * compared.measured
            rows[name, side].append(f"{planned:.3g} / {measured:.3g} = {compared.ratio:.2f}")
            ratios.append(compared.ratio)
            print(f"{name} {side} {precision} {devices}: {rows[name, side][-1]}", flush=True)
    print("\n| model | grid | " + " | ".join(heads) + " |\n" + "| --- " * (2 + len(heads)) + "|")
    for (name, side), row in rows.items():
        print(f"| `{name}` | {side}³ | " + " | ".join(row) + " |")
    print(f"\nplanned over measured: {min(ratios):.2f} to {max(ratios):.2f}")


def config_of(model: str, side: int, precision: str):
    file = Path(__file__).resolve().parents[1] / "configs" / f"{CONFIGS[model]}.yaml"
    # coarse grids do not follow its shocks for long
    cfl = 0.1 if model == "self_gravitating_gas" else 0.4
    return load_config(
        file, [f"grid.shape={side},{side},{side}", f"precision={precision}", f"time.cfl={cfl}"]
    )


if __name__ == "__main__":
    main()
