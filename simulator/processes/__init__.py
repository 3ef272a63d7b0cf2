"""Floor 0: the processes and devices of a run; independent of what they compute.

`discover` reads flags and environment; `simulator.processes.start` acts on them and is imported separately,
because commands for login nodes must not load JAX.
"""

from simulator.processes.allocation import Allocation, Job, discover, slurm_variables

__all__ = ["Allocation", "Job", "discover", "slurm_variables"]
