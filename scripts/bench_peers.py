#!/usr/bin/env python3
"""Compares a step of this program with the same step of other programs, in turns in one run.

    .venv/bin/python scripts/bench_peers.py [--shapes 128,256] [--planes 256,1024] [--gradients 64] [--rounds 5]
        [--k-max 42] [--only navier_stokes] [--json FILE]

Navier-Stokes RK4 from a Taylor-Green vortex: fluidsim's ns3d (FFTW, MPI, 2 ranks, double
precision), the method published for JAX (complex transforms back to the input layout, 2 devices),
and this program. The same in planes: fluidsim's ns2d with each of its parallel transforms, and this
program. Schrodinger-Poisson steps of order 2 in single precision: Jaxion (2 devices), and this
program. As many particles as points, moved by their gravity: JaxPM (cloud in cell, single and
double precision, one device with all cores), and this program with the same weights and with its
default, eight steps in a call of each. Fifty steps of order 2 from a Taylor-Green vortex in single
precision, and the gradient of the final energy in the initial velocity: exponax (one device with
all cores), and this program.

With --k-max: schemes that keep modes up to the same wavenumber, each on its own grid and with its
own largest dt: fluidsim's RK4 with two thirds and its schemes on shifted grids, and this program's
choices of grid.dealias (--without fluidsim: these alone). A perturbed Taylor-Green vortex evolves
to --stop; the rows give the time of a step and of a unit of time, and the errors against two thirds
on a finer grid.

Every contender is a separate process that waits for its turns without
using a core; medians are compared. Contenders that solve the same flow must agree on its energy.

At the first call, the other programs are installed into separate environments under --folder (from
pip's configured index; Debian's FFTW for MPI is unpacked there too, nothing is installed in the
system). A peer that cannot be installed is left out, with a line that says why. MPI with its
compiler, a C++ compiler and FFTW are required: apt-get install g++ libfftw3-dev libopenmpi-dev
openmpi-bin."""

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from peers import equal_k_max
from peers.environments import (
    FOLDER,
    Environment,
    Missing,
    Peer,
    as_long,
    call,
    installed,
    installed_with_jax,
)

from simulator.plugins.validation.benchmark_record import benchmark_record

HERE = Path(__file__).resolve().parent
PROBLEM = {"viscosity": 6.25e-4, "dt": 1e-3}
RANKS = 2
KINDS = ("navier_stokes", "schrodinger_poisson", "particles", "particles_double")
FLUIDSIM = ("fluidfft-fftwmpi", "fluidfft-fftw", "fluidfft-mpi_with_fftw", "fluidsim[fft,mpi]")
IN_PLANES = ("fftwmpi2d", "fftw1d")
"""Parallel transforms of planes in fluidsim."""
DEBIAN = ("libfftw3-mpi-dev", "libfftw3-mpi3")


# ---- installing
# ------------------------------------------------------------------------------------------


def fluidsim(folder: Path) -> Environment:
    for name in ("mpirun", "mpicxx", "g++"):
        if shutil.which(name) is None:
            raise Missing(
                f"{name} is missing: apt-get install g++ libfftw3-dev libopenmpi-dev openmpi-bin"
            )
    root = folder / "debian"
    headers = list(root.rglob("fftw3-mpi.h")) or list(Path("/usr/include").glob("fftw3-mpi.h"))
    if not headers:
        root.mkdir(parents=True, exist_ok=True)
        if shutil.which("apt-get") is None:
            raise Missing(
                "FFTW for MPI is missing (fftw3-mpi.h), and so is apt-get, which could install it"
            )
        call(["apt-get", "download", *DEBIAN], {}, f"{DEBIAN[0]} cannot be downloaded", cwd=root)
        for package in root.glob("*.deb"):
            call(["dpkg", "-x", str(package), str(root)], {}, f"{package.name} cannot be unpacked")
        headers = list(root.rglob("fftw3-mpi.h"))
    libraries = ":".join(sorted({str(p.parent) for p in root.rglob("libfftw3_mpi.so*")}))
    # Everything is compiled at installation, so that the ranks need not wait for one another, which
    # may hang.
    environ = {"OMP_NUM_THREADS": "1", "TRANSONIC_NO_MPI": "1"}
    environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if libraries:
        environ |= {
            "CPATH": str(headers[0].parent),
            "LIBRARY_PATH": libraries,
            "LD_LIBRARY_PATH": libraries,
        }
    probe = "import fluidsim.solvers.ns3d.solver, fluidfft_fftwmpi, fluidfft_mpi_with_fftw"
    return Environment(installed(folder / "fluidsim", FLUIDSIM, environ, probe), environ, RANKS)


