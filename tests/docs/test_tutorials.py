"""The code of the tutorials, and the five files of the page on new parts, run and do what the pages
say."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from run_support import install

from simulator import Simulation, load_config, open_run
from simulator.cli import main
from simulator.cli.about import FOLDER

from .blocks import ROOT, blocks, commands

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


def test_derivatives_are_those_of_differences_and_of_each_member() -> None:
    """Central differences with h = 1e-4 err by h^2 and 1e-16 / h, both below 1e-7 of a derivative
    of order one."""
    space, h = run("gradients"), 1e-4
    energy = jax.jit(space["energy_after"])
    difference = (energy(1 + h) - energy(1 - h)) / (2 * h)
    assert abs(float(space["gradient"]) - float(difference)) < 1e-6 * abs(float(difference))
    # The variance (a - b)^2 / 4 has the slopes (a - b) / 2 da and -(a - b) / 2 db, with each
    # member's da and db.
    space = run("gradients", 3)
    (a, b), (da, db) = space["values"], space["slopes"]["model.viscosity"]
    assert a > b > 0 and da < 0 and db < 0
    np.testing.assert_allclose(space["slope"], [(a - b) / 2 * da, (b - a) / 2 * db], rtol=1e-9)


def test_the_library_steps_runs_and_makes_ensembles(somewhere: Path) -> None:
    """Ten steps of 0.01 by hand, then the run to its end with all output."""
    space = run("library")
    assert float(space["state"].time) == pytest.approx(0.1, abs=1e-12)
    from simulator import open_run

    assert open_run(somewhere / "outputs" / "taylor_green").diagnostics["time"][-1] == 1.0
    # A larger viscosity leaves less energy.
    energies = np.asarray(run("library", 2)["energies"])
    assert energies.shape == (4,) and np.all(np.diff(energies) < 0)


def test_an_equation_of_ones_own(somewhere: Path) -> None:
    """The class of the page is the one of the shipped file, and the run without a file measures
    what it says."""
    shown = blocks("python", [FOLDER / "tutorials" / "your_equation.md"])[0].text
    shipped = (ROOT / "configs" / "equations" / "cahn_hilliard.py").read_text()
    assert (
        shown[shown.index("    evolved") :].strip()
        == shipped[shipped.index("    evolved") :].strip()
    )
    rms = run("your_equation", -1)["rms"]
    assert len(rms) == 5 and rms[0] == pytest.approx(0.1**0.5, rel=1e-12)


def test_a_closure_is_trained(somewhere: Path) -> None:
    """The loss falls, of a start outside of the training too, and a run takes the arrays that were
    written."""
    pytest.importorskip("optax")
    page = [FOLDER / "tutorials" / "train_closure.md"]
    closure, training = (block.text for block in blocks("python", page))
    Path("closure.py").write_text(closure)
    Path("coarse.yaml").write_text(blocks("yaml", page)[0].text)
    space: dict = {}
    exec(compile(training, "train_closure.md", "exec"), space)
    assert space["losses"][-1] < 0.9 * space["losses"][0] and space["after"] < space["before"]
    ran = Simulation(
        load_config("coarse.yaml", ["model.subgrid.arrays=arrays.npz"])
    ).model.varied_arrays
    np.testing.assert_array_equal(ran["model.subgrid.arrays"]["w1"], space["arrays"]["w1"])


CELLS = [block.text for block in blocks("python", [FOLDER / "tutorials" / "notebook.md"])]


def test_the_notebook_in_a_kernel(somewhere: Path) -> None:
    """Progress is one display, replaced in its place, which ends at 100 %; a simulation is shown
    with its picture."""
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    from nbformat.v4 import new_code_cell, new_notebook

    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    client.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    ran, shown = (cell["outputs"] for cell in notebook.cells[:2])
    bars = [
        out["data"]["text/html"]
        for out in ran
        if "<progress" in out.get("data", {}).get("text/html", "")
    ]
    assert len(bars) == 1 and 'value="1.0000"' in bars[0] and "t = 1 of 1" in bars[0]
    assert (
        "grid.shape" in shown[0]["data"]["text/html"]
        and "image/png" in shown[0]["data"]["text/html"]
    )


def test_the_particles_of_the_tutorial(somewhere: Path) -> None:
    """What the page says of them. Ways are ballistic at first: up to t = 0.1 the ratio is 1 - eps t
    / <u^2> + ..., within 0.05 of 1; the box does not cut the ways."""
    space: dict = {}
    for block in blocks("python", [FOLDER / "tutorials" / "particles.md"]):
        exec(compile(block.text, str(block), "exec"), space)
    ratio, memory = space["ratio"], space["memory"]
    assert abs(ratio[:2] - 1).max() < 0.05 and ratio[-1] < ratio[0]
    assert memory[0] == pytest.approx(1) and memory[-1] < 0.9
    assert 0 < space["smoother"] < 1
    box = 2 * np.pi
    apart = space["after"] - space["before"] - space["way"]
    np.testing.assert_allclose(apart, box * np.round(apart / box), rtol=0, atol=1e-12)
    assert abs(space["felt"]).max() > 0 and space["x"].shape[1] == 200


def test_a_data_set_for_learning_in_a_kernel(somewhere: Path) -> None:
    """The command of the page, then its cells: windows of two frames, and a stream of whole
    trajectories."""
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    from nbformat.v4 import new_code_cell, new_notebook

    assert main(["dataset", "configs/sweep_dataset_2d.yaml"]) == 0
    cells = [block.text for block in blocks("python", [FOLDER / "tutorials" / "dataset.md"])]
    check = "print(last.shape, batch.shape[1:], fields.shape, len(viscosities))\nsweep"
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in [*cells, check]])
    client.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    said, shown = notebook.cells[-1]["outputs"]
    assert said["text"] == "(12, 32, 32) (2, 2, 32, 32) (6, 21, 2, 32, 32) 6\n"
    assert "model.viscosity" in shown["data"]["text/html"]


def test_the_recovered_flow_of_the_tutorial(somewhere: Path) -> None:
    """1728 values with an error of 0.01 determine the modes that hold all but a part of 1e-4 of the
    energy."""
    page = (FOLDER / "tutorials" / "recover_flow.md").read_text()
    for name, text in re.findall(
        r'^```yaml title="([^"]*)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL
    ):
        Path(name).write_text(text)
    observe, compare = (
        b.text for b in blocks("python", [FOLDER / "tutorials" / "recover_flow.md"])
    )
    space: dict = {}
    exec(observe, space)
    console = blocks("console", [FOLDER / "tutorials" / "recover_flow.md"])
    for command, _ in [pair for block in console for pair in commands(block)]:
        assert main(command.split()[1:]) == 0
    exec(compare, space)
    assert space["error"] < 0.03


PAGE = Path(__file__).parents[2] / "simulator/docs/internals/adding.md"


@pytest.mark.slow
def test_five_parts_of_another_package(tmp_path: Path) -> None:
    """A run with all of them on two devices, continued on one, equals one that is not
    interrupted."""
    blocks = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    package, (groups,) = tmp_path / "my_parts", [text for kind, text in blocks if kind == "toml"]
    package.mkdir()
    for kind, text in blocks:
        if kind == "python":
            (package / text.split()[1]).write_text(text)
    points = tomllib.loads(groups)["project"]["entry-points"]
    assert len(points) == 5 == len(list(package.iterdir()))
    lines = (
        f"[{group}]\n{name} = {value}\n"
        for group, part in points.items()
        for name, value in part.items()
    )
    install(tmp_path, "my_parts", "".join(lines))
    (config,) = [text for kind, text in blocks if kind == "yaml"]
    (tmp_path / "run.yaml").write_text(config)
    once, twice = ["run", "run.yaml", "--output", "once"], ["run", "run.yaml", "--output", "twice"]
    commands = [
        once,
        [*twice, "time.max_steps=2"],
        [*twice, "devices.count=1"],
        ["verify", "twice"],
    ]
    code = f"from simulator.cli import main\nfor c in {commands!r}: assert main(c) == 0, c"
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr

    runs = [open_run(tmp_path / name) for name in ("once", "twice")]
    moments = [run.series("moments")["moment"] for run in runs]
    assert moments[0].shape == (4, 4) and yaml.safe_load(config)["time"]["integrator"] == "heun"
    np.testing.assert_allclose(moments[1], moments[0], rtol=1e-12)
    energy = [run.diagnostics["energy"] for run in runs]
    np.testing.assert_allclose(2 * energy[0], moments[0][:, 1], rtol=1e-12)
