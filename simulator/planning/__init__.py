"""The needs of a run, known before it runs: memory, read from its compiled programs; files; time, from the traffic of
its step. Nothing is allocated or computed."""

from simulator.planning.abstract_run import paper_simulation
from simulator.planning.fitting import fewest_devices, fits
from simulator.planning.machines import Machine, machine
from simulator.planning.plan import Ask, Plan
from simulator.planning.step import Step
from simulator.planning.steps import Steps, estimated_steps, fixed_steps
from simulator.planning.this_machine import this_machine

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
