"""The page about an assimilation: how well the flow fits, the flow beside the observations, and its
uncertainty."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from simulator.files import read_json, replace_file
from simulator.plugins.assimilation.assimilation import HISTORY, RECORD, RESULT
from simulator.plugins.pictures import page
from simulator.plugins.pictures.lines import DrawnCurve, plotted
from simulator.plugins.pictures.style import draw, figure
from simulator.words import duration


def report_assimilation(folder: Path) -> Path:
    """Draws the pictures of the finished assimilation in `folder`, and writes its report.html."""
    record = read_json(folder / RECORD)
    rows = list(csv.DictReader((folder / HISTORY).read_text().splitlines()))
    with np.load(folder / RESULT) as stored:
        result = dict(stored)
    plots = folder / "plots"
    text = "Misfit, in standard deviations: noise alone gives 1"
    captioned = [(draw(lambda: _history(rows, result), plots / "misfit.png"), text)]
    if "image" in result:
        text = "The recovered flow on a plane, with observations of the same time as dots of the same colours"
        build = _fields
        if result["image"].ndim == 1:
            text = "The recovered field, with observations of the same time as dots"
            build = _line
        captioned.append((draw(lambda: build(result), plots / "fields.png"), text))
    for name in [key.removeprefix("prior_") for key in result if key.startswith("prior_")]:
        text = f"{name}: spectra of the recovered flow, of the prior, and of the error that is expected"
        captioned.append(
            (draw(lambda name=name: _spectra(result, name), plots / f"spectrum_{name}.png"), text)
        )
    last = rows[-1]
    ensemble = record["settings"]["method"] == "ensemble"
    facts = {
        "method": f"{record['settings']['members']} members, Kalman filter"
        if ensemble
        else "4D-Var",
        "base": record["settings"]["base"],
        "observed values": f"{int(result['number'])} at {len(result['time'])} times",
        "misfit": f"{float(last['misfit']):.4g}, the mean square of (model - observation) / error",
        "analyses" if ensemble else "iterations": str(len(rows)),
        "time": duration(float(last["seconds"])),
    }
    body = [
        page.heading(folder.name, "done", "good"),
        page.facts(facts),
        page.pictures(captioned),
        page.section("Uncertainty", page.paragraph(_SPREAD if ensemble else _uncertainty(result))),
    ]
    target = folder / "report.html"
    replace_file(target, page.page(f"{folder.name}: assimilation", body))
    return target


_UNCERTAINTY = """The expected error is the variance of the posterior in the Laplace approximation at the recovered
start: eigenpairs of the misfit's Gauss-Newton Hessian, preconditioned by the prior, by the Lanczos process
({eigenpairs}), and random directions for the rest ({directions}).{rough}"""

_ROUGH = " It is rough: there were too few products with the Hessian (hessian_products)."


def _uncertainty(result: dict[str, Any]) -> str:
    pairs = int(result["eigenpairs"])
    directions = int(result["directions"])
    rough = _ROUGH if result["is_rough"] else ""
    return _UNCERTAINTY.format(eigenpairs=pairs, directions=directions, rough=rough)


_SPREAD = """The expected error is the spread of the members around their mean. If the misfit of the forecast stays
above the misfit expected from spread and noise, more members or a smaller radius are needed."""


def _history(rows: list[dict[str, str]], result: dict[str, Any]) -> Figure:
    drawn = figure(7.2, 2.6)
    left, right = drawn.subplots(1, 2)
    if "window" in rows[0]:
        left.semilogy(np.arange(1, len(rows) + 1), [float(row["misfit"]) ** 0.5 for row in rows])
        for end in [
            i for i, row in enumerate(rows[1:], 1) if row["window"] != rows[i - 1]["window"]
        ]:
            left.axvline(end + 0.5, color="0.8", linewidth=0.8, zorder=0)
        left.set(xlabel="iteration", ylabel="misfit (rms)")
    else:
        for key, label, line in (
            ("forecast", "forecast", "o-"),
            ("expected", "expected (spread, noise)", "--"),
        ):
            left.semilogy(
                result["time"],
                [float(row[key]) ** 0.5 for row in rows],
                line,
                markersize=3,
                label=label,
            )
        left.set(xlabel="time $t$", ylabel="misfit (rms)", title="before each analysis")
        left.legend(frameon=False)
        right.set_title("after each analysis")
    right.plot(result["time"], result["rms"], "o-", markersize=3)
    right.axhline(1, color="0.6", linewidth=0.8, linestyle="--")
    right.set(xlabel="time $t$", ylabel="misfit (rms)", ylim=(0, None))
    drawn.tight_layout()
    return drawn


def _line(result: dict[str, Any]) -> Figure:
    values = result["image"]
    (length,) = result["box"]
    x = np.arange(len(values) + 1) * length / len(values)
    curve = DrawnCurve(x, np.append(values, values[:1]))
    drawn, axes, _ = plotted([curve], "$x$", str(result["variable"]), title=" ")
    there = result["seen"]
    axes.plot(result["points"][there, 0], result["values"][there], "o", color="k", markersize=3)
    return drawn


def _fields(result: dict[str, Any]) -> Figure:
    drawn = figure(7.2, 3.4)
    image = result["image"]
    extent = (0, result["box"][0], 0, result["box"][1])
    top = abs(image).max()
    points = result["points"][result["seen"]]
    values = result["values"][result["seen"]]
    panels = drawn.subplots(1, 2, sharey=True)
    for axes, dots in zip(panels, (False, True), strict=True):
        axes.imshow(image.T, origin="lower", extent=extent, cmap="RdBu_r", vmin=-top, vmax=top)
        if dots:
            style = {
                "edgecolors": "k",
                "linewidths": 0.4,
                "cmap": "RdBu_r",
                "vmin": -top,
                "vmax": top,
            }
            axes.scatter(
                *points.T, c=values, s=max(min(2000 / max(len(points), 1), 30), 3), **style
            )
        axes.set(xlabel="x", title=f"{result['variable']}{', with observations' if dots else ''}")
        axes.grid(False)
    panels[0].set_ylabel("y", rotation=0)
    drawn.tight_layout()
    drawn.colorbar(panels[0].images[0], ax=list(panels), label=str(result["variable"]), shrink=0.8)
    return drawn


def _spectra(result: dict[str, Any], name: str) -> Figure:
    k = result[f"k_{name}"][1:]
    shown = (
        ("start", "recovered", "-"),
        ("prior", "prior", "--"),
        ("posterior", "expected\nerror", ":"),
    )
    curves = [
        DrawnCurve(k, result[f"{part}_{name}"][1:], label, how={"linestyle": line, "marker": None})
        for part, label, line in shown
    ]
    return plotted(curves, "wavenumber $k$", f"{name}: sum of squares / 2 in a shell", "xy")[0]
