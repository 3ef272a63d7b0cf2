"""`simulator bench step`: what a step of a configuration costs on this machine.

The measuring process is a child: this one never starts JAX, so that the runs whose start is timed find the machine,
and a GPU's memory, free.
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
        help="a whole step of a configuration: time and what of it, memory, compilation, start",
        description="Times steps of CONFIG (a Taylor-Green vortex at 128^3 without one), the transforms in them and "
        "what these exchange by themselves, in turns; reads memory and collectives from the compiled program; and "
        "times `simulator run` from the command to its first step, with an empty compile cache and a full one. "
        "What needs more memory than there is, is refused before it starts, with a shape that fits.",
        epilog="example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single",
    )
    add_config_arguments(parser, required=False)
    parser.add_argument("--shape", type=shape, metavar="NX,NY,NZ", help="the same as grid.shape=NX,NY,NZ")
    parser.add_argument("--devices", type=int, metavar="N", help="the same as devices.count=N")
    parser.add_argument("--precision", choices=("single", "double"), help="the same as precision=...")
    parser.add_argument("--processes", type=int, metavar="N", help="start N local processes")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for how long steps are timed (default: 10)"
    )
    parser.add_argument(
        "--no-start", action="store_true", help="leave out the time from command to first step"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.set_defaults(func=execute)


def _config(args: argparse.Namespace) -> Any:
    """The run that is measured."""
    from simulator.config import load_config

    overrides = list(args.overrides)
    # A file's name comes first: what looks like an override is one, of the default.
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
    from simulator.cluster import discover
    from simulator.run.sharing import check_devices

    config = _config(args)
    if args.processes is not None and args.processes < 1:
        raise UserError(f"--processes: {args.processes} is no number of processes; 1 or more")
    check_devices(config, config.devices.count, args.processes or 1)
    if args.measure is not None:
        return _measure(args, config)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        if discover(os.environ).num_processes > 1:  # a Slurm step: every process is here
            args.measure = file
            code = _measure(args, config)
        else:
            code = _in_children(args, file)
        if code or not file.exists():
            return code
        found = json.loads(file.read_text())
    if not args.no_start and found["processes"] == (args.processes or 1):
        from simulator.benchmark import command_to_first_step

        found["first_step"] = asdict(command_to_first_step(config, args.processes))
    for line in report(found):
        print(line)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _in_children(args: argparse.Namespace, file: Path) -> int:
    """The measuring processes' exit code."""
    from simulator.cluster.launcher import launch, without_processes

    command = [sys.executable, "-m", "simulator", *without_processes(args.arguments), "--measure", str(file)]
    if args.processes is not None:
        return launch(command, args.processes)
    return subprocess.run(command).returncode


def _measure(args: argparse.Namespace, config: Any) -> int:
    from simulator.benchmark import check_fits, measure_step
    from simulator.cluster import discover
    from simulator.cluster.failure import contained
    from simulator.run.memory import compiled_loop
    from simulator.run.sharing import connect
    from simulator.run.simulation import Simulation

    allocation = discover(os.environ)
    with contained(allocation):
        cluster = connect(config, allocation)

        def of_shape(shape: tuple[int, int, int]) -> Simulation:
            grid = config.grid.model_copy(update={"shape": shape})
            return Simulation(config.model_copy(update={"grid": grid}), cluster=cluster)

        simulation = Simulation(config, cluster=cluster)
        compiled = compiled_loop(simulation)
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
                "host": platform.node(),
            }
            args.measure.write_text(json.dumps(about | asdict(costs)))
        cluster.close()
    return 0


def report(found: dict[str, Any]) -> list[str]:
    """What was measured, for people."""
    from simulator.spectral.collectives import size

    step = found["step"]
    rest = max(
        step - found["transforms"] - (found["communication"] or 0), 0.0
    )  # parts are timed by themselves

    def ms(seconds: float) -> str:
        return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

    def share(name: str, seconds: float, what: str) -> str:
        return f"  {name:16}{ms(seconds):>10} {seconds / step:>6.0%}   {what}"

    lines = [
        f"{found['name']}: {found['model']}, {' x '.join(map(str, found['shape']))}, {found['integrator']}, "
        f"{found['precision']} precision, {found['devices']} {found['device']} devices of {found['processes']} "
        f"processes, {found['transform']}, on {found['host']}",
        f"{'step':18}{ms(step):>10}          median of {len(found['rounds'])}, "
        f"{ms(found['fastest'])} to {ms(found['slowest'])}; "
        f"{found['points_per_second'] / 1e6:.3g} million points per second and device",
        share("transforms", found["transforms"], "by themselves, without what they exchange"),
    ]
    if found["communication"] is None:
        lines[-1] = share("transforms", found["transforms"], "by themselves, with what they exchange")
    else:
        lines.append(share("communication", found["communication"], "their exchanges by themselves"))
    sent = [f"{c['count']} {kind} ({size(c['bytes'])})" for kind, c in found["collectives"].items()]
    often = 1 + found["diagnostics"] / (10 * step)
    lines += [
        share("the rest", rest, "products at the points, registers, sums"),
        f"{'diagnostics':18}{ms(found['diagnostics']):>10}          a row; one every 10 steps makes a run take "
        f"{often:.3f} times as long",
        f"{'memory':18}{size(found['memory_bytes']):>10}   on each device; words per grid point: "
        f"{found['resident'] + found['temporary']:.2f} = state {found['resident']:.2f} "
        f"+ temporary {found['temporary']:.2f}",
        f"{'sends':18}{', '.join(sent) or 'nothing'}",
        f"{'compilation':18}{found['compile_cold']:>8.1f} s   without and {found['compile_cached']:.1f} s with "
        "what an earlier run has kept",
    ]
    if first := found.get("first_step"):
        lines.append(
            f"{'first step after':18}{first['cold']:>8.1f} s   from the command, without and "
            f"{first['warm']:.1f} s with what an earlier run has kept"
        )
    return lines
