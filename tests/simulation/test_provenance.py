"""provenance.json: this start, and those before it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from run_support import tool

from simulator.simulation.provenance import collect, git_state, read, record_start

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
    assert len(state["commit"]) == 40 and not state["dirty"]
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
