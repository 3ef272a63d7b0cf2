"""Runs that are stepped together, against the same runs alone."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sweep_support import BASE, together
from tiers import slow

from simulator.archive.open_run import open_run
from simulator.archive.run_state import read_state
from simulator.physics.models.navier_stokes import NavierStokesSettings
from simulator.run.runnable import RunnableSimulation as Simulation
from simulator.settings import with_value
from simulator.study.batch import BatchedStep, groups
from simulator.study.ensemble import run_together
from simulator.study.runner import CANNOT
from simulator.study.runs import SweepRun
from simulator.study.study_status import read_record, statuses_of
from simulator.study.sweep import Sweep

CFL = BASE.replace("stop: 0.1, dt: 0.02", "stop: 1.0, cfl: 0.5")


def alone(runs: Sequence[SweepRun], where: Path) -> list[Path]:
    folders = []
    for run in runs:
        folder = where / run.hash
        config = run.config.changed(output={"directory": folder})
        assert Simulation(config, report=lambda line: None).run() == 0
        folders.append(folder)
    return folders


@pytest.mark.long
@pytest.mark.parametrize("precision", ["double", slow("single")])
def test_a_batch_gives_what_single_runs_give(study, tmp_path: Path, precision: str):
    """Other viscosities, amplitudes, initial conditions and ends: equal to 1e-12, or six digits of
    single precision, of every field's maximum, with the same steps, rows and times."""
    sweep = study(
        f"""\
base: base.yaml
sweep:
  zip:
    model.viscosity: [0.01, 0.05]
    initial.kind: [taylor_green, random]
    time.stop: [0.6, 1.0]
  list: [{{precision: {precision}}}]
""",
        CFL,
    )
    together(sweep)
    tolerance = 1e-12 if precision == "double" else 1e-6
    compared = sweep.runs if precision == "single" else sweep.runs[1:]
    for run, folder in zip(compared, alone(compared, tmp_path / "alone"), strict=True):
        one = open_run(run.folder)
        other = open_run(folder)
        assert list(one.diagnostics) == list(other.diagnostics)
        assert_array_equal(one.diagnostics["step"], other.diagnostics["step"])
        for name in ("time", "energy", "dissipation", "enstrophy", "max_speed"):
            found = one.diagnostics[name]
            expected = other.diagnostics[name]
            assert_allclose(found, expected, rtol=0, atol=tolerance * abs(expected).max())
        assert one.snapshots.steps == other.snapshots.steps
        found = one.snapshots[-1]["velocity"][...]
        expected = other.snapshots[-1]["velocity"][...]
        assert_allclose(found, expected, rtol=0, atol=tolerance * abs(expected).max())
        energies = [run.spectra.one("kinetic_energy", -1) for run in (one, other)]
        assert_allclose(*energies, rtol=0, atol=tolerance)
        assert found.dtype == expected.dtype
        assert read_state(run.folder).state == "finished"
        assert (
            read_record(run.folder).code,
            len(list((run.folder / "checkpoints").glob("0*"))),
        ) == (0, 1)


@pytest.mark.long
def test_a_member_that_fails_leaves_the_others_alone_and_a_signal_stops_them(study):
    text = "base: base.yaml\nsweep: {grid: {initial.amplitude: [1, 1e49, 2]}}\n"
    sweep = study(text, BASE.replace("stop: 0.1", "stop: 200"))
    folders = [run.folder for run in sweep.runs]

    def stop_when_all_have_gone_on() -> None:
        while not all(
            (s := read_state(folder)) and (s.step or s.state == "failed") for folder in folders
        ):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_all_have_gone_on, daemon=True).start()
    together(sweep)
    found = statuses_of(folders)
    assert [str(status.stage) for status in found] == ["interrupted", "failed", "interrupted"]
    assert "is not finite" in found[1].detail
    assert all(list((folder / "checkpoints").glob("0*")) for folder in folders[::2])


