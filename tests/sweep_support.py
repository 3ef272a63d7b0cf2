"""Small studies in a folder of their own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.study.batch import groups
from simulator.study.ensemble import run_together
from simulator.study.study_status import begun
from simulator.study.sweep import Sweep, open_sweep

BASE = """\
name: tiny
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [8, 8, 8]}
initial: {kind: taylor_green}
time: {stop: 0.1, dt: 0.02}
devices: {platform: cpu, count: 1}
output: {directory: out, diagnostics: {every_steps: 1}, spectra: {every: 0.05}}
"""

Study = Callable[..., Sweep]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """`study(text, base)` opens `text` as study.yaml beside base.yaml, in a folder that is the
    current one."""
    monkeypatch.chdir(tmp_path)

    def study(text: str, base: str = BASE) -> Sweep:
        Path("base.yaml").write_text(base)
        Path("study.yaml").write_text(text)
        return open_sweep("study.yaml")

    return study


def together(sweep: Sweep) -> None:
    """Prepares the runs of a sweep and steps them in one program."""
    sweep.prepare()
    (group,) = groups(sweep.runs)
    folders = [run.folder for run in group.runs]
    for folder in folders:
        begun(folder, os.getpid(), folder / "log", {})
    assert run_together(folders, group.keys) == 0
