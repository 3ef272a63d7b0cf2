"""Every mistake of a user, through the command line: one line, exit code 2, nothing written."""

from pathlib import Path

import pytest
from run_support import CASE, simulate, write_case

from simulator.cli import main

RANDOM = "{kind: random, peak: 3, energy: 0.5, seed: 1}"
PYTHON = "{kind: python, path: fields.py, function: NAME}"


@pytest.fixture
def refused(tmp_path, capsys, monkeypatch):
    """The line that a run is refused with, FOLDER standing for the test's folder."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *arguments: str) -> str:
        config = write_case(tmp_path, text)
        before = {path.name for path in tmp_path.iterdir()}
        assert simulate(config, tmp_path / "out", *arguments) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and {path.name for path in tmp_path.iterdir()} == before
        (line,) = shown.err.splitlines()
        return line.replace(f"{tmp_path}/", "")

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("time.stp=2", "command line: time.stp: unknown key, did you mean time.stop?"),
        ("nonsense", "command line: nonsense: an override is written key=value, e.g. time.stop=2"),
        ("devices.count=50", "command line: devices.count: 50 devices cannot share a 16 x 12 x 10 grid"),
        ("--processes 0", "--processes: must be at least 1, not 0"),
        ("--processes 3", "case.yaml:6: devices.count: 2 is not a multiple of 3 processes; 3 is"),
        ("--processes=2 --process-id 1", "--processes starts all processes of the run itself; leave out"),
        ("--coordinator x", "--coordinator: 'x' is not an address; write HOST:PORT, e.g. node1:12345"),
        (
            "--num-processes 2",
            "processes started by hand need all three of their settings; missing: --coordinator",
        ),
    ],
)
def test_a_mistake_on_the_command_line(refused, arguments, message):
    assert refused(CASE, *arguments.split()).startswith(message)


FIELDS = """\
import jax.numpy as jnp
import numpy as np

def no_dict(x, y, z):
    return x

def alien(x, y, z):
    return {"temperature": x}

def shape(x, y, z):
    return {"velocity": jnp.zeros((2, 16, 12, 10))}

def parts(x, y, z):
    return {"velocity": (x, jnp.zeros(5), z)}

def words(x, y, z):
    return {"velocity": "fast"}

def imaginary(x, y, z):
    return {"velocity": (1j * x, y, z)}

def uses_numpy(x, y, z):
    return {"velocity": (np.sin(y), 0 * x, 0 * z)}

def has_an_if(x, y, z):
    return {"velocity": (x, x, x)} if x[0, 0, 0] > 0 else {}

def wrong(x, y, z):
    return {"velocity": {}["u"]}

def greedy(x, y, z, more):
    return {}

def infinite(x, y, z):
    return {"velocity": (1 / x, 0 * y, 0 * z)}

def rest(x, y, z):
    return {"velocity": (0 * x, 0 * y, 0 * z)}
"""
NUMPY = "uses numpy, or an if, on the coordinates; use jax.numpy instead, with jnp.where for an if"
NEEDED = "shape (3, 16, 12, 10) is needed"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", ": has no function 'absent'; it has no_dict, alien, shape, parts, words, imaginary, "),
        ("no_dict", ": no_dict: returned JitTracer; a dict of fields by name is needed"),
        ("alien", ": alien: returned 'temperature'; this model's fields are velocity"),
        ("shape", f": shape: velocity has shape (2, 16, 12, 10); {NEEDED}"),
        ("parts", f": parts: velocity has parts of shapes (16, 1, 1), (5,), (1, 1, 10); {NEEDED}"),
        ("words", f": words: velocity has the type str; {NEEDED}"),
        ("imaginary", ": imaginary: velocity is complex; real values are needed"),
        ("uses_numpy", f":23: uses_numpy: {NUMPY}"),
        ("has_an_if", f":26: has_an_if: {NUMPY}"),
        ("wrong", ":29: wrong: KeyError: 'u'"),
        ("greedy", ": greedy: TypeError: greedy() missing 1 required positional argument: 'more'"),
    ],
)
def test_a_mistake_in_the_users_function(refused, tmp_path, name, message):
    (tmp_path / "fields.py").write_text(FIELDS)
    found = refused(CASE.replace(RANDOM, PYTHON.replace("NAME", name)))
    found = found.replace("DynamicJaxprTracer", "JitTracer")
    assert found.startswith(f"case.yaml:4: initial: fields.py{message}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("infinite", "4: initial: velocity has values that are not finite"),
        ("rest", "5: time.max_dt: is required: the initial state is at rest, so cfl gives no time step"),
    ],
)
def test_a_start_that_cannot_be_stepped(refused, tmp_path, name, message):
    (tmp_path / "fields.py").write_text(FIELDS)
    assert refused(CASE.replace(RANDOM, PYTHON.replace("NAME", name))) == f"case.yaml:{message}"


def test_a_file_that_is_no_python(refused, tmp_path):
    (tmp_path / "fields.py").write_text("\ndef build(:\n")
    found = refused(CASE.replace(RANDOM, PYTHON.replace("NAME", "build")))
    assert found.startswith("case.yaml:4: initial: fields.py:2: cannot be run: SyntaxError: ")


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert simulate(write_case(tmp_path), tmp_path / "file" / "out") == 2
    assert capsys.readouterr().err == f"output.directory: {tmp_path}/file/out: Not a directory\n"


def test_files_and_folders_that_are_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    for arguments, message in [
        (["run", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["resume", "nowhere"], "nowhere: no such folder; name the folder that output.directory gave"),
        (
            ["resume", "empty"],
            "empty: not a run: it has no config.yaml; name the folder that output.directory gave",
        ),
        (
            ["resume", "empty", "output.directory=x"],
            "command line: output.directory=x: resume continues in the folder RUN; move it instead",
        ),
    ]:
        assert main(arguments) == 2
        assert capsys.readouterr() == ("", message + "\n")
