"""Which of the older snapshots or checkpoints go, and when."""

from pathlib import Path

from simulator.storage.commit import committed, remove
from simulator.storage.verify import verify


def prune(parent: Path, keep_last: int, keep_every: int | None = None) -> list[Path]:
    """Remove all but the `keep_last` newest folders, keeping those whose step is a multiple of `keep_every`.

    Nothing is removed unless the newest one's data have been read back and are good. Returns what was
    removed.
    """
    if keep_last < 1:
        raise ValueError(f"keep_last = {keep_last}: at least one is kept")
    folders = committed(parent)
    old = [f for f in folders[:-keep_last] if not keep_every or int(f.name) % keep_every]
    if not old or not verify(folders[-1]).restorable:
        return []
    for folder in old:
        remove(folder)
    return old