def jaxion(folder: Path) -> Environment:
    return installed_with_jax(folder / "jaxion", ("jaxion",), "import jaxion")


def jaxpm(folder: Path) -> Environment:
    packages = ("jaxpm==0.1.6", "packaging")
    return installed_with_jax(folder / "jaxpm", packages, "import jaxpm.pm")


def exponax(folder: Path) -> Environment:
    return installed_with_jax(folder / "exponax", ("exponax==0.2.0",), "import exponax")


def here(folder: Path) -> Environment:
    return Environment(Path(sys.executable), {"PYTHONPATH": str(HERE.parent)})


# ---- measuring
# -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def contenders(wanted: list[tuple[str, Any, dict[str, Any]]], folder: Path) -> Iterator[list[Peer]]:
    """The contenders that can be started; for each of the rest, prints the reason on stderr."""
    started: list[Peer] = []
    try:
        for program, prepare, problem in wanted:
            try:
                started.append(Peer(program, prepare(folder), problem))
            except Missing as reason:
                print(f"left out: {program.removesuffix('_step.py')}: {reason}", file=sys.stderr)
        yield started
    finally:
        for contender in started:
            contender.close()


def kept(wanted: list, args: argparse.Namespace) -> list:
    """The contenders that are not to be left out."""
    return [w for w in wanted if w[0].partition("_")[0] not in args.without.split(",")]


