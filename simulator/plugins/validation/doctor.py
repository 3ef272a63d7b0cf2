"""Tests the set-up of a job, and names the flags that cure problems."""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml

from simulator.cluster import Allocation
from simulator.cluster.hardware import has_gpu_plugin, physical_memory, processor
from simulator.cluster.mesh import Device
from simulator.cluster.start import Cluster, Meeting, start
from simulator.config import RunConfig
from simulator.errors import RunFailure, UserError
from simulator.plan.machines import DEVICES, EFFICIENCY, GB
from simulator.plugins.validation.division import division_lines
from simulator.plugins.validation.link import Link, measured_link
from simulator.plugins.validation.rates import copy_bandwidth
from simulator.plugins.validation.set_up import (
    Facts,
    own_findings,
    process_facts,
    shared_findings,
)
from simulator.simulation.placement import connect, place
from simulator.spectral import Grid, make_transform
from simulator.words import counted


def examine(allocation: Allocation, args: argparse.Namespace, config: RunConfig | None) -> int:

    facts = process_facts(allocation, os.environ, str(args.folder) if args.folder else None)
    findings = list(own_findings(allocation, facts, os.environ, gpu_plugin=has_gpu_plugin()))
    time.sleep(min(0.01 * allocation.process_id, 1.0))  # so that processes usually print in order
    print("\n".join([facts.line, *(f"  wrong: {finding}" for finding in findings)]), flush=True)

    if config is not None:
        cluster = connect(config, allocation, args.folder)
        transform = place(config, cluster).transform()
    else:
        meet = Meeting(args.folder)
        cluster = start(allocation, platform=args.platform, meet=meet, report=lambda line: None)
        transform = make_transform(Grid((64, 64, 64)), cluster.devices)
    shared = list(shared_findings([Facts(**item) for item in cluster.gather(asdict(facts))]))
    result = _transform(cluster.devices)
    between = (
        measured_link(cluster)
        if allocation.num_processes > 1 and cluster.platform == "cpu"
        else None
    )
    if cluster.is_first:
        kinds = {device.device_kind for device in cluster.devices}
        print(
            f"{counted(len(cluster.devices), 'device')} ({', '.join(sorted(kinds))}), all processes joined"
        )
        print("\n".join(["", *division_lines(cluster, transform, os.environ), ""]))
        if between is not None:
            print(f"between two processes: {cluster.transport}: {between}")
            if cluster.transport.declined:
                print(f"MPI is not used: {cluster.transport.declined}")
        print("\n".join([result, *(f"wrong: {finding}" for finding in shared)]))
    if args.measure:
        _measure(cluster, between)
    problems = sum(cluster.gather(len(findings))) + len(shared)
    if cluster.is_first:
        print(f"wrong: {problems} in all" if problems else "no problems found", flush=True)
    cluster.close()
    return 1 if problems else 0


def _measure(cluster: Cluster, between: Link | None) -> None:
    """Prints the block of devices.yaml that describes this node. All processes call this."""

    if cluster.platform != "cpu":
        raise UserError(f"--measure: for processors only; {DEVICES} describes GPUs")
    allocation = cluster.allocation
    nodes = cluster.num_processes // allocation.local_processes
    # An array of 256 MB for each device exceeds every cache.
    bandwidth = copy_bandwidth(cluster.devices, 1 << 28) / nodes
    if not cluster.is_first:
        return
    # The table holds peaks: measured rates over the usual efficiency.
    node: dict[str, Any] = {
        "cores": cluster.threads * len(cluster.devices) // nodes,
        "sockets": allocation.local_processes,
        "memory": round(physical_memory() / GB),
        "bandwidth": round(bandwidth / EFFICIENCY["bandwidth"] / GB, 1),
    }
    if between is not None and nodes > 1:
        node["network"] = round(between.bandwidth / EFFICIENCY["network"] / GB, 2)
    node["source"] = f"{processor()}, by simulator doctor --measure on {date.today().isoformat()}"
    print(f"all cores of a node copy {bandwidth / 1e9:.3g} GB/s; for plan --device, in {DEVICES}:")
    print(yaml.safe_dump({"this-node": node}, sort_keys=False, width=100), end="")


def _transform(devices: Sequence[Device]) -> str:
    """Transforms one mode forward and back, on at least a plane per device; returns a line with the error."""

    n = max(32, 3 * len(devices) + 1)
    length = 2 * np.pi
    transform = make_transform(Grid((n, n, n), (length, length, length), "two_thirds"), devices)

    def error() -> jax.Array:
        x, y, z = transform.physical.coordinates()
        values = transform.physical.constrain(jnp.cos(2 * x + 3 * y - 5 * z))
        return transform.physical.max(
            jnp.abs(transform.inverse(transform.forward(values)) - values)
        )

    largest = float(jax.jit(error)())
    if not largest < 1e-12:  # 50 times the rounding error of a transform of this size
        raise RunFailure(f"the distributed transform of {n}^3 points is wrong: error {largest:.1e}")
    return f"transform {transform.name} of {n}^3 points and back: correct, error {largest:.1e}"
