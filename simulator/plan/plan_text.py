"""Writes a plan as the lines or the JSON of `simulator plan`, and suggests to `simulator submit`
the resources that the user has not specified, which needs only a login node."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import ceil, prod
from typing import Any

from simulator.cluster.jobscript import SlurmSettings
from simulator.config import RunConfig
from simulator.errors import UserError
from simulator.plan.capacity import fewest_devices
from simulator.plan.machines import Machine, compile_obstacle, planned_on
from simulator.plan.plan import Plan, device_words
from simulator.plan.step_count import StepCount, fixed_steps
from simulator.simulation.compiling import words
from simulator.simulation.initial_state import outlook
from simulator.words import duration, size


def lines_of(plan: Plan) -> list[str]:
    config = plan.config
    machine = plan.machine
    step = plan.step
    step.begin()
    # traced while the programs are compiled
    work = step.work
    took = plan.seconds
    shape = " x ".join(map(str, config.grid.shape))
    transform = step.simulation.transform
    basis = []
    if machine.platform == "gpu":
        why = compile_obstacle(machine) or f"{machine.name} is measured, not described"
        basis = [f"a weaker estimate, from a GPU's program compiled for processors: {why}"]
        if step.target is not None:
            basis = [
                f"read from programs compiled for {step.target}; memory with the FFT library's workspace"
            ]
    lines = [
        f"{config.name}: {config.model.kind}, {shape}, {config.precision} precision, {config.time.integrator}, "
        f"{transform.name}",
        f"on {plan.devices} {device_words(machine, plan.devices)} ({machine.source})",
        *basis,
        "",
        "memory of a device",
        _row("the state", step.state),
        _row("a step", step.memory),
        _row("a row of diagnostics", step.held("diagnostics")),
        _row("a snapshot", step.held("output")),
        _row("available", plan.available),
    ]
    if (largest := plan.largest_shape) is not None:
        lines.append(
            f"  the largest grid of these proportions that fits: {' x '.join(map(str, largest))}"
        )
    lines += ["", f"{'a step of a device':<24}{'bytes':>14}{'seconds':>14}"]
    for name, count, spent in (
        ("read and written", work.bytes, took.arrays),
        ("sent to others", work.sent, took.exchange),
        ("all", work.bytes + work.sent, took.all),
    ):
        lines.append(f"  {name:<22}{size(count):>14}{seconds_text(spent):>14}")
    simulation = step.simulation
    resolution = outlook(config, simulation.model, simulation.inputs)
    return [*lines, "", *_run(plan), *resolution]


def _run(plan: Plan) -> list[str]:
    steps = plan.steps
    files = plan.files
    if steps.count is None or plan.whole_run is None:
        lines = [f"steps: unknown: {steps.source}"]
    else:
        lines = [f"steps: {steps.count} {steps.source}: {seconds_text(plan.whole_run)} in all"]
    many = "due by wall-clock time or steps"
    together = ""
    if files.all is not None:
        many = f"{files.snapshots} of them"
        together = f"; {size(files.all)} in all"
    lines.append(
        f"files: a snapshot {size(files.snapshot)}, {many}; a checkpoint {size(files.checkpoint)}, "
        f"{files.checkpoints} of them{together}"
    )
    if not plan.machine.measured:
        lines.append("for simulator submit: " + " ".join(flags(plan.ask())))
    return lines


def plan_json(plan: Plan) -> str:
    """A plan as JSON, with bytes and seconds of one device; `memory_per_point` is the number of
    values of the run's precision per grid point."""
    config = plan.config
    step = plan.step
    step.begin()
    # traced while the programs are compiled
    work = step.work
    took = plan.seconds
    content = {
        "name": config.name,
        "model": config.model.kind,
        "integrator": config.time.integrator,
        "shape": config.grid.shape,
        "precision": config.precision,
        "device": plan.machine.name,
        "devices": plan.devices,
        "transform": step.simulation.transform.name,
        "memory_bytes": {
            "state": step.state,
            "step": step.memory,
            "diagnostics": step.held("diagnostics"),
            "snapshot": step.held("output"),
            "available": plan.available,
        },
        "memory_per_point": words(step.memory, config, prod(config.grid.shape), plan.devices),
        "bytes_per_step": work.bytes + work.sent,
        "compiled_for": step.target or "virtual processors",
        "traffic_per_step": {"bytes": work.bytes, "sent": work.sent},
        "seconds_per_step": took.all,
        "seconds_by_part": took._asdict(),
        "steps": plan.steps.count,
        "seconds": plan.whole_run,
        "largest_shape": plan.largest_shape,
        "files": asdict(plan.files),
        "slurm": flags(plan.ask()),
    }
    return json.dumps(content, indent=1)


