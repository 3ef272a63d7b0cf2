"""Drag, lift and the Strouhal number of bodies, in pictures and in the report."""

import numpy as np
import pytest
from run_files import write_series, write_table

from simulator.archive.open_run import open_run
from simulator.archive.run_state import RunState, write_state

pytest.importorskip("simulator.plugins.pictures")
from simulator.plugins.bodies.pictures import bodies_of, forces, shedding, table_of_bodies
from simulator.plugins.pictures.choice import Selection
from simulator.plugins.pictures.report import report_run
from simulator.plugins.pictures.runs import plot_run, plot_runs
from simulator.plugins.pictures.style import PLAIN

CONFIG = """\
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [8, 8], box: [16, 8]}
terms:
  - name: wing
    kind: relax
    target: {velocity: body}
    mask: {kind: cylinder, center: [4, 4], radius: 1}
    coefficients: {velocity: 2, length: 2}
"""
FREQUENCY = 0.173


def rows():
    """Rows after the first step beyond every 0.1: at uneven times."""
    rng = np.random.default_rng(1)
    time = np.linspace(0, 100, 1001)
    time[1:-1] += rng.uniform(0, 0.03, 999)
    return time, 0.1 + 0.4 * np.sin(2 * np.pi * FREQUENCY * time)


def test_the_frequency_of_a_lift_lies_between_those_of_its_spectrum():
    """The parabola is exact to two hundredths of a bin, 1/T, for a Hann window (maximum 0.016 of its
    main lobe)."""
    for stop in (300, 477, 1001):
        time, lift = (values[:stop] for values in rows())
        found = shedding(time, lift)
        assert found is not None
        assert abs(found.frequency - FREQUENCY) < 0.02 / np.ptp(time)
    time, lift = (values[:200] for values in rows())
    assert shedding(time, lift) is None  # three and a half periods
    assert shedding(time, 0 * lift + 1) is None


def test_several_runs_are_compared_and_what_is_left_out_is_said(tmp_path):
    time, lift = rows()
    runs = [tmp_path / name for name in "ab"]
    for run in runs:
        run.mkdir()
        (run / "config.yaml").write_text(CONFIG)
        write_table(run, {"time": time, "drag_wing": 0 * time + 1.5, "lift_wing": lift})
        write_series(
            run, "other", {"x": [0.0, 1.0]}, {"map": ("x", "x")}, [(0, {"map": np.eye(2)})]
        )
    forces = {"series_drag_wing", "series_lift_wing"}
    for what in (None, ("bodies",)):
        plotted = plot_runs(runs, Selection(what=what))
        assert {path.stem for path in plotted.files} == forces
    (line,) = plot_runs(runs).missing
    assert line.startswith("other: left out of a picture of several runs")


def test_each_axis_of_the_lift_has_its_own_numbers_and_round_off_has_none(tmp_path):
    """Along y the lift oscillates about a mean; along z it is round-off."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    time, lift = rows()
    columns = {"drag_wing": 0 * time + 1.5, "lift_wing_y": lift, "lift_wing_z": 1e-15 * lift}
    write_table(tmp_path, {"time": time, **columns})
    y, z = table_of_bodies(tmp_path, Selection()).rows
    assert y[0].startswith("wing, lift along y, t = 50")
    late = lift[time >= 50]
    numbers = [1.5, late.mean(), late.std(), FREQUENCY, 200]
    assert np.allclose([float(x) for x in y[1:]], numbers, rtol=3e-3)
    assert list(z[1:]) == ["1.5", "0", "0", "", "200"]
    (body,) = bodies_of(open_run(tmp_path), Selection())
    assert [*body.sheddings] == ["y"]
    assert forces(body, PLAIN).axes[2].get_ylim()[1] > 0.01  # not the scale of the round-off


def test_drag_lift_and_strouhal_number_are_drawn_and_reported(tmp_path, refused_command):
    """St = f L / U, Re = U L / nu; the head states no Re_lambda of a wake."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    time, lift = rows()
    columns = {"drag_wing": 0 * time + 1.5, "lift_wing": lift, "reynolds_taylor": 0 * time + 52}
    write_table(tmp_path, {"time": time, "energy": 0 * time + 1} | columns)
    write_state(tmp_path, RunState("finished", 4, 100.0, 100.0, 100.0, 5.0, 0.5))
    drawn = {path.stem for path in plot_run(tmp_path).files}
    assert {"forces_wing", "lift_spectrum_wing"} < drawn
    for word in ("forces", "lift"):
        assert f"no '{word}', did you mean bodies?" in refused_command(
            "plot", tmp_path, "--what", word
        )
    text = report_run(tmp_path).read_text()
    assert "Re_λ" not in text
    assert "wing, t = 50 to 100" in text.replace("50.01", "50").replace("50.02", "50")
    for number in ("1.5", "0.17", "200"):
        assert f">{number}" in text
    assert "target: {velocity: body}" in text  # among the parameters
    tau = (4 / 6.746830440636106) ** 2 / 0.02
    assert "smoothing: 4" in text and f"relaxation_time: {tau:.6g}" in text  # by default
    assert "resolution (wing)" in text and "1 grid points across" in text
