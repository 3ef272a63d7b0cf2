"""`RUN/report.html`: one page about a run."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.errors import UserError
from simulator.files import replace_file
from simulator.read.open import Run, open_run
from simulator.run.run_status import Status, look_at
from simulator.show import page, plot_run
from simulator.show.captions import caption
from simulator.show.health import Check, checks, log_of

NAME = "report.html"
_SPENT = re.compile(r"^\S+ \S+ [\d.]+ \S+ in all: (.*)$", re.MULTILINE)
_PART = re.compile(r"(.+?) ([\d.]+) (ms|s|min|h)$")
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def report_run(path: str | Path, output: Path | None = None, *, refresh: int | None = None) -> Path:
    """Draw the pictures of the run in `path` again and write its page to `output` (default RUN/report.html); returns
    the file. `refresh`: seconds after which a browser reloads the page while the run goes on.

    Raises UserError if there is no run, RunFailure or OSError if the page cannot be written.
    """
    run = open_run(path)
    status = look_at(run.path, datetime.now(UTC))
    try:
        files = plot_run(run.path).files
    except UserError:  # no output yet
        files = ()
    target = output or run.path / NAME
    again = refresh if status.state is None or status.state.state == "running" else None
    text = page.page(_title(run), _body(run, status, files), again)
    replace_file(target, text)
    return target


def _title(run: Run) -> str:
    return str(run.config.get("name") or run.path.name)


def _body(run: Run, status: Status, files: tuple[Path, ...]) -> Iterator[str]:
    config, state = run.config, status.state
    found = checks(run)
    verdict: page.Verdict = "note"
    if state is not None and state.state in ("finished", "failed"):
        verdict = "good" if state.state == "finished" else "bad"
    yield page.heading(_title(run), status.word, verdict)
    yield page.paragraph(described(config), soft=True)
    if state is not None:
        yield page.progress(state.percent)
        ends = status.ends
        yield page.paragraph(
            f"t = {state.time:g} of {state.stop:g}, step {state.step}"
            + (f", {state.steps_per_second:.3g} steps per second" if state.state == "running" else "")
            + (f", expected end {ends:%Y-%m-%d %H:%M} UTC" if ends else "")
        )
    yield page.section("Health", health_table(found))
    yield page.section("Pictures", page.pictures((path, caption(path.stem)) for path in files))
    yield page.section("Numbers", _last_row(run))
    yield page.section("Timing", *_timing(run))
    yield page.section("Parameters", *_parameters(run))
    yield page.section("Provenance", *_provenance(run.provenance))
    yield page.section("Data", _links(run))
    yield page.paragraph(f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by simulator report.", soft=True)


def described(config: Mapping[str, Any]) -> str:
    """Model, grid and precision in one line."""
    grid = config.get("grid") or {}
    shape = " x ".join(str(n) for n in grid.get("shape", ())) or "?"
    model = (config.get("model") or {}).get("kind", "?")
    start = (config.get("initial") or {}).get("kind", "?")
    return f"{model} on {shape} points, {config.get('precision', 'double')} precision, start: {start}"


def health_table(found: list[Check]) -> str:
    """The checks with their meaning."""
    rows = [[page.marked(c.verdict, c.name), c.value, c.meaning] for c in found]
    return page.table(["", "", ""], rows) if rows else ""


def _last_row(run: Run) -> str:
    try:
        columns = run.diagnostics
    except UserError:
        return ""
    if not len(columns.get("time", ())):
        return ""
    rows = [
        [name, f"{values[0]:.6g}", f"{values[-1]:.6g}", f"{values.min():.6g}", f"{values.max():.6g}"]
        for name, values in columns.items()
        if name != "step"
    ]
    header = ["column", "first", "last", "least", "largest"]
    return f"<details open><summary>diagnostics</summary>{page.table(header, rows, range(1, 5))}</details>"


def _timing(run: Run) -> Iterator[str]:
    log, state = log_of(run), run.state
    spent = _SPENT.findall(log)
    if spent:
        parts = (_PART.match(part) for part in spent[-1].split(", "))
        yield page.shares({m[1]: float(m[2]) * _SECONDS[m[3]] for m in parts if m}, "s")
    if state is not None:
        per_step = next(iter(re.findall(r"^\S+ \S+ (\d+ steps: .*)$", log, re.MULTILINE)[-1:]), "")
        yield page.facts({"wall time in all starts": f"{state.seconds:.4g} s", "last start": per_step})


def _parameters(run: Run) -> Iterator[str]:
    config = run.config
    shown = {
        key: _short(config[key]) for key in ("model", "grid", "initial", "forcing", "time") if config.get(key)
    }
    yield page.facts(shown)
    yield page.folded("the whole configuration", (run.path / "config.yaml").read_text(errors="replace"))


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_short(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _provenance(found: Mapping[str, Any]) -> Iterator[str]:
    if not found:
        return
    git = found.get("git") or {}
    commit = str(git.get("commit", "not from a checkout"))
    devices, mesh = found.get("devices") or {}, found.get("mesh") or {}
    yield page.facts(
        {
            "started": str(found.get("started", "")),
            "command": " ".join(map(str, found.get("command", ()))),
            "commit": commit + (" with changes" if git.get("dirty") else ""),
            "versions": _short(found.get("versions") or {}),
            "host": _short(found.get("host") or {}),
            "devices": f"{devices.get('count', '?')} {devices.get('kind', '')}, "
            f"{devices.get('processes', '?')} processes",
            "transform": f"{mesh.get('transform', '')}, kernels {mesh.get('kernels', '')}",
            "earlier starts": ", ".join(str(start.get("started")) for start in found.get("earlier", ())),
        }
    )
    yield page.folded("everything that was recorded", json.dumps(found, indent=1))


def _links(run: Run) -> str:
    names = ["config.yaml", "diagnostics.csv", "run.log", "provenance.json", "snapshots.vtkhdf"]
    names += sorted(path.name for path in run.path.glob("*.h5"))
    rows = []
    for name in names:
        path = run.path / name
        if path.is_file():
            rows.append([f"<td>{page.link(name, name)}</td>", _bytes(path.stat().st_size)])
    for kind in ("snapshots", "checkpoints"):
        steps = [p.name for p in sorted((run.path / kind).glob("[0-9]*")) if p.is_dir()]
        if steps:
            rows.append([f"<td>{page.link(kind + '/', kind)}</td>", f"{len(steps)}, the last {steps[-1]}"])
    return page.table(["file", ""], rows, [1]) if rows else ""


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
