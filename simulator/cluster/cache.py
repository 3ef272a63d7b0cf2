"""Where compiled programs and measured choices are kept between runs.

Programs with `custom_partitioning` never hit JAX's cache as it stands, because the key holds a Python
pointer. Without the pointer they do, but then the key knows nothing of the rule: the body of the operation
is in Python, not in the program. The folder's name makes up for it: it holds a hash of every source that a
rule is built from. What a rule closes over (parameters, a plan) has to be in the jitted function's name.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import simulator
from simulator.cluster.hardware import cpu_model

# rules are built from these parts of the package: the transforms, and the pointwise functions they run
SOURCES = ("spectral", "models", "forcing", "initial", "stepping", "diagnostics")
LIMIT = 2 << 30  # bytes, over all folders


def base_folder(environ: Mapping[str, str]) -> Path:
    """JAX_COMPILATION_CACHE_DIR, else SIMULATOR_CACHE, else the user's cache folder."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "SIMULATOR_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser().absolute()
    home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "simulator"


def folder_name(platform: str, package: Path | None = None) -> str:
    """`cpu-PROCESSOR-SOURCES` or `gpu-SOURCES`: what, besides the program, decides what it compiles to.

    package: the folder of the sources; this package's own by default.
    """
    package = package or Path(simulator.__file__).parent
    digest = hashlib.sha256()
    for name in ("jax", "jaxlib", "jaxdecomp"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            digest.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    for path in sorted(path for part in SOURCES for path in (package / part).rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    parts = [platform, digest.hexdigest()[:16]]
    if platform == "cpu":
        parts.insert(1, hashlib.sha256(cpu_model().encode()).hexdigest()[:8])
    return "-".join(parts)


def prepare(environ: Mapping[str, str], platform: str) -> Path:
    """The folder to use, made and known to be writable. Raises OSError where it is not."""
    folder = base_folder(environ) / folder_name(platform)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(1 << 16))
    return folder


def prune(base: Path, limit: int = LIMIT) -> int:
    """Removes the least recently used files of our folders until they take `limit` bytes; returns the rest.

    Folders of other programs in `base` are left alone.
    """
    entries: list[tuple[float, int, Path]] = []
    folders = [
        path for path in base.iterdir() if re.fullmatch(r"(cpu-[0-9a-f]{8}|gpu)-[0-9a-f]{16}", path.name)
    ]
    for path in (path for folder in folders for path in folder.rglob("*")):
        with contextlib.suppress(OSError):  # another run prunes too
            if path.is_file():
                status = path.stat()
                entries.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
    for folder in folders:
        with contextlib.suppress(
            OSError
        ):  # removes it only where it is empty, and not just made by another run
            if time.time() - folder.stat().st_mtime > 86400:
                folder.rmdir()
    return total
