"""The retention policy: removes old snapshots or checkpoints."""

from pathlib import Path

from simulator.archive.commit import committed_names, remove
from simulator.archive.verify_snapshot import verify
from simulator.files import UNRECORDED, Journal


def prune(
    parent: Path, keep_last: int, keep_every: int | None = None, journal: Journal = UNRECORDED
) -> list[Path]:
    """Remove all but the `keep_last` newest folders, keeping those whose step is a multiple of `keep_every`.

    Nothing is removed unless the newest folder has been read back and verified. Returns the removed folders;
    each is recorded in `journal` first.
    """
    if keep_last < 1:
        raise ValueError(f"keep_last = {keep_last}: must be at least 1")
    names = committed_names(parent)
    old = [parent / name for name in names[:-keep_last] if not keep_every or int(name) % keep_every]
    if not old or not verify(parent / names[-1]).restorable:
        return []
    for folder in old:
        journal.removing(folder, f"the last {keep_last} are kept")
        remove(folder)
    return old
