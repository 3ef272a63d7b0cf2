"""Runs validation cases on the devices of this machine and prints their table."""

import time
from collections.abc import Sequence
from pathlib import Path

from simulator.cluster import Allocation
from simulator.cluster.start import Cluster, Meeting, start
from simulator.plugins.validation.benchmark_record import benchmark_record
from simulator.plugins.validation.cases import CASES, reason_to_leave_out
from simulator.plugins.validation.table import CaseOutcome, rows, write
from simulator.simulation.agreement import installed_record
from simulator.spectral import Grid, make_transform
from simulator.spectral.native import described
from simulator.words import aligned_lines, duration


def validate(
    names: Sequence[str], allocation: Allocation, folder: Path, arguments: Sequence[str]
) -> int:
    """Runs the cases, on every process, and writes the table on the first one. Returns the exit
    code."""
    cluster = start(allocation, meet=Meeting(record=installed_record()))
    say = print if cluster.is_first else lambda *_, **__: None
    where = devices_line(cluster)
    say(where, flush=True)
    outcomes: list[CaseOutcome] = []
    for case in (CASES[name] for name in names):
        if reason := reason_to_leave_out(case, cluster.num_processes):
            say(f"{case.name}: left out, it {reason}")
            continue
        say(f"{case.name}: {case.what} ...", flush=True)
        began = time.monotonic()
        outcomes.append(CaseOutcome(case, case.run(), time.monotonic() - began))
    cluster.close()
    missed = [o.case.name for o in outcomes if not o.passed]
    if cluster.is_first:
        print("\n".join(aligned_lines(rows(outcomes), ())))
        record = {"measured": benchmark_record(arguments), "devices": where}
        for path in write(folder, record, outcomes):
            print(path)
        spent = duration(sum(o.seconds for o in outcomes))
        verdict = f"missed: {', '.join(missed)}" if missed else "all within their tolerances"
        print(f"{counted(len(outcomes), 'case')} in {spent}, {verdict}")
    return 0 if outcomes and not missed else 1


def devices_line(cluster: Cluster) -> str:
    """The devices and processes in words."""
    transform = make_transform(Grid((8, 8, 8)), cluster.local_devices[:1])
    kinds = ", ".join(sorted({device.device_kind for device in cluster.devices}))
    parts = (
        counted(cluster.num_processes, "process", "processes"),
        f"{counted(len(cluster.devices), 'device')} ({kinds})",
        f"{counted(cluster.threads, 'thread')} per device",
        f"kernels {described(transform.kernels, cluster.platform)}",
    )
    return ", ".join(parts)


def counted(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
