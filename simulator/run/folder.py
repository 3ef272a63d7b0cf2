"""Classifies the contents of a run folder, decides what `run` does with the folder, and removes an
earlier run.

`decide` is the decision table as a pure function. Commands decide before they start anything;
`claim` takes the lock and decides again."""

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.archive.derived import RESULT
from simulator.archive.ledger import NAME as LEDGER
from simulator.archive.ledger import read_ledger
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.manifest import SAVES, committed, read_manifest
from simulator.archive.run_state import CONFIG, RunState, is_foreign, read_state, write_state
from simulator.archive.run_state import NAME as STATE
from simulator.archive.series_file import series_names
from simulator.archive.set_aside import stored_text
from simulator.config import Change, Difference, RunConfig, diff_configs, load_config
from simulator.config.compare import FROZEN
from simulator.config.load import parse_config
from simulator.errors import RunFailure, UserError
from simulator.files import (
    TEMPORARY,
    read_json,
    refusal,
    remove_temporaries,
    remove_tree,
    with_path,
)
from simulator.measure import OUTPUTS
from simulator.registry import PLUGIN_COMMANDS
from simulator.run.lock import RunLock

if TYPE_CHECKING:  # the folder is looked at without JAX
    from simulator.cluster.start import Cluster

_WRITTEN = ("provenance.json", "run.log", "diagnostics.csv")
# Files derived from other files; the ledger does not record them.
_INDICES = ("snapshots.vtkhdf", "report.html")
_SAVED = re.compile(rf"\d{{8,}}(\.h5|\.vtkhdf|(\.\w+)?\.hdf5)?|{re.escape(TEMPORARY)}.*")
_PART = re.compile(rf"\d{{8,}}\.h5|{re.escape(TEMPORARY)}.*")
_RESULT = re.compile(rf"{RESULT.pattern}|{re.escape(TEMPORARY)}.*")
_BEFORE_CONFIG = (LEDGER, STATE, "run.log", "inputs")
"""Files that a start may have written if it was killed before it wrote `config.yaml`, or could not
write that file and recorded its failure in `state.json`."""
# Entries that a folder may have before a run writes anything: start-up files, job scripts, Slurm's
# output.
_AROUND = re.compile(
    r"lock(\.takeover)?|logs|stop|checkpoint|.*\.(sbatch|sh|out|err)"
    # Hidden files of this program and of file systems. Other hidden files belong to somebody, as in a home folder.
    # Damaged files that a start has set aside.
    r"|.*\.damaged\d*"
    r"|\.(tmp-|lock-|coordinator-|nfs|fuse_hidden).*|\.(job|snapshot|DS_Store|gitignore|gitkeep)"
)
PLAN = "plan.json"
SWEEP = "simulator sweep"
"""The file that marks the folder of a sweep, which may lie beside a run's own files, and the
program named in it."""


def own_names(series: Iterable[str]) -> frozenset[str]:
    """The names of all files and folders that a run with these series writes into its folder."""
    folders = (*SAVES, "plots", "inputs", "logs", "analysis", *PLUGIN_COMMANDS.names)
    files = (CONFIG, STATE, LEDGER, *_WRITTEN, *_INDICES, *folders)
    return frozenset({*files, *(f"{name}{end}" for name in series for end in (".h5", ".parts"))})


class FolderContent(StrEnum):
    """The kind of content at the path of a run folder."""

    ABSENT = "absent"
    EMPTY = "empty"
    PREPARED = "prepared"  # `submit` or a sweep wrote the configuration; nothing was computed.
    UNFINISHED = "unfinished"
    FINISHED = "finished"
    FOREIGN = "foreign"


class Action(StrEnum):
    START = "start"
    CONTINUE = "continue"
    FINISHED = "finished"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Choices:
    """How `run` treats an existing folder."""

    overwrite: bool = False
    allow: Collection[str] = ()
    """Frozen keys whose values may differ from those of the earlier start."""
    command: Sequence[str] = ()


USUAL = Choices()


@dataclass(frozen=True)
class Decision:
    """An action, and the lines that explain the action; with `clear` the earlier run is removed
    first."""

    action: Action
    lines: tuple[str, ...] = ()
    clear: bool = False

    def raise_if_refused(self) -> None:
        if self.action is Action.REFUSE:
            raise UserError(*self.lines)


_ENDED = {
    "running": "was cut off",
    "stopped": "was stopped",
    "failed": "failed",
    "finished": "was finished",
}


