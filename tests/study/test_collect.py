"""Expressions of a table: reductions of formulas of columns, deviations, standard errors and percentiles."""

import numpy as np
import pytest

from simulator.study.table import parse

TIME = np.linspace(0, 4, 41)
COLUMNS = {"time": TIME, "energy": 2 + np.sin(TIME), "u_rms": np.full(41, 0.5), "dissipation": 0.1 * TIME}


def value(text):
    return parse(text).reduce(COLUMNS)


def test_a_formula_is_reduced_row_by_row():
    rows = COLUMNS["dissipation"] * COLUMNS["energy"] / COLUMNS["u_rms"] ** 3
    assert value("max.(dissipation * energy / u_rms**3)") == pytest.approx(rows.max(), rel=1e-15)
    assert value("final.(sqrt(energy) - 2)") == pytest.approx(np.sqrt(COLUMNS["energy"][-1]) - 2, rel=1e-15)
    late = TIME > 2
    mean = np.trapezoid(rows[late], TIME[late]) / np.ptp(TIME[late])
    assert value("mean.(dissipation * energy / u_rms**3)[time>2]") == pytest.approx(mean, rel=1e-14)
    assert parse("mean.(energy / u_rms**3)[time>2]").columns == ("energy", "u_rms", "time")


def test_ends_and_extremes_of_the_rows_that_are_chosen():
    assert (value("first.time"), value("final.time"), value("min.energy")) == (0, 4, COLUMNS["energy"].min())
    assert value("max.time[time<2*pi/3]") == pytest.approx(2, rel=1e-15)
    assert value("mean.time[time>0.5, time<=1]") == pytest.approx(0.8, rel=1e-14)
    assert np.isnan(value("max.energy[time>9]")) and np.isnan(value("max.missing"))


def test_std_and_percentiles():
    mean = value("mean.energy")
    variance = np.trapezoid((COLUMNS["energy"] - mean) ** 2, TIME) / 4
    assert value("std.energy") == pytest.approx(np.sqrt(variance), rel=1e-14)
    assert value("p50.dissipation") == pytest.approx(0.2, rel=1e-14)
    assert value("p95.dissipation") == pytest.approx(0.38, rel=1e-14)
    assert np.isnan(value("sem.energy[time>3.5]"))  # five rows


def test_the_error_of_a_mean_knows_of_correlation():
    """Each of 64 independent values stands in 8 rows: the error is sigma / 8, not sigma / sqrt(512). An estimate
    from m blocks has a relative error of 1 / sqrt(2 (m - 1)): 0.09 for the 64, 0.27 for the fewest, 8."""
    values = np.random.default_rng(4).standard_normal(64).repeat(8)
    rows = {"time": np.arange(512.0), "energy": values}
    error = parse("mean.energy").error
    assert error is not None
    assert 1 / 8 * (1 - 0.27) < error.reduce(rows) < 1 / 8 * (1 + 2 * 0.27)
    assert parse("max.energy").error is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mean.(energy +)", "cannot be computed"), ("mean.(open('x'))", "only numbers"),
        ("mean.(energy.real)", "only numbers"), ("average.energy", "unknown reduction 'average'"),
        ("p100.energy", "unknown reduction 'p100'"),
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        parse(text)
