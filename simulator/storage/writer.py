"""Saving: every process writes its shard in the background, and they commit together.

A save has two background phases with an agreement after each:

1. every process: make the temporary folder, build, hash and write the own shard;
2. agreement: the records (or errors) of all processes are gathered;
3. process 0: manifest, sync, rename, index, what is to follow a commit (pruning);
4. agreement: process 0 tells how that went.

The host copy is taken inside `submit`, so the caller may donate its buffers at once. Background threads
touch only files and host memory. The agreements are collective and run in the caller's thread, in `poll`,
`wait` or the next `submit`, which every process calls at the same steps: collectives of the computation
and of a save never cross. `busy` may be put into a reduction that the caller makes anyway; `poll` then
costs nothing of its own while a save is under way.
"""

import contextlib
import json
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import RunFailure
from simulator.files import TEMPORARY, reason, remove_tree, write_durably
from simulator.storage.commit import commit, derived_files, folder_name
from simulator.storage.dataset import Block, Dataset, own_blocks
from simulator.storage.index import write_index
from simulator.storage.manifest import FieldEntry, Manifest, ShardEntry
from simulator.storage.options import ALONE, Hook, Options, Processes, no_hook
from simulator.storage.shard import build_shard, shard_name
from simulator.storage.xdmf import write_xdmf


@dataclass
class _Save:
    """One save on one process. `phase` is the background work that was started last."""

    target: Path
    temporary: Path
    step: int
    attributes: dict[str, Any]
    fields: dict[str, FieldEntry]
    options: Options
    after: Callable[[Path], object] | None
    phase: Future[Any] = field(default_factory=Future)
    committing: bool = False


class Writer:
    """Writes snapshots or checkpoints of a run, at most one at a time.

    Constructed, and called, by every process at the same points. `check` is called by process 0 right
    before each commit (is the run's lock still ours?); `hook` on every process at each stage.
    """

    def __init__(
        self,
        cluster: Processes = ALONE,
        *,
        check: Callable[[], None] = lambda: None,
        hook: Hook = no_hook,
    ) -> None:
        self._cluster, self._check, self._hook = cluster, check, hook
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        # a folder of our own: an orphan of a lost node may still be writing into that of its save
        self._token = cluster.broadcast(secrets.token_hex(4))
        self._save: _Save | None = None

    @property
    def outstanding(self) -> bool:
        """Whether a save is under way; the same on every process."""
        return self._save is not None

    @property
    def busy(self) -> bool:
        """Whether this process's background thread still works; differs between processes."""
        return self._save is not None and not self._save.phase.done()

    def submit(
        self,
        parent: Path,
        step: int,
        datasets: Sequence[Dataset],
        attributes: Mapping[str, Any],
        *,
        options: Options = Options(),  # noqa: B008 (frozen)
        after: Callable[[Path], object] | None = None,
    ) -> None:
        """Start saving `datasets` as `parent/<step>`. Returns once they are copied to the host.

        `attributes`: JSON values, among them `time`. `after(folder)` runs on process 0 in the background,
        once the folder is committed. Waits for the save before. Collective; errors of this save surface
        in the next `poll`, `wait` or `submit`.
        """
        self.wait()
        attributes = _plain({**attributes, "time": float(attributes["time"])})
        names = [d.name for d in datasets]
        if len(set(names)) != len(names):
            raise ValueError(f"two data sets of one name: {names}")
        if self._cluster.num_processes == 1 and not all(d.is_whole for d in datasets):
            raise ValueError("arrays of several processes are saved by all of them: pass the cluster")
        fields = {d.name: _entry(d, options) for d in datasets}
        target = Path(parent) / folder_name(step)
        save = _Save(
            target=target,
            temporary=target.with_name(f"{TEMPORARY}{target.name}-{self._token}"),
            step=step,
            attributes=attributes,
            fields=fields,
            options=options,
            after=after,
        )
        try:
            blocks = {
                d.name: own
                for d in datasets
                if (own := own_blocks(d, self._cluster.process_id, np.dtype(fields[d.name].dtype)))
            }
            self._hook("copied")
            save.phase = self._threads.submit(self._write_shard, save, blocks)
        except (
            OSError,
            MemoryError,
            RuntimeError,
        ) as error:  # of this process alone: the others must hear of it
            save.phase.set_exception(error)
        self._save = save

    def poll(self, busy: bool | None = None) -> Path | None:
        """Advance the outstanding save as far as it goes without waiting. Collective.

        `busy`: whether `busy` holds on any process, where the caller has reduced it already.
        Returns the committed folder in the call that learns of the commit, else None. Raises RunFailure,
        on every process, where the save failed on any; its temporary folder is gone then.
        """
        if self._save is None:
            return None
        if busy is None:
            busy = bool(self._cluster.any(np.array([self.busy]))[0])
        if busy:
            return None
        if not self._save.committing:
            self._gather(self._save)
            return None
        return self._finish(self._save)

    def wait(self) -> Path | None:
        """Finish the outstanding save, if any, and return its folder. Collective; raises as `poll`."""
        if self._save is None:
            return None
        if not self._save.committing:
            self._settle(self._save)
            self._gather(self._save)
        self._settle(self._save)
        return self._finish(self._save)

    def close(self) -> None:
        """End the background thread; an unfinished save stays uncommitted, and process 0 removes what there is."""
        self._threads.shutdown(wait=True)
        if self._save is not None and self._cluster.process_id == 0:
            with contextlib.suppress(OSError):
                remove_tree(self._save.temporary)

    def _settle(self, save: _Save) -> None:
        wait([save.phase])  # an error is looked at where all processes agree on it

    def _gather(self, save: _Save) -> None:
        error = save.phase.exception()
        reports = self._cluster.gather(
            {"error": f"process {self._cluster.process_id} on {socket.gethostname()}: {reason(error)}"}
            if error
            else {"shard": save.phase.result()}
        )
        if failures := [r["error"] for r in reports if "error" in r]:
            self._fail(save, _not_written(save, failures[0]), error)
        self._hook("gathered")
        manifest = Manifest(
            step=save.step,
            time=save.attributes["time"],
            index=save.options.index,
            compression=save.options.compression,
            attributes=save.attributes,
            fields=save.fields,
            shards=tuple(ShardEntry.model_validate(r["shard"]) for r in reports if r["shard"]),
        )
        if problems := manifest.problems():
            self._fail(save, _not_written(save, problems[0]))
        if save.options.require_finite and (bad := manifest.nonfinite()):
            counts = ", ".join(f"{name} has {n} values that are not finite" for name, n in bad.items())
            self._fail(save, _not_written(save, counts))
        save.committing = True
        save.phase = (
            self._threads.submit(self._commit, save, manifest) if self._cluster.process_id == 0 else _done()
        )

    def _finish(self, save: _Save) -> Path:
        error = save.phase.exception()
        line = None
        if error:
            line = str(error) if isinstance(error, RunFailure) else _not_written(save, reason(error))
        line = self._cluster.broadcast(line)
        if line:
            self._fail(save, line, error)
        self._save = None
        self._hook("done")
        return save.target

    def _fail(self, save: _Save, line: str, error: BaseException | None = None) -> None:
        """Raise the failure that all processes have agreed on; process 0 removes the temporary folder."""
        self._save = None
        if self._cluster.process_id == 0:
            with contextlib.suppress(OSError):
                remove_tree(save.temporary)
        raise RunFailure(line) from error

    def _write_shard(self, save: _Save, blocks: dict[str, list[Block]]) -> dict[str, Any] | None:
        """This process's record; None where it has nothing to store."""
        (save.temporary / "shards").mkdir(parents=True, exist_ok=True)
        self._hook("folder made")
        if not blocks:
            return None
        process_id = self._cluster.process_id
        pieces, record = build_shard(process_id, save.fields, blocks, save.options.compression)
        write_durably(save.temporary / shard_name(process_id), pieces)
        self._hook("shard written")
        return record.model_dump(mode="json")

    def _commit(self, save: _Save, manifest: Manifest) -> None:
        self._check()  # whoever took the run over has removed the temporary folder: say that, not that it is missing
        commit(save.temporary, save.target, manifest, self._check, self._hook)
        try:
            if manifest.index:
                self._check()  # the folder may be another's by now, under the same name
                write_index(save.target, manifest)
                write_xdmf(save.target, manifest)
                self._hook("index written")
            if save.after:
                save.after(save.target)
        except Exception as error:
            raise RunFailure(f"{save.target} is committed, but then: {reason(error)}") from error


