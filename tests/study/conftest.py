"""Small studies in a folder of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sweep_support import BASE

from simulator.errors import UserError
from simulator.study import Sweep, open_sweep

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


@pytest.fixture
def refused(study: Study) -> Callable[..., list[str]]:
    """`refused(text, base)` gives the lines with which opening or checking is refused; nothing was
    written."""

    def refused(text: str, base: str = BASE) -> list[str]:
        with pytest.raises(UserError) as caught:
            study(text, base).check()
        assert sorted(path.name for path in Path.cwd().iterdir()) == ["base.yaml", "study.yaml"]
        return str(caught.value).splitlines()

    return refused
