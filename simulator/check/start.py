"""Times a real `simulator run` from the command to its first step."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from simulator.config import RunConfig, as_mapping
from simulator.config.yaml12 import dump_yaml
from simulator.errors import RunFailure


@dataclass(frozen=True)
class Start:
    """Seconds from the command to the row of the first step in `diagnostics.csv`."""

    cold: float
    """With an empty compile cache."""
    warm: float
    """With the compile cache of an earlier run."""


def command_to_first_step(config: RunConfig, processes: int | None = None) -> Start:
    """Runs `config` for one step, three times with a fresh compile cache. Raises RunFailure if a run fails."""
    with tempfile.TemporaryDirectory(prefix="simulator-bench-") as folder:
        cold, *warm = (_one(config, processes, Path(folder), n) for n in range(3))
        return Start(cold, min(warm))


def _one(config: RunConfig, processes: int | None, folder: Path, n: int) -> float:
    data = as_mapping(config)
    data["output"] = {"directory": str(folder / f"run{n}"), "diagnostics": {"every_steps": 1}}
    data["time"] |= {"max_steps": 1}
    path = folder / f"run{n}.yaml"
    path.write_text(dump_yaml(data))
    command = [sys.executable, "-m", "simulator", "run", str(path)]
    if processes is not None:
        command += ["--processes", str(processes)]
    environ = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}
    rows, seconds = folder / f"run{n}" / "diagnostics.csv", None
    with (folder / "output").open("w+") as output:
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=output, stderr=output, env=environ) as process:
            while process.poll() is None and seconds is None:
                time.sleep(0.01)
                if _rows(rows) >= 2:
                    seconds = time.perf_counter() - began
            process.wait()
        if seconds is None and _rows(rows) >= 2:
            seconds = time.perf_counter() - began
        if seconds is None:
            output.seek(0)
            last = (output.read().strip().splitlines() or ["no output"])[-1]
            raise RunFailure(f"simulator run, for the time to the first step: {last}")
    return seconds


def _rows(path: Path) -> int:
    """Complete rows below the header."""
    try:
        return path.read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return 0
