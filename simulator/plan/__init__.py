"""The needs of a run, known before it runs: memory, read from its compiled programs; files; time, from the traffic of
its step. Nothing is allocated or computed."""

from simulator.plan.abstract_run import paper_simulation
from simulator.plan.fitting import fewest_devices, fits
from simulator.plan.machines import Machine, machine
from simulator.plan.measured import this_machine
from simulator.plan.plan import Ask, Plan
from simulator.plan.step import Step
from simulator.plan.steps import Steps, estimated_steps, fixed_steps

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
