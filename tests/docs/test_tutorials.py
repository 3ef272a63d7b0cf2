"""The equation of a tutorial is the shipped one, a notebook shows what its page says, and the five
files of the page on new parts run as a package. `test_notebooks.py` runs the code of all pages."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from numpy.testing import assert_allclose
from run_support import install

from simulator import open_run
from simulator.cli.columns import FOLDER

from .blocks import ROOT, blocks

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch) -> Path:
    """A folder with the shipped configurations."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_equation_of_ones_own(somewhere: Path):
    """The class of the page is the one of the shipped file."""
    shown = blocks("python", [FOLDER / "tutorials" / "your_equation.md"])[0].text
    shipped = (ROOT / "configs" / "equations" / "cahn_hilliard.py").read_text()
    assert (
        shown[shown.index("    evolved") :].strip()
        == shipped[shipped.index("    evolved") :].strip()
    )


def test_the_log_posterior_is_the_script_s():
    """The class of the page, and its flow, are those of `scripts/infer_flow.py`."""
    page = FOLDER / "tutorials" / "inference.md"
    script = (ROOT / "scripts" / "infer_flow.py").read_text()
    shown = blocks("python", [page])[0].text
    (flow,) = blocks('yaml title="flow.yaml"', [page])
    assert shown[shown.index("class") :] in script and flow.text in script


CELLS = [block.text for block in blocks("python", [FOLDER / "tutorials" / "notebook.md"])]


def test_the_notebook_in_a_kernel(somewhere: Path):
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


PAGE = Path(__file__).parents[2] / "simulator/docs/internals/adding.md"


SMOKE = (
    "model={kind: smoke, viscosity: 0.05, burning: 0.5, eddy_diffusivity: 0.02}",
    "initial={kind: random, fields: {velocity: {variance: 1}, smoke: {mean: 1, variance: 0.01}}}",
)


@pytest.mark.slow
def test_six_parts_of_another_package(tmp_path: Path):
    """A run with all of them on two devices, continued on one, equals one that is not
    interrupted."""
    blocks = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    package = tmp_path / "my_parts"
    (groups,) = [text for kind, text in blocks if kind == "toml"]
    package.mkdir()
    for kind, text in blocks:
        if kind == "python":
            (package / text.split()[1]).write_text(text)
    points = tomllib.loads(groups)["project"]["entry-points"]
    parts = [name for part in points.values() for name in part]
    assert len(parts) == 6 == len(list(package.iterdir()))
    lines = (
        f"[{group}]\n{name} = {value}\n"
        for group, part in points.items()
        for name, value in part.items()
    )
    install(tmp_path, "my_parts", "".join(lines))
    (config,) = [text for kind, text in blocks if kind == "yaml"]
    (tmp_path / "run.yaml").write_text(config)
    once = ["run", "run.yaml", "--output", "once"]
    twice = ["run", "run.yaml", "--output", "twice"]
    commands = [
        once,
        [*twice, "time.max_steps=2"],
        [*twice, "devices.count=1"],
        ["verify", "twice"],
        ["run", "run.yaml", "--output", "smoke", *SMOKE],
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
    assert_allclose(moments[1], moments[0], rtol=1e-12)
    energy = [run.diagnostics["energy"] for run in runs]
    assert_allclose(2 * energy[0], moments[0][:, 1], rtol=1e-12)

    smoke = open_run(tmp_path / "smoke").diagnostics
    assert smoke["subgrid_dissipation"][0] > 0
