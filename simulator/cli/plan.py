"""`simulator plan`: predicts memory, files and time of a run before it is submitted."""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor

from simulator.cli.parser import arg, command, config_arguments
from simulator.errors import UserError


@command(
    "predict memory, files and duration of a run",
    *config_arguments(),
    arg(
        "--devices N",
        "number of devices; by default the smallest number on which the run fits",
        type=int,
    ),
    arg("--nodes N", "number of nodes, in place of --devices, as in simulator submit", type=int),
    arg(
        "--device NAME",
        "kind of device: v100, a100-40, a100-64, a100-80, h100, h200, gh200, b200, gb200, b300, mi250x, mi300x, "
        "mi300a, epyc-7763, epyc-9654, or here (default), which measures this machine. If JAX's plugin for a GPU is "
        "installed, programs are compiled for that GPU, also on a machine without it",
        default="here",
    ),
    arg("--steps N", "number of steps of the run, if dt follows from the flow", type=int),
    arg("--json", "print the plan as JSON", action="store_true"),
)
def plan_command(args: argparse.Namespace) -> int:
    """Predict memory, duration and files of a run, the largest grid that fits, and the resources to request from
    Slurm. The run's programs are compiled but not executed; only --device here executes steps on a small grid.
    Python files that the configuration names are executed, with your permissions.

    example: simulator plan configs/taylor_green.yaml grid.shape=1024,1024,1024 --device h100"""
    # JAX then loads its plugin without a driver
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    from simulator.config import load_config
    from simulator.plan import Plan, Step, StepCount, estimated_steps, fewest_devices, this_machine
    from simulator.plan.machines import planned_on, target_of
    from simulator.plan.plan_text import lines_of, plan_json
    from simulator.plan.step_count import fixed_steps
    from simulator.simulation.abstract_run import with_planned_threads
    from simulator.simulation.placement import most_devices

    _check_counts(args)
    config = load_config(args.config, args.overrides)
    devices = args.devices or (None if config.devices.count == "auto" else config.devices.count)
    if args.device == "here":
        target = this_machine(config, devices)
        config = (
            config if target.platform == "gpu" else with_planned_threads(config, target.threads)
        )
    else:
        config, target = planned_on(config, args.device)
        devices = args.nodes * target.per_node if args.nodes else devices
    if devices is None and target.measured:
        devices = most_devices(config, target.per_node)
    if devices is None:
        devices = fewest_devices(config, target) or 1
    Step(config, devices, target.platform, target_of(target)).begin()
    with ThreadPoolExecutor(1) as beside:  # counts the steps while programs are compiled
        counted = beside.submit(
            lambda: StepCount(args.steps, "given") if args.steps else estimated_steps(config)
        )
        plan = Plan(config, target, devices, fixed_steps(config))
        plan.refuse()
        _ = plan.largest_shape  # compiles a program too
    plan.steps = counted.result()
    print(plan_json(plan) if args.json else "\n".join(lines_of(plan)))
    return 0


def _check_counts(args: argparse.Namespace) -> None:
    counts = {"--devices": args.devices, "--nodes": args.nodes, "--steps": args.steps}
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UserError(f"{name}: must be at least 1, not {value}")
    if args.nodes and (args.devices or args.device == "here"):
        other = (
            "--devices counts them already"
            if args.devices
            else "--device here is one node; name a --device"
        )
        raise UserError(f"--nodes: {other}, or leave --nodes out")
