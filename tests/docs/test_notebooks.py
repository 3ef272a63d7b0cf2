"""Every page with Python runs as a reader runs it, from top to bottom in one folder: its files, its
commands (of tutorials) and its Python, cell after cell in a Jupyter kernel; and it does what the
page says. `.ci/run notebooks` runs the pages of FIRST."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from numpy.testing import assert_allclose, assert_array_equal
from tiers import slow_but

from simulator.cli import main
from simulator.plugins.manual.notebook import WRITE

from .blocks import PAGES, ROOT, Block, blocks, commands, reading_order

Values = Mapping[str, Any]


def executed(cells: Sequence[str], folder: Path) -> list[NotebookNode]:
    """The outputs of cells in a kernel of their own that works in `folder`. Raises nbclient's error
    with the traceback of the first cell that fails."""
    book = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=400, kernel_name="python3", resources=place).execute()
    return [cell["outputs"] for cell in book.cells]


def no_more(values: Values) -> None:
    """The blocks run; the page promises no numbers."""


@dataclass(frozen=True)
class Session:
    """What a page's kernel does beside the page's blocks."""

    before: Mapping[int, str] = field(default_factory=dict)
    """Code that runs before the block of Python with this number: what the page leaves to its
    reader."""
    wanted: Mapping[str, str] = field(default_factory=dict)
    """The expressions, by name, whose values at the end `check` gets."""
    check: Callable[[Values], None] = no_more
    shorter: Mapping[str, str] = field(default_factory=dict)
    """What is appended to the page's commands that begin so, and to its files of this name, to
    shorten their runs."""
    left_out: Sequence[str] = ()
    """The beginnings of the page's commands that need what a test has not, such as Slurm."""


RUN = """\
from simulator import Simulation, load_config
Simulation(load_config("configs/{}.yaml", {})).run()
"""
PLAIN = """\
import json
import numpy as np

def plain(value):
    return [plain(item) for item in value] if isinstance(value, tuple) else np.asarray(value).tolist()
"""
COMMAND = """\
import subprocess
done = subprocess.run({!r}, shell=True, capture_output=True, text=True)
assert done.returncode == 0, done.args + done.stdout + done.stderr
"""


def transforms(values: Values) -> None:
    """The flow is solenoidal; the gradient of a sum of squares of the potential has no mean, as the
    potential has none. Both to round-off."""
    assert np.max(np.abs(values["divergence"])) < 1e-12
    assert abs(np.mean(values["slope"])) < 1e-12 * np.max(np.abs(values["slope"]))


def gradients(values: Values) -> None:
    """Central differences with h = 1e-4 err by h^2 and 1e-16 / h, both below 1e-7 of a derivative
    of order one. The variance (a - b)^2 / 4 of an ensemble has the slopes (a - b) / 2 da and
    -(a - b) / 2 db, with each member's da and db."""
    assert_allclose(values["gradient"], values["difference"], rtol=1e-6)
    (a, b), (da, db) = values["energies"], values["slopes"]
    assert a > b > 0 and da < 0 and db < 0
    assert_allclose(values["slope"], [(a - b) / 2 * da, (b - a) / 2 * db], rtol=1e-9)


def library(values: Values) -> None:
    """Ten steps of 0.01 by hand, then the run to its end; a larger viscosity leaves less energy."""
    assert values["time"] == pytest.approx(0.1, abs=1e-12) and values["end"] == 1.0
    assert len(values["energies"]) == 4 and np.all(np.diff(values["energies"]) < 0)


def your_equation(values: Values) -> None:
    """The start has a variance of 0.1, and a row is written every 0.5 up to t = 2."""
    assert len(values["rms"]) == 5 and values["rms"][0] == pytest.approx(0.1**0.5, rel=1e-12)


def trained(values: Values) -> None:
    """The loss falls, of a start outside of the training too, and a run takes the arrays that were
    written."""
    assert values["losses"][-1] < 0.9 * values["losses"][0]
    assert values["after"] < values["before"]
    assert_array_equal(values["taken"], values["learned"])


def boson(values: Values) -> None:
    """A mass that is 5 % too small fits worse than a larger one."""
    assert values["misfit"] > 0 > values["slope"]


def particles(values: Values) -> None:
    """Ways are ballistic at first: up to t = 0.1 the ratio is 1 - eps t / <u^2> + ..., within 0.05
    of 1; the box does not cut the ways."""
    ratio = values["ratio"]
    memory = values["memory"]
    assert abs(np.array(ratio[:2]) - 1).max() < 0.05 and ratio[-1] < ratio[0]
    assert memory[0] == pytest.approx(1) and memory[-1] < 0.9
    assert 0 < values["smoother"] < 1
    apart = np.array(values["apart"])
    assert abs(apart - np.round(apart)).max() < 1e-12
    assert values["felt"] > 0 and values["followed"] == 200


def recovered(values: Values) -> None:
    """1728 values with an error of 0.01 determine the modes that hold all but a part of 1e-4 of the
    energy."""
    assert values["error"] < 0.03


