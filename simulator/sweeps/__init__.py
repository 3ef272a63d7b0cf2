"""Parameter studies: many runs from one file, each a run folder of its own."""

from simulator.sweeps.sweep import Sweep, SweepRun, open_sweep

__all__ = ["Sweep", "SweepRun", "open_sweep"]
