"""The page about a step names functions and files: they are there, and no file imports one above
it."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "simulator"
PAGE = (PACKAGE / "docs/internals/step.md").read_text()
ROWS = re.findall(r"^\| \d+ \|.*?`(\w+)`.*?\| `([\w/]+\.py)` \|$", PAGE, re.MULTILINE)

pytestmark = pytest.mark.smoke


def test_every_function_is_in_its_file():
    assert len(ROWS) == 17
    for function, file in ROWS:
        assert re.search(rf"^\s*def {function}\(", (PACKAGE / file).read_text(), re.MULTILINE)
    for function in re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE):
        assert f"def {function}(" in (PACKAGE / "simulation/steps.py").read_text()


def test_the_way_of_a_step_leads_down():
    """At most twelve files, none of which imports a file that stands above it on the page."""
    files = list(dict.fromkeys(file for _, file in ROWS[:12]))
    assert len(files) <= 12
    for number, file in enumerate(files):
        for above in files[:number]:
            module = above.removesuffix(".py").replace("/", ".")
            assert f"from simulator.{module} import" not in (PACKAGE / file).read_text()
