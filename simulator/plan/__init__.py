"""Predicts the memory, the files and the duration of a run before the run starts. The memory is
read from the run's compiled programs, the duration follows from a measured
step or from the bytes that a step moves; no
array of the run is allocated."""

from simulator.plan.capacity import fewest_devices
from simulator.plan.machines import machine
from simulator.plan.measured import this_machine
from simulator.plan.plan import Plan
from simulator.plan.step_count import StepCount, estimated_steps
from simulator.plan.step_memory import Step

__all__ = [
    "Plan",
    "Step",
    "StepCount",
    "estimated_steps",
    "fewest_devices",
    "machine",
    "this_machine",
]
