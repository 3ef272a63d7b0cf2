"""Pictures of many runs: what the axes and the curves say."""

import numpy as np
import pytest

from simulator.show.lines import DrawnCurve
from simulator.show.runs import overlay
from simulator.show.study import Parameter, RunQuantity, against, coded, reduced

VISCOSITY = Parameter("model.viscosity", [0.1, 0.1, 0.01, 0.01])
PRECISION = Parameter("precision", ["single", "double", "single", "double"])


@pytest.mark.parametrize(
    ("expression", "label"),
    [
        ("max.dissipation", r"maximum of dissipation $\varepsilon$"),
        ("mean.enstrophy[time>=0.5]", r"mean enstrophy $\langle\omega^2\rangle/2$, $t\geq 0.5$"),
        ("integral.energy", "energy $E$ integrated over time"),
        ("wall_time", "wall time (s)"),
        ("mean.(dissipation*integral_scale/u_rms**3)", r"mean of $\varepsilon\,L/u_{\mathrm{rms}}^{3}$"),
        ("max.(my_column**2)", r"maximum of $\mathrm{my\ column}^{2}$"),
    ],
)
def test_expressions_as_labels(expression: str, label: str) -> None:
    assert reduced(expression) == label


def test_points_are_joined_along_the_parameter_one_curve_for_each_hue() -> None:
    values = RunQuantity("max.dissipation", [4, 5, 1, float("nan")])
    (axes,) = against(VISCOSITY, values, PRECISION, joined=True).axes
    single, double = axes.lines
    np.testing.assert_array_equal(single.get_xydata(), [[0.01, 1], [0.1, 4]])
    np.testing.assert_array_equal(double.get_xydata(), [[0.1, 5]])
    assert (axes.get_xlabel(), axes.get_xscale()) == (r"viscosity $\nu$", "log")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["single", "double"]
    assert axes.get_ylim()[0] == 0


def test_samples_of_several_parameters_are_points_alone() -> None:
    (axes,) = against(VISCOSITY, RunQuantity("max.dissipation", [4, 5, 1, 2])).axes
    assert axes.lines[0].get_linestyle() == "None"


def test_words_stand_at_their_ticks() -> None:
    (axes,) = against(PRECISION, RunQuantity("final.energy", [1, 2, 3, 4])).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["single", "double"]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [0, 0, 1, 1])


def test_curves_have_the_colour_of_one_parameter_and_the_line_of_another() -> None:
    curve = DrawnCurve(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    (axes,) = overlay([curve, curve, curve, None], "t", "E", coded(VISCOSITY, PRECISION))[0].axes
    first, second, third = axes.lines
    assert first.get_color() == second.get_color() != third.get_color()
    assert first.get_linestyle() == third.get_linestyle() != second.get_linestyle()


def test_many_values_get_a_colour_bar() -> None:
    many = Parameter("initial.amplitude", list(np.linspace(1, 2, 12)))
    curve = DrawnCurve(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 1e-20]))
    axes, bar = overlay([curve] * 12, "k", "E", coded(many, None), "xy")[0].axes
    assert bar.get_ylabel() == "amplitude"
    assert np.isnan(axes.lines[0].get_ydata()[[0, 2]]).all()  # k = 0 and round-off leave gaps
