"""The page about a step names functions and files: they are there, no file imports one above it,
and the files that execute are those of the trace."""

import re
import sys
from pathlib import Path

import jax
import pytest

from simulator import Simulation, load_config

PACKAGE = Path(__file__).parents[2] / "simulator"
PAGE = (PACKAGE / "docs/internals/step.md").read_text()
ROWS = re.findall(r"^\| \d+ \|.*?`(\w+)`.*?\| `([\w/]+\.py)` \|$", PAGE, re.MULTILINE)

pytestmark = pytest.mark.smoke


def test_every_function_is_in_its_file():
    assert len(ROWS) == 16
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


def executed(overrides: list[str]) -> set[str]:
    """The files of the package that execute while JAX traces a step."""
    config = load_config(PACKAGE.parent / "configs/taylor_green.yaml", overrides)
    simulation = Simulation(config)
    step = simulation.step
    state = simulation.state
    files = set()

    def note(frame, event, argument):
        if event == "call":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        jax.jit(step).lower(state, 0.01)
    finally:
        sys.setprofile(before)
    paths = (Path(name) for name in files)
    return {str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE)}


def test_the_page_lists_the_files_that_execute():
    files = executed(["grid.shape=16,16,16", "devices={platform: cpu, count: 1}"])
    listed = re.findall(r"^\| `([\w/]+\.py)` \|", PAGE, re.MULTILINE)
    assert sorted(files) == sorted(listed)
    absent = ("swarm", "shear", "passive_scalars", "growth", "closures", "linear_waves", "forcing")
    assert not [file for file in files if any(word in file for word in absent)]
