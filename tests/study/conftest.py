"""Small studies, opened or refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sweep_support import BASE, Study, study

from simulator.errors import UserError

__all__ = ["study"]


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
