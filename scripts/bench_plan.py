#!/usr/bin/env python3
"""The planned duration of a step beside the measured one, for every model, on this machine's processors.

    .venv/bin/python scripts/bench_plan.py [--shapes 32,64,128] [--devices 1,2] [--models all] [--cpu-time]

With --cpu-time both sides are in seconds that this process had of each device's core: for a machine on which others
are at work. The table is that of simulator/docs/internals/planning.md.
"""

import argparse
import time
from pathlib import Path

from simulator.check.planned import compare
from simulator.config import load_config
from simulator.plan.abstract_run import prepare_virtual_devices
from simulator.processes import environment

CONFIGS = {
    "navier_stokes": "taylor_green",
    "boussinesq": "stratified",
    "mhd": "orszag_tang",
    "self_gravitating_gas": "self_gravitating_turbulence",
    "schrodinger_poisson": "fuzzy_dark_matter_box",
    "composite": "gas_and_waves",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="32,64,128", help="points along an axis (default: 32,64,128)")
    parser.add_argument("--devices", default="1,2", help="numbers of devices (default: 1,2)")
    parser.add_argument("--models", default=",".join(CONFIGS), help="default: all")
    parser.add_argument("--cpu-time", action="store_true", help="time the processor's work, not the clock")
    args = parser.parse_args()
    prepare_virtual_devices()
    environment.apply("cpu", print)
    sides, counts = ([int(n) for n in text.split(",")] for text in (args.shapes, args.devices))
    cases = [(devices, precision) for devices in counts for precision in ("double", "single")]
    heads = [f"{precision}, {devices}" for devices, precision in cases]
    rows: dict[tuple[str, int], list[str]] = {(m, n): [] for m in args.models.split(",") for n in sides}
    ratios = []
    for devices, precision in cases:

        def clock(devices: int = devices) -> float:
            return time.process_time() / devices if args.cpu_time else time.perf_counter()

        for side in sides:  # those of all sides together would not fit in memory
            given = {name: config_of(name, side, precision) for name, n in rows if n == side}
            for name, found in compare(given, devices, precision, clock).items():
                planned, measured = 1e3 * found.planned.all, 1e3 * found.measured
                rows[name, side].append(f"{planned:.3g} / {measured:.3g} = {found.ratio:.2f}")
                ratios.append(found.ratio)
                print(f"{name} {side} {precision} {devices}: {rows[name, side][-1]}", flush=True)
    print("\n| model | grid | " + " | ".join(heads) + " |\n" + "| --- " * (2 + len(heads)) + "|")
    for (name, side), row in rows.items():
        print(f"| `{name}` | {side}³ | " + " | ".join(row) + " |")
    print(f"\nplanned over measured: {min(ratios):.2f} to {max(ratios):.2f}")


def config_of(model: str, side: int, precision: str):
    file = Path(__file__).resolve().parents[1] / "configs" / f"{CONFIGS[model]}.yaml"
    cfl = 0.1 if model == "self_gravitating_gas" else 0.4  # coarse grids do not follow its shocks for long
    return load_config(
        file, [f"grid.shape={side},{side},{side}", f"precision={precision}", f"time.cfl={cfl}"]
    )


if __name__ == "__main__":
    main()
