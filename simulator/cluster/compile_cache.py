"""The cache of compiled programs and measured choices between runs.

By default programs with `custom_partitioning` never hit JAX's cache, because the cache key contains
a Python pointer. Without the pointer such programs hit, but the key no longer depends on the
partitioning rule, whose body is Python and not part of the program. Therefore the name of the cache
folder contains a hash of all sources of the rules, and the name of a jitted function contains the
values over which a rule closes (parameters, a plan)."""

import contextlib
import hashlib
import importlib.metadata
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from simulator.cluster.cache_folders import base_folder, private_folder
from simulator.cluster.hardware import cpu_model

# packages that contain rules: the transforms, and the pointwise functions that they run
SOURCES = ("spectral", "physics", "measure", "plan")
LIMIT = 2 << 30  # bytes, over all folders


def cache_name(platform: str, package: Path | None = None) -> str:
    """`cpu-PROCESSOR-SOURCES` or `gpu-SOURCES`, with hashes of the processor, the sources and the
    versions: the result of compiling a program depends on the program and on these.

    package: the folder of the sources; by default the folder of this package."""
    package = package or Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in ("jax", "jaxlib", "jaxdecomp"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            digest.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    files = (path for part in SOURCES for path in (package / part).rglob("*"))
    for path in sorted(path for path in files if path.suffix in (".py", ".cc", ".h")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    parts = [platform, digest.hexdigest()[:16]]
    if platform == "cpu":
        parts.insert(1, hashlib.sha256(cpu_model().encode()).hexdigest()[:8])
    return "-".join(parts)


def prepare_cache(environ: Mapping[str, str], platform: str) -> Path:
    """Makes the cache folder and returns it. Raises OSError if the folder is not writable or not
    private."""
    folder = private_folder(base_folder(environ) / cache_name(platform))
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(1 << 16))
    return folder


def compile_always() -> bool:
    """Makes JAX compile programs; whether it would not have done so."""
    disabled = bool(getattr(jax.config, "jax_disable_jit", False))
    if disabled:
        jax.config.update("jax_disable_jit", False)
    return disabled


def use(folder: Path | None) -> None:
    """Makes JAX keep compiled programs in `folder`; None turns JAX's cache off."""
    if folder is None:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    settings = {
        "jax_remove_custom_partitioning_ptr_from_cache_key": True,
        "jax_persistent_cache_min_compile_time_secs": 0.03,
    }
    for name, value in settings.items():
        if hasattr(jax.config, name):
            jax.config.update(name, value)
    _share_between_processes()


def _share_between_processes() -> None:
    """Makes the keys of JAX's cache equal on all processes of a run on processors: JAX 0.10 to 0.12
    hashes the topology as a process sees it, so that only process 0, which writes the cache, would
    find its programs."""
    try:
        from jax._src import cache_key

        original = cache_key._hash_accelerator_config
    except (ImportError, AttributeError):  # another JAX: each process compiles for itself
        return
    if original.__module__ == __name__:
        return

    def hashed(hash_obj: "hashlib._Hash", accelerators: np.ndarray, *others: Any) -> None:
        devices = list(accelerators.flat)
        if any(device.platform != "cpu" for device in devices):
            return original(hash_obj, accelerators, *others)
        hash_obj.update(
            repr([(device.process_index, device.device_kind) for device in devices]).encode()
        )

    cache_key._hash_accelerator_config = hashed


def prune_cache(base: Path, limit: int = LIMIT) -> int:
    """Removes the least recently used files of the cache until it takes at most `limit` bytes;
    returns its size.

    Folders of other programs in `base` are left alone."""
    entries: list[tuple[float, int, Path]] = []
    folders = [
        path
        for path in base.iterdir()
        if re.fullmatch(r"(cpu-[0-9a-f]{8}|gpu)-[0-9a-f]{16}", path.name)
    ]
    for path in (path for folder in folders for path in folder.rglob("*")):
        with contextlib.suppress(OSError):  # another run may prune at the same time
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
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            if time.time() - folder.stat().st_mtime > 86400:  # another run may just have created it
                folder.rmdir()
    return total
