"""Pictures of runs, from the files in their folders; no JAX, no display."""

from simulator.plotting.run_plots import Plotted, plot_run

__all__ = ["Plotted", "plot_run"]
