"""Writing that either happened or did not: whole files, synced, renamed into place.

Nothing here knows what the bytes mean. Every failure is a plain OSError that names the file; modes
follow the umask.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from simulator.errors import RunFailure, UserError

TEMPORARY = ".tmp-"
"""Names that begin so are never read and are removed by the next start."""


def write_durably(path: Path, data: Iterable[bytes | memoryview]) -> None:
    """Write the pieces of `data` beside `path`, sync, and rename to `path`: the whole file or none.

    Raises OSError (ENOSPC, EFBIG, EDQUOT, EROFS, ...) with `path` named and nothing left behind.
    """
    # Two processes may write one file (a run its index, verify the same): each has its own name until the rename.
    beside = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for piece in data:
                write_all(descriptor, piece)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)  # network file systems report a full disk here at the latest
        os.replace(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise named(error, path) from None
        raise


def replace_file(path: Path, data: bytes | str) -> None:
    """`write_durably` a small file, and its name."""
    write_durably(path, [data.encode() if isinstance(data, str) else data])
    sync_folder(path.parent)


def replace_json(path: Path, content: Any) -> None:
    """`replace_file` with `content` as indented JSON."""
    replace_file(path, json.dumps(content, indent=2) + "\n")


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """`os.write` until everything is written: one call takes at most 2 GiB and may stop short."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems do not sync folders
            raise named(error, path) from None
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove a folder or file. What another process removes at the same time is no error."""
    while os.path.lexists(path):
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def remove_temporaries(folder: Path) -> list[Path]:
    """Remove what a killed process left of `write_durably` in `folder`; for the one writer of that folder."""
    found = [path for path in folder.iterdir() if path.name.startswith(TEMPORARY) and path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    return found


def named(error: OSError, path: Path) -> OSError:
    """The same error with the file in it: `os.write` and `os.fsync` do not name theirs."""
    return OSError(error.errno, error.strerror or str(error), str(path))


def reason(error: BaseException) -> str:
    """One line for a person: `No space left on device: /scratch/run/...`."""
    if isinstance(error, RunFailure | UserError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}".splitlines()[0] if str(error) else type(error).__name__
