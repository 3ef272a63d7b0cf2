"""Pictures of runs, from the files in their folders; no JAX, no display."""

from simulator.show.choice import Selection
from simulator.show.runs import Plotted, plot_run, plot_runs

__all__ = ["Plotted", "Selection", "plot_run", "plot_runs"]
