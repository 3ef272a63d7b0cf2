"""The lines of `simulator plan`, and the same as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import prod

from simulator.plan.machines import missing
from simulator.plan.plan import Plan, counted
from simulator.plan.scaling import Point
from simulator.simulation.compiling import words
from simulator.words import size

_COLUMNS = "  {:<22}{:>14}{:>14}"


def lines_of(plan: Plan) -> list[str]:
    """A plan as lines of text."""
    config, machine, step = plan.config, plan.machine, plan.step
    shape = " x ".join(map(str, config.grid.shape))
    transform = step.simulation.transform
    lines = [
        f"{config.name}: {config.model.kind}, {shape}, {config.precision} precision, {config.time.integrator}, "
        f"{transform.name}",
        f"on {plan.devices} {counted(machine, plan.devices)} ({machine.source})",
        *_basis(plan),
        "",
        "memory of a device",
        _row("the state", step.state),
        _row("a step", step.memory),
        _row("a row of diagnostics", step.diagnostics_memory),
        _row("a snapshot", step.output_memory),
        _row("there is", plan.available),
    ]
    if (largest := plan.largest_shape) is not None:
        lines.append(f"  the largest grid of these proportions that fits: {' x '.join(map(str, largest))}")
    moved, took = step.traffic, plan.seconds
    lines += ["", ("{:<24}{:>14}{:>14}").format("a step of a device", "bytes", "seconds")]
    for name, count, spent in (
        ("read and written", moved.bytes, took.arrays),
        ("sent to others", moved.sent, took.exchange),
        ("starts of kernels", None, took.starts),
        ("all", moved.bytes + moved.sent, took.all),
    ):
        lines.append(_COLUMNS.format(name, "" if count is None else size(count), _seconds(spent)))
    return [*lines, "", *_run(plan)]


def _basis(plan: Plan) -> list[str]:
    """The source of memory and bytes, for a GPU."""
    if plan.machine.platform != "gpu":
        return []
    if plan.step.target is not None:
        return [
            f"read from programs compiled for {plan.step.target}; memory with the FFT library's workspace"
        ]
    why = missing(plan.machine) or f"{plan.machine.name} is measured, not described"
    return [f"a weaker estimate, from a GPU's program compiled for processors: {why}"]


def _run(plan: Plan) -> list[str]:
    steps, files = plan.steps, plan.files
    if steps.count is None or plan.whole_run is None:
        lines = [f"steps: unknown: {steps.source}"]
    else:
        lines = [f"steps: {steps.count} {steps.source}: {duration(plan.whole_run)} in all"]
    many = f"{files.snapshots} of them" if files.snapshots is not None else "due by wall-clock time or steps"
    lines.append(
        f"files: a snapshot {size(files.snapshot)}, {many}; a checkpoint {size(files.checkpoint)}, "
        f"{files.checkpoints} of them" + (f"; {size(files.all)} in all" if files.all is not None else "")
    )
    if not plan.machine.measured:
        lines.append("for simulator submit: " + " ".join(plan.ask().flags()))
    return lines


def as_json(plan: Plan) -> str:
    """A plan as JSON. Bytes and seconds are those of one device; `memory_per_point` is the number of values of the
    run's precision per grid point."""
    config, step, moved, took = plan.config, plan.step, plan.step.traffic, plan.seconds
    points = prod(config.grid.shape)
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
            "diagnostics": step.diagnostics_memory,
            "snapshot": step.output_memory,
            "available": plan.available,
        },
        "memory_per_point": words(step.memory, config, points, plan.devices),
        "bytes_per_step": moved.bytes + moved.sent,
        "compiled_for": step.target or "virtual processors",
        "traffic_per_step": asdict(moved),
        "seconds_per_step": took.all,
        "seconds_by_part": asdict(took),
        "steps": plan.steps.count,
        "seconds": plan.whole_run,
        "largest_shape": plan.largest_shape,
        "files": asdict(plan.files),
        "slurm": plan.ask().flags(),
    }
    return json.dumps(content, indent=1)


def scaling_lines(points: Sequence[Point], title: str) -> list[str]:
    """A table of predicted scaling."""
    form = "  {:>7}  {:<24}{:<10}{:>11}{:>11}{:>11}{:>12}"
    lines = [
        title,
        form.format("devices", "shape", "transform", "memory", "a step", "exchange", "efficiency"),
    ]
    for p in points:
        shape = " x ".join(map(str, p.shape))
        lines.append(
            form.format(
                p.devices,
                shape,
                p.transform,
                size(p.memory) + ("" if p.fits else " !"),
                _seconds(p.seconds),
                _seconds(p.exchange),
                f"{100 * p.efficiency:.0f} %",
            )
        )
    if not all(p.fits for p in points):
        lines.append("  ! more than a device has")
    return lines


def _row(name: str, count: float) -> str:
    return f"  {name:<22}{size(count):>14}"


def _seconds(value: float) -> str:
    if value == 0:
        return "0"
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= 0.9995 * unit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def duration(value: float) -> str:
    """A duration in words."""
    if value < 120:
        return _seconds(value)
    if value < 2 * 3600:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h" if value < 48 * 3600 else f"{value / 86400:.1f} days"
