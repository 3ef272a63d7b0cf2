"""`simulator bench step`: measures the cost of a step of a configuration on this machine.

A child process does the measurement. This process never starts JAX, so that the memory of a GPU is free for the runs
whose start is timed.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.cli.parser import add_config_arguments
from simulator.errors import UserError

DEFAULT = """\
name: taylor_green
model: {kind: navier_stokes, viscosity: 6.25e-4}
grid: {shape: [128, 128, 128]}
initial: {kind: taylor_green}
time: {stop: 20, cfl: 0.5}
"""


def add_step_parser(kinds: Any, shape: Any) -> None:
    """`shape` reads NX,NY,NZ."""
    parser = kinds.add_parser(
        "step",
        help="a whole step of a configuration: time and its parts, memory, compilation, start",
        description="Times steps of CONFIG (by default a Taylor-Green vortex at 128^3), their transforms alone and "
        "their exchanges alone, in turns; reads memory and collectives from the compiled program; and "
        "times `simulator run` from the command to its first step, with an empty compile cache and a full one. "
        "A step that does not fit in memory is refused before it starts, with a shape that fits.",
        epilog="example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single",
    )
    add_config_arguments(parser, required=False)
    parser.add_argument("--shape", type=shape, metavar="NX,NY,NZ", help="the same as grid.shape=NX,NY,NZ")
    parser.add_argument("--devices", type=int, metavar="N", help="the same as devices.count=N")
    parser.add_argument("--precision", choices=("single", "double"), help="the same as precision=...")
    parser.add_argument("--processes", type=int, metavar="N", help="start N local processes")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="duration of the timing of steps (default: 10)"
    )
    parser.add_argument(
        "--no-start", action="store_true", help="leave out the time from command to first step"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all results to FILE")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.set_defaults(func=execute)


def _config(args: argparse.Namespace) -> Any:
    """The configuration of the measured run."""
    from simulator.config import load_config

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


def execute(args: argparse.Namespace) -> int:
    """Measure; returns the exit code."""
    from simulator.processes import discover
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
        from simulator.benchmark import command_to_first_step

        result["first_step"] = asdict(command_to_first_step(config, args.processes))
    for line in report(result):
        print(line)
    if args.json is not None:
        from simulator.benchmark.circumstances import circumstances

        result["measured"] = circumstances(args.arguments)
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _in_children(args: argparse.Namespace, file: Path) -> int:
    """Measures in child processes; returns their exit code."""
    from simulator.processes.launcher import launch, without_processes

    command = [sys.executable, "-m", "simulator", *without_processes(args.arguments), "--measure", str(file)]
    if args.processes is not None:
        return launch(command, args.processes)
    return subprocess.run(command).returncode


def _measure(args: argparse.Namespace, config: Any) -> int:
    from simulator.benchmark import check_fits, measure_step
    from simulator.processes import discover
    from simulator.processes.failure import contained
    from simulator.simulation.placement import connect
    from simulator.simulation.simulation import Simulation
    from simulator.spectral.native import described

    allocation = discover(os.environ)
    with contained(allocation):
        cluster = connect(config, allocation)

        def of_shape(shape: tuple[int, ...]) -> Simulation:
            grid = config.grid.model_copy(update={"shape": shape})
            return Simulation(config.model_copy(update={"grid": grid}), cluster=cluster)

        simulation = Simulation(config, cluster=cluster)
        compiled = simulation.compiled_loop()
        check_fits(simulation, compiled, of_shape)
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


def report(result: dict[str, Any]) -> list[str]:
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
