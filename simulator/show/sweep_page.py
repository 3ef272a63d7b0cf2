"""`SWEEP/report.html`: the table of a parameter study, the health of its runs, and all runs in one picture each."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from simulator.errors import UserError
from simulator.files import replace_file
from simulator.read.open import Run, open_run
from simulator.show import page
from simulator.show.captions import caption
from simulator.show.health import Check, checks, worst
from simulator.show.run_page import NAME, described, health_table
from simulator.show.study import plot_sweep
from simulator.sweeps.runs import shown
from simulator.sweeps.study_status import Stage, Status, counted, statuses_of
from simulator.sweeps.sweep import Sweep
from simulator.sweeps.table import rows

_CURVES = ("energy", "dissipation")
_VERDICTS: dict[Stage, page.Verdict] = {Stage.DONE: "good", Stage.FAILED: "bad", Stage.INTERRUPTED: "warn"}


def report_sweep(sweep: Sweep, output: Path | None = None, *, refresh: int | None = None) -> Path:
    """Draw the pictures of the sweep again and write its page to `output` (default SWEEP/report.html); returns the
    file.

    Raises UserError if no run has written anything yet.
    """
    statuses = statuses_of([run.folder for run in sweep.runs])
    target = output or sweep.folder / NAME
    try:
        files = plot_sweep(sweep)
    except UserError:
        if not sweep.folder.is_dir():
            raise
        files = []
    going = any(status.stage in (Stage.RUNNING, Stage.QUEUED) for status in statuses)
    text = page.page(
        sweep.name, _body(sweep, statuses, files, target.absolute().parent), refresh if going else None
    )
    replace_file(target, text)
    return target


def _body(sweep: Sweep, statuses: Sequence[Status], files: list[Path], place: Path) -> Iterator[str]:
    stages = {status.stage for status in statuses}
    verdict: page.Verdict = "bad" if Stage.FAILED in stages else "good" if stages == {Stage.DONE} else "note"
    yield page.heading(sweep.name, counted(statuses), verdict)
    opened = [_opened(run.folder) for run in sweep.runs]
    first = next((run for run in opened if run is not None), None)
    if first is not None:
        yield page.paragraph(described(first.config), soft=True)
    if sweep.common:
        yield page.paragraph(f"all runs: {sweep.common}", soft=True)
    health = [checks(run) if run is not None else [] for run in opened]
    yield page.section("Runs", _table(sweep, statuses, opened, health, place))
    yield page.section("Pictures", page.pictures((path, caption(path.stem)) for path in files))
    yield page.section("Health", *_troubles(sweep, health))
    yield page.section("File", page.folded(str(sweep.file), sweep.file.read_text(errors="replace")))
    yield page.paragraph(f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by simulator report.", soft=True)


def _opened(folder: Path) -> Run | None:
    try:
        return open_run(folder)
    except UserError:
        return None


def _table(
    sweep: Sweep,
    statuses: Sequence[Status],
    opened: Sequence[Run | None],
    health: Sequence[list[Check]],
    place: Path,
) -> str:
    texts = [expression.text for expression in sweep.collected]
    values = rows(sweep.runs, statuses, sweep.swept, sweep.collected)
    header = ["run", *sweep.varied, "state", "health", *_CURVES, *texts]
    body = []
    for run, row, status, one, found in zip(sweep.runs, values, statuses, opened, health, strict=True):
        where = os.path.relpath(run.folder, place)
        if (run.folder / NAME).exists():
            where += f"/{NAME}"
        remarks = [check.name.partition(" (")[0] for check in found if check.verdict in ("warn", "bad")]
        verdict = _VERDICTS.get(status.stage, "note")
        body.append(
            [
                f"<td>{page.link(where, str(run.index))}</td>",
                *(shown(run.values[key]) if key in run.values else "" for key in sweep.varied),
                page.marked(verdict, f"{status.stage}" + (f": {status.detail}" if verdict != "good" else "")),
                page.marked(worst(found), (remarks[0] if remarks else "good")) if found else "",
                *_sparks(one),
                *(_number(row[text]) for text in texts),
            ]
        )
    right = [*range(1, 1 + len(sweep.varied)), *range(len(header) - len(texts), len(header))]
    return page.table(header, body, right, close=True)


def _sparks(run: Run | None) -> list[str]:
    try:
        columns = run.diagnostics if run is not None else {}
    except UserError:
        columns = {}
    if "time" not in columns:
        return [""] * len(_CURVES)
    return [
        page.spark(columns["time"], columns.get(name, np.empty(0))) if name in columns else ""
        for name in _CURVES
    ]


def _number(value: object) -> str:
    return "" if value is None or value != value else shown(value)


def _troubles(sweep: Sweep, health: Sequence[list[Check]]) -> Iterator[str]:
    """The failed checks of all runs."""
    for run, found in zip(sweep.runs, health, strict=True):
        bad = [check for check in found if check.verdict in ("warn", "bad")]
        if bad:
            yield page.paragraph(f"run {run.index}: {sweep.label(run)}")
            yield health_table(bad)
