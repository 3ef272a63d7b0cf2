"""The measurement of `simulator bench step`."""

import argparse
import platform
from pathlib import Path
from typing import Any

from simulator.archive.stored_state import RunInputs
from simulator.cluster import Allocation
from simulator.config import RunConfig, load_config
from simulator.files import replace_json
from simulator.plan.circumstances import circumstances
from simulator.plan.cost_of_step import measure_step
from simulator.run.command import allocated, launched
from simulator.run.refusals import check_memory, check_messages
from simulator.simulation.placement import check_devices, connect
from simulator.simulation.simulation import Simulation
from simulator.spectral.native import described
from simulator.words import size

DEFAULT = Path(__file__).with_name("step.yaml")


def _config(args: argparse.Namespace) -> Any:
    overrides = list(args.overrides)
    # If the first argument is an override and not a file, the default configuration is measured.
    path = args.config
    if path is not None and "=" in path and not Path(path).exists():
        overrides = [path, *overrides]
        path = None
    if args.shape is not None:
        overrides.append(f"grid.shape={','.join(map(str, args.shape))}")
    if args.devices is not None:
        overrides.append(f"devices.count={args.devices}")
    if args.precision is not None:
        overrides.append(f"precision={args.precision}")
    return load_config(DEFAULT if path is None else path, overrides)


def time_and_report(args: argparse.Namespace) -> int:
    config = _config(args)
    with allocated(args) as allocation:
        check_devices(config, config.devices.count, args.processes or 1)
        if allocation is None:  # each launched process executes this function without the option
            return launched(args.arguments, args.processes)
        result = _measured(config, allocation, args.seconds)
    if result is None:
        return 0
    print("\n".join(step_lines(result)))
    if args.json is not None:
        result["measured"] = circumstances(args.arguments)
        replace_json(args.json, result)
    return 0


def _measured(config: RunConfig, allocation: Allocation, seconds: float) -> dict[str, Any] | None:
    """The costs and the description of the measured step, in the first process; None in the other
    processes."""
    cluster = connect(config, allocation)
    simulation = Simulation(config, cluster=cluster, inputs=RunInputs())
    check_memory(simulation)
    check_messages(simulation)
    costs = measure_step(simulation, simulation.compiled_loop(), seconds)
    about = {
        "name": config.name,
        "model": config.model.kind,
        "integrator": config.time.integrator,
        "shape": config.grid.shape,
        "precision": config.precision,
        "host": platform.node(),
        "devices": len(cluster.devices),
        "threads": cluster.threads,
        "device": cluster.devices[0].device_kind,
        "processes": cluster.num_processes,
        "transform": simulation.transform.name,
        "kernels": described(simulation.transform.kernels, cluster.platform),
    }
    cluster.close()
    return about | costs if cluster.is_first else None


def step_lines(costs: dict[str, Any]) -> list[str]:
    step = costs["step"]
    limits = costs["limits"]

    def ms(seconds: float) -> str:
        return f"{1e3 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

    parts = [("transforms", costs["transforms"], "alone, with their exchanges")]
    if (sending := costs["communication"]) is not None:
        parts = [("transforms", costs["transforms"], "alone, without their exchanges")]
        parts.append(("communication", sending, "their exchanges alone"))
    # The parts are timed alone, so their sum may exceed the step.
    rest = max(step - sum(seconds for _, seconds, _ in parts), 0.0)
    rates = f"{limits['bandwidth'] / 1e9:.3g} GB/s copied, {limits['rate'] / 1e9:.3g} GFlop/s"
    parts.append(("the rest", rest, "products at the points, registers, sums"))
    parts.append(
        ("limit", sum(part["seconds"] for part in limits["parts"]), f"of the transforms: {rates}")
    )
    exchanges = costs["exchanges"]
    sent = f"{exchanges['count']} all-to-all ({size(exchanges['bytes'])})"
    resident = costs["resident"]
    temporary = costs["temporary"]
    return [
        f"{costs['name']}: {costs['model']}, {' x '.join(map(str, costs['shape']))}, {costs['integrator']}, "
        f"{costs['precision']} precision, {costs['devices']} {costs['device']} devices of "
        f"{costs['threads']} threads in {costs['processes']} processes, {costs['transform']}, kernels "
        f"{costs['kernels']}, on {costs['host']}",
        f"{'step':18}{ms(step):>10}          median of {len(costs['rounds'])}, "
        f"{ms(costs['fastest'])} to {ms(costs['slowest'])}; "
        f"{costs['points_per_second'] / 1e6:.3g} million points per second and device",
        *(
            f"  {name:16}{ms(seconds):>10} {seconds / step:>6.0%}   {what}"
            for name, seconds, what in parts
        ),
        f"{'diagnostics':18}{ms(costs['diagnostics']):>10}          per row; a row every 10 steps makes a run take "
        f"{1 + costs['diagnostics'] / (10 * step):.3f} times as long",
        f"{'memory':18}{size(costs['memory_bytes']):>10}   on each device; words per grid point: "
        f"{resident + temporary:.2f} = state {resident:.2f} + temporary {temporary:.2f}",
        f"{'sends':18}{sent if exchanges['count'] else 'nothing'}",
        f"{'compilation':18}{costs['compile_cold']:>8.1f} s   without and {costs['compile_cached']:.1f} s with "
        "the compile cache",
    ]
