"""MPI between the processes of a run: the library through which jaxlib calls the site's MPI.

jaxlib opens the library that MPITRAMPOLINE_LIB names when it is imported, and ends the process if
that fails. Therefore `offer_library` sets and checks the variable beforehand, and this module does
not import JAX. `python -m simulator.cluster.mpi` builds the library; `scripts/build_mpi` calls it.

Building needs only the MPI's own compiler, because `mpi_wrapper.c` has the few functions that
jaxlib's collectives call, and the names of all others are read from jaxlib."""

import argparse
import ctypes
import hashlib
import importlib.util
import mmap
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from simulator.cluster.allocation import Allocation, launched_with_mpi
from simulator.cluster.cache_folders import own_folder, private_folder
from simulator.errors import UserError

LIBRARY = "MPITRAMPOLINE_LIB"
SOURCE = Path(__file__).with_name("mpi_wrapper.c")
BUILD = "build one with scripts/build_mpi (python -m simulator.cluster.mpi)"
INSTALL = (
    "load the site's MPI (module load openmpi), or: apt-get install libopenmpi-dev openmpi-bin"
)
# as MPItrampoline opens the library
_MODE = os.RTLD_LAZY | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0)
_LONGEST_VERSION = 8192

Requested = Literal["auto", "gloo", "mpi"]


@dataclass(frozen=True)
class Transport:
    """How the processes of a run exchange arrays on processors.

    library: the MPI library, e.g. `Open MPI v4.1.4`. declined: why processes that MPI has started
    do not use it."""

    name: Literal["gloo", "mpi"] = "gloo"
    library: str = ""
    declined: str = ""

    def __str__(self) -> str:
        return f"MPI ({self.library})" if self.name == "mpi" else self.name


def library_path(environ: Mapping[str, str]) -> Path:
    """Where `build` puts the library of this jaxlib: in the user's cache folder."""
    text = f"{metadata.version('jaxlib')} {platform.machine()}".encode() + SOURCE.read_bytes()
    return own_folder(environ) / "mpi" / f"{hashlib.sha256(text).hexdigest()[:16]}.so"


def offer_library(environ: MutableMapping[str, str]) -> None:
    """Makes jaxlib open the library that was built, if MPI has started this process. Must be called
    before JAX is imported.

    Raises UserError if a library that the user names in MPITRAMPOLINE_LIB cannot be opened."""
    named = environ.get(LIBRARY)
    if named is None and launched_with_mpi(environ):
        path = library_path(environ)
        if path.exists():
            private_folder(path.parent)
            environ[LIBRARY] = named = str(path)
    if named is not None and "jaxlib" not in sys.modules:
        try:
            ctypes.CDLL(named, _MODE)
        except OSError as error:
            raise UserError(f"{LIBRARY}: {error}; {BUILD}, or unset it") from None


def choose_transport(
    requested: Requested, allocation: Allocation, devices: int, environ: Mapping[str, str]
) -> Transport:
    """The transport between processes on processors, which have `devices` devices together.

    Raises UserError if MPI is requested but impossible."""
    if requested == "gloo" or allocation.num_processes == 1:
        return Transport()
    problem = _problem(allocation, devices, environ)
    if problem is None:
        return Transport("mpi", library=version(Path(environ[LIBRARY])))
    if requested == "mpi":
        raise UserError(f"run.transport: mpi: {problem}")
    return Transport(declined=problem if allocation.mpi else "")


def _problem(allocation: Allocation, devices: int, environ: Mapping[str, str]) -> str | None:
    if not allocation.mpi:
        return "MPI did not start these processes; start them with mpirun, or srun --mpi=pmix"
    if LIBRARY not in environ:
        return f"there is no library for jaxlib to call MPI through; {BUILD}"
    if devices != (processes := allocation.num_processes):
        one = f"MPI connects one device of each process; set devices.count: {processes}"
        return f"{processes} processes have {devices} devices, and {one}"
    if _opened(Path(environ[LIBRARY])) is None:
        return f"JAX was imported without {LIBRARY}; set it before Python starts"
    return None


def _opened(path: Path) -> ctypes.CDLL | None:
    """The library, if this process has opened it already."""
    try:
        return ctypes.CDLL(str(path), _MODE | os.RTLD_NOLOAD)
    except OSError:
        return None


