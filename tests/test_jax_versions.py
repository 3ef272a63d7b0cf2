"""Releases of JAX that compute wrongly are neither installed nor used, by any door."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from simulator.jax_versions import FAULTS

ROOT = Path(__file__).parents[1]
CONFIG = """
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8, 8]}
initial: {kind: python, path: start.py, function: start}
time: {stop: 0.02, dt: 0.01}
"""
# The sums of jax-ml/jax 39103: rows whose number is one above what a release still sums correctly.
REPRODUCER = """
import jax
import jax.numpy as jnp

def wrong_sums():
    count = 0
    for dtype, rows in (("float64", 16_385), ("float32", 32_769)):
        i = jnp.arange(rows, dtype=dtype)
        x = jnp.stack((i, jnp.zeros_like(i), jnp.zeros_like(i)), axis=1)
        sums = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3, dtype=dtype) @ row) ** 2)))(x)
        count += int((sums != i**2).sum())
    return count
"""
START = (
    REPRODUCER
    + """
def start(x, y, z):
    with jax.ensure_compile_time_eval():
        assert wrong_sums() == 0
    return {"velocity": (jnp.sin(y) + 0 * x, 0 * x, 0 * x)}
"""
)
LIBRARY = (
    REPRODUCER
    + """
jax.config.update("jax_enable_x64", True)
jnp.zeros(3).block_until_ready()  # JAX has started before the import
from simulator import Simulation, load_config
Simulation(load_config("run.yaml"), report=lambda line: None).state
assert wrong_sums() == 0
from simulator.spectral import Grid, make_transform
make_transform(Grid((8, 8, 8)), jax.devices())
assert wrong_sums() == 0
"""
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "simulator", *arguments]


def called(arguments: list[str], place: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environ = {n: v for n, v in os.environ.items() if n != "XLA_FLAGS"}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (path, str(ROOT))))
    return subprocess.run(arguments, cwd=place, env=environ, capture_output=True, text=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "start.py").write_text(START)
    return tmp_path


@pytest.fixture(params=sorted(FAULTS)[:1])
def faulty(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A release, and a folder for PYTHONPATH whose metadata say that it is installed."""
    folder = tmp_path / "site" / f"jaxlib-{request.param}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: jaxlib\nVersion: {request.param}\n"
    )
    return request.param, str(folder.parent)


def test_the_installation_excludes_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {r.name: r.specifier for r in map(Requirement, project["dependencies"])}
    for name in ("jax", "jaxlib"):
        excluded = {s.version for s in needed[name] if s.operator == "!="}
        assert excluded == set(FAULTS)


def test_they_are_refused_by_the_command(place: Path, faulty: tuple[str, str]):
    version, path = faulty
    for arguments in (["run", "run.yaml"], ["plan", "run.yaml"]):
        result = called(command(*arguments), place, path)
        assert result.returncode == 2
        assert result.stderr.startswith(f"jaxlib {version} ") and result.stderr.count("\n") == 1
    assert not (place / "outputs").exists()


def test_they_are_named_and_refused_in_other_programs(place: Path, faulty: tuple[str, str]):
    version, path = faulty
    program = """
import jax, warnings
with warnings.catch_warnings(record=True) as caught:
    import simulator
print(caught[0].message)
for name in ("simulator.Simulation", "simulator.spectral.make_transform"):
    home, part = name.rsplit(".", 1)
    try:
        exec(f"from {home} import {part}")
    except simulator.errors.UserError as error:
        print(error)
"""
    result = called([sys.executable, "-c", program], place, path)
    assert [line.split()[:2] for line in result.stdout.splitlines()] == 3 * [["jaxlib", version]]


@pytest.mark.parametrize("arguments", [["-c", LIBRARY], ["-m", "simulator", "run", "run.yaml"]])
def test_sums_are_right_through_every_door(place: Path, arguments: list[str]):
    """A command, a library that JAX was started before, and the transform alone; without flags of
    the caller."""
    result = called([sys.executable, *arguments], place)
    assert result.returncode == 0, result.stderr
