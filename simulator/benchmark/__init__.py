"""Floor 7: timings of a step, of its parts, and of the transforms on this machine."""

from simulator.benchmark.fitting import check_fits
from simulator.benchmark.start import Start, command_to_first_step
from simulator.benchmark.step import StepCosts, measure_step

__all__ = ["Start", "StepCosts", "check_fits", "command_to_first_step", "measure_step"]