def decide(
    path: Path,
    content: FolderContent,
    state: RunState | None = None,
    differences: Sequence[Difference] = (),
    *,
    stop: float | None = None,
    choices: Choices = USUAL,
) -> Decision:
    """The decision table. `stop` is the new `time.stop`."""
    changed = [difference for difference in differences if difference.change is not Change.FREE]
    frozen = _frozen(differences, choices.allow)
    lines = tuple(f"{d.key}: {value_words(d.old)} -> {value_words(d.new)}" for d in changed)

    def refused(why: str) -> Decision:
        return Decision(Action.REFUSE, (f"{path}: {why}",))

    if content is FolderContent.FOREIGN:
        return refused("not a run of this program; choose another folder with --output DIR")
    if content in (FolderContent.ABSENT, FolderContent.EMPTY):
        return Decision(Action.START)
    if choices.overwrite:
        return Decision(Action.START, (f"removing the earlier run in {path}",), clear=True)
    if content is FolderContent.PREPARED:
        return Decision(Action.START, lines)
    if frozen:
        return refused(
            f"holds a run with another {_compared(frozen)}; give this run its own folder with --output DIR, "
            f"replace that run with --overwrite, continue it as it is (simulator resume {path}), or with the "
            f"change: simulator resume {path} {_allowing(frozen)}"
        )
    # The simulation time before which the run cannot end any more.
    reached = state and (
        state.time if content is FolderContent.FINISHED else state.last_checkpoint_time
    )
    if stop is not None and reached is not None and stop < reached and lines:
        return refused(
            f"time.stop: {stop:g} lies before t = {reached:g}, which the run has reached; give a later one"
        )
    if content is FolderContent.FINISHED and not lines:
        at = f" at t = {state.time:g}, step {state.step}" if state else ""
        line = f"{path}: already finished{at}; a later time.stop continues it, --overwrite starts again"
        return Decision(Action.FINISHED, (line,))
    was = "an unfinished run"
    if state is not None:
        reason = f" ({state.reason})" if state.reason else ""
        was = f"a run that {_ENDED[state.state]} at t = {state.time:g}, step {state.step}{reason}"
    return Decision(Action.CONTINUE, (*lines, f"{path}: continuing {was}"))