def inferred(values: Values) -> None:
    """Both samplers have fifty independent draws or more: means then differ by 0.2 standard
    deviations, and standard deviations by 0.14; five times that is allowed. The truth is within 4
    standard deviations of the means. The gradient is that of central differences."""
    first, second = (np.array(values[name]) for name in ("nuts", "mclmc"))
    width = first.std(0)
    assert (abs(first.mean(0) - second.mean(0)) < 5 * 0.2 * width).all()
    assert (abs(np.log(second.std(0) / width)) < 5 * 0.14).all()
    assert (abs(first.mean(0) - values["truth"]) < 4 * width).all()
    assert values["diverged"] == 0
    assert_allclose(values["slope"], values["difference"], rtol=1e-6)


def dataset(values: Values) -> None:
    """Pairs of frames, and a stream of trajectories."""
    assert values["shapes"] == [[12, 32, 32], [2, 32, 32], [6, 21, 2, 32, 32], [6]]


def rounded(values: Values) -> None:
    asked, measured = values["errors"]
    assert asked == 1e-3 and 5e-4 < measured <= asked


def soliton(values: Values) -> None:
    """The relaxed state is stationary: over the longer time of `physics/waves.md` its density is
    constant to 2e-7. Schive et al. (2014) state their fit of isolated solitons to 2 %; the images of
    the box add less than that inside the core."""
    assert values["drift"] < 2e-7
    assert values["error"] < 0.04


SMALL = ["grid.shape=16,16,16"]
PARTICLES = [
    "grid.shape=16,16,16",
    "time.stop=0.1",
    "particles.0.count=400",
    "particles.1.count=27",
]
PROBES = [
    *SMALL,
    "output.directory=RUN",
    "time.cfl=null",
    "time.dt=0.02",
    "time.stop=1",
    "output.probes={every_steps: 1, lines: [{axis: x, through: [0, 0, 0], name: line}]}",
]
ROUNDED = ["output.directory=outputs/decaying_turbulence", "output.snapshots.error=1e-3"]
SESSIONS = {
    "README.md": Session({0: RUN.format("taylor_green", ["time.stop=0.02"])}),
    "guide/coming_from.md": Session(
        {0: RUN.format("taylor_green", [*SMALL, "output.directory=outputs/vortex"])}
    ),
    "guide/output.md": Session({0: RUN.format("taylor_green", PROBES)}),
    "guide/smaller_files.md": Session(
        {0: RUN.format("taylor_green", [*SMALL, *ROUNDED])}, {"errors": "snapshot.error"}, rounded
    ),
    "physics/particles.md": Session({0: RUN.format("particles", PARTICLES)}),
    "reference/series.md": Session({0: RUN.format("taylor_green", SMALL)}),
    "tutorials/boson_mass.md": Session({}, {"misfit": "value", "slope": "slope"}, boson),
    "tutorials/dataset.md": Session(
        {},
        {"shapes": "(last.shape, before.shape, fields.shape, (len(viscosities),))"},
        dataset,
        left_out=("simulator sweep", "simulator dataset study.yaml"),  # study.yaml is the reader's
    ),
    "tutorials/fft.md": Session({}, {"divergence": "divergence", "slope": "slope"}, transforms),
    "tutorials/gradients.md": Session(
        {
            1: "energies = [jax.jit(energy_after)(1 + h) for h in (1e-4, -1e-4)]\n"
            "difference, of_amplitude = (energies[0] - energies[1]) / 2e-4, gradient"
        },
        {
            "gradient": "of_amplitude",
            "difference": "difference",
            "energies": "values",
            "slopes": "slopes['model.viscosity']",
            "slope": "slope",
        },
        gradients,
    ),
    "tutorials/inference.md": Session(
        {
            2: "e = jnp.eye(10)[0] * 1e-5\ndifference = (density(truth + e) - density(truth - e)) / 2e-5"
        },
        {
            "nuts": "by_nuts",
            "mclmc": "by_mclmc",
            "truth": "flow.values(truth)",
            "diverged": "diverged",
            "slope": "slope[0]",
            "difference": "difference",
        },
        inferred,
    ),
    "tutorials/library.md": Session(
        {1: "after, end = state.time, float(simulation.state.time)"},
        {"time": "after", "end": "end", "energies": "energies"},
        library,
    ),
    "tutorials/particles.md": Session(
        {},
        {
            "ratio": "ratio",
            "memory": "memory",
            "smoother": "smoother",
            "apart": "(after - before - way) / (2 * np.pi)",
            "felt": "abs(felt).max()",
            "followed": "x.shape[1]",
        },
        particles,
        {
            "simulator run": "grid.shape=16,16,16 time.stop=0.1 particles.0.count=400"
            " particles.1.count=64"
        },
    ),
    "tutorials/recover_flow.md": Session(
        {},
        {"error": "error"},
        recovered,
        # The expected error, for which the page takes 200 products, is no part of its promise.
        {"recover.yaml": "hessian_products: 4\n"},
    ),
    "tutorials/sponge.md": Session(
        shorter={"simulator run": "grid.shape=64,32 model.viscosity=0.05 time.stop=0.4"}
    ),
    "tutorials/obstacle.md": Session(
        shorter={"simulator run": "grid.shape=64,32 model.viscosity=0.05 time.stop=0.4"}
    ),
    "tutorials/soliton.md": Session({}, {"drift": "drift", "error": "error"}, soliton),
    "tutorials/train_closure.md": Session(
        {},
        {
            "losses": "losses",
            "before": "before",
            "after": "after",
            "learned": "arrays['w1']",
            "taken": "Simulation(load_config('coarse.yaml', ['model.subgrid.arrays=arrays.npz'])"
            ").model.varied_arrays['model.subgrid.arrays']['w1']",
        },
        trained,
    ),
    "tutorials/your_equation.md": Session(
        {},
        {"rms": "rms"},
        your_equation,
        {"simulator run": "grid.shape=32,32 time.stop=0.02"},
    ),
}
"""The pages whose blocks need something beside them, or promise numbers."""


