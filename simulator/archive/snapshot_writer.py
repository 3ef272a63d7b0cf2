"""Saves snapshots: every process writes its shard in the background, then all commit together.

1. Every process makes the temporary folder and builds, hashes and writes its shard, in the background;
2. agreement: the records (or errors) of all processes are gathered;
3. process 0 writes the manifest, syncs, renames, writes the index and prunes, in the background;
4. agreement: process 0 broadcasts the outcome.

`submit` copies the arrays to the host, so the caller may donate its buffers at once. The agreements
are collective operations in the caller's thread, in `poll`, `wait` or the next `submit`, which
every process calls at the same steps, so that they never interleave with collectives of the
computation. If the caller includes `busy` in a reduction that it makes anyway, `poll` needs no
communication while a save is under way."""

import contextlib
import json
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simulator.archive.derived import make_derived
from simulator.archive.manifest import NAME as MANIFEST
from simulator.archive.manifest import (
    Compression,
    FieldEntry,
    Hook,
    Manifest,
    ShardEntry,
    derived_files,
    discard,
    name_of_step,
)
from simulator.archive.shard import Block, Dataset, build_shard, shard_name
from simulator.cluster.start import Cluster
from simulator.errors import RunFailure
from simulator.files import TEMPORARY, reason, remove_tree, sync_folder, write_durably


@dataclass(frozen=True)
class Options:
    """How a snapshot or checkpoint is written.

    `compression`: none, gzip or blosc2 (all lossless; blosc2 needs the package hdf5plugin).
    `single`: round fields over space or wavenumbers to 32 bits; small arrays stay exact.
    `index`: also write the index of virtual data sets and the VTKHDF sidecar.
    `require_finite`: refuse to commit NaNs and infinities.
    `sync`: make the files durable before the commit."""

    compression: Compression = "none"
    single: bool = False
    index: bool = True
    require_finite: bool = True
    sync: bool = True

    def dtype(self, dtype: np.dtype, is_mesh: bool) -> np.dtype:
        if self.single and is_mesh and dtype.kind in "fc":
            return np.dtype(np.float32 if dtype.kind == "f" else np.complex64)
        return dtype


@dataclass
class _Save:
    """One save on one process. `manifest` has no shards yet; `phase` is the latest background work
    of the save."""

    target: Path
    temporary: Path
    manifest: Manifest
    options: Options
    after: Callable[[Path], object] | None
    phase: Future[Any] = field(default_factory=Future)
    committing: bool = False


