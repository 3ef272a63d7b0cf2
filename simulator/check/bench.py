"""The measurement of `simulator bench step`.

A child process measures a step. The first process never starts JAX, so that the memory of a GPU is free for the runs
whose start is timed.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simulator.config import RunConfig, as_mapping, load_config
from simulator.config.yaml12 import dump_yaml
from simulator.errors import RunFailure, UserError

DEFAULT = """\
name: taylor_green
model: {kind: navier_stokes, viscosity: 6.25e-4}
grid: {shape: [128, 128, 128]}
initial: {kind: taylor_green}
time: {stop: 20, cfl: 0.5}
"""


def _config(args: argparse.Namespace) -> Any:
    """The configuration of the measured run."""
    overrides = list(args.overrides)
    # If the first argument is an override and not a file, the default configuration is measured.
    path = args.config
    if path is not None and "=" in path and not Path(path).exists():
        overrides, path = [path, *overrides], None
    if args.shape is not None:
        overrides.append(f"grid.shape={','.join(map(str, args.shape))}")
    if args.devices is not None:
        overrides.append(f"devices.count={args.devices}")
    if args.precision is not None:
        overrides.append(f"precision={args.precision}")
    if path is not None:
        return load_config(path, overrides)
    with tempfile.TemporaryDirectory() as folder:
        default = Path(folder) / "taylor_green.yaml"
        default.write_text(DEFAULT)
        return load_config(default, overrides)


def step(args: argparse.Namespace) -> int:
    """Measure; returns the exit code."""
    from simulator.cluster import discover
    from simulator.simulation.placement import check_devices

    config = _config(args)
    if args.processes is not None and args.processes < 1:
        raise UserError(f"--processes: must be at least 1, not {args.processes}")
    check_devices(config, config.devices.count, args.processes or 1)
    if args.measure is not None:
        return _measure(args, config)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        if discover(os.environ).num_processes > 1:  # in a Slurm step this code runs in every process
            args.measure = file
            code = _measure(args, config)
        else:
            code = _in_children(args, file)
        if code or not file.exists():
            return code
        result = json.loads(file.read_text())
    if not args.no_start and result["processes"] == (args.processes or 1):
        result["first_step"] = asdict(command_to_first_step(config, args.processes))
    for line in step_lines(result):
        print(line)
    if args.json is not None:
        from simulator.check.circumstances import circumstances

        result["measured"] = circumstances(args.arguments)
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _in_children(args: argparse.Namespace, file: Path) -> int:
    """Measures in child processes; returns their exit code."""
    from simulator.cluster.launcher import launch, without_processes

    command = [sys.executable, "-m", "simulator", *without_processes(args.arguments), "--measure", str(file)]
    if args.processes is not None:
        return launch(command, args.processes)
    return subprocess.run(command).returncode


def _measure(args: argparse.Namespace, config: Any) -> int:
    from simulator.check.step import measure_step
    from simulator.cluster import discover
    from simulator.cluster.failure import contained
    from simulator.run.refusals import check_memory
    from simulator.simulation.placement import connect
    from simulator.simulation.simulation import Simulation
    from simulator.spectral.native import described

    allocation = discover(os.environ)
    with contained(allocation):
        cluster = connect(config, allocation)

        simulation = Simulation(config, cluster=cluster)
        check_memory(simulation)
        compiled = simulation.compiled_loop()
        costs = measure_step(simulation, compiled, args.seconds)
        if cluster.is_first:
            about = {
                "name": config.name,
                "model": config.model.kind,
                "integrator": config.time.integrator,
                "shape": config.grid.shape,
                "precision": config.precision,
                "devices": len(cluster.devices),
                "device": cluster.devices[0].device_kind,
                "processes": cluster.num_processes,
                "transform": simulation.transform.name,
                "kernels": described(simulation.transform.kernels, cluster.platform),
                "host": platform.node(),
            }
            args.measure.write_text(json.dumps(about | asdict(costs)))
        cluster.close()
    return 0


def step_lines(result: dict[str, Any]) -> list[str]:
    """The result as printable lines."""
    from simulator.words import size

    step = result["step"]
    # The parts are timed alone, so their sum may exceed the step.
    rest = max(step - result["transforms"] - (result["communication"] or 0), 0.0)

    def ms(seconds: float) -> str:
        return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

    def share(name: str, seconds: float, what: str) -> str:
        return f"  {name:16}{ms(seconds):>10} {seconds / step:>6.0%}   {what}"

    lines = [
        f"{result['name']}: {result['model']}, {' x '.join(map(str, result['shape']))}, {result['integrator']}, "
        f"{result['precision']} precision, {result['devices']} {result['device']} devices of {result['processes']} "
        f"processes, {result['transform']}, kernels {result['kernels']}, on {result['host']}",
        f"{'step':18}{ms(step):>10}          median of {len(result['rounds'])}, "
        f"{ms(result['fastest'])} to {ms(result['slowest'])}; "
        f"{result['points_per_second'] / 1e6:.3g} million points per second and device",
        share("transforms", result["transforms"], "alone, without their exchanges"),
    ]
    if result["communication"] is None:
        lines[-1] = share("transforms", result["transforms"], "alone, with their exchanges")
    else:
        lines.append(share("communication", result["communication"], "their exchanges alone"))
    sent = [f"{c['count']} {kind} ({size(c['bytes'])})" for kind, c in result["collectives"].items()]
    often = 1 + result["diagnostics"] / (10 * step)
    lines += [
        share("the rest", rest, "products at the points, registers, sums"),
        f"{'diagnostics':18}{ms(result['diagnostics']):>10}          per row; a row every 10 steps makes a run take "
        f"{often:.3f} times as long",
        f"{'memory':18}{size(result['memory_bytes']):>10}   on each device; words per grid point: "
        f"{result['resident'] + result['temporary']:.2f} = state {result['resident']:.2f} "
        f"+ temporary {result['temporary']:.2f}",
        f"{'sends':18}{', '.join(sent) or 'nothing'}",
        f"{'compilation':18}{result['compile_cold']:>8.1f} s   without and {result['compile_cached']:.1f} s with "
        "the compile cache",
    ]
    if first := result.get("first_step"):
        lines.append(
            f"{'first step after':18}{first['cold']:>8.1f} s   from the command, without and "
            f"{first['warm']:.1f} s with the compile cache"
        )
    return lines


# ---- the start -------------------------------------------------------------------------------------------


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
