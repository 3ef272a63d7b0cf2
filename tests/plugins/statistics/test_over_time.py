"""Means over time and their errors, against numpy and against an exactly known correlation; means
and variances of whole fields, which are those of the snapshots, and the same after a restart."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow
from numpy.testing import assert_allclose, assert_array_equal
from run_support import drawn, fresh, simulate, write_case

from simulator import open_run
from simulator.plugins.statistics.over_time import empty, results, taken_in


@jax.jit
def all_of(samples, on):
    def one(moments, given):
        return taken_in(moments, *given), None

    return jax.lax.scan(one, empty(samples.shape[1]), (samples, on))[0]


def test_moments_are_those_of_the_samples_that_count_and_of_few_there_is_no_error():
    samples = np.random.default_rng(1).standard_normal((100, 3)) + np.array([1e6, 0, 5])
    on = np.arange(100) >= 37
    found = results(all_of(jnp.asarray(samples), jnp.asarray(on)))
    assert_allclose(found["mean"], samples[37:].mean(0), rtol=1e-14, atol=1e-15)
    # About a mean of 1e6 the squares of deviations keep 16 - 6 digits (Welford; the naive sum would
    # keep 4).
    assert_allclose(found["variance"], samples[37:].var(0, ddof=1), rtol=1e-9)
    found = results(all_of(jnp.ones((5, 1)), jnp.ones(5, bool)))
    assert found["mean"] == 1 and found["variance"] == 0 and np.isnan(found["error"])
    assert np.isnan(results(empty(1))["mean"])


def test_levels_hold_the_means_of_blocks():
    samples = np.random.default_rng(2).standard_normal((67, 2))
    moments = all_of(jnp.asarray(samples), jnp.ones(67, bool))
    for level in range(5):
        length = 2**level
        blocks = samples[: 67 // length * length].reshape(-1, length, 2).mean(1)
        assert moments.blocks[level] == len(blocks)
        assert_allclose(moments.mean[level], blocks.mean(0), atol=1e-15)
        squares = ((blocks - blocks.mean(0)) ** 2).sum(0)
        assert_allclose(moments.squares[level], squares, rtol=1e-12)


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_the_error_knows_of_the_correlation(phi):
    """x' = phi x + noise has the variance of its mean sigma^2 / n (1 + phi) / (1 - phi) for n times
    longer than the correlation. An estimate from m blocks has a relative error of 1 / sqrt(2 (m -
    1)), 0.27 for the fewest, 8; the largest of the levels lies above more often than below."""
    n = 4096
    copies = 16
    rng = np.random.default_rng(3)
    x = np.zeros((n, copies))
    for i in range(1, n):
        x[i] = phi * x[i - 1] + rng.standard_normal(copies)
    exact = np.sqrt((1 / (1 - phi**2)) * (1 + phi) / (1 - phi) / n)
    found = np.asarray(results(all_of(jnp.asarray(x), jnp.ones(n, bool)))["error"])
    assert (found > exact * (1 - 0.27)).all() and exact < found.mean() < exact * (1 + 2 * 0.27)


CASE = """\
name: case
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8, 8]}
initial: {kind: random, peak: 2, energy: 0.5, seed: 1}
forcing: {kind: constant_power, rate: 0.1, band: [1, 2]}
terms:
  - name: ball
    kind: relax
    target: {velocity: [0, 0, 0]}
    relaxation_time: 0.1
    mask: {kind: sphere, center: [3, 3, 3], radius: 1}
    forces: true
time: {stop: 1.0, dt: 0.02}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: 1}
  spectra: {every_steps: 1}
  statistics: {from: 0.3, every_steps: 1}
