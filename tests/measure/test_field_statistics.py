"""Means and variances of whole fields: those of the snapshots, and the same after a restart."""

import shutil

import numpy as np
import pytest

from simulator import Simulation, open_run
from simulator.archive.recorder import series_of
from simulator.config import run_config_class
from simulator.errors import UserError


def configured(folder, steps=5, count=2, **statistics):
    return run_config_class().model_validate(
        {
            "model": {"kind": "navier_stokes", "viscosity": 0.05},
            "grid": {"shape": [8, 9, 10]},
            "initial": {"kind": "random", "peak": 2},
            "time": {"stop": 1.0, "dt": 0.05, "max_steps": steps},
            "devices": {"platform": "cpu", "count": count},
            "output": {
                "directory": str(folder),
                "snapshots": {"every_steps": 1, "fields": ["velocity", "speed"]},
                "field_statistics": {
                    "every_steps": 1,
                    "from": 0.1,
                    "fields": ["velocity", "speed"],
                    **statistics,
                },
            },
        }
    )


@pytest.mark.spmd
def test_they_are_those_of_the_snapshots_and_survive_a_restart(tmp_path):
    """Four samples, from t = 0.1 on, in one run and in two parts, of which the second is on other devices: sums at a
    point know nothing of the others, but transforms on other devices differ by round-off; on the same, by nothing."""
    whole, parts, moved = (tmp_path / name for name in ("whole", "parts", "moved"))
    assert Simulation(configured(whole)).run() == 0
    assert Simulation(configured(parts, steps=3)).run() == 0
    shutil.copytree(parts, moved)
    for folder, count in ((parts, 2), (moved, 1)):
        assert Simulation(configured(folder, count=count)).run() == 0
    run = open_run(whole)
    np.testing.assert_array_equal(run.series("field_statistics")["samples"], [0, 0, 1, 2, 3, 4])
    assert not run.snapshots[1]["velocity_mean"][:].any()
    last = run.snapshots[-1]
    for name in ("velocity", "speed"):
        samples = np.array([s[name][:] for s in run.snapshots[2:]])
        np.testing.assert_allclose(last[f"{name}_mean"][:], samples.mean(0), atol=1e-15)
        np.testing.assert_allclose(
            last[f"{name}_variance"][:], samples.var(0, ddof=1), rtol=1e-11, atol=1e-15
        )
        for kind in ("mean", "variance"):
            key = f"{name}_{kind}"
            np.testing.assert_array_equal(open_run(parts).snapshots[-1][key][:], last[key][:])
            np.testing.assert_allclose(open_run(moved).snapshots[-1][key][:], last[key][:], atol=1e-13)


def test_refusals(tmp_path):
    with pytest.raises(
        UserError, match=r"output\.field_statistics\.fields: velocty is not a field of real values, did"
    ):
        series_of(Simulation(configured(tmp_path, count=1, fields=["velocty"])))
