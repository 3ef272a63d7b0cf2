"""Committing folders: `00000010` is committed, `.tmp-...` never is.

The rename of a finished folder is its commit. An older folder of the same step is first moved to
`.tmp-old-...` and removed after the rename; if the process is killed in between, `clean_leftovers`
puts it back.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path

from simulator.errors import RunFailure
from simulator.files import TEMPORARY, reason, remove_tree, sync_folder, write_durably
from simulator.storage.manifest import COMMITTED, NAME, Manifest
from simulator.storage.options import Hook

_DERIVED = re.compile(r"(\d{8,})\.(h5|vtkhdf)")
_OLD = re.compile(re.escape(TEMPORARY) + r"old-(\d{8,})-.*")


def folder_name(step: int) -> str:
    """`00000010` for step 10."""
    return f"{step:08d}"


def derived_files(folder: Path) -> tuple[Path, Path]:
    """The index and the VTKHDF sidecar of a committed folder; they may be absent."""
    return folder.with_name(folder.name + ".h5"), folder.with_name(folder.name + ".vtkhdf")


def committed_names(parent: Path) -> list[str]:
    """The names of the committed folders in `parent`, by ascending step; damaged ones too."""
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:
        return sorted((e.name for e in entries if COMMITTED.fullmatch(e.name) and e.is_dir()), key=int)


def committed(parent: Path) -> list[Path]:
    """The committed folders in `parent`, by ascending step; damaged ones too."""
    return [parent / name for name in committed_names(parent)]


def commit(temporary: Path, target: Path, manifest: Manifest, check: Callable[[], None], hook: Hook) -> None:
    """Write the manifest into `temporary`, sync everything and rename it to `target`.

    `check` is called right before the first visible change; if it raises, `target` stays as it was.
    """
    write_durably(temporary / NAME, [manifest.encode()])
    hook("manifest written")
    sync_folder(temporary / "shards")
    sync_folder(temporary)
    check()
    hook("before rename")
    aside = None
    if target.exists():
        # The old index would map the new shards by the old layout; a missing index is rebuilt.
        for path in derived_files(target):
            path.unlink(missing_ok=True)
        aside = target.with_name(f"{TEMPORARY}old-{target.name}-{temporary.name.rpartition('-')[2]}")
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
        sync_folder(target.parent)
    except OSError as error:
        raise RunFailure(f"{target} is committed, but then: {reason(error)}") from error
    if aside is not None:
        _discard(aside)
    hook("committed")


def remove(folder: Path) -> None:
    """Remove a committed folder and its derived files. A kill in between leaves no half-removed folder."""
    doomed = folder.with_name(f"{TEMPORARY}removed-{folder.name}-{secrets.token_hex(4)}")
    folder.rename(doomed)
    for path in derived_files(folder):
        path.unlink(missing_ok=True)
    _discard(doomed)


def _discard(temporary: Path) -> None:
    """Remove a temporary folder; if that fails (open files on NFS), the next start removes it."""
    with contextlib.suppress(OSError):
        remove_tree(temporary)


def clean_leftovers(parent: Path) -> list[str]:
    """Remove the leftovers of a killed writer in `parent`; returns a line for each file removed or put back.

    Only the one writer of a run calls this, at its start, never while a save is under way.
    """
    lines: list[str] = []
    if not parent.is_dir():
        return lines
    for path in sorted(p for p in parent.iterdir() if p.name.startswith(TEMPORARY)):
        old = _OLD.fullmatch(path.name)
        if old and not (parent / old[1]).exists():
            path.rename(parent / old[1])
            lines.append(f"put back {parent / old[1]}: its replacement was never committed")
            continue
        try:
            remove_tree(path)
            lines.append(f"removed {path}: left by a run that was killed")
        except OSError as error:
            lines.append(f"cannot remove {path}, left by a run that was killed: {reason(error)}")
    for path in sorted(parent.iterdir()):
        derived = _DERIVED.fullmatch(path.name)
        if derived and not (parent / derived[1]).exists():
            path.unlink()
            lines.append(f"removed {path}: its folder {derived[1]} does not exist")
    return lines