"""


@pytest.mark.plugins
@pytest.mark.slow
def test_statistics_of_a_run_are_those_of_its_rows(tmp_path):
    assert simulate(write_case(tmp_path, CASE), tmp_path / "run") == 0
    run = open_run(tmp_path / "run")
    whole = run.series("statistics")
    last = run.series("statistics").at(-1)
    assert len(whole) == 51
    rows = run.diagnostics["time"] > 0.3 - 1e-9
    assert last["samples"] == rows.sum() == 36
    columns = {n: a[rows] for n, a in run.diagnostics.items()}
    means = {n.removeprefix("mean/") for n in last if n.startswith("mean/") and n.count("/") == 1}
    assert means == columns.keys() - {"step", "time", "dt", "cfl"}
    assert {"injection", "power_ball", "force_ball_x", "torque_ball_x"} < means
    for name in means:
        size = abs(columns[name]).max()
        assert_allclose(last[f"mean/{name}"], columns[name].mean(), atol=1e-12 * size)
    spectra = run.spectra["kinetic_energy"][rows]
    assert_allclose(last["mean/spectrum/kinetic_energy"], spectra.mean(0), rtol=1e-12, atol=1e-18)
    variance = last["variance/spectrum/kinetic_energy"]
    assert_allclose(variance, spectra.var(0, ddof=1), rtol=1e-9, atol=1e-20)
    assert last["error/energy"] > 0 and np.isnan(whole.at(5)["mean/energy"])


def simulation(folder, steps, cadence=1):
    every = {"every_steps": cadence, "fields": ["velocity", "speed"]}
    output = {"snapshots": every, "field_statistics": {**every, "from": 0.1}}
    time = {"stop": 1.0, "dt": 0.05, "max_steps": steps, "integrator": "rk2"}
    blocks = {"initial": {"kind": "random", "peak": 2}, "viscosity": 0.05, "time": time, "count": 2}
    return flow(8, 9, 10, **blocks, output={"directory": str(folder), **output})


@pytest.mark.long
@pytest.mark.spmd
def test_they_are_those_of_the_snapshots(tmp_path):
    """Four samples, from t = 0.1 on."""
    assert simulation(tmp_path, 5).run() == 0
    run = open_run(tmp_path)
    assert_array_equal(run.series("field_statistics")["samples"], [0, 0, 1, 2, 3, 4])
    assert not run.snapshots[1]["velocity_mean"][:].any()
    last = run.snapshots[-1]
    for name in ("velocity", "speed"):
        samples = np.array([s[name][:] for s in run.snapshots[2:]])
        assert_allclose(last[f"{name}_mean"][:], samples.mean(0), atol=1e-15)
        variance = samples.var(0, ddof=1)
        assert_allclose(last[f"{name}_variance"][:], variance, rtol=1e-11, atol=1e-15)
    pictures = drawn(tmp_path)  # the magnitude of the mean flow; variances have none
    assert "slices_velocity_mean_magnitude.png" in pictures
    assert {name for name in pictures if "variance" in name} == {
        f"slices_{name}.png"
        for name in ("speed_variance", *(f"velocity_variance_{axis}" for axis in "xyz"))
    }


@pytest.mark.long
@pytest.mark.spmd
def test_a_run_that_ended_between_samples_has_the_same_ones_when_it_goes_on(tmp_path):
    """Samples at the steps 2 (t = 0.1), 4 and 6; the end at step 5 writes a row without another."""
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    for folder, steps in ((whole, 6), (parts, 5), (parts, 6)):
        assert simulation(folder, steps, cadence=2).run() == 0
    series = open_run(parts).series("field_statistics")
    assert_array_equal(series.step, [0, 2, 4, 5, 6])
    assert_array_equal(series["samples"], [0, 1, 2, 2, 3])
    assert_array_equal(open_run(whole).series("field_statistics")["samples"], [0, 1, 2, 3])
    last, expected = (open_run(folder).snapshots[-1] for folder in (parts, whole))
    for key in ("velocity_mean", "velocity_variance"):
        assert_array_equal(last[key][:], expected[key][:])


SMALL = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8, 8]}
initial: {kind: random, peak: 2, seed: 1}
time: {stop: 0.4, dt: 0.05, integrator: rk2}
devices: {platform: cpu, count: 1}
"""


@pytest.mark.parametrize(
    "kind, change",
    [
        ("statistics", {"from": 0.2}),
        ("statistics", {"every_steps": 2}),
        ("field_statistics", {"from": 0.2}),
        ("field_statistics", {"fields": ["velocity", "speed"]}),
    ],
)
def test_sums_begin_anew_when_their_definition_changes(tmp_path, capsys, kind, change):
    """The first part ends at step 4, t = 0.2, whose state is the first sample of the second."""
    output = f"output: {{snapshots: {{every: 0.2}}, {kind}: {{from: 0, every_steps: 1}}}}\n"
    case = write_case(tmp_path, SMALL + output)
    folder = tmp_path / "run"
    assert simulate(case, folder, "time.stop=0.2") == 0
    ((key, value),) = change.items()
    assert simulate(case, folder, f"output.{kind}.{key}={json.dumps(value)}") == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith(f"{kind}: begins"))
    assert f"because output.{kind}.{key} was" in line
    samples = open_run(folder).series(kind)["samples"]
    assert samples[4] == 5 and samples[-1] == (3 if key == "every_steps" else 5)
    if key == "from":
        assert simulate(case, tmp_path / "whole", f"output.{kind}.from=0.2") == 0
        parts, whole = (open_run(tmp_path / name) for name in ("run", "whole"))
        for name, last in whole.series(kind).at(-1).items():
            assert_array_equal(parts.series(kind).at(-1)[name], last)
        for name, field in whole.snapshots[-1].items():
            assert_array_equal(parts.snapshots[-1][name][:], field[:])


def test_a_finished_run_is_verified_without_the_modules_that_measured_it():
    """They import JAX."""
    done = fresh("""
        import sys
        from simulator.measure import snapshot_files
        assert not snapshot_files({"statistics": {"every": None, "every_steps": 1, "from": 0.0}})
        assert not {m for m in sys.modules if m == "jax" or m.startswith("simulator.plugins")}
    """)
    assert done.returncode == 0, done.stderr
