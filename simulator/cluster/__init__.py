"""The processes and devices of a run, independent of the equations: start, rendezvous, failure and
placement; host lists, job scripts and the queue of Slurm.

`discover` describes the processes from flags and environment; `simulator.cluster.start` starts JAX
accordingly and is imported separately, because commands for login nodes must not load JAX."""

from simulator.cluster.allocation import Allocation, discover

__all__ = ["Allocation", "discover"]
