"""A run continues with the physics that its checkpoints were computed with, and writes no secrets."""

import shutil
from pathlib import Path

import pytest
from fault_support import everything
from run_support import simulate, write_case

from simulator.archive.manifest import committed
from simulator.cli import main
from simulator.run.folder import computed_with, stored_config

CASE = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8, 8]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
forcing: {kind: taylor_green, amplitude: 0.1}
time: {stop: 10, dt: 0.01, max_steps: 4, integrator: rk2}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, snapshots: {every_steps: 2}, checkpoints: {every_steps: 2}}
"""
SECRETS = [
    "SLURM_JWT", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "JAX_PLANTED_TOKEN", "NCCL_PLANTED_PASSWORD",
    "SIMULATOR_PLANTED_KEY", "FI_PLANTED_PASSWORD", "XLA_PLANTED_TOKEN", "UCX_PLANTED_KEY",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fingerprint")
    write_case(folder, CASE)
    with pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.setenv(name, f"planted in {name}")
        patch.setenv("NCCL_DEBUG", "WARN")
        assert simulate(folder / "case.yaml", folder / "run") == 0
    return folder


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place / "run", tmp_path / "run"))


def test_no_secret_is_in_any_byte_of_a_run(place: Path):
    files = everything(place / "run")
    assert any(b"NCCL_DEBUG" in content for content in files.values()), "the environment is recorded"
    for file, content in files.items():
        assert b"planted" not in content and not [name for name in SECRETS if name.encode() in content], file


EDITS = {
    "model.viscosity": ("viscosity: 0.02", "viscosity: 0.5", "(there 0.02, now 0.5)"),
    "forcing.amplitude": ("amplitude: 0.1", "amplitude: 0.2", "(there 0.1, now 0.2)"),
    "grid.box": ("6.283185307179586", "3.0", "(there [6.283"),
    "precision": ("precision: double", "precision: single", "(there double, now single)"),
}


@pytest.mark.parametrize("key", EDITS)
def test_an_edited_frozen_key_is_named_and_nothing_changes(run: Path, key: str, capsys):
    old, new, words = EDITS[key]
    config = run / "config.yaml"
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new, 1))
    before = everything(run)
    assert main(["resume", str(run), "time.max_steps=6"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{run}: holds a run with another {key} {words}"), error
    assert error.endswith(f"accept the change with --allow {key}\n") and error.count("\n") == 1
    assert everything(run) == before
    assert main(["verify", str(run), "--quiet"]) == 1
    assert f"{config}: altered" in capsys.readouterr().out


def test_what_the_checkpoints_were_computed_with_continues(place: Path, run: Path, capsys):
    """The user's own file still describes the run; the edited copy in the folder is replaced."""
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("viscosity: 0.02", "viscosity: 0.5"))
    assert computed_with(config).model.viscosity == 0.02
    assert simulate(place / "case.yaml", run, "time.max_steps=5") == 0
    assert "viscosity: 0.02" in config.read_text()
    assert main(["verify", str(run), "--quiet"]) == 0


def test_an_allowed_change_is_what_later_checkpoints_carry(run: Path, capsys):
    change = ["model.viscosity=0.03", "time.max_steps=6"]
    assert main(["resume", str(run), *change]) == 2
    assert "model.viscosity (there 0.02, now 0.03)" in capsys.readouterr().err
    assert main(["resume", str(run), *change, "--allow", "model.viscosity"]) == 0
    found = [stored_config(folder) for folder in committed(run / "checkpoints")]
    assert [config.model.viscosity for config in found if config] == [0.02, 0.03]
    # where the newest is damaged, the one before must not silently go on with the later value
    shard = committed(run / "checkpoints")[-1] / "shards" / "p00000.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    capsys.readouterr()
    assert main(["resume", str(run), "time.max_steps=8"]) == 2
    assert "was computed with another model.viscosity (there 0.02, now 0.03)" in capsys.readouterr().err
    assert main(["resume", str(run), "time.max_steps=8", "--allow", "model.viscosity"]) == 0
