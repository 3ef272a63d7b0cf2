"""`output.python`: the user's own measurements, through a run, and refused before anything is
written."""

import json
from pathlib import Path

import pytest
from numpy.testing import assert_allclose, assert_array_equal
from run_support import drawn

from simulator import Simulation, open_run
from simulator.cli import main
from simulator.config import dump_config, load_config
from simulator.errors import UserError
from simulator.run.refusals import check_configuration

CODE = """
import jax.numpy as jnp

def helical(fields, time):
    density = (fields["velocity"] * fields["vorticity"]).sum(0)
    return {"mean": density.mean(), "along_z": density.mean((0, 1)), "time_squared": time**2}

def moment(fields, time, power):
    x, y, z = fields.points
    energy = 0.5 * (abs(fields.modes("velocity")) ** 2).sum(0)
    return {
        "moment": (fields["speed"] ** power).mean(),
        "spectrum": fields.layout.shell_sum(energy),
        "map": (fields["velocity"][2] * jnp.cos(fields.points.x + 0 * y + 0 * z)).mean(2),
    }
"""
CONFIG = """
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [9, 8, 8]}
initial: {kind: abc}
time: {stop: 1, dt: 0.1, max_steps: 2, integrator: rk2}
devices: {platform: cpu, count: 2}
output:
  directory: out
  diagnostics: {every_steps: 1}
  python: PYTHON
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`configured(TEXT)` reads run.yaml with `python: TEXT`, in a folder with the user's
    functions."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)

    def configured(text: str, *overrides: str):
        Path("run.yaml").write_text(CONFIG.replace("PYTHON", text))
        return load_config("run.yaml", overrides)

    return configured


TWO = (
    "[{path: mine.py, function: helical, every_steps: 1}, "
    "{path: mine.py, function: moment, name: squares, parameters: {power: 2}, every_steps: 2}]"
)


@pytest.mark.plugins
@pytest.mark.long
@pytest.mark.spmd
def test_functions_are_measured_stored_drawn_and_continued(configured, tmp_path: Path):
    """A grid of 9 x 8 x 8 points on two devices: along a sharded axis there is padding, which no
    mean sees."""
    assert Simulation(configured(TWO, "time.max_steps=1")).run() == 0
    Path("mine.py").unlink()  # the run's copy is what runs
    assert main(["resume", "out", "time.max_steps=2"]) == 0
    run = open_run("out")
    helical = run.series("helical")
    squares = run.series("squares")
    table = run.diagnostics
    assert list(helical.step) == [0, 1, 2] and list(squares.step) == [0, 1, 2]
    assert_allclose(helical["mean"], table["helicity"], rtol=1e-12)
    assert_allclose(helical["along_z"].mean(1), table["helicity"], rtol=1e-12)
    assert_array_equal(helical["time_squared"], helical.time**2)
    assert_allclose(squares["moment"][-1], 2 * table["energy"][-1], rtol=1e-12)
    assert_allclose(squares["spectrum"][-1].sum(), table["energy"][-1], rtol=1e-12)
    # abc: w = C sin y + B cos x, and the mean of B cos^2 x over x is B / 2.
    assert_allclose(squares["map"][0].mean(), 0.5, rtol=1e-12)
    assert squares["map"].shape[1:] == (9, 8) and "index_9" in squares.coordinates
    assert json.loads(Path("out/inputs/inputs.json").read_text()).keys() == {
        str(tmp_path / "mine.py")
    }
    assert drawn("out") >= {
        "helical.png",
        "helical_along_z.png",
        "squares_spectrum.png",
        "squares_map.png",
    }
    assert main(["verify", "out", "--quiet"]) == 0
    Path("mine.py").write_text(CODE)
    assert main(["run", "run.yaml", "output.python=null", "--overwrite"]) == 0
    assert not Path("out/helical.h5").exists(), "it was this run's"


REFUSED = [
    ('{"u": fields["velocity"][0]}', 17, "u is a whole field; return a mean"),
    (
        '{"u": fields["velicity"].mean()}',
        18,
        """KeyError: "'velicity' is not a field of this model; """,
    ),
    (
        '{"a": 1} if fields["speed"].mean() > 1 else {}',
        18,
        "uses numpy, or an if, on values; use jax.numpy instead",
    ),
    ("None", 17, "returned NoneType; a dict of numbers and small arrays by name is needed"),
    ('{"a": "b"}', 17, "a is str; a number or an array is needed"),
    ('{"a": jnp.zeros((2048, 1024))}', 17, "returns 2097152 numbers; a row holds at most 1048576"),
    ('{"a": fields.modes("velocity").sum()}', 17, "a is complex; return its .real and .imag"),
    ('{"time": time}', 17, "'time' cannot name a variable"),
]


@pytest.mark.parametrize(("result", "line", "said"), REFUSED)
def test_what_cannot_be_a_row_is_refused_with_its_line(configured, tmp_path, result, line, said):
    Path("mine.py").write_text(f"{CODE}\ndef wrong(fields, time):\n    return {result}\n")
    with pytest.raises(UserError) as refusal:
        check_configuration(configured("{path: mine.py, function: wrong, every: 1}"))
    words = str(refusal.value)
    start = f"run.yaml:10: output.python.function: {tmp_path / 'mine.py'}:{line}: wrong: {said}"
    assert words.startswith(start) and "\n" not in words
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "{path: mine.py, function: momet, every: 1}",
            "has no function 'momet', did you mean moment",
        ),
        (
            "{path: other.py, function: helical, every: 1}",
            r"output\.python\.path: .*other\.py does not exist",
        ),
        ("{path: mine.py, function: helical}", r"output\.python: has no interval"),
        (
            "{path: mine.py, function: helical, evry: 1}",
            r"python\.evry: unknown key, did you mean .*\.every",
        ),
        ("[{path: mine.py, every: 1}]", r"output\.python\[?\.?0\]?\.function: missing"),
        (
            "{path: mine.py, function: helical, name: slices, every: 1}",
            "slices is the name of another output",
        ),
        (TWO.replace(", name: squares", ", name: helical"), r"two functions write helical\.h5"),
    ],
)
def test_mistakes_in_the_block_are_named(configured, text: str, said: str):
    with pytest.raises(UserError, match=said):
        check_configuration(configured(text))


def test_one_block_stands_for_a_list_of_one(configured, tmp_path: Path):
    config = configured("{path: mine.py, function: helical, every: 1}")
    assert len(config.output.python) == 1
    Path("again.yaml").write_text(dump_config(config))
    assert load_config("again.yaml").output == config.output
