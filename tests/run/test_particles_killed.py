"""kill -9 of runs with particles: each continues and ends equal to the undisturbed one, as runs of fields do."""

import signal
from pathlib import Path

import numpy as np
import pytest
from fault_support import Harm, assert_blameless, assert_clean, assert_equal, call, start_all, steps

from simulator.archive.manifest import committed
from simulator.archive.reader import open_snapshot
from simulator.physics.particles.particle_set import id_sum

COUNT = 512
REST = """
grid: {shape: [16, 16, 16]}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: 1}
  spectra: {every_steps: 4}
  snapshots: {every_steps: 8}
  checkpoints: {every_steps: 4, keep_last: 9}
"""
RUNS = {
    # Drops carry a velocity of their own; they migrate, as tracers do, with a cell or two between checkpoints.
    "tracers": f"""
model: {{kind: navier_stokes, viscosity: 1.0e-3}}
initial: {{kind: taylor_green}}
time: {{stop: 1000, cfl: 0.4, max_steps: 16}}
particles:
  - {{name: tracers, kind: tracer, count: {COUNT}, interpolation: linear}}
  - {{name: drops, kind: inertial, count: {COUNT}, interpolation: linear, relaxation_time: 0.5}}
{REST}""",
    "matter": f"""
model:
  kind: composite
  cosmology: {{start: 0.1, matter: 1.0, hubble: 1.0}}
  components: [{{kind: particles, name: dark, count: {COUNT}}}]
initial: {{kind: composite, components: {{dark: {{kind: cosmological, amplitude: 0.1, index: -2, seed: 1}}}}}}
time: {{stop: 1000, dt: 0.1, max_steps: 16}}
{REST}""",
}


@pytest.fixture(scope="module", params=["matter", pytest.param("tracers", marks=pytest.mark.slow)])
def killed(request, tmp_path_factory) -> tuple[Path, Path]:
    """A run that was killed while it wrote the shard of its third checkpoint, and the undisturbed one."""
    place: Path = tmp_path_factory.mktemp(request.param)
    (place / "run.yaml").write_text(RUNS[request.param])
    code, said = call(["run", place / "run.yaml", "--output", place / "undisturbed"], place)
    assert code == 0, said
    run = place / "killed"
    code, said = call(["run", place / "run.yaml", "--output", run], place, Harm("shard written", nth=5))
    assert code == -signal.SIGKILL, said
    assert_blameless(run)
    assert steps("checkpoints", run) == [4, 8]
    code, said = call(["run", place / "run.yaml", "--output", run], place)
    assert code == 0 and "continuing from" in said, said
    return run, place / "undisturbed"


def test_the_run_ends_equal_to_the_undisturbed_one(killed):
    """Every bit of every field and every record of particles, in every snapshot and checkpoint."""
    run, undisturbed = killed
    assert_equal(run, undisturbed)
    assert_clean(run)


def test_no_particle_is_lost_in_any_checkpoint(killed):
    """The run itself refuses to write a checkpoint whose ids do not add up (particles/test_stored.py)."""
    run, _ = killed
    folders = committed(run / "checkpoints")
    assert [int(folder.name) for folder in folders] == [4, 8, 12, 16]
    for folder in folders:
        for species in open_snapshot(folder).particles.values():
            ids = species["id"][...]
            assert ids.sum() == id_sum(COUNT) and (np.sort(ids) == np.arange(COUNT)).all()


@pytest.mark.slow
@pytest.mark.spmd
def test_one_of_two_processes_is_killed(killed, tmp_path):
    """Continued by one process on as many devices: by id equal to the undisturbed run of one process to 1e-12."""
    _, undisturbed = killed
    config, run = undisturbed.parent / "run.yaml", tmp_path / "run"
    started = start_all(["run", config, "--output", run], tmp_path, 2, Harm("shard written", nth=3), 1)
    assert started[1].ended()[0] == -signal.SIGKILL
    for process in started:
        process.kill()
    assert_blameless(run)
    code, said = call(["run", config, "--output", run], tmp_path)
    assert code == 0 and "continuing from" in said, said
    mine, theirs = (open_snapshot(committed(r / "checkpoints")[-1]).particles for r in (run, undisturbed))
    for name, species in theirs.items():
        orders = [np.argsort(found["id"][...]) for found in (mine[name], species)]
        for record in species:
            values = species[record][...][..., orders[1]]
            found = mine[name][record][...][..., orders[0]]
            np.testing.assert_allclose(found, values, rtol=0, atol=1e-12 * max(1, np.abs(values).max()))
