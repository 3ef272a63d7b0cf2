"""Series that a model, a grid or a setting does not allow are refused in one line."""

import pytest
from run_support import simulation, write_case

from simulator.archive.series_recorder import measured_series
from simulator.errors import UserError

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
REFUSED = [
    (
        CONCENTRATION,
        "structure_functions={every: 1}",
        "structure_functions: needs a velocity, which",
    ),
    (CONCENTRATION, "transfer={every: 1}", "transfer: needs energy transfers between modes, which"),
    (
        TRACERS,
        "pair_correlation={every: 1, range: [0.1, 4]}",
        "range: distances reach 4; periodic dis",
    ),
    (
        FLOW,
        "field_statistics={every: 1, fields: [velocty]}",
        "velocty is not a field of real values",
    ),
    (FLOW, "profiles={every: 1}", "profiles: needs a mass density, which navier_stokes"),
    (FLOW, "profiles={every: 1, range: [2, 1]}", "profiles.range: [2, 1] is not increasing"),
    (
        FLOW,
        "histograms={every: 1, decades: [1, 1]}",
        "histograms.decades: [1, 1] is not increasing",
    ),
    (FLOW, "histograms={every: 1, bins: 1e14}", "histograms.bins: must be at most"),
    (
        FLOW,
        "joint_histograms={every: 1, pairs: [[Q, Q]]}",
        "pairs.0: Q, Q repeats a name or a pair",
    ),
    (
        FLOW,
        "joint_histograms={every: 1, pairs: [[Q, velocity]]}",
        "pairs.0: velocity is not a scalar",
    ),
    (PLANE, "helicity={every: 1}", "helicity: is zero in two dimensions"),
    (
        PLANE,
        "joint_histograms={every: 1}",
        "pairs: Q and R are invariants of gradients in three dimension",
    ),
]


@pytest.mark.parametrize("text, override, message", REFUSED)
def test_a_refusal_is_one_line(tmp_path, text, override, message):
    (tmp_path / "own.py").write_text(HEAT)
    case = write_case(tmp_path, text)
    with pytest.raises(UserError) as refused:
        measured_series(simulation(case, f"output.{override}"))
    said = str(refused.value)
    assert f"output.{override.partition('=')[0]}" in said and message in said and "\n" not in said
    # "..., which MODEL does not have" ends only the messages about what a model lacks.
    assert "which" in message or "does not have" not in said
