#!/usr/bin/env python
"""Compares a finished run of the Taylor-Green vortex at Re = 1600 with published spectral data, and
draws the figure of the front page.

    simulator run configs/taylor_green_re1600.yaml
    scripts/taylor_green_curve.py outputs/taylor_green_re1600

Writes scripts/measured/validation/taylor_green_re1600.json (date, commit, machine and command of the run from
its provenance, and the largest differences), taylor_green_re1600.csv beside it (each row of the run
and the published values at its time) and simulator/docs/assets/taylor_green_re1600.png. --numbers
FOLDER and --picture FILE name other places. `scripts/how_we_know.py` then writes the numbers into the
page "How we know"."""

import argparse
import csv
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from simulator.archive import provenance
from simulator.config import load_config
from simulator.files import read_json, replace_file
from simulator.plugins.pictures.style import WIDTH, draw, figure
from simulator.plugins.validation.taylor_green import REFERENCE, VAN_REES

ROOT = Path(__file__).resolve().parents[1]
NAME = "taylor_green_re1600"
QUANTITIES = ("energy", "dissipation", "enstrophy")
SYMBOLS = (r"$E$", r"$\epsilon$", r"$\langle \omega^2 \rangle / 2$")

Rows = Mapping[str, np.ndarray]


def rows_of(run: Path) -> dict[str, np.ndarray]:
    """The columns of the run up to the last published time."""
    with (run / "diagnostics.csv").open(newline="") as stream:
        rows = [{name: float(v) for name, v in row.items()} for row in csv.DictReader(stream)]
    reached = [row for row in rows if row["time"] <= REFERENCE[-1, 0]]
    return {name: np.array([row[name] for row in reached]) for name in reached[0]}


def published(time: np.ndarray) -> dict[str, np.ndarray]:
    """Published values, interpolated linearly: the rows are 0.01 apart, and by their second
    differences the error is below 2e-5 of the largest value."""
    columns = zip(QUANTITIES, REFERENCE.T[1:], strict=True)
    return {name: np.interp(time, REFERENCE[:, 0], values) for name, values in columns}


def peak(time: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Time and value at the vertex of the parabola through the largest value and its neighbours."""
    i = int(np.clip(values.argmax(), 1, len(values) - 2))
    near = slice(i - 1, i + 2)
    a, b, c = np.polyfit(time[near] - time[i], values[near], 2)
    at = -b / (2 * a)
    return {"time": float(time[i] + at), "value": float(np.polyval((a, b, c), at))}


def differences(rows: Rows) -> dict[str, Any]:
    """For each quantity the largest difference of a row, relative to the published value there and to
    the largest published one, and the peaks of both curves."""
    known = published(rows["time"])
    results: dict[str, Any] = {}
    for name, (column, values) in zip(QUANTITIES, enumerate(known.values(), 1), strict=True):
        error = rows[name] - values
        worst = int(abs(error / values).argmax())
        results[name] = {
            "largest": float(abs(error / values)[worst]),
            "at": float(rows["time"][worst]),
            "of_maximum": float(abs(error).max() / REFERENCE[:, column].max()),
        }
        if name != "energy":
            here = peak(rows["time"], rows[name])
            there = peak(REFERENCE[:, 0], REFERENCE[:, column])
            results[name] |= {"peak": here, "published_peak": there}
            results[name]["at_peak"] = abs(here["value"] / there["value"] - 1)
    return results


def record(run: Path, rows: Rows) -> dict[str, Any]:
    """The numbers of the page: all but the differences are read from what the run recorded."""
    start = provenance.read(run)
    state = read_json(run / "state.json")
    config = load_config(run / "config.yaml", check_files=False)
    return {
        "measured": {
            "date": start["started"][:10],
            "version": start["versions"]["simulator"],
            "commit": start["git"]["commit"] if start["git"] else None,
            "processor": start["host"]["processor"],
            "devices": start["devices"],
            "command": shlex.join(start["command"]),
            "seconds": state["seconds"],
        },
        "shape": list(config.grid.shape),
        "dealias": config.grid.dealias,
        "precision": config.precision,
        "rows": len(rows["time"]),
        "last": float(rows["time"][-1]),
        "k_max_eta": float(rows["k_max_eta"].min()),
        "source": VAN_REES,
        "differences": differences(rows),
    }


def table(rows: Rows) -> str:
    known = published(rows["time"])
    head = ["time", *(f"{name}{of}" for name in QUANTITIES for of in ("", "_published"))]
    lines = [
        [rows["time"][i], *(v for name in QUANTITIES for v in (rows[name][i], known[name][i]))]
        for i in range(len(rows["time"]))
    ]
    return (
        "\n".join([",".join(head), *(",".join(f"{v:.9g}" for v in line) for line in lines)]) + "\n"
    )


def picture(rows: Rows, about: Mapping[str, Any]) -> Figure:
    known = published(rows["time"])
    drawn = figure(WIDTH, 5.2)
    panels = drawn.subplots(2, 2, sharex=True).ravel()
    drawn.subplots_adjust(left=0.12, right=0.98, top=0.87, bottom=0.1, wspace=0.32, hspace=0.12)
    here = f"this program, {' × '.join(map(str, about['shape']))}"
    few = slice(None, None, 50)
    marks = {"markersize": 3, "color": "black", "label": "van Rees et al. (2011), 512³"}
    for axes, name, symbol, reference in zip(
        panels, QUANTITIES, SYMBOLS, REFERENCE.T[1:], strict=False
    ):
        axes.plot(rows["time"], rows[name], label=here)
        axes.plot(REFERENCE[few, 0], reference[few], "o", **marks)
        axes.set_ylabel(symbol)
        difference = abs(rows[name] - known[name]) / reference.max()
        panels[3].semilogy(rows["time"][1:], difference[1:], label=symbol)
    panels[3].set(ylabel="difference / largest value", ylim=(1e-10, 1e-1))
    panels[3].legend(loc="lower right")
    for axes in panels[2:]:
        axes.set_xlabel("time $t$")
    drawn.suptitle("Taylor-Green vortex, Re = 1600")
    drawn.legend(*panels[0].get_legend_handles_labels(), loc=(0.16, 0.885), ncols=2)
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's folder")
    parser.add_argument(
        "--numbers", metavar="FOLDER", type=Path, default=ROOT / "scripts/measured/validation"
    )
    what = ROOT / "simulator/docs/assets" / f"{NAME}.png"
    parser.add_argument("--picture", metavar="FILE", type=Path, default=what)
    args = parser.parse_args(arguments)
    state = read_json(args.run / "state.json").get("state")
    if state != "finished":
        parser.error(f"{args.run}: the run is not finished (state: {state})")
    rows = rows_of(args.run)
    about = record(args.run, rows)
    args.numbers.mkdir(parents=True, exist_ok=True)
    replace_file(args.numbers / f"{NAME}.json", json.dumps(about, indent=1) + "\n")
    replace_file(args.numbers / f"{NAME}.csv", table(rows))
    draw(partial(picture, rows, about), args.picture)
    print(json.dumps(about["differences"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
