#!/usr/bin/env python3
"""Compares an ensemble stepped together with its runs one by one: total wall time of `simulator
sweep run`.

    scripts/bench_ensemble.py [--runs 16] [--shape 32] [--stop 1.0] [--json FILE]

The runs differ in viscosity and in the amplitude of the Taylor-Green vortex. Each variant starts
with its own empty compile cache, and its time includes everything that a run does: start-up,
compilation, diagnostics, spectra, snapshots, checkpoints. "again" is a repetition with the caches
of the first time. The aim is a ratio of at most 0.5."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BASE = """\
name: ensemble
model: {{kind: navier_stokes, viscosity: 1}}
grid: {{shape: [{n}, {n}, {n}]}}
initial: {{kind: taylor_green}}
time: {{stop: {stop}, cfl: 0.5}}
devices: {{platform: {platform}}}
output: {{directory: out, diagnostics: {{every: 0.1}}, spectra: {{every: 0.5}}}}
"""
STUDY = """\
base: base.yaml
name: {name}
sweep: {{sample: {{n: {runs}, seed: 1, parameters: {{
  model.viscosity: {{log_uniform: [0.005, 0.05]}}, initial.amplitude: {{uniform: [0.5, 2]}}}}}}}}
collect: [final.energy, max.dissipation]
"""


def main() -> int:
    arguments = _arguments()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    seconds: dict[str, list[float]] = {}
    tables: dict[str, list[dict[str, float]]] = {}
    ways = {"one by one": [], "together": ["--batch", "auto"]}
    first, second = ways
    with tempfile.TemporaryDirectory() as folder:
        for way, options in ways.items():
            cache = {"SIMULATOR_CACHE": f"{folder}/cache {way}"}
            places = [Path(folder) / f"{way} {attempt}" for attempt in range(2)]
            for where in places:
                where.mkdir()
                _write(where, arguments)
                began = time.monotonic()
                _sweep(where, environ | cache, "run", *options)
                seconds.setdefault(way, []).append(time.monotonic() - began)
            _sweep(places[-1], environ, "table", "--json", "table.json")
            tables[way] = json.loads((places[-1] / "table.json").read_text())
    difference = _difference(tables[first], tables[second])
    print(
        f"{arguments.runs} runs of {arguments.shape}^3 to t = {arguments.stop:g}; seconds of wall time"
    )
    print(f"{'':12}{first:>12}{second:>12}{'ratio':>8}")
    for attempt, name in enumerate(("first", "again")):
        one, together = (seconds[way][attempt] for way in ways)
        print(f"{name:12}{one:12.1f}{together:12.1f}{together / one:8.2f}")
    print(f"largest relative difference of energies and dissipations: {difference:.1e}")
    if arguments.json:
        content = {"seconds": seconds, "difference": difference, **vars(arguments)}
        Path(arguments.json).write_text(json.dumps(content, indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--shape", type=int, default=32)
    parser.add_argument("--stop", type=float, default=1.0)
    parser.add_argument("--platform", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    return parser.parse_args()


def _write(folder: Path, arguments: argparse.Namespace) -> None:
    base = BASE.format(n=arguments.shape, stop=arguments.stop, platform=arguments.platform)
    (folder / "base.yaml").write_text(base)
    (folder / "study.yaml").write_text(STUDY.format(name="study", runs=arguments.runs))


def _sweep(folder: Path, environ: dict[str, str], command: str, *options: str) -> None:
    words = [sys.executable, "-m", "simulator", "sweep", command, "study.yaml", *options]
    done = subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def _difference(one: list[dict[str, float]], other: list[dict[str, float]]) -> float:
    values = np.array(
        [
            [[row[name] for name in ("final.energy", "max.dissipation")] for row in table]
            for table in (one, other)
        ]
    )
    return float(np.abs(values[0] / values[1] - 1).max())


if __name__ == "__main__":
    sys.exit(main())
