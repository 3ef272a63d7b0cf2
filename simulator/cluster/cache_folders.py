"""The folders of files that runs share: compiled programs, kernels, libraries and measured choices.

What lies there is executed with the user's permissions, so that a folder that others could have
written is not used."""

import contextlib
import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from simulator.errors import UserError, shown


def base_folder(environ: Mapping[str, str]) -> Path:
    """The folder of compiled programs: the value of JAX_COMPILATION_CACHE_DIR, else
    `own_folder`."""
    return _named(environ, "JAX_COMPILATION_CACHE_DIR", "SIMULATOR_CACHE")


def own_folder(environ: Mapping[str, str]) -> Path:
    """The folder of all other cached files: the value of SIMULATOR_CACHE, else the user's cache
    folder."""
    return _named(environ, "SIMULATOR_CACHE")


def _named(environ: Mapping[str, str], *names: str) -> Path:
    for name in names:
        if environ.get(name):
            folder = os.path.expanduser(environ[name])
            if folder.startswith("~"):
                raise UserError(f"{name}: {shown(environ[name])}: there is no such user")
            return Path(folder).absolute()
    home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "simulator"


def private_folder(folder: Path) -> Path:
    """Makes `folder`, for files that will be executed, if it is missing, and returns it. Raises
    OSError if this fails, or if users other than this one and root own the folder, its parent or a
    file in it, or may write there."""
    mode = (
        0o700 if os.geteuid() else 0o755
    )  # every user may read a cache that root has made, as in a container
    folder.parent.mkdir(mode, parents=True, exist_ok=True)
    folder.mkdir(mode, exist_ok=True)
    check_private(folder.parent, sticky=stat.S_ISVTX)
    if (
        stat.S_IMODE(check_private(folder)) & 0o077
    ):  # with mode 700 other users do not reach the files
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # another run may prune at the same time
                check_private(path)
    return folder


def check_private(path: Path, sticky: int = 0) -> int:
    """The mode of a private file or folder. Others may write to a folder with the bit `sticky`,
    because they can only add entries there. Raises PermissionError if `path` is not private."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(
            f"{path} belongs to another user ({status.st_uid}), whose programs are not executed"
        )
    if status.st_mode & 0o022 and not status.st_mode & sticky:
        raise PermissionError(
            f"others may write to {path}; empty it, then: chmod go-w {shlex.quote(str(path))}"
        )
    return status.st_mode
