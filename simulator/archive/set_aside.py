"""Files of a run folder that cannot be read, as after a loss of power, and what takes their places.

A start renames such a file to `NAME.damaged`, so that nothing is lost, and goes on:

    config.yaml                    is written again, as the newest manifest stores it
    state.json, ledger.json, provenance.json, inputs/inputs.json    are begun anew
    diagnostics.csv                keeps the rows before the first damaged one
    NAME.h5 with NAME.parts        is begun anew

Damaged checkpoints are skipped instead, and indices made again."""

from collections.abc import Collection
from pathlib import Path

from simulator.archive.ledger import NAME as LEDGER
from simulator.archive.ledger import read_ledger
from simulator.archive.manifest import SAVES, committed, read_manifest
from simulator.archive.provenance import NAME as PROVENANCE
from simulator.archive.run_state import CONFIG, read_state
from simulator.archive.run_state import NAME as STATE
from simulator.archive.series_file import TABLE, SeriesReader, read_columns, whole_rows
from simulator.errors import RunFailure, UserError
from simulator.files import Journal, read_json, replace_file, set_aside
from simulator.words import counted

INPUTS = "inputs/inputs.json"


def set_records_aside(folder: Path) -> dict[str, str]:
    """Set the damaged files about the run in `folder` aside; returns a line for each by name. Only
    the holder of the run's lock calls this, before it opens the ledger."""
    records = read_ledger(folder)
    damaged = {
        CONFIG: stored_text(folder) is not None,
        STATE: read_state(folder) is None,
        LEDGER: records is not None and records.problem is not None,
        PROVENANCE: not read_json(folder / PROVENANCE),
        INPUTS: not read_json(folder / INPUTS),
    }
    present = [
        name for name, is_damaged in damaged.items() if is_damaged and (folder / name).is_file()
    ]
    return {
        name: f"{folder / name}: damaged; set aside as {set_aside(folder / name)}, and made again"
        for name in present
    }


def set_results_aside(folder: Path, suspects: Collection[str], journal: Journal) -> dict[str, str]:
    """Set the tables and series among `suspects` aside that cannot be read to their last value;
    returns a line for each by name."""
    lines = {}
    for name in suspects:
        path = folder / name
        if not path.exists() or (why := _problem(path)) is None:
            continue
        rows = whole_rows(path) if name == TABLE else []
        kept = (
            f"its beginning, {counted(len(rows) - 1, 'row')}, stays" if rows else "it begins anew"
        )
        parts = path.with_suffix(".parts")
        if name != TABLE and parts.is_dir():
            journal.removing(parts, "damaged, and set aside")
            set_aside(parts)
        journal.removing(path, "damaged, and set aside")
        place = set_aside(path)
        if rows:
            replace_file(path, "".join(f"{row}\n" for row in rows), journal)
        lines[name] = f"{path}: {why}; set aside as {place}, and {kept}"
    return lines


def _problem(path: Path) -> str | None:
    try:
        if path.name == TABLE:
            read_columns(path)
            return None
        series = SeriesReader(path)
        for name in series:
            series[name]
    except OSError as error:
        return str(error.strerror)
    return None


def stored_text(folder: Path) -> str | None:
    """The configuration in the newest manifest of the run in `folder`, if `config.yaml` is damaged:
    empty, cut short or no text. None if it is not, or if no manifest holds it."""
    try:
        content = (folder / CONFIG).read_bytes()
    except OSError:
        return None
    for saved in (s for kind in reversed(SAVES) for s in reversed(committed(folder / kind))):
        try:
            text = str(read_manifest(saved).attributes.get("configuration") or "")
        except (RunFailure, UserError):
            continue
        cut = len(content) < len(text.encode()) and text.encode().startswith(content)
        return text if text and (cut or not _is_text(content)) else None
    return None


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False
