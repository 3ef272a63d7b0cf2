"""Records when, where and by which command a benchmark was measured, for the file with its
numbers."""

import os
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.archive.provenance import git_state
from simulator.cluster.hardware import physical_memory, processor, usable_cores
from simulator.words import version_of


def benchmark_record(arguments: Sequence[str], program: str = "simulator") -> dict[str, Any]:
    """Date, version, commit (None without a checkout), processor, cores, memory (bytes), the load
    of the last minute (processes that ran or waited, the benchmark's own among them) and the
    command `PROGRAM ARGUMENTS`."""
    words = list(arguments)
    for option in ("--json", "--folder"):  # names of files do not influence the measurement
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    checkout = git_state(Path(__file__).parent)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": version_of(),
        "commit": None if checkout is None else checkout["commit"],
        "processor": processor(),
        "cores": usable_cores(),
        "memory": physical_memory(),
        "load": round(os.getloadavg()[0], 1),
        "command": shlex.join([program, *words]),
    }
