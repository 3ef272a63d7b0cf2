"""Where jaxdecomp has no packages, everything else works; who asks for it is told so in a line."""

import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest
from run_support import ROOT, environment, write_case


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with the packages of this one, except jaxdecomp."""
    if find_spec("jaxdecomp") is None:
        return sys.executable
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    numpy = find_spec("numpy")
    assert numpy.origin is not None
    for entry in Path(numpy.origin).parents[1].iterdir():
        left_out = entry.suffix == ".pth" or entry.name.startswith(("jaxdecomp", "__editable__"))
        if not left_out and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    (packages / "checkout.pth").write_text(f"{ROOT}\n")
    return str(folder / "bin" / "python")


def simulator(python: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "simulator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)


@pytest.mark.parametrize("command", ["check", "run"])
def test_asked_for_it_is_refused_in_a_line(command: str, python: str, tmp_path: Path):
    case = write_case(tmp_path)
    output = tmp_path / "out"
    done = simulator(python, command, case, f"output.directory={output}", "fft.backend=jaxdecomp")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("command line: fft.backend: jaxdecomp is not installed; pip install")
    assert not output.exists()


@pytest.mark.long
def test_auto_leaves_it_out(python: str, tmp_path: Path):
    case = write_case(tmp_path)
    end = ["time.stop=0.05", "fft.backend=auto"]
    done = simulator(python, "run", case, "--output", tmp_path / "out", *end)
    assert done.returncode == 0, done.stderr
