"""`RUN/state.json`: the progress of the run, for `status`, for the job script's requeue, and for
the next start."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import xxhash

from simulator.files import dataclass_from, read_json, replace_file

NAME = "state.json"
CONFIG = "config.yaml"  # The file by which a folder is recognized as a run folder.
ALTERED = "altered (its checksum does not match)"
_PROGRAM = "simulator"
_RECORD = re.compile(r'\[\s+(\d+),\s+("\w+")\s+\]')
_TAIL = re.compile(rb',\n  "xxh3": "([0-9a-f]{16})"\n}\n\Z')


@dataclass(frozen=True)
class RunState:
    """One moment of a run.

    A `stopped` run ended early on request, a `failed` run because of an error; both can be
    continued. A `running` run without a live lock was killed. `seconds` is the wall time of all
    starts of the run. `advanced` tells whether this start took a step beyond its first state.
    `updated` is UTC. `ledger` is the number of times that the ledger was written."""

    state: Literal["running", "finished", "stopped", "failed"]
    step: int
    time: float
    stop: float
    percent: float
    steps_per_second: float
    dt: float
    job_id: str | None = None
    restart_count: int = 0
    last_checkpoint: int | None = None
    last_checkpoint_time: float | None = None
    advanced: bool = False
    seconds: float = 0.0
    reason: str | None = None
    updated: str = ""
    ledger: int = 0


def write_state(folder: Path, state: RunState) -> None:
    """Replace `folder/state.json`, with the present time. Its last line is the checksum of the
    other lines."""
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    replace_file(folder / NAME, seal({"program": _PROGRAM, **asdict(state), "updated": stamp}))


def seal(content: Mapping[str, Any]) -> str:
    """`content` as JSON whose last entry is the xxh3 of the text before it."""
    body = json.dumps(content, indent=2).removesuffix("\n}")
    body = _RECORD.sub(r"[\1, \2]", body)  # one line for each record of a file
    return f'{body},\n  "xxh3": "{xxhash.xxh3_64_hexdigest(body.encode())}"\n}}\n'


def unsealed(data: bytes) -> dict[str, Any] | None:
    """The content of a sealed file; None if the file was altered."""
    tail = _TAIL.search(data)
    if tail is None or xxhash.xxh3_64_hexdigest(data[: tail.start()]).encode() != tail[1]:
        return None
    content = json.loads(data)
    del content["xxh3"]
    return content


def read_state(folder: Path) -> RunState | None:
    """The state of the run in `folder`; None if this program wrote no readable state there. Ignores
    unknown keys."""
    content = read_json(folder / NAME)
    return dataclass_from(RunState, content) if content.get("program") == _PROGRAM else None


def percent(start: float, time: float, stop: float) -> float:
    """The part of the simulation time from `start` to `stop` that has passed, in percent."""
    return 100.0 if stop <= start else min(max(100.0 * (time - start) / (stop - start), 0.0), 100.0)
