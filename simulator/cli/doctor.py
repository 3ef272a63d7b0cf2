"""`simulator doctor`: tests the set-up of a job and names the flags that cure its problems."""

import argparse
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check processes, cores and GPUs as srun provides them, and test their communication",
        description="Every process prints its host, rank and hardware; then all exchange data and do a "
        "distributed transform. Problems are printed with their cures, and the exit code is then 1.",
        epilog="In a job, put srun before it, with the flags that the run will have:\n"
        "  srun --nodes=2 --ntasks-per-node=2 simulator doctor\n\n"
        "example: simulator doctor",
    )
    parser.add_argument("--platform", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="a shared folder in which the processes meet, like a run folder",
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="where processes started by hand meet")
    parser.add_argument("--num-processes", type=int, metavar="N")
    parser.add_argument("--process-id", type=int, metavar="I")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Check; returns 0, or 1 if there are problems."""
    from simulator.processes import discover, failure

    allocation = discover(
        os.environ,
        coordinator=args.coordinator,
        num_processes=args.num_processes,
        process_id=args.process_id,
    )
    with failure.contained(allocation):
        return _examine(allocation, args)


def _examine(allocation: Any, args: argparse.Namespace) -> int:
    from simulator.processes import doctor, process_facts
    from simulator.processes.hardware import has_gpu_plugin
    from simulator.processes.start import start

    facts = process_facts.collect(allocation, os.environ, str(args.folder) if args.folder else None)
    findings = doctor.own_findings(allocation, facts, os.environ, gpu_plugin=has_gpu_plugin())
    time.sleep(min(0.01 * allocation.process_id, 1.0))  # so that the lines usually come in order
    print("\n".join([facts.line, *(f"  wrong: {finding}" for finding in findings)]), flush=True)

    cluster = start(allocation, platform=args.platform, folder=args.folder, report=lambda line: None)
    collected = cluster.gather(json.loads(json.dumps(asdict(facts))))
    everyone = [process_facts.Facts(**_tuples(item)) for item in collected]
    shared = doctor.shared_findings(everyone)
    results = [doctor.exchange(cluster.devices), _transform(cluster.devices)]
    if cluster.is_first:
        kinds = {device.device_kind for device in cluster.devices}
        print(f"{len(cluster.devices)} devices ({', '.join(sorted(kinds))}), all processes joined")
        print("\n".join([*results, *(f"wrong: {finding}" for finding in shared)]))
    problems = sum(cluster.gather(len(findings))) + len(shared)
    if cluster.is_first:
        print(f"wrong: {problems} in all" if problems else "no problems found", flush=True)
    cluster.close()
    return 1 if problems else 0


def _tuples(item: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in item.items()}


def _transform(devices: Any) -> str:
    """Transforms one mode and back on a grid with at least a plane per device; returns a line on the error."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from simulator.errors import RunFailure
    from simulator.spectral import Grid, make_transform

    n, length = max(32, 3 * len(devices) + 1), 2 * np.pi
    transform = make_transform(Grid((n, n, n), (length, length, length), "two_thirds"), devices)

    def error():
        x, y, z = transform.physical.coordinates()
        values = transform.physical.constrain(jnp.cos(2 * x + 3 * y - 5 * z))
        return transform.physical.max(jnp.abs(transform.inverse(transform.forward(values)) - values))

    largest = float(jax.jit(error)())
    if not largest < 1e-12:  # 50 times the rounding error of a transform of this size
        raise RunFailure(f"the distributed transform of {n}^3 points is wrong: error {largest:.1e}")
    return f"transform {transform.name} of {n}^3 points and back: correct, error {largest:.1e}"
