"""Atomic writes: every file is written beside its target, synced and renamed into place.

Every failure is a plain OSError that names the file; file modes follow the umask. Each change is
announced to a `Journal` before it becomes visible."""

import contextlib
import errno
import itertools
import json
import math
import os
import secrets
import shutil
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import xxhash

from simulator.errors import RunFailure, UserError, printable, shortened

if TYPE_CHECKING:
    import h5py

TEMPORARY = ".tmp-"  # Prefix of names that are never read and that the next start removes.
_PIECE = 1 << 20
Stored = TypeVar("Stored")


class Journal:
    """Receives the changes to files before they happen. This class ignores them; the run's ledger
    records them."""

    sync = True  # Whether each file is made durable before its rename.

    def writing(self, path: Path, size: int, digest: str) -> None:
        """`path` is about to be replaced by a file of `size` bytes whose xxh3 is `digest`."""

    def written(self, path: Path) -> None:
        """The replacement announced by `writing` is complete."""

    def kept(self, paths: Iterable[Path]) -> None:
        """The files `paths` are complete and will not change."""

    def removing(self, path: Path, why: str) -> None:
        """`path`, everything below it and everything derived from it is about to be removed."""

    def appending(self, path: Path) -> "AppendedFile":
        """Open `path` for appending; the journal may read the size and the checksum of the file at
        any time."""
        return AppendedFile(path)


UNRECORDED = Journal()


class AppendedFile:
    """A file that grows at its end, with the checksum of all its bytes kept up to date."""

    def __init__(self, path: Path) -> None:
        """Open `path`, creating it if missing, and read its present content for the checksum."""
        self.path = path
        self._hash = xxhash.xxh3_64()
        self._descriptor: int | None = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666
        )
        self.mark = checksum(pieces_of(path), self._hash)
        """Number of bytes and their xxh3, one tuple so that other threads read a consistent
        pair."""

    def append(self, data: bytes) -> None:
        """Write `data` at the end. After an OSError the file holds nothing of `data`."""
        assert self._descriptor is not None
        before = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, data)
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            raise with_path(error, self.path) from None
        self._hash.update(data)
        self.mark = self.mark[0] + len(data), self._hash.hexdigest()

    def sync(self) -> None:
        """Make everything appended so far durable."""
        if self._descriptor is None:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise with_path(error, self.path) from None

    def close(self) -> None:
        """Close the file; `mark` keeps its value."""
        if self._descriptor is not None:
            descriptor = self._descriptor
            self._descriptor = None
            os.close(descriptor)


def checksum(
    data: Iterable[bytes | memoryview], digest: xxhash.xxh3_64 | None = None
) -> tuple[int, str]:
    """Number of bytes in the pieces of `data`, and their xxh3, which `digest` computes."""
    digest = digest or xxhash.xxh3_64()
    size = 0
    for piece in data:
        digest.update(piece)
        size += memoryview(piece).nbytes
    return size, digest.hexdigest()


def pieces_of(path: Path, most: float = math.inf) -> Iterator[bytes]:
    """The bytes of a file, a megabyte at a time; at most its first `most` bytes."""
    with open(path, "rb", buffering=0) as file:
        while most > 0 and (piece := file.read(int(min(_PIECE, most)))):
            most -= len(piece)
            yield piece