def flags(asked: Mapping[str, object]) -> list[str]:
    """Options of `simulator submit` for keys of the block `slurm`."""
    return [f"--{key.replace('_', '-')} {value}" for key, value in asked.items()]


def _row(name: str, count: float) -> str:
    return f"  {name:<22}{size(count):>14}"


def seconds_text(value: float) -> str:
    """A short or long duration in words: `3.2 ms`, `2 min 5 s`."""
    if value == 0 or value >= 120:
        return duration(value)
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= 0.9995 * unit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def suggested(config: RunConfig, site: SlurmSettings, device: str) -> tuple[RunConfig, list[str]]:
    """The configuration with the missing ones of nodes, GPUs or cores, and time, planned for the
    device `device`; and lines that state the suggestion, or that given settings are too small.
    `site` holds the settings of the site."""
    settings = site.model_dump(exclude_none=True) | config.slurm.model_dump(exclude_none=True)
    planned, target = planned_on(config, device, "device", settings.get("cpus_per_task"))
    devices = _devices(planned, target, settings)
    if devices is None:
        return config, [f"warning: {config.name} fits on no number of {target.name} devices"]
    try:
        known = config.time.dt or config.time.steps
        steps = fixed_steps(config) if known else StepCount(None, "dt follows from the flow")
        plan = Plan(planned, target, devices, steps)
    except UserError as error:
        return config, [f"warning: {error}"]
    lines = []
    if not plan.fits:
        more = fewest_devices(planned, target, devices, plan.beside)
        cure = f"{more} would suffice" if more is not None else "no number of devices would suffice"
        lines.append(
            f"warning: {config.name} needs {size(plan.step.largest)} on each of {devices} "
            f"{device_words(target, devices)}, which have {size(plan.available)}; {cure} (simulator plan)"
        )
    wanted: dict[str, object] = dict(plan.ask())
    sized = {"nodes", "gpus_per_node", "tasks_per_node", "cpus_per_task"} & settings.keys()
    if sized:
        wanted = {k: v for k, v in wanted.items() if k == "time"}
        if "nodes" not in sized and sized & {"gpus_per_node", "tasks_per_node"}:
            each = settings.get("gpus_per_node") or settings.get("tasks_per_node") or 1
            wanted = {"nodes": ceil(plan.devices / each), **wanted}
    if "time" in settings:
        wanted.pop("time", None)
    if wanted:
        steps = plan.steps.count
        asked = " ".join(flags(wanted))
        why = f"{seconds_text(plan.seconds.all)} a step" + (f", {steps} steps" if steps else "")
        lines.append(
            f"suggested by simulator plan for {devices} {device_words(target, devices)}: {asked} ({why})"
        )
    return config.changed(slurm=wanted), lines


def _devices(config: RunConfig, target: Machine, settings: dict[str, Any]) -> int | None:
    if config.devices.count != "auto":
        return config.devices.count
    each = settings.get("gpus_per_node" if target.platform == "gpu" else "tasks_per_node")
    if "nodes" in settings:
        return settings["nodes"] * (each or target.per_node)
    fewest = fewest_devices(config, target)
    if fewest is None or each is None:
        return fewest
    return ceil(fewest / each) * each
