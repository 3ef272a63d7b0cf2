"""Series that a model, a grid or a setting does not allow are refused in one line."""

import pytest
from refusals import refusal, rows
from run_support import simulation, write_case

from simulator.archive.series_recorder import measured_series

FLOW = """\
model: {kind: navier_stokes, viscosity: 0.1}
grid: {shape: [8, 8, 8], box: [1, 1, 2]}
initial: {kind: taylor_green}
time: {stop: 1}
devices: {platform: cpu, count: 1}
"""
PLANE = FLOW.replace("[8, 8, 8], box: [1, 1, 2]", "[12, 12]")
TRACERS = FLOW + "particles: [{name: tracers, kind: tracer, count: 64}]\n"
CONCENTRATION = FLOW.replace(
    "{kind: navier_stokes, viscosity: 0.1}", "{kind: python, path: own.py, equation: Heat}"
).replace("{kind: taylor_green}", "{kind: random}")
HEAT = """
from simulator.equations import Equation

class Heat(Equation):
    evolved = ("c",)
    def linear(self): return {"c": -self.k_squared}
"""
CASES = {"concentration": CONCENTRATION, "flow": FLOW, "plane": PLANE, "tracers": TRACERS}
REFUSED = """
concentration | structure_functions={every: 1}
    structure_functions: needs a velocity, which
concentration | transfer={every: 1}
    transfer: needs energy transfers between modes, which
tracers | pair_correlation={every: 1, range: [0.1, 4]}
    range: distances reach 4; periodic dis
flow | field_statistics={every: 1, fields: [velocty]}
    velocty is not a field of real values
flow | profiles={every: 1}
    profiles: needs a mass density, which navier_stokes
flow | profiles={every: 1, range: [2, 1]}
    profiles.range: [2, 1] is not increasing
flow | histograms={every: 1, decades: [1, 1]}
    histograms.decades: [1, 1] is not increasing
flow | histograms={every: 1, bins: 1e14}
    histograms.bins: must be at most
flow | joint_histograms={every: 1, pairs: [[Q, Q]]}
    pairs.0: Q, Q repeats a name or a pair
flow | joint_histograms={every: 1, pairs: [[Q, velocity]]}
    pairs.0: velocity is not a scalar
plane | helicity={every: 1}
    helicity: is zero in two dimensions
plane | joint_histograms={every: 1}
    pairs: Q and R are invariants of gradients in three dimension
"""


@pytest.mark.parametrize("case, changes, words", rows(REFUSED))
def test_a_refusal_is_one_line(tmp_path, case, changes, words):
    (tmp_path / "own.py").write_text(HEAT)
    file = write_case(tmp_path, CASES[case])
    (change,) = changes
    said = refusal(lambda: measured_series(simulation(file, f"output.{change}")))
    assert f"output.{change.partition('=')[0]}" in said and words in said
    # "..., which MODEL does not have" ends only the messages about what a model lacks.
    assert "which" in words or "does not have" not in said
