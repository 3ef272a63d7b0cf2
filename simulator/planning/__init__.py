"""What a run needs, before it runs: memory, as XLA says of its compiled programs; files; time, from the traced
program of its step. Nothing is allocated or computed."""

from simulator.planning.here import this_machine
from simulator.planning.machines import Machine, machine
from simulator.planning.paper import paper_simulation
from simulator.planning.plan import Ask, Plan, fewest_devices, fits
from simulator.planning.step import Step
from simulator.planning.steps import Steps, estimated_steps, fixed_steps

__all__ = [
    "Ask",
    "Machine",
    "Plan",
    "Step",
    "Steps",
    "estimated_steps",
    "fewest_devices",
    "fits",
    "fixed_steps",
    "machine",
    "paper_simulation",
    "this_machine",
]