@dataclass(frozen=True)
class RunFolder:
    """A run folder on disk. Only the process that holds the lock may call the methods that
    write."""

    path: Path

    def content(self) -> FolderContent:
        if not os.path.exists(self.path):
            return FolderContent.ABSENT
        # No run belongs into the user's home folder or a parent of it, even if that is empty.
        home = Path(os.path.realpath(os.path.expanduser("~")))
        if not self.path.is_dir() or home.is_relative_to(os.path.realpath(self.path)):
            return FolderContent.FOREIGN
        try:  # a parameter study may lie in a run folder but is no part of the run
            entries = (
                e for e in self.path.iterdir() if read_json(e / PLAN).get("program") != SWEEP
            )
            names = {entry.name for entry in entries}
            # A network file system may list the folder as it was a minute ago.
            names |= {name for name in (CONFIG, STATE, LEDGER) if (self.path / name).exists()}
        except OSError as error:
            raise refusal(error, "output.directory: ") from None
        if all(_AROUND.fullmatch(name) for name in names):
            return FolderContent.EMPTY
        if CONFIG not in names:
            ours = all(name in _BEFORE_CONFIG or _AROUND.fullmatch(name) for name in names)
            begun = LEDGER in names or read_state(self.path) is not None
            return FolderContent.EMPTY if begun and ours else FolderContent.FOREIGN
        if STATE in names:
            state = read_state(self.path)
            if state is not None:
                finished = state.state == "finished"
                return FolderContent.FINISHED if finished else FolderContent.UNFINISHED
            # A loss of power may have emptied the file; the run's other files show whose it is.
            records = read_ledger(self.path)
            known = records is not None and records.problem is None
            saves = any(committed(self.path / kind) for kind in SAVES)
            if is_foreign(self.path) or not (known or saves):
                return FolderContent.FOREIGN
            return FolderContent.UNFINISHED
        series = series_names(self.path)
        expected = own_names(series)
        if not all(name in expected or _AROUND.fullmatch(name) for name in names):
            return FolderContent.FOREIGN
        results = {"diagnostics.csv", *SAVES, *(f"{name}.h5" for name in series)}
        return FolderContent.UNFINISHED if names & results else FolderContent.PREPARED

    def create(self) -> None:
        """Make the folder if it is missing. Raises UserError if the folder cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refusal(error, "output.directory: ") from None

    def recorded(self) -> Iterator[Path]:
        """The existing files that a run's ledger records; for a snapshot or checkpoint the
        manifest."""
        for name in (CONFIG, *_WRITTEN, *(f"{name}.h5" for name in OUTPUTS.names)):
            if (path := self.path / name).is_file():
                yield path
        for kind in SAVES:
            for folder in committed(self.path / kind):
                if (path := folder / MANIFEST).is_file():
                    yield path
        for name in ("inputs", *(f"{name}.parts" for name in OUTPUTS.names)):
            if (folder := self.path / name).is_dir():
                files = (p for p in folder.iterdir() if not p.name.startswith(TEMPORARY))
                yield from sorted(p for p in files if p.is_file())

    def clear(self) -> None:
        """Remove the files of an earlier run, and nothing else, for `--overwrite`.

        `inputs/` stays, because the new configuration may read from it; `plots/` and `logs/` stay
        too."""
        # If the removal is interrupted, the remaining files must be recognized as an unfinished run
        # of this program. Therefore config.yaml is removed last.
        if (self.path / STATE).exists():
            write_state(
                self.path,
                RunState("stopped", 0, 0.0, 0.0, 0.0, 0.0, 0.0, reason="removal was cut short"),
            )
        ledger = read_ledger(self.path)
        recorded = (Path(name) for name in ledger.files) if ledger else ()
        series = {
            *OUTPUTS.names,
            *(file.stem for file in recorded if len(file.parts) == 1 and file.suffix == ".h5"),
        }
        # The ledger is removed first, because `verify` would report the files removed below as
        # missing.
        (self.path / LEDGER).unlink(missing_ok=True)
        for name in SAVES:
            _remove_entries(self.path / name, _SAVED)
        for name in PLUGIN_COMMANDS.names:
            _remove_entries(self.path / name, _RESULT)
        for name in series:
            _remove_entries(self.path / f"{name}.parts", _PART)
        for name in (
            *(f"{name}.h5" for name in series),
            *_INDICES,
            *reversed(_WRITTEN),
            STATE,
            CONFIG,
        ):
            (self.path / name).unlink(missing_ok=True)
        remove_temporaries(self.path)


def claim(
    folder: RunFolder, environ: Mapping[str, str], decision: Callable[[], Decision], **lock: Any
) -> tuple[RunLock | None, Decision]:
    """Take the lock and decide: another start may have begun, or ended, since the caller has looked
    at the folder. The result has no lock if the run is already finished.

    Raises UserError for a refusal and for a live lock; the folder is then as before. `lock` goes to
    `RunLock.acquire`."""
    folder.create()
    try:
        acquired = RunLock.acquire(folder.path, environ, **lock)
    except OSError as error:
        raise refusal(with_path(error, folder.path), "output.directory: ") from None
    try:
        decided = decision()
        decided.raise_if_refused()
    except BaseException:
        acquired.release()
        raise
    if decided.action is Action.FINISHED:
        acquired.release()
        return None, decided
    if decided.clear:
        folder.clear()
    return acquired, decided


def shared_decision(cluster: "Cluster", action: Callable[[], Decision]) -> Decision:
    """The decision of process 0, on every process."""
    decided = cluster.together(lambda: asdict(action()))
    return Decision(Action(decided["action"]), tuple(decided["lines"]), decided["clear"])


def belongs_to(key: str, allowed: str) -> bool:
    return key == allowed or key.startswith(allowed + ".")


def value_words(value: object) -> str:
    return "nothing" if value is None else str(value)


def _remove_entries(folder: Path, pattern: re.Pattern[str]) -> None:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if pattern.fullmatch(path.name):
            remove_tree(path)
    if not any(folder.iterdir()):
        folder.rmdir()


# The manifest of every checkpoint and snapshot contains the resolved configuration, protected by
# its checksum. Anybody can edit `RUN/config.yaml`; therefore the blocks that may not change are
# taken from the manifest.


def stored_config(checkpoint: Path) -> RunConfig | None:
    """The configuration in the manifest of a checkpoint; None if an earlier version wrote the
    checkpoint without one.

    Raises the errors of `open_snapshot`, and UserError if this version cannot read the
    configuration."""
    text = read_manifest(checkpoint).attributes.get("configuration")
    return parse_config(text, str(checkpoint / MANIFEST)) if text else None


def computed_with(config_file: Path) -> RunConfig:
    """The configuration of the run in the folder of `config_file`, with the frozen blocks of its
    newest checkpoint.

    Raises UserError if the file cannot be read."""
    text = stored_text(config_file.parent)
    config = load_config(config_file, check_files=False, text=text)
    for checkpoint in reversed(committed(config_file.parent / "checkpoints")):
        try:
            stored = stored_config(checkpoint)
        except (RunFailure, UserError):
            continue  # damaged or of another version, so no run continues from it
        frozen = {} if stored is None else {block: getattr(stored, block) for block in FROZEN}
        return config.model_copy(update=frozen)
    return config


def check_restored(checkpoint: Path, now: RunConfig, allow: Collection[str]) -> None:
    """Raises UserError if the frozen keys of `checkpoint` differ from those of `now`."""
    stored = stored_config(checkpoint)
    if stored is not None and (wrong := _frozen(diff_configs(stored, now), allow)):
        raise UserError(
            f"{checkpoint}: was computed with another {_compared(wrong)}; continue with that value, or with "
            f"the change: simulator resume {now.output.directory} {_allowing(wrong)}"
        )


def _frozen(differences: Sequence[Difference], allow: Collection[str]) -> list[Difference]:
    """The frozen keys among `differences`, except those that lie at or below a key in `allow`."""
    return [
        d
        for d in differences
        if d.change is Change.FROZEN and not any(belongs_to(d.key, key) for key in allow)
    ]


def _compared(differences: Sequence[Difference]) -> str:
    return ", ".join(
        f"{key} (there {value_words(old)}, now {value_words(new)})"
        for key, old, new, _ in differences
    )


def _allowing(differences: Sequence[Difference]) -> str:
    """The arguments of `simulator resume` that accept frozen differences."""
    words = [f"{key}={_as_yaml(new)}" for key, _, new, _ in differences]
    words += [word for key, *_ in differences for word in ("--allow", key)]
    return shlex.join(words)


def _as_yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
