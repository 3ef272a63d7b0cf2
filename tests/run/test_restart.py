"""A run that was interrupted continues, and ends as if it had not been, with the physics of its
checkpoints."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fault_support import assert_equal, assert_near, everything
from run_support import (
    CASE,
    copied,
    rows,
    simulate,
    started,
    table,
    wait_until,
    write_case,
)
from tiers import slow

from simulator import open_run
from simulator.archive.manifest import committed
from simulator.archive.snapshot_reader import open_snapshot
from simulator.cli import main
from simulator.run.folder import computed_with, stored_config

# dt by CFL, aligned snapshots, soft spectra: whatever a schedule has to carry over an interruption.
CASE = CASE.replace("stop: 1.0", "stop: 3.1, integrator: rk2")
CASE = CASE.replace("output: {", "output: {checkpoints: {every_steps: 7}, ")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert simulate(write_case(folder, CASE), folder / "run") == 0
    assert table(folder / "run")["step"][-1] > 60
    return folder / "run"


@pytest.fixture
def config(undisturbed) -> Path:
    return undisturbed.parent / "case.yaml"


def interrupted(
    config: Path, folder: Path, act: Callable[[], object], *arguments: str, after: int = 20
) -> int:
    """The exit code of a run in this process on which `act` is called when it has written `after`
    rows."""

    def watch() -> None:
        wait_until(lambda: rows(folder) > after)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    code = simulate(config, folder, *arguments)
    thread.join()
    return code


@pytest.mark.long
@pytest.mark.parametrize(
    "way, reason", [("file", "the file stop in the run folder"), ("signal", "SIGINT")]
)
def test_a_stopped_run_continues_bit_for_bit(
    config, undisturbed, tmp_path, capsys, way: str, reason: str
):
    run = tmp_path / "run"
    stop = (run / "stop").touch if way == "file" else lambda: os.kill(os.getpid(), signal.SIGINT)
    assert interrupted(config, run, stop) == 3
    step = int(table(run)["step"][-1])
    assert 20 <= step < 60 and not (run / "stop").exists()
    state = open_run(run).state
    assert (state.state, state.step, state.last_checkpoint) == ("stopped", step, step)
    assert state.reason == reason
    shown = capsys.readouterr().out
    assert "stopped at t = " in shown and reason in shown and "resume" in shown
    # An early stop writes a checkpoint and no snapshot of its own.
    assert set(open_run(run).snapshots.steps) <= set(open_run(undisturbed).snapshots.steps)
    assert int(committed(run / "checkpoints")[-1].name) == step
    assert simulate(config, run) == 0
    assert f"continuing from {run}/checkpoints/{step:08d}" in capsys.readouterr().out
    assert_equal(run, undisturbed)
    assert len(open_run(run).provenance["earlier"]) == 1
    finished = open_run(run).state
    assert finished.seconds > state.seconds > 0  # those of both starts


@pytest.mark.long
def test_killed_before_its_first_checkpoint(config, undisturbed, tmp_path, capsys):
    run = tmp_path / "run"
    with started("run", config, "--output", run, "output.checkpoints.every_steps=1000") as process:
        wait_until(lambda: rows(run) > 3)
        process.kill()
        process.wait()
    assert not committed(run / "checkpoints")
    assert simulate(config, run) == 0
    assert "no checkpoint was written; starting from the beginning" in capsys.readouterr().out
    assert_equal(run, undisturbed)


@pytest.fixture(scope="module")
def stopped(undisturbed, tmp_path_factory):
    """A run that was stopped on its way, to be copied."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert interrupted(undisturbed.parent / "case.yaml", folder, (folder / "stop").touch) == 3
    return folder


@pytest.fixture
def half(stopped, tmp_path) -> Path:
    """A stopped run of the test's own, moved to another place."""
    return copied(stopped, tmp_path)


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize("change", ["devices.count=4", slow("fft.backend=jaxdecomp")])
def test_it_continues_on_other_devices_and_with_another_backend(half, undisturbed, change: str):
    assert main(["resume", str(half), change]) == 0
    assert_near(half, undisturbed)  # over some 50 further steps
    np.testing.assert_array_equal(table(half)["step"], table(undisturbed)["step"])
    assert open_run(half).snapshots.steps == open_run(undisturbed).snapshots.steps


def test_resume_needs_the_folder_alone(half, undisturbed, capsys):
    """Wherever it was moved to, and with the file of the configuration gone."""
    assert main(["resume", str(half)]) == 0
    assert f"written to {half}" in capsys.readouterr().out
    assert_equal(half, undisturbed)


def test_a_later_stop_continues_a_finished_run(undisturbed, tmp_path, capsys, refused_command):
    run = copied(undisturbed, tmp_path)
    before = (run / "diagnostics.csv").read_text()
    assert main(["resume", str(run), "time.stop=3.3"]) == 0
    assert "time.stop: 3.1 -> 3.3\n" in capsys.readouterr().out
    assert (run / "diagnostics.csv").read_text().startswith(before)
    assert table(run)["time"][-1] == 3.3 and open_run(run).config["time"]["stop"] == 3.3
    assert [snapshot.time for snapshot in open_run(run).snapshots][-3:] == [3.1, 3.2, 3.3]
    assert "time.stop: 3 lies before t = 3.3" in refused_command("resume", run, "time.stop=3.0")


