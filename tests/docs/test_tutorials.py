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


CELLS = [block.text for block in blocks("python", [FOLDER / "tutorials" / "notebook.md"])]


def test_the_cells_of_the_notebook_run_in_order(somewhere: Path) -> None:
    space: dict = {}
    for number, cell in enumerate(CELLS):
        exec(compile(cell, f"cell {number}", "exec"), space)
    assert space["run"].diagnostics["time"][-1] == 1.0


def test_the_notebook_in_a_kernel(somewhere: Path) -> None:
    """Its progress is one display, which is replaced in its place and ends at 100 %; a simulation is shown with its
    picture."""
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    client.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    ran, shown = (cell["outputs"] for cell in notebook.cells[:2])
    bars = [
        out["data"]["text/html"] for out in ran if "<progress" in out.get("data", {}).get("text/html", "")
    ]
    assert len(bars) == 1 and 'value="1.0000"' in bars[0] and "t = 1 of 1" in bars[0]
    assert "grid.shape" in shown[0]["data"]["text/html"] and "image/png" in shown[0]["data"]["text/html"]
