"""Pictures of runs, from the files in their folders; no JAX, no display."""

from simulator.show.choice import Selection
from simulator.show.runs import plot_run, plot_runs

__all__ = ["Selection", "plot_run", "plot_runs"]
