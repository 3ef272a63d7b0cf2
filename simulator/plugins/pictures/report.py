"""`simulator report`: one self-contained HTML page, `report.html`, about a run or a sweep."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from simulator.archive.open_run import Run, open_run
from simulator.archive.run_state import RunState
from simulator.cluster import energy
from simulator.errors import RunFailure, UserError
from simulator.files import read_json, replace_file
from simulator.plugins.pictures import page
from simulator.plugins.pictures.health import REPORTS, HealthCheck, checks, log_of, worst
from simulator.plugins.pictures.runs import plot_run, table_of, tables_of, turbulent
from simulator.plugins.pictures.study import captions_of, opened, plot_sweep
from simulator.plugins.pictures.style import vocabulary
from simulator.run.folder import CONFIG, PLAN, SWEEP
from simulator.run.progress import sizes_of_results
from simulator.run.run_status import RunStatus, look_at
from simulator.study.study_status import MemberState, MemberStatus, status_counts, statuses_of
from simulator.study.sweep import Sweep, open_sweep
from simulator.words import brief, flat, size

NAME = "report.html"
_VERDICTS: dict[MemberState, page.Verdict] = {
    MemberState.DONE: "good",
    MemberState.FAILED: "bad",
    MemberState.INTERRUPTED: "warn",
}
_ENDS: dict[str, page.Verdict] = {"finished": "good", "failed": "bad"}
_NEXT = {"finished": "verify", "stopped": "resume", "killed": "resume"}
"""The command to type next, by the word of a run's status; `status` of any other run."""
_FILES = ("config.yaml", "run.log", "provenance.json", "snapshots.vtkhdf")
_LINES = 15
"""Lines of the log in the report of a failed run."""
_FIRST = (
    ("forces_",),
    ("diagnostics",),
    ("statistics_spectrum", "spectrum_"),
    ("render_", "slices_", "projection_"),
)
"""Beginnings of the names of the pictures that a run's page shows, the best first; the others are
folded."""


def sweep_at(path: Path) -> Sweep | None:
    """The sweep of a sweep's file or folder; None for a run's folder. Raises UserError for any
    other `path`."""
    if path.is_file():
        return open_sweep(path)
    if (path / CONFIG).is_file():
        return None
    plan = read_json(path / PLAN)
    if plan.get("program") != SWEEP or "file" not in plan:
        what = "no such file or folder" if not path.exists() else "neither a run nor a sweep"
        raise UserError(f"{path}: {what}; name a run's folder, or a sweep's file or folder")
    return open_sweep(plan["file"])


def is_going_on(folders: Sequence[Path]) -> bool:
    """Whether any of the runs in `folders` is being computed or waits in Slurm's queue."""
    statuses = statuses_of([folder for folder in folders if folder.is_dir()])
    return any(status.stage in (MemberState.RUNNING, MemberState.QUEUED) for status in statuses)


def caption(stem: str) -> str:
    """The caption of the picture with the file name `stem`, e.g. `spectrum_kinetic_energy`."""
    if stem == "diagnostics":
        return "Energy, dissipation and other box means against time"
    for start, words in vocabulary("captions").items():
        if stem.startswith(start):
            rest = stem.removeprefix(start)
            return words.format(rest.replace("_", " ").replace("+", " and "))
    quantity, against, parameter = stem.partition("_against_")
    words = quantity.replace("_", " ")
    return f"{words} against {parameter.replace('_', ' ')}" if against else words


def report_run(path: str | Path, output: Path | None = None, *, refresh: int | None = None) -> Path:
    """Draw the pictures of the run in `path` again and write the page of the run to `output`
    (default RUN/report.html); returns the file. `refresh`: seconds after which a browser reloads
    the page while the run goes on.

    Raises UserError if `path` is not a run, RunFailure or OSError if the page cannot be written."""
    run = open_run(path)
    status = look_at(run.path, datetime.now(UTC))
    target = output or run.path / NAME
    again = refresh if status.state is None or status.state.state == "running" else None
    title = str(run.config.get("name") or run.path.name)
    # With `output` nothing is written into the run's folder, which may belong to somebody else.
    with TemporaryDirectory() as elsewhere:
        try:
            drawn = plot_run(run.path, output=None if output is None else Path(elsewhere)).files
        except (RunFailure, UserError):  # no output yet, or none that can be read
            drawn = ()
        files = [file for file in drawn if file.suffix == ".png"]
        content = {**_state_of(run, status), **_results(run, files), **_records(run, status.state)}
        replace_file(target, _written("run.html", title, again, content))
    return target


def _written(template: str, title: str, refresh: int | None, content: Mapping[str, Any]) -> str:
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    return page.page(title, template=template, written=now, refresh=refresh, **content)


