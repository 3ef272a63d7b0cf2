"""The base of small studies, and their runs."""

import os

from simulator.study import Sweep
from simulator.study.batch import groups
from simulator.study.ensemble import run_together
from simulator.study.study_status import begun

BASE = """\
name: tiny
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [8, 8, 8]}
initial: {kind: taylor_green}
time: {stop: 0.1, dt: 0.02}
devices: {platform: cpu, count: 1}
output: {directory: out, diagnostics: {every_steps: 1}, spectra: {every: 0.05}}
"""


def together(sweep: Sweep) -> None:
    """Steps all runs together in this process."""
    sweep.prepare()
    (group,) = groups(sweep.runs)
    folders = [run.folder for run in group.runs]
    for folder in folders:
        begun(folder, os.getpid(), folder / "log", {})
    assert run_together(folders, group.keys) == 0
