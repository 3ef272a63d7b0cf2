"""`simulator bench`: the speed of a step and of the transforms on this machine."""

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
    """Register the command and its two measurements."""
    parser = subparsers.add_parser(
        "bench",
        help="measure a step, or the transforms, on this machine",
        description="Measure on this machine: a whole step and its parts, or the transforms of every backend.",
        epilog="example: simulator bench fft --shape 256,256,256 --devices 2 --precision single",
    )
    kinds = parser.add_subparsers(title="what is measured", metavar="WHAT", dest="what", required=True)
    add_fft_parser(kinds)
    add_step_parser(kinds, _shape)


def add_fft_parser(kinds: Any) -> None:
    parser = kinds.add_parser(
        "fft",
        help="distributed transforms: every backend, plan and kind of kernel",
        description="Times three-component transforms, forward and back, with every backend, plan and kind of "
        "kernel that works on these devices. scripts/bench_fft.py compares them with other FFT libraries.",
        epilog="example: simulator bench fft --shape 128,128,128 --devices 2 --json fft.json",
    )
    parser.add_argument("--shape", type=_shape, default=(256, 256, 256), metavar="NX,NY,NZ")
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--dealias", choices=("two_thirds", "spherical", "none"), default="two_thirds")
    parser.add_argument("--platform", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--devices", type=int, metavar="N", help="devices over all processes (default: all)")
    parser.add_argument("--processes", type=int, metavar="N", help="start N local processes")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="duration of the measurement (default: 20)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round to FILE")
    parser.set_defaults(func=execute_fft)


def _shape(text: str) -> tuple[int, int, int]:
    try:
        x, y, z = (int(n) for n in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write e.g. 256,256,256") from None
    if min(x, y, z) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every extent must be at least 1")
    return x, y, z


def execute_fft(args: argparse.Namespace) -> int:
    """Measure; returns the exit code."""
    from simulator.processes import discover
    from simulator.spectral import Grid, Modes, largest_count
    from simulator.spectral.backends import choose

    modes = Modes(Grid(args.shape, dealias=args.dealias))
    if args.devices is not None:
        if args.devices < 1:
            raise UserError(f"--devices: must be at least 1, not {args.devices}")
        choose(modes, args.devices, "auto")
    if args.processes is not None:
        return _launch(args.arguments, args.processes, args.devices)

    from simulator.processes import failure
    from simulator.processes.hardware import usable_cores
    from simulator.processes.start import start

    allocation = discover(os.environ)
    failure.install(allocation)
    most = largest_count(modes, usable_cores() * allocation.num_processes, "auto")
    cluster = start(allocation, platform=args.platform, count=args.devices or "auto", limit=most)
    choose(modes, len(cluster.devices), "auto")
    _measure(args, modes, cluster)
    cluster.close()
    return 0


def _launch(arguments: list[str], processes: int, devices: int | None) -> int:
    from simulator.processes.launcher import launch, without_processes

    if processes < 1:
        raise UserError(f"--processes: must be at least 1, not {processes}")
    if devices is not None and devices % processes:
        raise UserError(f"--devices: {devices} is not a multiple of {processes} processes")
    return launch([sys.executable, "-m", "simulator", *without_processes(arguments)], processes)


def _measure(args: argparse.Namespace, modes: Any, cluster: Any) -> None:
    import numpy as np

    from simulator.check.fft import COMPONENTS, compare, compare_blocks, table, transforms

    say = print if cluster.is_first else lambda line: None
    dtype = np.float64 if args.precision == "double" else np.float32
    devices, device = cluster.devices, cluster.devices[0].device_kind
    shape = " x ".join(map(str, args.shape))
    say(
        f"{shape} {args.precision}, {len(devices)} devices ({device}) of {cluster.num_processes} "
        f"processes, on {platform.node()}: {COMPONENTS} components, medians"
    )
    rows = compare(transforms(modes, devices, dtype), args.seconds, cluster.broadcast)
    for line in table(rows):
        say(line)
    blocks = compare_blocks(modes, devices, dtype, seconds=args.seconds / 4, agree=cluster.broadcast)
    for name, median, temporary in blocks:
        say(
            f"nonlinear term {name:25} {median:6.1f} ms {'':27} {median / blocks[1][1]:6.2f} {temporary:6.0f} MB"
        )
    if args.json is not None and cluster.is_first:
        from simulator.check.circumstances import circumstances

        result = {
            "shape": args.shape,
            "precision": args.precision,
            "devices": len(devices),
            "processes": cluster.num_processes,
            "device": device,
            "host": platform.node(),
            "measured": circumstances(args.arguments),
            "transforms": [vars(row) for row in rows],
            "term": [dict(zip(("name", "milliseconds", "temporary_mb"), b, strict=True)) for b in blocks],
        }
        args.json.write_text(json.dumps(result, indent=1) + "\n")