def test_a_checkpoint_on_request(config, undisturbed, tmp_path):
    run = tmp_path / "run"
    arguments = ["output.checkpoints.every_steps=1000", "output.checkpoints.keep_last=5"]
    assert interrupted(config, run, (run / "checkpoint").touch, *arguments) == 0
    on_request, last = (int(folder.name) for folder in committed(run / "checkpoints"))
    assert 20 <= on_request < last and not (run / "checkpoint").exists()
    assert (run / "diagnostics.csv").read_text() == (undisturbed / "diagnostics.csv").read_text()


FORCED = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8, 8]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
forcing: {kind: taylor_green, amplitude: 0.1}
time: {stop: 10, dt: 0.01, max_steps: 4, integrator: rk2}
devices: {platform: cpu, count: 2}
output: {diagnostics: {every_steps: 1}, snapshots: {every_steps: 2}, checkpoints: {every_steps: 2}}
"""


def test_a_wall_time_stops_a_run_after_a_step_with_a_checkpoint(tmp_path):
    """However short it is, every start takes a step, so that a loop of starts ends."""
    config = write_case(tmp_path, FORCED)
    run = tmp_path / "run"
    for step in (1, 2):
        assert simulate(config, run, "run.wall_time=1e-3") == 3
        state = open_run(run).state
        assert (state.state, state.step, state.last_checkpoint) == ("stopped", step, step)
        assert state.reason == "run.wall_time ends in 1 s"
    assert simulate(config, run, "run.wall_time=1h") == 0


def test_checkpoints_at_times_of_the_simulation(tmp_path):
    """The steps of a cfl number end there, and the newest ones are kept."""
    text = FORCED.replace("dt: 0.01, max_steps: 4", "cfl: 0.4").replace("stop: 10", "stop: 0.5")
    config = write_case(tmp_path, text.replace("checkpoints: {every_steps: 2}", "checkpoints: {}"))
    words = ["output.checkpoints.every=[0.1, 0.2, 0.35]", "output.checkpoints.keep_last=3"]
    assert simulate(config, tmp_path / "run", *words) == 0
    saved = [open_snapshot(folder).time for folder in committed(tmp_path / "run/checkpoints")]
    assert saved == [0.2, 0.35, 0.5]


SECRETS = [
    "SLURM_JWT",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "JAX_PLANTED_TOKEN",
    "NCCL_PLANTED_PASSWORD",
    "SIMULATOR_PLANTED_KEY",
    "FI_PLANTED_PASSWORD",
    "XLA_PLANTED_TOKEN",
    "UCX_PLANTED_KEY",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fingerprint")
    write_case(folder, FORCED)
    with pytest.MonkeyPatch.context() as patch:
        for name in SECRETS:
            patch.setenv(name, f"planted in {name}")
        patch.setenv("NCCL_DEBUG", "WARN")
        assert simulate(folder / "case.yaml", folder / "run") == 0
    return folder


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    return copied(place / "run", tmp_path)


def test_no_secret_is_in_any_byte_of_a_run(place: Path):
    files = everything(place / "run")
    assert any(b"NCCL_DEBUG" in content for content in files.values()), (
        "the environment is recorded"
    )
    for file, content in files.items():
        assert b"planted" not in content and not [
            name for name in SECRETS if name.encode() in content
        ], file


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
    assert error.count("\n") == 1 and f"simulator resume {run} " in error
    assert f"{key}=" in error
    assert error.endswith(f" --allow {key}\n")
    assert everything(run) == before
    assert main(["verify", str(run), "--quiet"]) == 1
    assert f"{config}: altered" in capsys.readouterr().out


def test_what_the_checkpoints_were_computed_with_continues(place: Path, run: Path):
    """The user's own file still describes the run; the edited copy in the folder is replaced."""
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("viscosity: 0.02", "viscosity: 0.5"))
    assert computed_with(config).model.viscosity == 0.02
    assert simulate(place / "case.yaml", run, "time.max_steps=5") == 0
    assert "viscosity: 0.02" in config.read_text()
    assert main(["verify", str(run), "--quiet"]) == 0


def test_an_allowed_change_is_what_later_checkpoints_carry(run: Path, capsys, refused_command):
    change = ["model.viscosity=0.03", "time.max_steps=6"]
    assert "model.viscosity (there 0.02, now 0.03)" in refused_command("resume", run, *change)
    assert main(["resume", str(run), *change, "--allow", "model.viscosity"]) == 0
    found = [stored_config(folder) for folder in committed(run / "checkpoints")]
    assert [config.model.viscosity for config in found if config] == [0.02, 0.03]
    # where the newest is damaged, the one before must not silently go on with the later value
    shard = committed(run / "checkpoints")[-1] / "shards" / "p00000.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    capsys.readouterr()
    assert main(["resume", str(run), "time.max_steps=8"]) == 2
    assert (
        "was computed with another model.viscosity (there 0.02, now 0.03)"
        in capsys.readouterr().err
    )
    assert main(["resume", str(run), "time.max_steps=8", "--allow", "model.viscosity"]) == 0
