"""provenance.json: this start, and those before it."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from run_support import ROOT, tool

from simulator.archive.provenance import (
    NAME,
    collect,
    git_state,
    read,
    record_start,
    required_packages,
)
from simulator.cli import main
from simulator.files import replace_json

KEPT = {"SLURM_JOB_ID": "12", "NCCL_DEBUG": "INFO", "XLA_FLAGS": "--xla_x"}
LEFT_OUT = (
    "HOME",
    "API_KEY",
    "SLURM_JWT",
    "JAX_TOKEN",
    "NCCL_PASSWORD",
    "SIMULATOR_P",
    "SIMULATOR_SECRET",
)


def collected(command=("simulator", "run", "a.yaml")):
    return collect(
        command,
        KEPT | dict.fromkeys(LEFT_OUT, "secret"),
        devices={"platform": "cpu", "count": 8},
        mesh={"axes": ["slab"], "shape": [8]},
        environment_set={"M_ARENA_MAX": "1"},
    )


def test_what_is_recorded_and_what_is_not_and_kept_by_a_restart(tmp_path):
    record_start(tmp_path, collected())
    found = read(tmp_path)
    assert found["command"] == ["simulator", "run", "a.yaml"]
    assert found["environment"] == KEPT
    assert found["environment_set"] == {"M_ARENA_MAX": "1"}
    assert found["devices"]["count"] == 8 and found["mesh"]["shape"] == [8]
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"jax", "jaxlib", "h5py", "numpy"} <= found["versions"].keys()
    assert found["host"]["name"] and found["earlier"] == []
    for name in ("first", "second", "third"):
        record_start(tmp_path, collected([name]))
    found = read(tmp_path)
    assert found["command"] == ["third"]
    assert [start["command"] for start in found["earlier"][1:]] == [["first"], ["second"]]
    assert all("earlier" not in start for start in found["earlier"])


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True
    )


def test_commit_and_changes_of_the_checkout_or_none(tmp_path, monkeypatch):
    (package := tmp_path / "package").mkdir()
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    assert git_state(package) is None, "an untracked package is not the checkout's"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    state = git_state(package)
    assert state and len(state["commit"]) == 40 and not state["dirty"]
    (package / "__init__.py").write_text("changed = 1\n")
    assert git_state(package) == state | {"dirty": True, "changed": ["package/__init__.py"]}
    tool(
        tmp_path / "bin",
        "git",
        f'case "$*" in *status*) exit 1;; esac\nexec {shutil.which("git")} "$@"',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert git_state(package) == state | {"dirty": None, "changed": None}, "git tells no changes"
    assert git_state(Path("/")) is None
    assert read(tmp_path) == {}


def needed(texts):
    """The requirements among `texts` that hold here without extras."""
    parts = map(Requirement, texts or ())
    return [p for p in parts if p.marker is None or p.marker.evaluate({"extra": ""})]


def test_the_recorded_packages_are_closed_under_their_requirements_and_hold_no_tools():
    packages = required_packages()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    asked = [*needed(declared), *(part for name in packages for part in needed(requires(name)))]
    for part in asked:
        assert part.specifier.contains(packages[canonicalize_name(part.name)], prereleases=True)
    assert not {"pytest", "ruff", "mkdocs"} & packages.keys()


def test_the_environment_of_a_run_is_a_requirements_file(tmp_path, capsys):
    record_start(tmp_path, collected())
    assert main(["environment", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    parts = [Requirement(line) for line in lines if not line.startswith("#")]
    assert {p.name: str(p.specifier) for p in parts} == {
        name: f"=={version(name)}" for name in required_packages().keys() - {"simulator"}
    }
    assert not printed.err and f"# simulator {version('simulator')}" in lines
    assert f"#   python{sys.version_info.major}.{sys.version_info.minor} -m venv .venv" in lines
    state = git_state(ROOT / "simulator")
    assert state is None or f"#   git checkout {state['commit']}" in lines


def test_the_environment_names_changed_files_earlier_versions_and_short_records(tmp_path, capsys):
    start = collected()
    start["versions"] = {"python": "3.12.1", "simulator": "0.1.0", "jax": "0.10.0"}
    start["git"] = {"commit": "c" * 40, "dirty": True, "changed": ["simulator/words.py"]}
    before = start | {"versions": start["versions"] | {"jax": "0.9.0"}}
    replace_json(tmp_path / NAME, start | {"earlier": [before]})
    assert main(["environment", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.err == "earlier starts had jax 0.9.0\n"
    lines = printed.out.splitlines()
    assert "# files that differed from the commit: simulator/words.py" in lines
    assert any("listed only these packages" in line for line in lines)
    unanswered = "# git did not answer at that start: files may differ from the commit"
    assert unanswered not in lines
    assert lines[-1] == "jax==0.10.0" and "#   python3.12 -m venv .venv" in lines
    replace_json(tmp_path / NAME, start | {"git": start["git"] | {"dirty": None, "changed": None}})
    assert main(["environment", str(tmp_path)]) == 0
    assert unanswered in capsys.readouterr().out.splitlines()
    replace_json(tmp_path / NAME, start | {"git": None})
    assert main(["environment", str(tmp_path)]) == 0
    assert "#   pip install --no-deps WHEEL_OF_SIMULATOR_0.1.0" in capsys.readouterr().out


def test_the_environment_of_a_folder_without_a_run_is_refused_in_a_line(tmp_path, capsys):
    for content in (None, "{", "{}"):
        if content is not None:
            (tmp_path / NAME).write_text(content)
        assert main(["environment", str(tmp_path)]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err == (
            f"{tmp_path}: records no start of a run (no readable {NAME})\n"
        )