class Writer:
    """Writes snapshots or checkpoints of a run, at most one at a time.

    Every process constructs a writer and calls its methods at the same points. Right before each
    commit, when `temporary` contains the manifest, process 0 calls `check`, which raises if the
    run's lock has been lost, then `announce(temporary, target)`. `hook` is called on every process
    with the name of each stage that it reaches."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        check: Callable[[], None] = lambda: None,
        announce: Callable[[Path, Path], None] = lambda temporary, target: None,
        hook: Hook = lambda stage: None,
    ) -> None:
        self._cluster = cluster
        self._check = check
        self._announce = announce
        self._hook = hook
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="storage")
        # An orphaned process of a lost node may still write into an earlier temporary folder, so
        # names are unique.
        self._token = cluster.broadcast(secrets.token_hex(4))
        self._save: _Save | None = None

    @property
    def outstanding(self) -> bool:
        """Whether a save is under way; the same on every process."""
        return self._save is not None

    @property
    def busy(self) -> bool:
        """Whether this process's background thread is still working; differs between processes."""
        return self._save is not None and not self._save.phase.done()

    def submit(
        self,
        parent: Path,
        step: int,
        datasets: Sequence[Dataset],
        attributes: Mapping[str, Any],
        *,
        options: Options = Options(),
        after: Callable[[Path], object] | None = None,
    ) -> None:
        """Start saving `datasets` as `parent/<step>`. Returns when the data sets are copied to the
        host.

        `attributes`: JSON values, including `time`. `after(folder)` runs on process 0 in the
        background once the folder is committed. Waits for the previous save. Collective; errors of
        this save surface in the next `poll`, `wait` or `submit`."""
        self.wait()
        attributes = _plain({**attributes, "time": float(attributes["time"])})
        fields = {d.name: _entry(d, options) for d in datasets}
        manifest = Manifest(
            step=step,
            time=attributes["time"],
            index=options.index,
            compression=options.compression,
            attributes=attributes,
            fields=fields,
            shards=(),
        )
        target = Path(parent) / name_of_step(step)
        temporary = target.with_name(f"{TEMPORARY}{target.name}-{self._token}")
        save = _Save(target, temporary, manifest, options, after)
        try:
            process = self._cluster.process_id
            types = {name: np.dtype(entry.stored.dtype) for name, entry in fields.items()}
            blocks = {d.name: own for d in datasets if (own := d.blocks(process, types[d.name]))}
            self._hook("copied")
            save.phase = self._threads.submit(self._write_shard, save, blocks)
        except (OSError, MemoryError, RuntimeError) as error:
            # The other processes learn of this error in the agreement.
            save.phase.set_exception(error)
        self._save = save

    def poll(self, busy: bool | None = None) -> Path | None:
        """Advance the outstanding save as far as possible without waiting. Collective.

        `busy`: whether `self.busy` is true on any process, if the caller has reduced this flag
        already. Returns the committed folder in the call that learns of the commit, else None. If
        the save failed on any process, removes the temporary folder and raises RunFailure on every
        process."""
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
        """Finish the outstanding save, if any, and return its folder. Collective; raises like
        `poll`."""
        if self._save is None:
            return None
        # Errors are raised where all processes agree on them.
        if not self._save.committing:
            wait([self._save.phase])
            self._gather(self._save)
        wait([self._save.phase])
        return self._finish(self._save)

    def close(self) -> None:
        """End the background thread. An unfinished save stays uncommitted; process 0 removes its
        temporary folder."""
        self._threads.shutdown(wait=True)
        if self._save is not None and self._cluster.process_id == 0:
            with contextlib.suppress(OSError):
                remove_tree(self._save.temporary)

    def _gather(self, save: _Save) -> None:
        error = save.phase.exception()
        reports = self._cluster.gather(
            {
                "error": f"process {self._cluster.process_id} on {socket.gethostname()}: {reason(error)}"
            }
            if error
            else {"shard": save.phase.result()}
        )
        if failures := [r["error"] for r in reports if "error" in r]:
            self._fail(save, _not_written(save, failures[0]), error)
        self._hook("gathered")
        shards = tuple(ShardEntry.model_validate(r["shard"]) for r in reports if r["shard"])
        manifest = save.manifest.model_copy(update={"shards": shards})
        if problems := manifest.problems():
            self._fail(save, _not_written(save, problems[0]))
        if save.options.require_finite and (bad := manifest.nonfinite()):
            counts = ", ".join(
                f"{name} has {n} values that are not finite" for name, n in bad.items()
            )
            self._fail(save, _not_written(save, counts))
        save.committing = True
        commits = self._cluster.process_id == 0
        save.phase = self._threads.submit(
            partial(self._commit, save, manifest) if commits else lambda: None
        )

    def _finish(self, save: _Save) -> Path:
        error = save.phase.exception()
        line = None
        if error:
            line = (
                str(error) if isinstance(error, RunFailure) else _not_written(save, reason(error))
            )
        line = self._cluster.broadcast(line)
        if line:
            self._fail(save, line, error)
        self._save = None
        self._hook("done")
        return save.target

    def _fail(self, save: _Save, line: str, error: BaseException | None = None) -> None:
        """Raise the failure that all processes have agreed on, after process 0 has removed the
        temporary folder."""
        self._save = None
        if self._cluster.process_id == 0:
            with contextlib.suppress(OSError):
                remove_tree(save.temporary)
        raise RunFailure(line) from error

    def _write_shard(self, save: _Save, blocks: dict[str, list[Block]]) -> dict[str, Any] | None:
        """The record of this process's shard; None if the process has no blocks to store."""
        (save.temporary / "shards").mkdir(parents=True, exist_ok=True)
        self._hook("folder made")
        if not blocks:
            return None
        process_id = self._cluster.process_id
        pieces, record = build_shard(
            process_id, save.manifest.fields, blocks, save.manifest.compression
        )
        write_durably(save.temporary / shard_name(process_id), pieces, sync=save.options.sync)
        self._hook("shard written")
        return record.model_dump(mode="json")

    def _commit(self, save: _Save, manifest: Manifest) -> None:
        self._check()  # first: a takeover also removes the temporary folder, and this error names the takeover

        def check() -> None:
            self._check()
            self._announce(save.temporary, save.target)

        commit(save.temporary, save.target, manifest, check, self._hook, save.options.sync)
        try:
            if manifest.index:
                self._check()  # another process may have committed a folder of the same name meanwhile
                make_derived(save.target, manifest)
                self._hook("index written")
            if save.after:
                save.after(save.target)
        except Exception as error:
            raise RunFailure(f"{save.target} is committed, but then: {reason(error)}") from error


def commit(
    temporary: Path,
    target: Path,
    manifest: Manifest,
    check: Callable[[], None],
    hook: Hook,
    sync: bool = True,
) -> None:
    """Write the manifest into `temporary`, sync everything if `sync` is set, and rename it to
    `target`.

    `check` is called right before the first visible change; if it raises, `target` stays as it
    was."""
    write_durably(temporary / MANIFEST, [manifest.encode()], sync=sync)
    hook("manifest written")
    for folder in (temporary / "shards", temporary) if sync else ():
        sync_folder(folder)
    check()
    hook("before rename")
    aside = None
    if target.exists():
        # The old index would describe the new shards by the old layout; a missing index is rebuilt.
        for path in derived_files(target):
            path.unlink(missing_ok=True)
        aside = target.with_name(
            f"{TEMPORARY}old-{target.name}-{temporary.name.rpartition('-')[2]}"
        )
        target.rename(aside)
        hook("moved aside")
    try:
        temporary.rename(target)
    except OSError:
        if aside is not None:
            aside.rename(target)
        raise
    hook("renamed")
    try:
        if sync:
            sync_folder(target.parent)
    except OSError as error:
        raise RunFailure(f"{target} is committed, but then: {reason(error)}") from error
    if aside is not None:
        discard(aside)
    hook("committed")


def _entry(dataset: Dataset, options: Options) -> FieldEntry:
    names = ("components", "axes", "hermitian", "species")
    described = {name: vars(dataset)[name] for name in names}
    entry = FieldEntry(dtype=dataset.dtype.str, attributes=_plain(dataset.attributes), **described)
    dtype = options.dtype(dataset.dtype, entry.is_mesh)
    if dataset.rounding is not None:
        # Shells of small amplitude would not survive the round-off of single values.
        dtype = np.result_type(dtype, np.float64)
    return entry.model_copy(update={"dtype": dtype.str, "rounded": dataset.rounding})


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(dict(attributes), allow_nan=False))


def _not_written(save: _Save, line: str) -> str:
    return f"{save.target} was not written: {line}; earlier files are untouched"
