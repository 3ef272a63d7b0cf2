"""What is in a run folder, what `run` does with it, and what may be removed from it.

`decide` is the table of INTERFACES ("The run folder") as a pure function; `claim` looks, locks, looks again
and decides, so that a refused start writes nothing.
"""

import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from simulator.errors import RunFailure, UserError
from simulator.files import TEMPORARY, remove_temporaries, replace_file
from simulator.run.lock import RunLock
from simulator.run.state import NAME as STATE
from simulator.run.state import RunState, read_state, write_state

CONFIG = "config.yaml"
SERIES = ("spectra", "transfer", "structure_functions", "histograms", "profiles", "projections", "slices")
"""Names of the HDF5 series that a run may write: NAME.h5, NAME.parts/."""
_FILES = (CONFIG, "provenance.json", "run.log", STATE, "diagnostics.csv", *(f"{name}.h5" for name in SERIES))
_ARRAYS = ("snapshots", "checkpoints")
_SAVED = re.compile(rf"\d{{8,}}(\.h5|\.xdmf)?|{re.escape(TEMPORARY)}.*")
_PART = re.compile(rf"\d{{8,}}\.h5|{re.escape(TEMPORARY)}.*")
_RESULTS = ("diagnostics.csv", *_ARRAYS, *(f"{name}.h5" for name in SERIES))
# What may lie in a folder before a run has written anything: start-up files, job scripts, Slurm's output.
_AROUND = re.compile(r"lock(\.takeover)?|logs|stop|checkpoint|\..*|.*\.(sbatch|sh|out|err)")
PLAN = "plan.json"
SWEEP = "simulator sweep"
"""The file of a sweep's folder, which may lie beside a run's own, and what it says of its program."""
OWN = frozenset({*_FILES, *_ARRAYS, *(f"{name}.parts" for name in SERIES), "plots", "inputs", "logs"})
"""What a run writes into its folder."""


class Found(StrEnum):
    """What lies at the run's path."""

    ABSENT = "absent"
    EMPTY = "empty"
    PREPARED = "prepared"
    """`submit` or a sweep wrote the configuration; nothing was computed."""
    UNFINISHED = "unfinished"
    FINISHED = "finished"
    FOREIGN = "foreign"


class Action(StrEnum):
    """What `run` does."""

    START = "start"
    CONTINUE = "continue"
    FINISHED = "finished"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Decision:
    """What to do, and the lines that say so; `clear`: remove the earlier run first."""

    action: Action
    lines: tuple[str, ...] = ()
    clear: bool = False

    def raise_if_refused(self) -> None:
        """Raise UserError with the lines of a refusal."""
        if self.action is Action.REFUSE:
            raise UserError("\n".join(self.lines))


Difference = tuple[str, Any, Any, str]
"""(key, old, new, class), the class one of frozen, changeable, free; as `config.diff_configs` gives them."""


def decide(
    path: Path,
    found: Found,
    state: RunState | None = None,
    differences: Sequence[Difference] = (),
    *,
    stop: float | None = None,
    overwrite: bool = False,
    allow: Collection[str] = (),
) -> Decision:
    """The decision table. `stop` is the new `time.stop`; `allow` names frozen keys that may change all the
    same."""
    changed = [difference for difference in differences if difference[3] != "free"]
    frozen = [d for d in changed if d[3] == "frozen" and not any(_within(d[0], key) for key in allow)]
    lines = tuple(f"{key}: {_text(old)} -> {_text(new)}" for key, old, new, _ in changed)
    if found is Found.FOREIGN:
        return Decision(
            Action.REFUSE, (f"{path}: not a run of this program; choose another folder with --output DIR",)
        )
    if found in (Found.ABSENT, Found.EMPTY):
        return Decision(Action.START)
    if overwrite:
        return Decision(Action.START, (f"removing the earlier run in {path}",), clear=True)
    if frozen:
        keys = ", ".join(f"{key} (there {_text(old)}, now {_text(new)})" for key, old, new, _ in frozen)
        return Decision(
            Action.REFUSE,
            (
                f"{path}: holds a run with another {keys}; give this one its own folder with --output DIR, "
                f"replace that one with --overwrite, or continue it as it is: simulator resume {path}",
            ),
        )
    if found is Found.PREPARED:
        return Decision(Action.START, lines)
    reached = _reached(found, state)
    if stop is not None and reached is not None and stop < reached and lines:
        return Decision(
            Action.REFUSE,
            (
                f"{path}: time.stop: {stop:g} lies before t = {reached:g}, which the run has reached; "
                "give a later one",
            ),
        )
    if found is Found.FINISHED and not lines:
        at = f" at t = {state.time:g}, step {state.step}" if state else ""
        return Decision(
            Action.FINISHED,
            (f"{path}: already finished{at}; a later time.stop continues it, --overwrite starts anew",),
        )
    return Decision(Action.CONTINUE, (*lines, _continuing(path, state)))


