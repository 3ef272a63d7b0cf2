"""`simulator bench`: how fast the parts of a step are on this machine, against named alternatives."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from simulator.cli.bench_step import add_step_parser
from simulator.errors import UserError


def add_parser(subparsers: Any) -> None:
    """Register the command and what it can measure."""
    parser = subparsers.add_parser(
        "bench",
        help="measure a step, or the transforms, on this machine",
        description="Measure on this machine: a whole step and its parts, or the transforms against alternatives.",
        epilog="example: simulator bench fft --shape 256,256,256 --devices 2 --precision single",
    )
    kinds = parser.add_subparsers(title="what is measured", metavar="WHAT", dest="what", required=True)
    add_fft_parser(kinds)
    add_step_parser(kinds, _shape)


def add_fft_parser(kinds: Any) -> None:
    parser = kinds.add_parser(
        "fft",
        help="distributed transforms: every backend, the complex recipe, scipy.fft, mpi4py-fft",
        description="Times three-component transforms forward and back, by every backend and plan that works "
        "on these devices, by the complex recipe that returns to its layout, by scipy.fft in one process and, "
        "where $SIMULATOR_MPI4PY_FFT names an interpreter that has it, by mpi4py-fft.",
        epilog="example: simulator bench fft --shape 128,128,128 --devices 2 --json fft.json",
    )
    parser.add_argument("--shape", type=_shape, default=(256, 256, 256), metavar="NX,NY,NZ")
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--dealias", choices=("two_thirds", "spherical", "none"), default="two_thirds")
    parser.add_argument("--platform", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--devices", type=int, metavar="N", help="devices over all processes (default: all)")
    parser.add_argument("--processes", type=int, metavar="N", help="start N local processes")
    parser.add_argument("--seconds", type=float, default=20.0, help="for how long (default: 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round there too")
    parser.set_defaults(func=execute_fft)


def _shape(text: str) -> tuple[int, int, int]:
    try:
        x, y, z = (int(n) for n in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write e.g. 256,256,256") from None
    if min(x, y, z) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: extents are 1 or more")
    return x, y, z


def execute_fft(args: argparse.Namespace) -> int:
    """Measure; returns the exit code."""
    from simulator.cluster import discover
    from simulator.spectral import Grid, Modes, usable_counts
    from simulator.spectral.backends import choose

    modes = Modes(Grid(args.shape, dealias=args.dealias))
    if args.devices is not None:
        if args.devices < 1:
            raise UserError(f"--devices: {args.devices} is no number of devices; 1 or more")
        choose(modes, args.devices, "auto")
    if args.processes is not None:
        return _launch(args.arguments, args.processes, args.devices)

    from simulator.cluster import failure
    from simulator.cluster.hardware import usable_cores
    from simulator.cluster.start import start

    allocation = discover(os.environ)
    failure.install(allocation)
    most = usable_counts(modes, usable_cores() * allocation.num_processes, "auto")[-1]
    cluster = start(allocation, platform=args.platform, count=args.devices or "auto", limit=most)
    choose(modes, len(cluster.devices), "auto")
    _measure(args, modes, cluster)
    cluster.close()
    return 0


def _launch(arguments: list[str], processes: int, devices: int | None) -> int:
    from simulator.cluster.launcher import launch, without_processes

    if processes < 1:
        raise UserError(f"--processes: {processes} is no number of processes; 1 or more")
    if devices is not None and devices % processes:
        raise UserError(f"--devices: {devices} is no multiple of {processes} processes")
    return launch([sys.executable, "-m", "simulator", *without_processes(arguments)], processes)


def _measure(args: argparse.Namespace, modes: Any, cluster: Any) -> None:
    import numpy as np

    from simulator.spectral.bench import bench_blocks, bench_transforms
    from simulator.spectral.collectives import size

    say = print if cluster.is_first else lambda line: None
    dtype = np.float64 if args.precision == "double" else np.float32
    device = cluster.devices[0].device_kind
    shape = " x ".join(map(str, args.shape))
    say(
        f"{shape} {args.precision}, {len(cluster.devices)} devices ({device}) of {cluster.num_processes} "
        f"processes, on {platform.node()}: 3 components, medians"
    )
    rows = bench_transforms(
        modes,
        cluster.devices,
        dtype,
        seconds=args.seconds,
        processes=cluster.num_processes,
        agree=cluster.broadcast,
        report=say,
    )
    say(f"{'':40} {'forward':>9} {'inverse':>9} {'both':>9} {'ratio':>6} {'sends':>8} {'temporary':>9}")
    for row in rows:
        sent = "" if row.sent is None else size(row.sent)
        temporary = "" if row.temporary is None else f"{row.temporary:.2f}"
        say(
            f"{row.name:40} {row.forward:6.1f} ms {row.inverse:6.1f} ms {row.both:6.1f} ms "
            f"{rows[0].both / row.both:6.2f} {sent:>8} {temporary:>9}"
        )
    say("ratio: the first row's time over this one's; sends: bytes of one device, one forward transform;")
    say("temporary: memory of a forward transform over its input.")
    blocks = bench_blocks(modes, cluster.devices, dtype, seconds=args.seconds / 4, agree=cluster.broadcast)
    for name, median, temporary in blocks:
        say(
            f"nonlinear term {name:25} {median:6.1f} ms {'':27} {median / blocks[1][1]:6.2f} {temporary:6.0f} MB"
        )
    if args.json is not None and cluster.is_first:
        found = {
            "shape": args.shape,
            "precision": args.precision,
            "devices": len(cluster.devices),
            "processes": cluster.num_processes,
            "device": device,
            "host": platform.node(),
            "transforms": [vars(row) for row in rows],
            "term": [dict(zip(("name", "milliseconds", "temporary_mb"), b, strict=True)) for b in blocks],
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")
