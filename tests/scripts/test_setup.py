"""The set-up scripts, on a checkout of their own with a tiny package in place of the program."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_support import tool

SCRIPTS = Path(__file__).parents[2] / "scripts"

PYPROJECT = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"
[project]
name = "simulator"
version = "0"
[project.scripts]
simulator = "simulator:main"
[project.optional-dependencies]
test = []
[tool.setuptools]
py-modules = ["simulator"]
"""
PROGRAM = """\
import sys
def main():
    print(*sys.argv[1:], sep="|")
    return 3
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a folder with a space in its name."""
    root = tmp_path / "a checkout"
    (root / "scripts").mkdir(parents=True)
    for name in ("run", "test", "environment.sh"):
        shutil.copy(SCRIPTS / name, root / "scripts")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "simulator.py").write_text(PROGRAM)
    return root


def call(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {
        k: v for k, v in os.environ.items() if k not in ("PYTHON", "SIMULATOR_VENV", "PYTHONPATH")
    } | variables
    return subprocess.run(
        arguments, cwd=checkout, env=own, capture_output=True, text=True, timeout=300
    )


def shell(checkout: Path, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return call(
        checkout, "/bin/bash", "-c", f"set -eu; source scripts/environment.sh; {line}", **variables
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH of the system's tools without any Python."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "sed", "cksum", "dirname", "mkdir", "flock", "ls", "cat", "rm"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    return str(tools)


@pytest.mark.smoke
def test_the_newest_interpreter_that_works_is_taken(checkout: Path, path: str, tmp_path: Path):
    """Version managers put names on PATH that exist and do not run."""
    real = f'exec "{sys.executable}" "$@"'
    tool(tmp_path / "shims", "python3.14", "echo 'not installed' >&2; exit 127")
    tool(tmp_path / "shims", "python3.13", "exit 1")
    good = tool(tmp_path / "system", "python3.13", real)
    tool(tmp_path / "system", "python3.12", real)
    tool(tmp_path / "system", "python3.11", real)
    done = shell(checkout, "find_python", PATH=f"{tmp_path}/shims:{tmp_path}/system:{path}")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{good}\n", "")


def test_no_interpreter_is_one_line_and_a_named_one_has_to_work(
    checkout: Path, path: str, tmp_path: Path
):
    done = call(checkout, "scripts/run", "x.yaml", PATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "module load python/3.12" in done.stderr
    assert not (checkout / ".venv").exists()
    old = tool(tmp_path / "old", "python3.9", "exit 1")
    done = call(checkout, "scripts/run", "x.yaml", PYTHON=str(old))
    assert done.returncode == 2
    assert done.stderr == f"PYTHON={old}: no working Python 3.11 to 3.14 with the venv module\n"


@pytest.mark.parametrize(
    "says, extra",
    [
        ("echo '| NVIDIA-SMI 550  Driver Version: 550  CUDA Version: 12.4 |'", "cuda12"),
        ("echo '| NVIDIA-SMI 580  Driver Version: 580  CUDA Version: 13.0 |'", "cuda13"),
        ("echo 'NVIDIA-SMI has failed'; exit 9", "cpu"),
    ],
)
def test_cuda_is_taken_where_nvidia_smi_answers(checkout, path, tmp_path, says, extra):
    tool(tmp_path / "gpu", "nvidia-smi", says)
    assert shell(checkout, "detect_extra", PATH=f"{tmp_path}/gpu:{path}").stdout == f"{extra}\n"
    assert shell(checkout, "detect_extra", PATH=path).stdout == "cpu\n"


@pytest.mark.parametrize("arguments", [["--setup", "cuda11"], ["--setup", "cpu", "more"]])
def test_setup_takes_one_known_word(checkout: Path, arguments: list[str]):
    done = call(checkout, "scripts/run", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("--setup takes ")


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Path, tmp_path: Path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").touch()
    done = call(
        checkout, "scripts/run", "x.yaml", SIMULATOR_VENV=str(precious), PYTHON=sys.executable
    )
    assert done.returncode == 2
    assert "not empty, and not a virtual environment" in done.stderr
    assert (precious / "thesis.tex").exists()


@pytest.mark.slow
def test_set_up_once_then_again_only_when_the_project_changes(checkout: Path, tmp_path: Path):
    variables = {"PYTHON": sys.executable, "SIMULATOR_VENV": str(tmp_path / "elsewhere" / "venv")}
    setups = [
        subprocess.Popen(
            ["scripts/run", "--setup", "cpu"],
            cwd=checkout,
            env=os.environ | variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=300)[1] for process in setups]
    assert [process.returncode for process in setups] == [0, 0]
    # The second waited for the first and found nothing left to do.
    assert "".join(told).count("installing simulator") == 1

    first = call(checkout, "scripts/run", "x y.yaml", "a=*", "--flag", **variables)
    assert (first.returncode, first.stdout, first.stderr) == (3, "run|x y.yaml|a=*|--flag\n", "")
    durations = []
    for _ in range(5):
        started = time.perf_counter()
        shell(checkout, "ensure_environment", **variables)
        durations.append(time.perf_counter() - started)
    assert min(durations) < 0.3

    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert "installing simulator" in call(checkout, "scripts/run", **variables).stderr
    # Another extra is added, none is lost; an interrupted installation is done again.
    assert (
        shell(checkout, "ensure_environment test; stamped extras", **variables).stdout
        == "cpu test\n"
    )
    assert shell(checkout, "ensure_environment; stamped extras", **variables).stdout == "cpu test\n"
    shell(checkout, "sed -i 's/^sum=.*/sum=/' \"$stamp\"", **variables)
    done = shell(checkout, "ensure_environment; stamped extras", **variables)
    assert "installing simulator [cpu test]" in done.stderr
    assert done.stdout == "cpu test\n"


@pytest.mark.slow
def test_a_lock_whose_holder_was_killed_is_free(checkout: Path, tmp_path: Path):
    variables = {"PYTHON": sys.executable, "SIMULATOR_VENV": str(tmp_path / "venv")}
    holder = subprocess.Popen(
        ["flock", f"{tmp_path}/venv.lock", "sleep", "100"], start_new_session=True
    )
    waiting = subprocess.Popen(
        ["scripts/run", "--setup", "cpu"],
        cwd=checkout,
        env=os.environ | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "another set-up of" in waiting.stderr.readline()
    os.killpg(holder.pid, 9)
    holder.wait()
    waiting.communicate(timeout=300)
    assert waiting.returncode == 0


def test_a_failed_installation_says_so(checkout: Path, tmp_path: Path):
    (venv := tmp_path / "venv").mkdir()
    (venv / "pyvenv.cfg").touch()
    tool(
        venv / "bin", "python", 'case "$*" in *"pip install"*) echo "no network" >&2; exit 1;; esac'
    )
    done = call(checkout, "scripts/run", "x", SIMULATOR_VENV=str(venv))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "no network",
        "the installation failed; see the reason above",
    ]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_scripts_are_clean():
    root = SCRIPTS.parent
    files = ["scripts/run", "scripts/test", "scripts/environment.sh", ".ci/run"]
    done = subprocess.run(["shellcheck", "-x", *files], cwd=root, capture_output=True, text=True)
    assert done.stdout == ""