def compare(what: str, wanted: list, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """One row per contender: its median time in seconds, and the ratios of this program's medians
    to that time."""
    with contenders(wanted, folder) as started:
        for _ in range(rounds):
            for contender in started:
                contender.round()
        check_energies(started, 1e-9, 1e-5)
        medians = {c.name: median(c.times) for c in started}
        mine = [name for name in medians if ours(name)]
        rows = []
        for name, seconds in medians.items():
            ratios = [medians[my] / seconds for my in mine if name not in mine]
            rows.append({"step": what, "program": name, "seconds": seconds, "ratios": ratios})
            print(line(rows[-1]), flush=True)
        return rows


def ours(name: str) -> bool:
    return name.startswith("simulator")


def line(row: Mapping[str, Any]) -> str:
    ratios = " / ".join(f"{ratio:.2f}" for ratio in row["ratios"])
    return f"{row['step']:28} {row['program']:60} {row['seconds'] * 1e3:6.0f} ms  {ratios}"


def check_energies(started: list[Peer], double: float, single: float) -> None:
    """Warns about contenders that do not solve the same flow: whose energies differ from the first
    one's by more than this tolerance."""
    energies = {c.name: c.energy for c in started if c.energy is not None}
    reference = next((energy for name, energy in energies.items() if "single" not in name), 0.0)
    for name, energy in energies.items():
        tolerance = single if "single" in name else double
        if reference and abs(energy - reference) > tolerance * reference:
            print(f"warning: {name}: energy {energy!r}, others {reference!r}", file=sys.stderr)


def compare_at_equal_k_max(k_max: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per contender that keeps modes up to k_max."""
    prepare = {"fluidsim_step.py": fluidsim, "simulator_step.py": here}
    run = {"devices": args.devices}
    folder = args.folder.absolute()
    finest = equal_k_max.reference(k_max, args.stop) | run
    with contenders([("simulator_step.py", here, finest)], folder) as [finer]:
        pass  # It has evolved, and takes no turns.
    problems = equal_k_max.contenders(k_max, args.stop)
    wanted = [(program, prepare[program], problem | run) for program, problem in problems]
    with contenders(kept(wanted, args), folder) as started:
        for _ in range(args.rounds):
            for contender in started:
                contender.round()
        rows = equal_k_max.rows(k_max, started, finer)
        # Energy is what dissipation leaves: it is off by less than the dissipation is.
        most = max(row["errors"]["dissipation"] for row in rows if ours(row["program"]))
        check_energies([finer, *started], most, most)
    print(f"{rows[0]['step']}\n{equal_k_max.HEAD}", *map(equal_k_max.line, rows), sep="\n")
    return rows


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", default="128", help="points along each side of a box, e.g. 128,256"
    )
    parser.add_argument(
        "--planes", default="", help="points along each side of a plane, e.g. 256,1024"
    )
    parser.add_argument("--gradients", default="", help="points along each side of a box, e.g. 64")
    parser.add_argument("--k-max", default="", help="modes along each half axis, e.g. 42")
    parser.add_argument(
        "--stop", type=float, default=6.0, help="the flow's time with --k-max (default: 6)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--devices",
        type=int,
        default=2,
        help="devices of each JAX program, threads of this one (default: 2)",
    )
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--without", default="", help="peers to leave out, e.g. published,fluidsim")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    return parser.parse_args()


def in_boxes(n: int, base: dict[str, Any]) -> list[tuple[str, list]]:
    """The comparisons of each of `KINDS` on n^3 points."""
    single = {"precision": "single"}
    double = {"precision": "double"}
    flow = base | {"shape": [n] * 3, "steps": as_long(2 * 128**3, n**3)}
    flows = [
        ("fluidsim_step.py", fluidsim, flow | {"transform": "fftwmpi3d"}),
        ("published_step.py", here, flow | double),
        ("simulator_step.py", here, flow | double),
        ("simulator_step.py", here, flow | single),
    ]
    wave = flow | single | {"what": "schrodinger_poisson", "dt": 1e-5}
    waves = [("jaxion_step.py", jaxion, wave), ("simulator_step.py", here, wave)]
    # A call evaluates forces once more than it takes steps; in a run it takes the steps of about a
    # second.
    mesh = flow | single | {"what": "particles", "dt": 1e-5, "steps": as_long(8 * 128**3, n**3)}
    meshes = [
        ("jaxpm_step.py", jaxpm, mesh),
        ("simulator_step.py", here, mesh | {"matter": {"assignment": "cic"}}),
        ("simulator_step.py", here, mesh),
    ]
    doubles = [(program, prepare, problem | double) for program, prepare, problem in meshes[:2]]
    return list(zip(KINDS, (flows, waves, meshes, doubles), strict=True))


def main() -> int:
    args = arguments()
    folder = args.folder.absolute()
    rows: list[dict[str, Any]] = []
    base = PROBLEM | {"devices": args.devices, "what": "navier_stokes"}
    for n in _numbers(args.shapes):
        for what, wanted in in_boxes(n, base):
            if args.only in (None, what):
                rows += compare(f"{what}, {n}^3", kept(wanted, args), folder, args.rounds)
    for n in _numbers(args.planes):
        flow = base | {"shape": [n] * 2, "steps": as_long(4 * 1024**2, n**2)}
        flows = [("fluidsim_step.py", fluidsim, flow | {"transform": name}) for name in IN_PLANES]
        flows += [
            ("simulator_step.py", here, flow | {"precision": name}) for name in ("double", "single")
        ]
        rows += compare(f"navier_stokes, {n}^2", kept(flows, args), folder, args.rounds)
    for n in _numbers(args.gradients):
        flow = base | {"shape": [n] * 3, "steps": 50}
        for what, gradient in (("50 steps", False), ("gradient of 50 steps", True)):
            run = flow | {"gradient": gradient}
            wanted = [
                ("exponax_gradient.py", exponax, run),
                ("simulator_gradient.py", here, run | {"integrator": "rk2"}),
            ]
            rows += compare(f"{what}, {n}^3", kept(wanted, args), folder, args.rounds)
    for k_max in _numbers(args.k_max):
        rows += compare_at_equal_k_max(k_max, args)
    if args.json is not None:
        measured = benchmark_record(sys.argv[1:], "scripts/bench_peers.py") | {
            "rounds": args.rounds
        }
        args.json.write_text(json.dumps({"measured": measured, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