def save(
    parent: Path,
    step: int,
    datasets: Sequence[Dataset],
    attributes: Mapping[str, Any],
    *,
    cluster: Processes = ALONE,
    options: Options = Options(),  # noqa: B008 (frozen)
    check: Callable[[], None] = lambda: None,
    hook: Hook = no_hook,
) -> Path:
    """Write `datasets` as `parent/<step>` and return the committed folder. Collective.

    Raises RunFailure, on every process, where it could not be written.
    """
    writer = Writer(cluster, check=check, hook=hook)
    try:
        writer.submit(parent, step, datasets, attributes, options=options)
        folder = writer.wait()
    finally:
        writer.close()
    assert folder is not None
    return folder


def rebuild_index(folder: Path, manifest: Manifest) -> list[Path]:
    """Make the index and the XDMF sidecar of a committed folder where they are missing; those made."""
    if not manifest.index:
        return []
    makers = zip(derived_files(folder), (write_index, write_xdmf), strict=True)
    made = []
    for path, make in makers:
        if not path.exists():
            make(folder, manifest)
            made.append(path)
    return made


def _entry(dataset: Dataset, options: Options) -> FieldEntry:
    entry = FieldEntry(
        dtype=dataset.dtype.str,
        components=dataset.components,
        axes=dataset.axes,
        hermitian=dataset.hermitian,
        attributes=_plain(dataset.attributes),
    )
    dtype = options.dtype(dataset.dtype, entry.is_mesh)
    return entry.model_copy(update={"dtype": dtype.str})


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that the caller cannot change any more. Raises TypeError or ValueError for what JSON lacks."""
    return json.loads(json.dumps(dict(attributes), allow_nan=False))


def _not_written(save: _Save, line: str) -> str:
    return f"{save.target} was not written: {line}; what was there before is untouched"


def _done() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(None)
    return future
