"""Compiles the native kernels once for every version of their sources, into the user's cache
folder.

`python -m simulator.spectral.native` compiles them ahead of the first run and never fails: without
a compiler the command says in a line what to install. The library holds variants of the kernels for
several instruction sets and chooses one when it is loaded, so that a library built on a login node
is safe on any compute node of the same architecture."""

import contextlib
import fcntl
import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from simulator.cluster.cache_folders import own_folder, private_folder

SOURCES = Path(__file__).parent
VARIANTS = {
    "baseline": (),
    "avx2": ("-mavx2", "-mfma", "-mprfchw"),
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mprfchw"),
}
"""Names in `dispatch.h` and the instructions that each may use on x86-64; other architectures have
only the baseline."""
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
KEPT = 8  # Number of libraries of earlier versions that stay in the cache.
INSTALL = (
    "apt-get install g++ (or: dnf install gcc-c++, module load gcc), or name a compiler with CXX="
)


class Unavailable(Exception):
    """Native kernels are unavailable; the message gives the reason and a remedy in one line."""


def compiler(environ: Mapping[str, str]) -> str:
    """CXX, else the first of g++, clang++ and c++ on PATH. Raises Unavailable."""
    names = (environ["CXX"],) if environ.get("CXX") else ("g++", "clang++", "c++")
    for name in names:
        if path := shutil.which(name, path=environ.get("PATH")):
            return path
    raise Unavailable(f"no C++ compiler ({', '.join(names)}) is on PATH: {INSTALL}")


def sources_hash() -> str:
    """A hash of the kernels' sources and of jaxlib, whose headers they include."""
    digest = hashlib.sha256(f"jaxlib {metadata.version('jaxlib')} {platform.machine()}".encode())
    for path in sorted((*SOURCES.glob("*.cc"), *SOURCES.glob("*.h"), SOURCES / "build.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def library(environ: Mapping[str, str], *, anew: bool = False) -> Path:
    """The compiled library, made if it is missing or if `anew`. Raises Unavailable."""
    key = sources_hash()
    folder = own_folder(environ) / "kernels"
    # CXX is part of the name, so that every compiler has its own library.
    asked = hashlib.sha256(environ["CXX"].encode()).hexdigest()[:8] if environ.get("CXX") else "any"
    path = folder / f"{platform.machine()}-{asked}-{key}.so"
    try:
        private_folder(folder)
        if not anew and _intact(path):
            return path
        with_compiler = compiler(environ)
        with _alone(folder / "lock"):
            if anew or not _intact(path):  # else another process has made the library meanwhile
                with tempfile.TemporaryDirectory(dir=folder) as scratch:
                    made = compiled(with_compiler, Path(scratch), key)
                    summed = made.with_suffix(".sum")
                    summed.write_text(_sum(made))
                    summed.replace(path.with_suffix(".sum"))
                    made.replace(path)
                _prune(folder)
    except OSError as error:
        problem = f"{folder}: {error.strerror}" if error.strerror else str(error)
        raise Unavailable(f"{problem}; name a folder of your own in SIMULATOR_CACHE") from None
    return path


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _intact(path: Path) -> bool:
    """Whether the library matches its checksum: a truncated library would end the process that
    loads it."""
    try:
        return path.with_suffix(".sum").read_text() == _sum(path)
    except OSError:
        return False


def compiled(with_compiler: str, folder: Path, key: str) -> Path:
    """Compiles all sources into `folder`; returns the library. Raises Unavailable with the
    compiler's first error."""
    made = folder / "kernels.so"
    parts = objects(with_compiler, folder, key, (), ("ffi", "order", "plan"))
    _run(with_compiler, [[with_compiler, "-shared", *map(str, parts), "-o", made.name]], folder)
    return made


def objects(
    with_compiler: str, folder: Path, key: str, flags: tuple[str, ...], common: tuple[str, ...]
) -> list[Path]:
    """Compiles the sources named in `common` and all variants of the kernels, side by side."""
    import jax

    on_x86 = platform.machine() in ("x86_64", "AMD64")
    variants = VARIANTS if on_x86 else {"baseline": ()}
    sources = {name: (f"{name}.cc", ("-O3" if name == "order" else "-O1",)) for name in common}
    sources |= {
        name: ("variant.cc", (*own, f"-DSIMULATOR_ISA={name}")) for name, own in variants.items()
    }
    # XLA's headers count as system headers, so that their warnings are suppressed.
    every = (*FLAGS, *flags, "-isystem", jax.ffi.include_dir(), f'-DSIMULATOR_KEY="{key}"')
    _run(
        with_compiler,
        [
            [with_compiler, *every, *own, "-c", str(SOURCES / source), "-o", f"{name}.o"]
            for name, (source, own) in sources.items()
        ],
        folder,
    )
    return [folder / f"{name}.o" for name in sources]


def _run(with_compiler: str, commands: list[list[str]], folder: Path) -> None:
    """Runs all commands of the compiler side by side. Raises Unavailable with the first error."""
    running = [
        subprocess.Popen(c, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for c in commands
    ]
    outputs = [process.communicate()[0].splitlines() for process in running]
    for process, lines in zip(running, outputs, strict=True):
        if process.returncode:
            errors = (
                [line for line in lines if "error" in line]
                or lines
                or [f"exit {process.returncode}"]
            )
            raise Unavailable(
                f"{with_compiler} cannot compile native kernels ({errors[0].strip()}): {INSTALL}"
            )


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Admits one process of this host at a time; all at once if files cannot be locked, at the cost
    of time only."""
    with path.open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prune(folder: Path) -> None:
    libraries = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime)
    for path in libraries[:-KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()
            path.with_suffix(".sum").unlink()
