"""The artifact description of runs, which SC and IPDPS ask for, from what the runs recorded."""

import csv
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from simulator.archive import provenance
from simulator.archive.ledger import Records, is_save, read_ledger
from simulator.archive.run_state import CONFIG, RunState, read_state
from simulator.config import as_mapping, load_config
from simulator.config.yaml12 import dump_yaml
from simulator.errors import UserError
from simulator.files import read_json
from simulator.run.folder import PLAN
from simulator.run.run_status import SCRIPT
from simulator.words import MAIN_BLOCKS, brief, duration, flat, short, size

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class RecordedRun:
    """A run as its folder describes it."""

    folder: Path

    @cached_property
    def start(self) -> dict[str, Any]:
        """The provenance of the last start."""
        return provenance.read(self.folder)

    @cached_property
    def state(self) -> RunState | None:
        return read_state(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        return as_mapping(load_config(self.folder / CONFIG, check_files=False))

    @cached_property
    def files(self) -> dict[str, Any]:
        """Size and checksum of the files that the ledger records, without those of saves."""
        records = read_ledger(self.folder) or Records()
        return {name: record for name, record in records.files.items() if not is_save(name)}

    @cached_property
    def last_row(self) -> dict[str, str]:
        """The last row of diagnostics.csv."""
        path = self.folder / "diagnostics.csv"
        if not path.is_file():
            return {}
        with path.open(newline="") as stream:
            return list(csv.DictReader(stream))[-1]

    def recorded(self, *keys: str) -> str:
        """A value of the provenance in words."""
        value: Any = self.start
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return NOT_RECORDED if value in (None, "", {}, []) else brief(value)


Fact = Callable[[RecordedRun], str]


def _commit(run: RecordedRun) -> str:
    git = run.start.get("git")
    if not git:
        return f"{NOT_RECORDED} (an installed package)"
    return git["commit"] + (
        f", changed: {', '.join(git['changed'] or ['unknown'])}"
        if git["dirty"] is not False
        else ""
    )


def _memory(run: RecordedRun) -> str:
    memory = run.start["host"].get("memory")
    return size(memory) if memory else NOT_RECORDED


def _inputs(run: RecordedRun) -> str:
    found = [
        f"{name} ({size(record[0])}, xxh3 {record[1]})"
        for name, record in run.files.items()
        if name.startswith("inputs/")
    ]
    return ", ".join(found) or "none but the configuration"


def _time(run: RecordedRun) -> str:
    return duration(run.state.seconds) if run.state else NOT_RECORDED


def _energy(run: RecordedRun) -> str:
    joules = run.state.energy if run.state else None
    return ", ".join(f"{v:.4g} J ({name})" for name, v in (joules or {}).items()) or NOT_RECORDED


def _end(run: RecordedRun) -> str:
    state = run.state
    return f"{state.state}, step {state.step}, t = {state.time:g}" if state else NOT_RECORDED


HARDWARE: Mapping[str, Fact] = {
    "host": lambda run: run.recorded("host", "name"),
    "processor": lambda run: run.recorded("host", "processor"),
    "memory": _memory,
    "devices": lambda run: (
        f"{run.recorded('devices', 'count')} ({run.recorded('devices', 'kind')})"
    ),
    "threads per device": lambda run: run.recorded("devices", "threads"),
    "processes": lambda run: run.recorded("devices", "processes"),
    "nodes": lambda run: run.recorded("environment", "SLURM_JOB_NODELIST"),
}
SOFTWARE: Mapping[str, Fact] = {
    "system": lambda run: run.recorded("host", "system"),
    "Python": lambda run: run.recorded("versions", "python"),
    "simulator": lambda run: run.recorded("versions", "simulator"),
    "commit": _commit,
    "jax": lambda run: run.recorded("versions", "jax"),
    "transform": lambda run: run.recorded("mesh", "transform"),
    "kernels": lambda run: run.recorded("mesh", "kernels"),
}
DATA: Mapping[str, Fact] = {"input files": _inputs, "start": lambda run: run.recorded("started")}
EXPECTED: Mapping[str, Fact] = {
    "wall time": _time,
    "energy": _energy,
    "end": _end,
    "precision": lambda run: run.config["precision"],
    "tolerance": lambda run: (
        "none on the same installation, devices and layout: every bit is the same; on others what "
        "`simulator docs reference/stability` promises of results"
    ),
}


def recorded_runs(path: Path) -> list[RecordedRun]:
    """The run in a folder, or the begun runs of a study's file or folder. Raises UserError if there
    is none."""
    folders = [path]
    if path.is_file():
        from simulator.study.planned import open_plan
        from simulator.study.sweep import open_sweep

        folders = [run.folder for run in (open_plan(path) or open_sweep(path)).runs]
    elif not (path / CONFIG).is_file():
        folders = sorted(file.parent for file in path.glob(f"*/{CONFIG}"))
    runs = [RecordedRun(folder) for folder in folders]
    begun = [run for run in runs if {"started", "versions", "host"} <= run.start.keys()]
    if not begun:
        raise UserError(
            f"{path}: records no start of a run; give a run's folder, or a study's file or folder"
        )
    return begun


def facts(runs: Sequence[RecordedRun], about: Mapping[str, Fact]) -> Iterator[str]:
    """A line for each fact that all runs share; else one for each value, with its runs."""
    for name, fact in about.items():
        by_value: dict[str, list[str]] = {}
        for run in runs:
            by_value.setdefault(fact(run), []).append(run.folder.name)
        for value, names in by_value.items():
            where = f" ({', '.join(names)})" if len(by_value) > 1 else ""
            yield f"- {name}{where}: {value}"


def differing(runs: Sequence[RecordedRun]) -> list[str]:
    """The table of the keys of the configuration in which the runs differ."""
    flats = [
        flat({k: v for k, v in run.config.items() if k in MAIN_BLOCKS or k == "seed"})
        for run in runs
    ]
    names = dict.fromkeys(key for each in flats for key in each)
    keys = [key for key in names if len({brief(each.get(key)) for each in flats}) > 1]
    rows = [
        (run.folder.name, *(brief(each.get(key)) for key in keys))
        for run, each in zip(runs, flats, strict=True)
    ]
    head = ("run", *keys)
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _repeating(run: RecordedRun) -> str:
    """The command that computes a run again, in a new folder."""
    arguments = f"{shlex.quote(str(short(run.folder / CONFIG)))} --output NEW"
    if (run.folder / SCRIPT).is_file():  # the configuration holds the job's resources
        return f"simulator submit {arguments}"
    devices = run.start.get("devices") or {}
    count = devices.get("processes", 1)
    starter = {"slurm": f"srun --ntasks={count} ", "mpi": f"mpiexec -n {count} "}
    before = starter.get(devices.get("source", "local"), "")
    local = f" --processes {count}" if count > 1 and not before else ""
    return f"{before}simulator run {arguments}{local}"


def _commands(path: Path, runs: Sequence[RecordedRun]) -> list[str]:
    """The commands that compute the study in the file or folder `path`, or the runs, again."""
    study = path if path.is_file() else read_json(path / PLAN).get("file")
    if study is not None:
        return [f"simulator sweep run {shlex.quote(str(short(Path(study))))}"]
    return [_repeating(run) for run in runs]


def description(path: Path) -> str:
    """The page about the run or the study in `path`, in Markdown. Raises UserError if it records no
    start of a run."""
    runs = recorded_runs(path)
    first = runs[0]
    several = len(runs) > 1
    shared = {k: v for k, v in first.config.items() if k in MAIN_BLOCKS}
    name = first.folder.parent.name if several else first.config["name"]
    lines = [f"# Artifact description: {name}", ""]
    lines += ["## Hardware", "", *facts(runs, HARDWARE), ""]
    lines += ["## Software", "", *facts(runs, SOFTWARE), ""]
    lines += ["The installation as a requirements file of pip:", ""]
    lines += ["```text", *provenance.installation(first.start), "```", ""]
    lines += ["## Data", "", *facts(runs, DATA), ""]
    lines += [f"The configuration{f' of {first.folder.name}' if several else ''}:", ""]
    lines += ["```yaml", dump_yaml(shared).rstrip(), "```", ""]
    if several:
        lines += ["The runs differ in:", "", *differing(runs), ""]
    lines += [
        "## Commands",
        "",
        "```console",
        *(f"$ {c}" for c in _commands(path, runs)),
        "```",
        "",
    ]
    lines += ["## Expected time and tolerance", "", *facts(runs, EXPECTED), ""]
    lines += ["## How to check the result", "", "```console"]
    lines += [f"$ simulator verify {shlex.quote(str(short(run.folder)))}" for run in runs]
    lines += ["```", "", "The last row of diagnostics.csv:", "", *last_rows(runs), ""]
    for run in runs:
        lines += [f"Files of {run.folder.name} with their checksums (xxh3):", ""]
        lines += [f"- {n}: {size(r[0])}, {r[1]}" for n, r in run.files.items()] or [NOT_RECORDED]
        lines.append("")
    return "\n".join(lines)


def last_rows(runs: Sequence[RecordedRun]) -> list[str]:
    """The table of the first eight columns of the runs' last rows."""
    names = list(runs[0].last_row)[:8]
    if not names:
        return [NOT_RECORDED]
    rows = [(run.folder.name, *(run.last_row.get(n, NOT_RECORDED) for n in names)) for run in runs]
    head = ("run", *names)
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
