"""Processes that run a few lines of Python."""

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from run_support import ROOT

from simulator.cluster import launcher

Script = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GRACE", 1.0)


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """What their environment has besides this one; HERE is the test's folder."""
    return {"HERE": str(tmp_path), "PYTHONPATH": str(ROOT), "SIMULATOR_CACHE": str(tmp_path)}


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Script:
    """`script(BODY)` is the command of a process that runs PRELUDE of the test's module and BODY."""

    def script(body: str) -> list[str]:
        path = tmp_path / "child.py"
        path.write_text(request.module.PRELUDE + textwrap.dedent(body))
        return [sys.executable, str(path)]

    return script


@pytest.fixture
def launched(script: Script, place: dict[str, str]) -> Callable[..., int]:
    """`launched(BODY, N)` is the exit code of the launcher of N such processes."""

    def launched(body: str, number: int, **options: Path) -> int:
        return launcher.launch(script(body), number, environ=os.environ | place, **options)

    return launched
