"""The code of the tutorials runs, and does what they say."""

from pathlib import Path

import jax
import pytest

from simulator.cli.pages import FOLDER

from .blocks import ROOT, blocks

pytestmark = pytest.mark.slow


def run(page: str, number: int = 0) -> dict:
    """The names that a block of a tutorial defines."""
    block = blocks("python", [FOLDER / "tutorials" / f"{page}.md"])[number]
    space: dict = {}
    exec(compile(block.text, str(block), "exec"), space)
    return space


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch) -> Path:
    """A folder with the shipped configurations."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_derivative_is_that_of_differences() -> None:
    """The energy is smooth in the amplitude: central differences with h = 1e-4 err by h^2 and by 1e-16 / h, both
    below 1e-7 of a derivative of order one."""
    space, h = run("gradients"), 1e-4
    energy = jax.jit(space["energy_after"])
    difference = (energy(1 + h) - energy(1 - h)) / (2 * h)
    assert abs(float(space["gradient"]) - float(difference)) < 1e-6 * abs(float(difference))


def test_the_library_steps_and_runs(somewhere: Path) -> None:
    """Ten steps of 0.01 by hand, then the run to its end with all output."""
    space = run("library")
    assert float(space["state"].time) == pytest.approx(0.1, abs=1e-12)
    from simulator import open_run

    assert open_run(somewhere / "outputs" / "taylor_green").diagnostics["time"][-1] == 1.0


def test_an_equation_of_ones_own(somewhere: Path) -> None:
    """The class of the page is the one of the shipped file, and the run without a file measures what it says."""
    shown = blocks("python", [FOLDER / "tutorials" / "your_equation.md"])[0].text
    shipped = (ROOT / "configs" / "equations" / "cahn_hilliard.py").read_text()
    assert shown[shown.index("    evolved") :].strip() == shipped[shipped.index("    evolved") :].strip()
    rms = run("your_equation", 1)["rms"]
    assert len(rms) == 5 and rms[0] == pytest.approx(0.1**0.5, rel=1e-12)
