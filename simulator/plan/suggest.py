"""Suggestions of `simulator submit` for resources that nobody specified. Needs only a login node."""

from math import ceil, prod

from simulator.config import RunConfig
from simulator.config.execution import SlurmSettings
from simulator.errors import UserError
from simulator.plan.fitting import fewest_devices
from simulator.plan.machines import Machine, machine
from simulator.plan.plan import Plan, counted
from simulator.plan.report import duration
from simulator.plan.steps import Steps, fixed_steps
from simulator.words import size


def suggested(config: RunConfig, site: SlurmSettings, device: str) -> tuple[RunConfig, list[str]]:
    """The configuration with nodes, GPUs or cores, and time, if neither it nor the site's file sets them, planned for
    devices of the given name; and lines that state the suggestion, or that the settings are too small."""
    given = site.model_dump(exclude_none=True) | config.slurm.model_dump(exclude_none=True)
    found = machine(device, "device")
    devices = _devices(config, found, given)
    if devices is None:
        return config, [f"warning: {config.name} fits on no number of {found.name} devices"]
    try:
        plan = Plan(
            config,
            found,
            devices,
            fixed_steps(config) if config.time.dt else Steps(None, "dt follows from the flow"),
        )
    except UserError as error:
        return config, [f"warning: {error}"]
    lines = []
    if not plan.fits:
        more = fewest_devices(config, found, devices, plan.beside)
        cure = f"{more} would do" if more is not None else "no number of devices would do"
        lines.append(
            f"warning: {config.name} needs {size(plan.step.largest)} on each of {devices} "
            f"{counted(found, devices)}, which have {size(plan.available)}; {cure} (simulator plan)"
        )
    wanted = _wanted(plan, given)
    if wanted:
        flags = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in wanted.items())
        steps = plan.steps.count
        why = f"{duration(plan.seconds.all)} a step" + (f", {steps} steps" if steps else "")
        lines.append(f"suggested by simulator plan for {devices} {counted(found, devices)}: {flags} ({why})")
    return config.model_copy(update={"slurm": config.slurm.model_copy(update=wanted)}), lines


def _devices(config: RunConfig, found: Machine, given: dict[str, object]) -> int | None:
    """The number of devices that the run would get, or should get."""
    if config.devices.count != "auto":
        return config.devices.count
    keys = ("gpus_per_node",) if found.platform == "gpu" else ("tasks_per_node", "cpus_per_task")
    numbers = [value for key in keys if isinstance(value := given.get(key), int)]
    each = prod(numbers) if numbers else None
    nodes = given.get("nodes")
    if isinstance(nodes, int):
        return nodes * (each or found.per_node)
    fewest = fewest_devices(config, found)
    if fewest is None or each is None:
        return fewest
    return ceil(fewest / each) * each


def _wanted(plan: Plan, given: dict[str, object]) -> dict[str, object]:
    """Suggestions for the keys of the block `slurm` that are not set."""
    ask = plan.ask()
    wanted: dict[str, object] = {}
    sized = {"nodes", "gpus_per_node", "tasks_per_node", "cpus_per_task"} & given.keys()
    if not sized:
        wanted["nodes"] = ask.nodes
        if ask.gpus_per_node is not None:
            wanted["gpus_per_node"] = ask.gpus_per_node
        else:
            wanted |= {"tasks_per_node": ask.tasks_per_node, "cpus_per_task": ask.cpus_per_task}
    elif "nodes" not in sized and sized & {"gpus_per_node", "tasks_per_node"}:
        each = given.get("gpus_per_node") or prod(
            v for k in ("tasks_per_node", "cpus_per_task") if isinstance(v := given.get(k), int)
        )
        wanted["nodes"] = ceil(plan.devices / int(str(each)))
    if "time" not in given and ask.time is not None:
        wanted["time"] = ask.time
    return wanted