def _state_of(run: Run, status: RunStatus) -> dict[str, object]:
    """How far a run has come, and whether it can be trusted."""
    state = status.state
    verdict: page.Verdict = "note"
    progress = ""
    if state is not None:
        verdict = _ENDS.get(state.state, "note")
        progress = f"t = {state.time:g} of {state.stop:g}, step {state.step}"
        if state.state == "running":
            progress += f", {state.steps_per_second:.3g} steps per second"
        progress += f", expected end {ends:%Y-%m-%d %H:%M} UTC" if (ends := status.ends) else ""
    return {
        "path": run.path,
        "status": status,
        "state": state,
        "verdict": verdict,
        "progress": progress,
        "health": checks(run, state),
        "next": _NEXT.get(status.word, "status"),
        "ending": _ending(run) if verdict == "bad" else None,
    }


def _ending(run: Run) -> dict[str, str] | None:
    """The end of the log of a failed run, and what it has left."""
    log = log_of(run).splitlines()
    if not log:
        return None
    rows = np.asarray(table_of(run).get("time", ()))
    written = f"{len(rows)} rows, the last at t = {rows[-1]:g}" if len(rows) else "no row"
    stored = ", ".join(f"t = {snapshot.time:g}" for snapshot in run.snapshots[-3:])
    left = f"diagnostics.csv has {written}; the last snapshots are of {stored or 'no time'}."
    return {"log": "\n".join(log[-_LINES:]), "left": left}


def _results(run: Run, files: Sequence[Path]) -> dict[str, object]:
    """The pictures and the numbers of a run."""
    columns = table_of(run)
    best = ([p for kind in kinds for p in files if p.stem.startswith(kind)] for kinds in _FIRST)
    first = [paths[0] for paths in best if paths]
    axes = len((run.config.get("grid") or {}).get("shape", ()))
    cut = {1: "line_", 2: "plane_"}.get(axes, "slices_")
    words = {p: caption(p.stem.replace("slices_", cut, 1)) for p in files}
    numbers = {
        name: (values[0], values[-1], values.min(), values.max())
        for name, values in columns.items()
        if name != "step" and len(values)
    }
    return {
        "turbulence": _turbulence(run, columns),
        "summary": ", ".join([run_summary(run.config), *_redshifts(columns)]),
        "pictures": [(path, words[path]) for path in first],
        "more": [(path, text) for path, text in words.items() if path not in first],
        "tables": list(tables_of(run)),
        "columns": [
            [name, *(f"{number:.6g}" for number in four)] for name, four in numbers.items()
        ],
    }


def _records(run: Run, state: RunState | None) -> dict[str, object]:
    """The parameters of a run, and what its folder says of its origin and its files."""
    parameters: dict[str, str] = {}
    config: Mapping[str, Any] = run.config
    for completed in REPORTS.beginning_with("settings.").values():
        config = completed(config)
    for name in ("model", "grid", "initial", "terms", "forcing", "time"):
        parameters |= {key: _in_words(block) for key, block in _blocks(config, name).items()}
    provenance = run.provenance
    rows = {**flat(provenance), "command": " ".join(map(str, provenance.get("command", ())))}
    return {
        "timing": _timing(run, state),
        "parameters": parameters,
        "configuration": (run.path / "config.yaml").read_text(errors="replace"),
        "provenance": {key: brief(value) for key, value in rows.items()},
        "files": _files(run),
    }


def run_summary(config: Mapping[str, Any]) -> str:
    """Model, viscosity, box, grid, precision, start and forcing in one line."""
    grid = config.get("grid") or {}
    shape = " x ".join(str(n) for n in grid.get("shape", ())) or "?"
    box = " x ".join(_in_pi(length) for length in grid.get("box", ()))
    model = config.get("model") or {}
    start = (config.get("initial") or {}).get("kind", "?")
    viscosity = model.get("viscosity")
    kinds = [force.get("kind", "?") for force in _blocks(config, "forcing").values()]
    parts = [
        f"{model.get('equation') or model.get('kind', '?')} on {shape} points",
        f"{config.get('precision', 'double')} precision",
        "" if viscosity is None else f"viscosity {brief(viscosity)}",
        box and f"box {box}",
        f"start: {start}",
        kinds and f"forcing: {' and '.join(kinds)}",
    ]
    return ", ".join(part for part in parts if part)


def _in_pi(length: float) -> str:
    multiple = length / math.pi
    whole = abs(multiple - round(multiple)) < 1e-9 * multiple
    return f"{'' if round(multiple) == 1 else round(multiple)}π" if whole else brief(length)


def _redshifts(columns: Mapping[str, np.ndarray]) -> list[str]:
    """The redshifts of the first and the last row of an expanding run."""
    factors = columns.get("scale_factor", np.empty(0))
    if not len(factors):
        return []
    first, last = (f"{round(1 / a - 1, 6) + 0:.4g}" for a in (factors[0], factors[-1]))
    return [f"z = {first} to {last}"]


