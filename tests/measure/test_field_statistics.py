"""Means and variances of whole fields: those of the snapshots, and the same after a restart."""

import shutil

import numpy as np
import pytest
from flow_support import flow

from simulator import open_run
from simulator.archive.recorder import series_of
from simulator.errors import UserError


def simulation(folder, steps=5, count=2, **statistics):
    every = {"every_steps": 1, "fields": ["velocity", "speed"]}
    output = {"snapshots": every, "field_statistics": {**every, "from": 0.1, **statistics}}
    time = {"stop": 1.0, "dt": 0.05, "max_steps": steps}
    blocks = {"initial": {"kind": "random", "peak": 2}, "viscosity": 0.05, "time": time, "count": count}
    return flow(8, 9, 10, **blocks, output={"directory": str(folder), **output})


@pytest.mark.spmd
def test_they_are_those_of_the_snapshots_and_survive_a_restart(tmp_path):
    """Four samples, from t = 0.1 on, in one run and in two parts, of which the second is on other devices: sums at a
    point know nothing of the others, but transforms on other devices differ by round-off; on the same, by nothing."""
    whole, parts, moved = (tmp_path / name for name in ("whole", "parts", "moved"))
    assert simulation(whole).run() == 0
    assert simulation(parts, steps=3).run() == 0
    shutil.copytree(parts, moved)
    for folder, count in ((parts, 2), (moved, 1)):
        assert simulation(folder, count=count).run() == 0
    run = open_run(whole)
    np.testing.assert_array_equal(run.series("field_statistics")["samples"], [0, 0, 1, 2, 3, 4])
    assert not run.snapshots[1]["velocity_mean"][:].any()
    last = run.snapshots[-1]
    for name in ("velocity", "speed"):
        samples = np.array([s[name][:] for s in run.snapshots[2:]])
        np.testing.assert_allclose(last[f"{name}_mean"][:], samples.mean(0), atol=1e-15)
        variance = samples.var(0, ddof=1)
        np.testing.assert_allclose(last[f"{name}_variance"][:], variance, rtol=1e-11, atol=1e-15)
        for kind in ("mean", "variance"):
            key = f"{name}_{kind}"
            np.testing.assert_array_equal(open_run(parts).snapshots[-1][key][:], last[key][:])
            np.testing.assert_allclose(open_run(moved).snapshots[-1][key][:], last[key][:], atol=1e-13)


def test_refusals(tmp_path):
    with pytest.raises(UserError, match=r"output\.field_statistics\.fields: velocty is not a field of real values"):
        series_of(simulation(tmp_path, count=1, fields=["velocty"]))
