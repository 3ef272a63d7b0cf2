"""Predicts the memory, the files and the duration of a run before the run starts. The memory is
read from the run's compiled programs, the duration follows from the memory traffic of a step; no
array of the run is allocated."""

from simulator.plan.fitting import fewest_devices
from simulator.plan.machines import machine
from simulator.plan.measured import this_machine
from simulator.plan.plan import Plan
from simulator.plan.step import Step
from simulator.plan.steps import Steps, estimated_steps

__all__ = ["Plan", "Step", "Steps", "estimated_steps", "fewest_devices", "machine", "this_machine"]