def write_durably(
    path: Path, data: Iterable[bytes | memoryview], journal: Journal = UNRECORDED, sync: bool = True
) -> None:
    """Write the pieces of `data` beside `path`, sync, and rename to `path`: all of the file or
    nothing.

    `journal.writing` is called right before the rename. Without `sync` a failure of the machine may
    damage the file. Raises OSError (ENOSPC, EFBIG, EDQUOT, EROFS, ...), which names `path`, and
    leaves no temporary file behind."""
    digest = xxhash.xxh3_64()
    size = 0
    # A run and `verify` may write the same index at once, so temporary names are unique.
    beside = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for piece in data:
                write_all(descriptor, piece)
                if journal is not UNRECORDED:
                    digest.update(piece)
                    size += memoryview(piece).nbytes
            if sync and journal.sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)  # network file systems report a full disk here at the latest
        journal.writing(path, size, digest.hexdigest())
        os.replace(beside, path)
        journal.written(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise with_path(error, path) from None
        raise


def replace_file(
    path: Path, data: bytes | str, journal: Journal = UNRECORDED, sync: bool = True
) -> None:
    """`write_durably` for a small file, including the sync of its folder."""
    write_durably(path, [data.encode() if isinstance(data, str) else data], journal, sync)
    if sync and journal.sync:
        sync_folder(path.parent)


def replace_json(path: Path, content: object, journal: Journal = UNRECORDED) -> None:
    """`replace_file` with `content` as indented JSON."""
    replace_file(path, json.dumps(content, indent=2) + "\n", journal)


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if the file is missing, cannot be read or holds no
    mapping."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def dataclass_from(kind: type[Stored], content: Mapping[str, Any]) -> Stored | None:
    """The dataclass `kind` whose fields are in `content`; None if a field is missing. Other keys
    are ignored."""
    names = _names(kind)
    with contextlib.suppress(TypeError):
        return kind(**{name: value for name, value in content.items() if name in names})
    return None


@cache
def _names(kind: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """`os.write` until everything is written: one call writes at most 2 GiB and may write less."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(path: Path) -> None:
    """Sync a folder, so that renames in it are durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not sync folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise with_path(error, path) from None
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove a folder or file, also if another process is removing it at the same time."""
    while os.path.lexists(path):
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextlib.contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, which takes the place of `path` at the end of the `with` block.
    After an exception, `path` is as it was."""
    new = path.with_name(f"{TEMPORARY}{path.name}")
    old = path.with_name(f"{TEMPORARY}old-{path.name}")
    if old.exists() and not path.exists():  # the last process was killed between the two renames
        old.rename(path)
    remove_tree(old)
    remove_tree(new)
    new.mkdir()
    try:
        yield new
        if path.exists():
            path.rename(old)
        new.rename(path)
    finally:
        remove_tree(new)
    remove_tree(old)


def set_aside(path: Path) -> str:
    """Rename a damaged file or folder to `NAME.damaged`, or with a number where that is taken;
    returns the new name."""
    names = (f"{path.name}.damaged{number or ''}" for number in itertools.count())
    name = next(name for name in names if not os.path.lexists(path.with_name(name)))
    path.rename(path.with_name(name))
    return name


def remove_temporaries(folder: Path) -> list[Path]:
    """Remove the temporary files that a killed process left in `folder`; only the writer of
    `folder` calls this."""
    temporaries = [
        path for path in folder.iterdir() if path.name.startswith(TEMPORARY) and path.is_file()
    ]
    for path in temporaries:
        path.unlink(missing_ok=True)
    return temporaries


def with_path(error: OSError, path: Path) -> OSError:
    """The same error with the name of the file: `os.write` and `os.fsync` raise errors without a
    name."""
    return OSError(error.errno, error.strerror or str(error), str(path))


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around calls of HDF5, numpy or a text decoder that read the file at `path`: their errors, of
    whatever class, become an OSError that names the file."""
    try:
        yield
    except (UserError, RunFailure):
        raise
    except Exception as error:  # numpy and HDF5 raise errors of many classes for damaged bytes
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        text = str(error).partition("\n")[0] or type(error).__name__
        raise OSError(None, f"cannot be read: {text}", str(path)) from error


def lies_elsewhere(stored: Any, file: "h5py.File") -> bool:
    """Whether the values of a data set lie in other files than `file`: a virtual data set, whose
    missing sources read as zeros, external storage, or a link."""
    elsewhere = stored.file.filename != file.filename
    return elsewhere or stored.is_virtual or bool(stored.external)


_MISTAKES = (
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.EPERM,
    errno.EROFS,
)
"""Errors of the system that another path or other permissions would avoid."""


_NO_MEMORY = (
    # JAX's, with the status of XLA; the dynamic linker's; and Python's.
    "RESOURCE_EXHAUSTED",
    "failed to map segment",
    "cannot allocate memory",
    "can't start new thread",
)


def out_of_memory(error: BaseException) -> str | None:
    """The line about a memory that is too small; None for another error."""
    if isinstance(error, OSError):
        if error.errno != errno.ENOMEM:
            return None
    elif not isinstance(error, MemoryError):
        text = str(error).lower()
        of_memory = any(words.lower() in text for words in _NO_MEMORY)
        if not (isinstance(error, ImportError | RuntimeError) and of_memory):
            return None
    return (
        f"out of memory ({shortened(reason(error), 200)}); use more devices or a coarser grid, or raise "
        "the limits of the job (ulimit -v); simulator plan shows what a run needs"
    )


def ending(error: BaseException) -> tuple[int, str] | None:
    """The exit code and the message of a program that `error` ends. None for a bug of this program,
    whose traceback is to be shown.

    A file that is missing or must not be used is the user's mistake (2); a full disk, a limit or a
    damaged file is a failure (1). `sys.exit` in a user's function is a mistake: the program has not
    done what it was asked for."""
    match error:
        case UserError():
            return 2, str(error)
        case RunFailure():
            return 1, str(error)
        case KeyboardInterrupt():
            return 130, "interrupted"
        case SystemExit():
            return 2, exit_called(error)
        case _ if (line := out_of_memory(error)) is not None:
            return 1, line
        case OSError() if error.filename is not None and error.strerror:
            code = 2 if error.errno in _MISTAKES else 1
            return code, f"{shortened(str(error.filename), 200)}: {printable(error.strerror)}"
        case OSError() if error.errno is not None:
            place = traceback.extract_tb(error.__traceback__)[-1]
            return 1, f"{error.strerror}, in {place.name} ({place.filename}:{place.lineno})"
    return None


def refusal(error: OSError, beginning: str = "") -> UserError | RunFailure:
    """The exception that ends a command as `error` would, with a message that begins with the key
    or the option that names the file."""
    code, line = ending(error) or (1, str(error))
    return (UserError if code == 2 else RunFailure)(f"{beginning}{line}")


def exit_called(error: SystemExit) -> str:
    """The message for a user's function that has called `sys.exit`."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{place.filename}:{place.lineno}: {place.name}: called sys.exit({error.code!r}); "
        "a function that this program calls has to return, or to raise an error"
    )


def reason(error: BaseException) -> str:
    """An error as one line for the user: `No space left on device: /scratch/run/...`."""
    if isinstance(error, RunFailure | UserError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    kind = type(error).__name__
    return f"{kind}: {error}".splitlines()[0] if str(error) else kind
