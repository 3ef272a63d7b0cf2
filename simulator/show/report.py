"""One self-contained HTML page about a run or a sweep."""

from simulator.show.run_page import report_run
from simulator.show.sweep_page import report_sweep

__all__ = ["report_run", "report_sweep"]
