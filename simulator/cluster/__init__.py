"""The processes and devices of a run, independent of what they compute: start, rendezvous, failure and placement;
host lists, job scripts and the queue of Slurm.

`discover` reads flags and environment; `simulator.cluster.start` acts on them and is imported separately,
because commands for login nodes must not load JAX.
"""

from simulator.cluster.allocation import Allocation, Job, discover

__all__ = ["Allocation", "Job", "discover"]
