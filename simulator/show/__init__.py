"""Draws pictures of runs from the files in their folders, without JAX and without a display."""

from simulator.show.choice import Selection
from simulator.show.runs import plot_run, plot_runs

__all__ = ["Selection", "plot_run", "plot_runs"]