def version(path: Path) -> str:
    """The name and version of the MPI behind a library. Raises UserError for another library."""
    try:
        function = ctypes.CDLL(str(path), _MODE).MPIABI_Get_library_version
    except (OSError, AttributeError) as error:
        raise UserError(f"{path}: {error}; {BUILD}") from None
    text = ctypes.create_string_buffer(_LONGEST_VERSION)
    function(text, ctypes.byref(ctypes.c_int()))
    first = text.value.decode(errors="replace").partition("\n")[0].partition(",")[0]
    return re.sub(r"\s*Version:\s*", " ", first).strip()


def check_world(path: Path, processes: int) -> None:
    """Raises UserError if MPI, which is running, has another number of processes than the run: a
    library for another MPI than that of the launch takes every process for a run of its own."""
    library = ctypes.CDLL(str(path), _MODE)
    world = ctypes.c_size_t.in_dll(library, "MPIABI_COMM_WORLD")
    size = ctypes.c_int()
    library.MPIABI_Comm_size(world, ctypes.byref(size))
    if size.value != processes:
        seen = f"{version(path)} ({path}) finds {size.value} of the {processes} processes"
        cure = "build the library with the mpicc of the MPI that starts them (scripts/build_mpi)"
        raise UserError(f"{seen}: {cure}, or set run.transport: gloo")


def build_library(environ: Mapping[str, str], output: Path | None = None) -> Path:
    """Compiles the library with MPICC (default: mpicc on PATH), into the user's cache folder or as
    the file `output`. Raises UserError if that fails."""
    name = environ.get("MPICC") or "mpicc"
    compiler = shutil.which(name, path=environ.get("PATH"))
    if compiler is None:
        raise UserError(f"{name} is not on PATH: {INSTALL}")
    target = library_path(environ) if output is None else output.absolute()
    try:
        if output is None:
            private_folder(target.parent)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            absent = Path(scratch, "absent.c")
            absent.write_text(_absent(jaxlib_names()))
            draft = Path(scratch, target.name)
            command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", SOURCE, absent]
            done = subprocess.run([*command, "-o", draft], capture_output=True, text=True)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line]
                lines += [f"exit {done.returncode}"]
                raise UserError(f"{compiler} cannot build the library: {lines[0].strip()}")
            version(draft)
            draft.replace(target)
    except OSError as error:
        raise UserError(f"{target.parent}: {error.strerror or error}") from None
    return target


def jaxlib_names() -> list[str]:
    """The names that jaxlib looks up in the library. Raises UserError for a jaxlib without MPI."""
    spec = importlib.util.find_spec("jaxlib")
    folders = spec.submodule_search_locations if spec is not None else None
    for path in (path for folder in folders or () for path in sorted(Path(folder).glob("*.so"))):
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            if data.find(b"MPITRAMPOLINE_LIB") >= 0:
                names = re.findall(rb"\0(MPIX?ABI_\w+)(?=\0)", data)
                return sorted({name.decode() for name in names})
    raise UserError(f"jaxlib {metadata.version('jaxlib')} has no MPI; run.transport: gloo works")


def _absent(names: list[str]) -> str:
    """C code that defines all `names`, weakly: the definitions in `mpi_wrapper.c` replace theirs."""
    lines = [
        "#include <stdint.h>",
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "#define ABSENT __attribute__((weak))",
    ]
    for name in names:
        if re.match("MPIX?ABI_[A-Z][a-z]", name):
            said = f"simulator: jaxlib calls {name}, which its MPI library does not have"
            lines.append(f'ABSENT int {name}(void) {{ fputs("{said}\\n", stderr); abort(); }}')
        else:
            lines.append(f"ABSENT const uintptr_t {name} = 0;")
    return "\n".join([*lines, ""])


def _main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/build_mpi",
        description="Build the library through which runs use the MPI of mpicc (MPICC= names another). "
        "Runs that mpirun or srun --mpi starts then use MPI.",
    )
    parser.add_argument(
        "output", nargs="?", type=Path, help=f"write this file, for {LIBRARY}, not the user's cache"
    )
    arguments = parser.parse_args()
    try:
        path = build_library(os.environ, arguments.output)
        print(f"{version(path)}: {path}")
        if arguments.output is not None:
            print(f"export {LIBRARY}={shlex.quote(str(path))}")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(_main())
