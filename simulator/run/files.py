"""Files that are replaced whole: a reader sees the old one or the new one, also after a crash or on a full
disk."""

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"
"""Names that begin so are never read, and are removed by the next start."""


def replace_file(path: Path, data: bytes | str) -> None:
    """Write `data` beside `path`, flush it to the disk, and rename it over `path`. OSError leaves `path` as
    it was."""
    raw = data.encode() if isinstance(data, str) else data
    beside = temporary_beside(path)
    try:
        # os.open rather than tempfile: the mode has to follow the umask.
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            write_all(descriptor, raw)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise named(error, path) from None
        raise
    sync_folder(path.parent)


def named(error: OSError, path: Path) -> OSError:
    """The same error with the file in it: `os.write` and `os.fsync` do not name theirs."""
    return OSError(error.errno, error.strerror or str(error), str(path))


def replace_json(path: Path, content: Any) -> None:
    """`replace_file` with `content` as indented JSON."""
    replace_file(path, json.dumps(content, indent=2) + "\n")


def write_all(descriptor: int, data: bytes) -> None:
    """`os.write` until everything is written (a write may be cut short before the disk is full)."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems do not sync folders
            raise
    finally:
        os.close(descriptor)


def temporary_beside(path: Path) -> Path:
    """The name under which this process writes what will be renamed to `path`."""
    return path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")


def remove_temporaries(folder: Path) -> list[Path]:
    """Remove what a killed process left of `replace_file` in `folder`; call it only while holding the run's
    lock."""
    found = [path for path in folder.iterdir() if path.name.startswith(TEMPORARY) and path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    return found