def name(page: Path) -> str:
    docs = ROOT / "simulator" / "docs"
    return page.relative_to(docs if page.is_relative_to(docs) else ROOT).as_posix()


FIRST = ("tutorials/notebook.md", "tutorials/soliton.md", "tutorials/train_closure.md")
"""The notebooks that every run of the CI executes."""
LONG = (
    "tutorials/boson_mass.md",
    "tutorials/dataset.md",
    "tutorials/gradients.md",
    "tutorials/inference.md",
    "tutorials/library.md",
    "tutorials/obstacle.md",
    "tutorials/particles.md",
    "tutorials/recover_flow.md",
    "tutorials/sponge.md",
    "tutorials/train_closure.md",
    "tutorials/your_equation.md",
)
"""Pages that take eight seconds or more; `.ci/run docs` executes them every time."""
WITH_PYTHON = {name(page): page for page in PAGES if blocks("python", [page])}


def test_the_sessions_are_of_pages_with_python():
    assert SESSIONS.keys() <= WITH_PYTHON.keys()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the shipped configurations, for a kernel that finds the scripts."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "scripts"))
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("page", slow_but(WITH_PYTHON, WITH_PYTHON.keys() - {*LONG}))
def test_the_python_of_a_page_in_a_kernel(page: str, desk: Path):
    if page == "tutorials/inference.md" and not (find_spec("numpyro") and find_spec("blackjax")):
        pytest.skip("needs numpyro and blackjax: pip install 'simulator[inference]'")
    path, session = WITH_PYTHON[page], SESSIONS.get(page, Session())
    cells: list[str] = []
    number = 0
    for block in reading_order(path):
        if block.language == "python":
            cells.append(f"{session.before.get(number, '')}\n{block.text}")
            number += 1
        elif block.language == "console":
            if page.startswith("tutorials/"):
                cells += [COMMAND.format(line) for line in shell_lines(block, session)]
        elif title := re.search(r'title="(.+)"', block.language):
            more = session.shorter.get(title[1], "")
            cells.append(f"{WRITE} {title[1]}\n{block.text}{more}")
    asked = ", ".join(f"{key!r}: plain({code})" for key, code in session.wanted.items())
    outputs = executed([*cells, f"{PLAIN}\nprint(json.dumps({{{asked}}}))"], desk)
    printed = [o["text"] for o in outputs[-1] if o.get("name") == "stdout"]
    session.check(json.loads("".join(printed)))  # in as many pieces as the kernel has flushed


def shell_lines(block: Block, session: Session) -> list[str]:
    """The commands of a block that a page's session runs, with what shortens them."""
    lines = []
    for command, _ in commands(block):
        line = re.sub(r"\s+#.*", "", command)
        if not line.startswith("simulator ") or line.startswith(tuple(session.left_out)):
            continue
        more = [text for start, text in session.shorter.items() if line.startswith(start)]
        program = f"{shlex.quote(sys.executable)} -m simulator "
        lines.append(" ".join([program + line.removeprefix("simulator "), *more]))
    return lines


def code(cell: Mapping[str, Any]) -> bool:
    return cell["cell_type"] == "code"


@pytest.mark.smoke
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_a_page_is_printed_as_a_notebook(page: str, capsys) -> None:
    if page == "README.md":
        return
    assert main(["docs", page, "--notebook"]) == 0
    book = nbformat.reads(capsys.readouterr().out, as_version=4)
    nbformat.validate(book)
    text = WITH_PYTHON[page].read_text()
    assert all(cell["source"] in text for cell in book.cells if not code(cell))
    python = [c["source"] for c in book.cells if code(c) and not c["source"].startswith(WRITE)]
    assert python == [block.text.strip() for block in blocks("python", [WITH_PYTHON[page]])]


@pytest.mark.smoke
def test_the_first_notebooks_need_nothing_beside_them_and_other_pages_are_none(
    refused_command,
) -> None:
    """A first flow, a soliton and a trained closure."""
    for page in FIRST:
        assert page in WITH_PYTHON and not SESSIONS.get(page, Session()).before
        assert page in (ROOT / ".ci" / "run").read_text()
    assert "guide/planning has no Python" in refused_command("docs", "guide/planning", "--notebook")
