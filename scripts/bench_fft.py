#!/usr/bin/env python3
"""Compares this program's transforms, of every backend, plan and kind of kernel, with other FFTs,
in one run.

    .venv/bin/python scripts/bench_fft.py [--shape 256,256,256] [--devices 2] [--precision single] [--platform cpu]

The other FFTs are the transform published for JAX (complex, back to its input layout),
`scipy.fft.rfftn` in one process and, if $SIMULATOR_MPI4PY_FFT names a Python interpreter with
mpi4py-fft, FFTW through mpi4py-fft on as many ranks as devices. All transform three components of a
grid forward and back, in turns; medians are compared. On GPUs, and in a Slurm step of several
tasks, only this program's transforms are measured."""

import argparse
import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peers.fftw_and_scipy import PYTHON, Scipy, mpi4py_fft
from peers.own_transforms import COMPONENTS, Compiled, Contender, compare, table, transforms
from peers.published_transform import published_transform

from simulator.cluster import discover
from simulator.cluster.hardware import usable_cores
from simulator.cluster.mesh import make_mesh
from simulator.cluster.start import start
from simulator.plan.circumstances import circumstances
from simulator.spectral import Grid, Modes
from simulator.spectral.request import random_array


@contextlib.contextmanager
def peers(shape: tuple[int, int, int], devices: Any, dtype: Any) -> Iterator[list[Contender]]:
    """The other libraries' transforms that can run here; for each of the rest, prints the reason on
    stderr."""
    count = len(devices)
    contenders: list[Contender] = []
    if shape[1] % count == shape[2] % count == 0:
        forward, inverse, sharding = published_transform(make_mesh(devices, (count,), ("slab",)))
        values = random_array((COMPONENTS, *shape), np.result_type(dtype, np.complex64), sharding)
        contenders.append(Compiled("published for JAX, complex", forward, inverse, values))
    else:
        print(
            f"left out: the published transform ({count} devices do not divide y and z)",
            file=sys.stderr,
        )
    values = np.random.default_rng(0).standard_normal((COMPONENTS, *shape)).astype(dtype)
    contenders.append(Scipy(values, max(count, usable_cores())))
    with mpi4py_fft(shape, np.dtype(dtype), COMPONENTS, count) as fftw:
        if fftw is None:
            print(
                f"left out: mpi4py-fft (needs mpirun, and ${PYTHON} has to name its interpreter)",
                file=sys.stderr,
            )
        else:
            contenders.append(fftw)
        yield contenders


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="256,256,256", metavar="NX,NY,NZ")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round to FILE")
    args = parser.parse_args()
    x, y, z = map(int, args.shape.split(","))
    dtype = np.float64 if args.precision == "double" else np.float32
    cluster = start(discover(os.environ), platform=args.platform, count=args.devices)
    alone = args.platform == "gpu" or cluster.num_processes > 1
    ours = transforms(Modes(Grid((x, y, z))), cluster.devices, dtype)
    with (
        contextlib.nullcontext([]) if alone else peers((x, y, z), cluster.devices, dtype) as others
    ):
        rows = compare([*ours, *others], args.seconds, cluster.broadcast)
    if cluster.is_first:
        print(
            f"{x} x {y} x {z} {args.precision}, {args.devices} devices, on {platform.node()}: "
            "medians of three components"
        )
        print("\n".join(table(rows)))
    if args.json is not None and cluster.is_first:
        result = {
            "measured": circumstances(sys.argv[1:], "scripts/bench_fft.py"),
            "shape": [x, y, z],
            "precision": args.precision,
            "devices": args.devices,
            "transforms": [vars(row) for row in rows],
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
