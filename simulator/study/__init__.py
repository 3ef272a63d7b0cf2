"""Parameter studies: many runs from one file, each in its own run folder."""

from simulator.study.sweep import Sweep, open_sweep

__all__ = ["Sweep", "open_sweep"]
