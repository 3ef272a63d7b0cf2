"""The memory that malloc keeps for a process."""

import ctypes
import mmap
import os
import resource
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from simulator.cluster.hardware import physical_memory

# GNU mallopt's parameters (malloc.h)
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Makes malloc keep freed memory for the next arrays of this process, in huge pages if the kernel
    gives them on request, instead of returning it to the kernel. Call it before threads start: a
    thread that has memory of its own keeps its ways. Runs and `Simulation` call it.

    Returns what was set, which is nothing without glibc, or if the environment sets the allocator.
    JAX allocates its arrays anew for every execution, and the page faults of new memory take longer
    than the arithmetic (measured: a copy of a 128^3 array of doubles takes 16.8 ms if malloc
    returns memory, and 3.6 ms if it keeps it)."""
    if (
        any(name.startswith("MALLOC_") for name in environ)
        or "glibc.malloc" in environ.get("GLIBC_TUNABLES", "")
        or "malloc" in environ.get("LD_PRELOAD", "")
    ):
        return {}
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):  # not glibc
        return {}
    changes = {}
    for name, parameter, value in (
        ("M_MMAP_MAX", _M_MMAP_MAX, 0),  # a threshold would return arrays of 2 GiB
        ("M_TRIM_THRESHOLD", _M_TRIM_THRESHOLD, -1),
        ("M_ARENA_MAX", _M_ARENA_MAX, 1),  # other arenas ignore the first two
    ):
        if libc.mallopt(parameter, value):
            changes[f"mallopt {name}"] = str(value)
    if _gives_huge_pages() and (size := _in_huge_pages()):
        changes["madvise MADV_HUGEPAGE"] = str(size)
    return changes


def _gives_huge_pages() -> bool:
    """Whether the kernel gives huge pages where a program asks for them, and a reserve of addresses
    takes nothing from this program or others."""
    try:
        pages = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
        strict = Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    except OSError:
        return False
    limits = {resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)}
    return "[madvise]" in pages and not strict and limits == {resource.RLIM_INFINITY}


@cache
def _in_huge_pages() -> int:
    """Grows the heap, once, by most of the machine's memory, none of which is touched, and asks for
    huge pages there; returns the bytes, 0 if the kernel refuses.

    Memory by which the heap grows later has small pages again. A part of the memory is left out
    because the kernel refuses to reserve, and to fork, more than there is."""
    libc = ctypes.CDLL(None)
    malloc, free, madvise = libc.malloc, libc.free, libc.madvise
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    page = resource.getpagesize()
    size = physical_memory() // 8 * 7 // page * page
    block = malloc(size + page)
    if block is None:
        return 0
    refused = madvise(-(-block // page) * page, size, mmap.MADV_HUGEPAGE)
    free(block)
    return 0 if refused else size