@dataclass(frozen=True)
class RunFolder:
    """A run folder on disk. Its methods that write are for the process that holds the lock."""

    path: Path

    def found(self) -> Found:
        """What lies there now."""
        if not self.path.exists():
            return Found.ABSENT
        if not self.path.is_dir():
            return Found.FOREIGN
        names = {entry.name for entry in self.path.iterdir() if not _is_sweep(entry)}
        if all(_AROUND.fullmatch(name) for name in names):
            return Found.EMPTY
        if CONFIG not in names:
            return Found.FOREIGN
        if STATE in names:
            state = read_state(self.path)
            if state is None:
                return Found.FOREIGN
            return Found.FINISHED if state.state == "finished" else Found.UNFINISHED
        if not all(name in OWN or _AROUND.fullmatch(name) for name in names):
            return Found.FOREIGN
        return Found.UNFINISHED if names.intersection(_RESULTS) else Found.PREPARED

    def decide(
        self,
        config: Any,
        read_config: Callable[[Path], Any],
        diff_configs: Callable[[Any, Any], Sequence[Difference]],
        **choices: Any,
    ) -> Decision:
        """`decide` for what lies there; `read_config` reads the old `config.yaml`, `choices` as for
        `decide`."""
        found = self.found()
        old = found in (Found.PREPARED, Found.UNFINISHED, Found.FINISHED) and not choices.get("overwrite")
        differences = diff_configs(read_config(self.path / CONFIG), config) if old else ()
        return decide(self.path, found, read_state(self.path), differences, **choices)

    def create(self) -> None:
        """Make the folder where missing. UserError where that is impossible."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"output.directory: {self.path}: {error.strerror}") from None

    def write_config(self, text: str) -> None:
        """Replace `config.yaml`."""
        replace_file(self.path / CONFIG, text)

    def clear(self) -> None:
        """Remove what an earlier run wrote, and nothing else: `--overwrite`.

        `inputs/` stays, because the new configuration may read from it; `plots/` and `logs/` stay too.
        """
        # Should this be cut short, the rest must neither look finished nor like nobody's: config.yaml goes
        # last.
        if (self.path / STATE).exists():
            write_state(
                self.path, RunState("stopped", 0, 0.0, 0.0, 0.0, 0.0, 0.0, reason="removal was cut short")
            )
        for name in _ARRAYS:
            _remove_entries(self.path / name, _SAVED)
        for name in SERIES:
            _remove_entries(self.path / f"{name}.parts", _PART)
        for name in reversed(_FILES):
            (self.path / name).unlink(missing_ok=True)
        remove_temporaries(self.path)

    def remove_leftovers(self) -> list[str]:
        """Remove the temporary files of a killed start from the folder itself; one line for each."""
        return [f"removed {path}: left by a run that was killed" for path in remove_temporaries(self.path)]


def claim(
    folder: RunFolder, environ: Mapping[str, str], decision: Callable[[], Decision], **lock: Any
) -> tuple[RunLock | None, Decision]:
    """Decide under the lock. Without a lock where there is nothing to do.

    Raises UserError for a refusal and for a live lock; then nothing was written. `lock` goes to
    `RunLock.acquire`.
    """
    first = decision()
    first.raise_if_refused()
    if first.action is Action.FINISHED:
        return None, first
    folder.create()
    try:
        held = RunLock.acquire(folder.path, environ, **lock)
    except OSError as error:
        raise UserError(f"output.directory: {folder.path}: {error.strerror or error}") from None
    try:
        # Another start may have begun, or ended, between the first look and the lock.
        second = decision()
        second.raise_if_refused()
    except BaseException:
        held.release()
        raise
    if second.action is Action.FINISHED:
        held.release()
        return None, second
    if second.clear:
        folder.clear()
    return held, second


def choose_checkpoint(
    folder: Path, checkpoints: Sequence[Path], problem: Callable[[Path], str | None]
) -> tuple[Path | None, list[str]]:
    """The newest of `checkpoints` (oldest first) for which `problem` finds none, and lines on those skipped.

    (None, line) where none was ever written: the run starts anew, after `RunFolder.clear`.
    RunFailure where there are some but none is good.
    """
    if not checkpoints:
        return None, [f"{folder}: no checkpoint was written; starting from the beginning"]
    lines: list[str] = []
    for checkpoint in reversed(checkpoints):
        trouble = problem(checkpoint)
        if trouble is None:
            return checkpoint, [*lines, f"continuing from {checkpoint}"]
        lines.append(f"skipped {checkpoint}: {trouble}")
    raise RunFailure(
        "\n".join([*lines, f"{folder}: none of its checkpoints is good; start anew with --overwrite"])
    )


def _reached(found: Found, state: RunState | None) -> float | None:
    """The time before which the run cannot end any more."""
    if state is None:
        return None
    return state.time if found is Found.FINISHED else state.last_checkpoint_time


def _continuing(path: Path, state: RunState | None) -> str:
    if state is None:
        return f"{path}: continuing an unfinished run"
    how = {"running": "was cut off", "stopped": "was stopped", "failed": "failed", "finished": "was finished"}
    reason = f" ({state.reason})" if state.reason else ""
    return (
        f"{path}: continuing a run that {how[state.state]} at t = {state.time:g}, step {state.step}{reason}"
    )


def _is_sweep(path: Path) -> bool:
    """Whether a parameter study of this configuration lies there: beside a run, and not part of it."""
    try:
        return json.loads((path / PLAN).read_text())["program"] == SWEEP
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _within(key: str, allowed: str) -> bool:
    return key == allowed or key.startswith(allowed + ".")


def _text(value: Any) -> str:
    return "nothing" if value is None else str(value)


def _remove_entries(folder: Path, pattern: re.Pattern[str]) -> None:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if pattern.fullmatch(path.name):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
