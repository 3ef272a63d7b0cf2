"""How well the grid resolves a run: by the worst of all rows, in every model."""

from pathlib import Path

import numpy as np
import pytest

from simulator import load_config
from simulator.physics.resolution_columns import judged, measured_resolutions
from simulator.simulation.abstract_run import paper_simulation
from simulator.simulation.inputs import Inputs

CONFIGS = Path(__file__).parents[2] / "configs"
COLUMNS = {
    "the flow": ("k_max_eta", "edge_enstrophy"),
    "the magnetic field": ("k_max_resistive", "edge_magnetic_enstrophy"),
    "dye": ("dye_k_max_batchelor", "dye_edge_gradient"),
    "the wave function": (None, "edge_mass"),
    "fuzzy: the wave function": (None, "fuzzy_edge_mass"),
    "the gas": (None, "edge_energy"),
}


def table(field, shares):
    """Rows of an unresolved cascade, or of matter, with these shares at the edge."""
    scale, edge = COLUMNS[field]
    rows = {"time": np.arange(len(shares)), edge: np.array(shares)}
    return rows | ({scale: np.full(len(shares), 0.5)} if scale else {})


@pytest.mark.parametrize("field", COLUMNS)
def test_the_worst_row_decides_wherever_it_stands(field):
    shares = [1e-5, 0.5, 2e-3, 0.0]
    for shift in range(4):
        (judgement,) = judged(table(field, np.roll(shares, shift)))
        assert judgement.measure.field == field and judgement.verdict == "bad"
        assert judgement.warning.startswith(f"{field} is under-resolved: ")
        assert "50.0%" in judgement.warning
    (mild,) = judged(table(field, [0.0, 2e-3, 0.0]))
    assert mild.verdict == "warn" and "noise" not in mild.warning
    (clean,) = judged(table(field, [1e-4, 1e-9]))
    assert clean.verdict == ("note" if COLUMNS[field][0] else "good") and clean.warning == ""


def test_rows_that_overflowed_are_not_judged_and_a_number_below_the_limit_shows_it():
    rows = {
        "time": np.arange(3),
        "k_max_eta": np.array([1.2, 0.9984, 0.0]),
        "edge_enstrophy": np.array([0.0, 0.6, np.nan]),
    }
    (judgement,) = judged(rows)
    assert (judgement.verdict, judgement.least) == ("bad", "minimum 0.998")
    (close,) = judged(
        {"k_max_eta": np.array([0.99996]), "edge_enstrophy": np.zeros(1), "time": np.zeros(1)}
    )
    assert close.least == "minimum 0.99996"


@pytest.mark.parametrize("variance", [0.0, 1e-30])
def test_a_scalar_without_fluctuations_has_no_verdict(variance):
    rows = table("dye", [0.0, 0.0]) | {"dye_variance": np.full(2, variance)}
    assert len(judged(rows)) == (variance > 0)


@pytest.mark.parametrize(
    "case, fields",
    [
        ("taylor_green", {"the flow"}),
        pytest.param(
            "orszag_tang",
            {"the flow", "the magnetic field"},
            marks=pytest.mark.plugins("statistics"),
        ),
        pytest.param(
            "stratified", {"the flow", "buoyancy"}, marks=pytest.mark.plugins("statistics")
        ),
        pytest.param(
            "self_gravitating_turbulence", {"the gas"}, marks=pytest.mark.plugins("gravity")
        ),
        pytest.param(
            "gas_and_waves",
            {"gas: the gas", "waves: the wave function"},
            marks=pytest.mark.plugins("gravity", "cosmology"),
        ),
    ],
)
def test_every_model_is_judged(case, fields):
    simulation = paper_simulation(load_config(CONFIGS / f"{case}.yaml", []), Inputs())
    assert {measure.field for measure in measured_resolutions(simulation.columns)} == fields
