"""Fixtures of the tests about learning."""

from pathlib import Path

import pytest
from sweep_support import study, together

from simulator.study.sweep import Sweep, open_sweep

__all__ = ["study"]


@pytest.fixture(scope="module")
def done_study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with STUDY of the test's file on its BASE, whose runs are done."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "base.yaml").write_text(request.module.BASE)
    (folder / "study.yaml").write_text(request.module.STUDY)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        together(open_sweep("study.yaml"))
    return folder


@pytest.fixture
def computed(done_study: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """The study of the test's file, whose runs are done, in the current folder."""
    monkeypatch.chdir(done_study)
    return open_sweep("study.yaml")