def _turbulence(run: Run, columns: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Re_λ and L / η of the last row, and the turnover times that have passed, of flows that may be
    turbulent."""
    if not turbulent(run):
        return {}

    def last(name: str) -> float:
        values = columns.get(name, np.empty(0))
        return float(values[-1]) if len(values) else math.nan

    numbers = {
        "Re_λ (last row)": last("reynolds_taylor"),
        "L / η (last row)": last("integral_scale") / last("kolmogorov_scale"),
    }
    periods = columns.get("turnover_time", np.empty(0))
    if len(periods) > 1 and np.all(periods > 0):
        numbers["turnover times"] = float(np.trapezoid(1 / periods, columns["time"]))
    return {name: f"{x:.3g}" for name, x in numbers.items() if math.isfinite(x)}


def _blocks(config: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    """The block `name` of a configuration, or the blocks of a list: `forcing.0`, `forcing.1`."""
    block = config.get(name) or []
    if isinstance(block, list):
        return {f"{name}.{i}": each for i, each in enumerate(block)}
    return {name: block}


def _in_words(block: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}: {brief(value)}" for key, value in block.items() if value not in (None, [], {})
    )


def _timing(run: Run, state: RunState | None) -> dict[str, str]:
    if state is None:
        return {}
    said = re.findall(r"^\S+ \S+ (\d+ steps: .*|[\d.]+ \S+ in all: .*)$", log_of(run), re.MULTILINE)
    rows = {"wall time of all starts": f"{state.seconds:.4g} s", "last start": "; ".join(said[-2:])}
    return rows | ({"energy": energy.in_words(state.energy)} if state.energy else {})


def _files(run: Run) -> list[list[page.Cell | str]]:
    others = (run.path / name for name in _FILES)
    sizes = [(path.name, size(path.stat().st_size)) for path in others if path.is_file()]
    sizes += sizes_of_results(run.path)
    return [[page.Cell(name, path=name), text] for name, text in sizes]


def report_sweep(sweep: Sweep, output: Path | None = None, *, refresh: int | None = None) -> Path:
    """Draw the pictures of the sweep again and write the page of the sweep to `output` (default
    SWEEP/report.html); returns the file. Raises UserError if no run has written anything yet."""
    statuses = sweep.statuses()
    target = output or sweep.folder / NAME
    try:
        files = plot_sweep(sweep)
    except UserError:
        if not sweep.folder.is_dir():
            raise
        files = []
    again = refresh if is_going_on([run.folder for run in sweep.runs]) else None
    stages = {status.stage for status in statuses}
    verdict: page.Verdict = "good" if stages == {MemberState.DONE} else "note"
    there = [opened(run.folder) for run in sweep.runs]
    first = next((run for run in there if run is not None), None)
    health = [
        checks(run, status.state) if run is not None else []
        for run, status in zip(there, statuses, strict=True)
    ]
    words = captions_of(sweep)
    content = {
        "word": status_counts(statuses),
        "verdict": "bad" if MemberState.FAILED in stages else verdict,
        "summary": "" if first is None else run_summary(first.config),
        "common": sweep.common,
        "pictures": [(path, words.get(path.stem) or caption(path.stem)) for path in files],
        "troubles": [
            (f"run {run.index}: {sweep.label(run)}", troubles)
            for run, checked in zip(sweep.runs, health, strict=True)
            if (troubles := [check for check in checked if check.verdict in ("warn", "bad")])
        ],
        "file": sweep.file,
        **_table(sweep, statuses, health, target.absolute().parent),
    }
    replace_file(target, _written("sweep.html", sweep.name, again, content))
    return target


def _table(
    sweep: Sweep, statuses: Sequence[MemberStatus], health: Sequence[list[HealthCheck]], place: Path
) -> dict[str, object]:
    """The table of the runs: header, rows, and the columns that are numbers."""
    texts = [expression.text for expression in sweep.collected]
    values = sweep.rows(statuses)
    header = ["run", *sweep.varied, "state", "health", *texts]
    rows = []
    for run, row, status, checked in zip(sweep.runs, values, statuses, health, strict=True):
        report = run.folder / NAME
        where = os.path.relpath(report if report.exists() else run.folder, place)
        verdict = _VERDICTS.get(status.stage, "note")
        state = f"{status.stage}" if verdict == "good" else f"{status.stage}: {status.detail}"
        parameters = [brief(run.values[key]) if key in run.values else "" for key in sweep.varied]
        numbers = ["" if math.isnan(row[text]) else brief(row[text]) for text in texts]
        link = page.Cell(str(run.index), path=where)
        marked = page.Cell(state, verdict)
        rows.append([link, *parameters, marked, _first_remark(checked), *numbers])
    right = [*range(1, 1 + len(sweep.varied)), *range(len(header) - len(texts), len(header))]
    return {"header": header, "runs": rows, "numbers": right}


def _first_remark(checked: list[HealthCheck]) -> page.Cell | str:
    """The first of the checks that warn, as a cell; empty without checks."""
    if not checked:
        return ""
    remarks = (check.name for check in checked if check.verdict in ("warn", "bad"))
    return page.Cell(next(remarks, "good").partition(" (")[0], worst(checked))
