"""`RUN/state.json`: how far the run is, for `status`, for the job script's requeue, and for the next
start."""

import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from simulator.files import replace_json

NAME = "state.json"
_PROGRAM = "simulator"


@dataclass(frozen=True)
class RunState:
    """One moment of a run.

    `stopped` ended early on request and `failed` by itself: both can be continued; `running` without a live
    lock was killed. `seconds` are those of wall time in all starts of the run.
    `advanced` says whether this start took a step beyond the state it began with. `updated` is UTC.
    """

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


def write_state(folder: Path, state: RunState) -> None:
    """Replace `folder/state.json`, stamped with the present time."""
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    replace_json(folder / NAME, {"program": _PROGRAM, **asdict(state), "updated": stamp})


def read_state(folder: Path) -> RunState | None:
    """The state of the run in `folder`; None where there is none of this program. Unknown keys are
    ignored."""
    try:
        content: Any = json.loads((folder / NAME).read_text())
        if content.get("program") != _PROGRAM:
            return None
        known = {field.name for field in fields(RunState)}
        return RunState(**{key: value for key, value in content.items() if key in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def percent(start: float, time: float, stop: float) -> float:
    """How much of the simulation time from `start` to `stop` is done, in percent."""
    return 100.0 if stop <= start else min(max(100.0 * (time - start) / (stop - start), 0.0), 100.0)