def keyed(sweep: Sweep, parts: int = 1) -> list[tuple[list[int], tuple[str, ...]]]:
    return [([run.index for run in group.runs], group.keys) for group in groups(sweep.runs, parts)]


V = ("model.viscosity",)
GROUPS = {
    "other precisions are other groups": (
        "{grid: {model.viscosity: [0.1, 0.2], precision: [single, double], time.dt: [0.01, 0.02]}}",
        BASE,
        1,
        [([0, 1, 4, 5], (*V, "time.dt")), ([2, 3, 6, 7], (*V, "time.dt"))],
    ),
    "cfl numbers share a program": (
        "{grid: {time.cfl: [0.3, 0.5], model.viscosity: [0.1, 0.2]}}",
        CFL,
        1,
        [([0, 1, 2, 3], (*V, "time.cfl"))],
    ),
    "several jobs": (
        "{grid: {initial.amplitude: [1, 2, 3, 4, 5]}}",
        BASE,
        2,
        [([0, 1], ()), ([2, 3, 4], ())],
    ),
    "other numbers of devices are other groups": (
        "{grid: {devices.count: [1, 2], initial.amplitude: [1, 2]}}",
        BASE,
        1,
        [([0, 1], ()), ([2, 3], ())],
    ),
    "a measured transform is not shared": (
        "{grid: {initial.amplitude: [1, 2]}, list: [{fft.backend: auto}]}",
        BASE,
        1,
        [([0], ()), ([1], ())],
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups_share_shapes_and_programs(study, case: str):
    varied, base, parts, expected = GROUPS[case]
    assert keyed(study(f"base: base.yaml\nsweep: {varied}", base), parts) == expected


def test_a_number_that_decides_what_is_computed_is_not_batched(study, capsys):
    """The sign of the stratification decides whether there are waves."""
    model = "model: {kind: boussinesq, viscosity: 0.1, diffusivity: 0.1, stratification: 1.0}"
    base = BASE.replace("model: {kind: navier_stokes, viscosity: 0.01}", model)
    key = "model.stratification"
    sweep = study(f"base: base.yaml\nsweep: {{grid: {{{key}: [1.0, 4.0]}}}}", base)
    assert keyed(sweep) == [([0, 1], (key,))]
    sweep.prepare()
    assert run_together([run.folder for run in sweep.runs], (key,)) == CANNOT
    assert "TracerBoolConversionError" in capsys.readouterr().out


@pytest.mark.parametrize(
    "model",
    [
        "{kind: navier_stokes, viscosity: 0.1}",
        "{kind: boussinesq, viscosity: 0.1, diffusivity: 0.1, stratification: 4}",
        "{kind: mhd, viscosity: 0.1, resistivity: 0.1}",
    ],
)
def test_what_measures_is_one_program_for_all_viscosities(study, model: str):
    base = BASE.replace("{kind: navier_stokes, viscosity: 0.01}", model)
    (run, *_) = study("base: base.yaml\nsweep: {grid: {model.viscosity: [0.1, 0.2]}}", base).runs
    simulation = Simulation(run.config, report=lambda line: None)
    step = BatchedStep(simulation, ["model.viscosity"])
    assert step.measure("spectra") is not None
    diagnostics = step.measure("diagnostics")
    traced = jax.eval_shape(diagnostics, step.values({"model.viscosity": 1.0}), simulation.template)
    assert traced.keys() == set(simulation.columns)


def test_a_value_deep_in_the_settings():
    scalars = [{"name": name, "diffusivity": 1.0} for name in "ab"]
    settings = NavierStokesSettings.model_validate({"viscosity": 1.0, "scalars": scalars})
    changed = with_value(settings, "scalars.1.diffusivity", 7.0)
    assert [scalar.diffusivity for scalar in changed.scalars] == [1, 7]
    assert settings.scalars[1].diffusivity == 1
