"""`RUN/state.json`: the progress of the run, for `status`, for the job script's requeue, and for
the next start."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from simulator.archive.seal import sealed_json
from simulator.files import dataclass_from, read_json, replace_file

NAME = "state.json"
CONFIG = "config.yaml"  # The file by which a folder is recognized as a run folder.
_PROGRAM = "simulator"


StateName = Literal["running", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class RunState:
    """One moment of a run.

    A `stopped` run ended early on request, a `failed` run because of an error; both can be
    continued. A `running` run without a live lock was killed. `seconds` is the wall time of all
    starts of the run, and `energy` the joules, by source, of those that ended by themselves, where
    the machine has counters. `advanced` tells whether this start took a step beyond its first state.
    `updated` is UTC. `ledger` is the number of times that the ledger was written."""

    state: StateName
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
    energy: dict[str, float] | None = None


def write_state(folder: Path, state: RunState) -> None:
    """Replace `folder/state.json`, sealed, with the present time."""
    content = asdict(state) | {"updated": datetime.now(UTC).isoformat(timespec="seconds")}
    if state.energy is None:
        del content["energy"]
    replace_file(folder / NAME, sealed_json({"program": _PROGRAM, **content}))


def read_state(folder: Path) -> RunState | None:
    """The state of the run in `folder`; None if this program wrote no readable state there. Ignores
    unknown keys."""
    content = read_json(folder / NAME)
    known = content.get("program") == _PROGRAM and content.get("state") in get_args(StateName)
    return dataclass_from(RunState, content) if known else None


def is_foreign(folder: Path) -> bool:
    """Whether another program has written the state file in `folder`."""
    return read_json(folder / NAME).get("program", _PROGRAM) != _PROGRAM


def percent(start: float, time: float, stop: float) -> float:
    """The part of the simulation time from `start` to `stop` that has passed, in percent."""
    return 100.0 if stop <= start else min(max(100.0 * (time - start) / (stop - start), 0.0), 100.0)
