#!/usr/bin/env python3
"""Compares this program's transforms, of every backend, plan and kind of kernel, with other FFTs,
in one run.

    .venv/bin/python scripts/bench_fft.py [--shape 256,256,256] [--threads 2] [--precision single] [--platform cpu]

On processors this program has one device with a thread for each core, or --devices of them with
--threads each. The other FFTs use as many cores: FFTW in one process with threads and a measured
plan (pyfftw, which the first call installs into a separate environment under --folder); the
transform published for JAX (complex, back to its input layout, --devices); `scipy.fft.rfftn`; and,
if $SIMULATOR_MPI4PY_FFT names a Python interpreter with mpi4py-fft, FFTW through mpi4py-fft with a
rank for each core. All transform three components of a grid forward and back, in turns of several
pairs on small grids, as in a run, whose threads are awake and whose arrays are in the caches; medians
are compared. On GPUs, and in a Slurm step of several tasks, only this program's transforms are
measured."""

import argparse
import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from peers.environments import FOLDER, Environment, Missing, Peer, as_long, installed
from peers.fftw_and_scipy import PYTHON, Scipy, mpi4py_fft
from peers.own_transforms import COMPONENTS, Compiled, Contender, compare, table, transforms
from peers.published_transform import published_transform

from simulator.cluster import discover
from simulator.cluster.cores import Threads
from simulator.cluster.hardware import usable_cores
from simulator.cluster.mesh import make_mesh
from simulator.cluster.start import start
from simulator.plugins.validation.benchmark_record import benchmark_record
from simulator.spectral import Grid, Modes
from simulator.spectral.timing import random_array

POINTS = 1 << 24  # of the pairs of transforms in a turn


class Fftw:
    """FFTW in a process of its own, which waits for its turns."""

    def __init__(self, folder: Path, problem: Mapping[str, Any]):
        python = installed(folder / "pyfftw", ("pyfftw==0.15.1",), {}, "import pyfftw")
        self._process = Peer("fftw_transform.py", Environment(python), problem)
        self.name, self.close = self._process.name, self._process.close

    def round(self) -> tuple[float, float]:
        self._process.round()
        forward, inverse = self._process.times[-1]
        return forward, inverse


@contextlib.contextmanager
def fftw(
    folder: Path, shape: tuple[int, int, int], dtype: Any, threads: int, pairs: int
) -> Iterator[list[Contender]]:
    """FFTW with threads; without it, prints the reason on stderr."""
    problem = {"shape": shape, "precision": np.dtype(dtype).name, "threads": threads}
    try:
        peer = Fftw(folder, problem | {"components": COMPONENTS, "pairs": pairs})
    except Missing as reason:
        print(f"left out: FFTW with threads: {reason}", file=sys.stderr)
        yield []
        return
    with contextlib.closing(peer):
        yield [peer]


@contextlib.contextmanager
def peers(
    shape: tuple[int, int, int], devices: Any, dtype: Any, cores: int, pairs: int
) -> Iterator[list[Contender]]:
    """The other libraries' transforms that can run here, on `cores` cores; for each of the rest,
    prints the reason on stderr."""
    count = len(devices)
    contenders: list[Contender] = []
    if shape[1] % count == shape[2] % count == 0:
        forward, inverse, sharding = published_transform(make_mesh(devices, (count,), ("slab",)))
        values = random_array((COMPONENTS, *shape), np.result_type(dtype, np.complex64), sharding)
        name = "published for JAX, complex"
        contenders.append(Compiled(name, forward, inverse, values, pairs))
    else:
        print(
            f"left out: the published transform ({count} devices do not divide y and z)",
            file=sys.stderr,
        )
    values = np.random.default_rng(0).standard_normal((COMPONENTS, *shape)).astype(dtype)
    contenders.append(Scipy(values, cores, pairs))
    with mpi4py_fft(shape, np.dtype(dtype), COMPONENTS, cores, pairs) as ranks:
        if ranks is None:
            print(
                f"left out: mpi4py-fft (needs mpirun, and ${PYTHON} has to name its interpreter)",
                file=sys.stderr,
            )
        else:
            contenders.append(ranks)
        yield contenders


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="256,256,256", metavar="NX,NY,NZ")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument(
        "--threads", type=int, metavar="N", help="of each device (default: the cores of a device)"
    )
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the measurement")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for FFTW")
    parser.add_argument("--without", choices=("fftw",), help="the peer to leave out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round to FILE")
    args = parser.parse_args()
    x, y, z = map(int, args.shape.split(","))
    dtype = np.float64 if args.precision == "double" else np.float32
    threads: Threads = "auto" if args.platform == "gpu" else args.threads
    threads = threads or max(usable_cores() // args.devices, 1)
    cluster = start(
        discover(os.environ), platform=args.platform, count=args.devices, threads=threads
    )
    with contextlib.ExitStack() as stack:
        shape, cores = (x, y, z), args.devices * cluster.threads
        pairs = as_long(POINTS, x * y * z)
        modes = Modes(Grid(shape))
        contenders = transforms(modes, cluster.devices, dtype, cluster.threads, pairs)
        if args.platform == "cpu" and cluster.num_processes == 1:
            if args.without != "fftw":
                contenders += stack.enter_context(fftw(args.folder, shape, dtype, cores, pairs))
            contenders += stack.enter_context(peers(shape, cluster.devices, dtype, cores, pairs))
        rows = compare(contenders, args.seconds, cluster.broadcast)
    if cluster.is_first:
        print(
            f"{x} x {y} x {z} {args.precision}, {args.devices} devices with {cluster.threads} "
            f"threads each, on {platform.node()}: "
            "medians of three components"
        )
        print("\n".join(table(rows)))
    if args.json is not None and cluster.is_first:
        result = {
            "measured": benchmark_record(sys.argv[1:], "scripts/bench_fft.py"),
            "shape": [x, y, z],
            "precision": args.precision,
            "devices": args.devices,
            "threads": cluster.threads,
            "transforms": [vars(row) for row in rows],
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
