"""Floor 0: processes, devices and Slurm. Knows nothing of what is computed.

`discover` reads flags and environment; `simulator.cluster.start` acts on them and is imported separately,
because commands for login nodes must not load JAX.
"""

from simulator.cluster.allocation import Allocation, Job, discover, slurm_variables

__all__ = ["Allocation", "Job", "discover", "slurm_variables"]
