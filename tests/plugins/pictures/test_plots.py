"""Pictures: complete, legible, on one scale, and drawn from whatever is there."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from run_files import assert_legible, built, dashed_lines, legend_texts, write_series, write_table
from run_support import fresh

from simulator.archive.series_file import Series, Table
from simulator.errors import UserError
from simulator.measure import KINDS
from simulator.plugins.pictures.kinds.spectra import has_range, spectrum
from simulator.plugins.pictures.lines import DrawnCurve, time_series
from simulator.plugins.pictures.runs import plot_run
from simulator.plugins.pictures.series_pictures import PICTURES
from simulator.plugins.pictures.slices import slices
from simulator.plugins.pictures.style import WIDTH, evenly, position

PI = math.pi
THINNEST = 0.42
"""Inches of a panel at least."""
BOXES = {
    "cube": ((32, 32, 32), (2 * PI, 2 * PI, 2 * PI)),
    "unit": ((32, 32, 32), (1.0, 1.0, 1.0)),
    "flat": ((64, 32, 16), (4 * PI, 2 * PI, 0.5)),
    "tall": ((16, 16, 64), (1.0, 1.0, 8.0)),
    "odd": ((15, 9, 21), (1.7, 1.0, 2.3)),
}


def write_slices(folder, shape=(32, 32, 32), box=(2 * PI, 2 * PI, 2 * PI), times=(0.0, 0.5, 1.0)):
    coordinates = {
        name: np.arange(n) * length / n for name, n, length in zip("xyz", shape, box, strict=True)
    }
    variables = {
        f"{f}/{p}": (p[0], p[1])
        for f in ("speed", "vorticity_magnitude")
        for p in ("xy", "xz", "yz")
    }
    phase = {a: 2 * PI * c / box["xyz".index(a)] for a, c in coordinates.items()}
    rows = [
        (
            time,
            {
                name: np.abs(np.outer(np.sin(phase[a]), np.cos(phase[b] + time))).astype(np.float32)
                * (1 + 0.4 * number)  # on one scale: 9 rows differ by less than a factor of 5
                for name, (a, b) in variables.items()
            },
        )
        for number, time in enumerate(times)
    ]
    return write_series(folder, "slices", coordinates, variables, rows)


def write_spectra(folder, curve, shells=65, times=(0.0, 1.0, 2.0), beside=None):
    k = np.arange(float(shells))
    rows = [(time, {"kinetic_energy": curve(np.maximum(k, 1e-9), time)}) for time in times]
    return write_series(folder, "spectra", {"k": k}, {"kinetic_energy": ("k",)}, rows, {}, beside)


def turbulent(k, time):
    return np.where(k < 0.5, 0.0, k ** (-5 / 3) * np.exp(-k / 30))


def write_diagnostics(folder, rows=50, **changes):
    time = np.linspace(0, 9, rows) if rows > 1 else np.zeros(rows)
    columns = {
        "energy": 0.125 * np.exp(-time / 20),
        "dissipation": 6e-4 * (1 + time),
        "enstrophy": 0.4 + time,
    }
    return write_table(folder, {"time": time} | columns | changes)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text("name: test\n")
    return tmp_path


@pytest.mark.parametrize(
    "box, number", [("cube", 1), ("cube", 9), ("unit", 3), ("flat", 3), ("tall", 9), ("odd", 1)]
)
def test_slices_of_any_box_are_legible_in_proportion_and_on_one_scale(folder, box, number):
    times = tuple(np.arange(number) * 12.5)
    shape, lengths = BOXES[box]
    figure = built(slices, write_slices(folder, shape, lengths, times), "speed")
    assert_legible(figure)
    *panels, bar = figure.axes
    assert len(panels) == 3 * min(len(times), 4)
    assert {panel.images[0].get_clim() for panel in panels} == {
        (0.0, panels[-1].images[0].get_clim()[1])
    }
    assert bar.get_ylabel().startswith("speed")
    scales = []
    for panel in panels:
        rectangle = panel.get_window_extent()
        for extent, limits in (
            (rectangle.width, panel.get_xlim()),
            (rectangle.height, panel.get_ylim()),
        ):
            assert extent > 0.999 * THINNEST * figure.dpi
            # A flat box is drawn out of proportion, to be seen at all.
            if extent > 1.001 * THINNEST * figure.dpi:
                scales.append(extent / np.ptp(limits))
    assert_allclose(scales, scales[0], rtol=1e-6)
    assert_allclose(
        [np.ptp(panels[0].get_xlim()), np.ptp(panels[1].get_ylim())], [lengths[0], lengths[2]]
    )
    assert figure.get_figwidth() <= WIDTH + 1e-6 and figure.get_figheight() < 9.1


def test_a_pixel_is_centred_on_its_grid_point(folder):
    figure = built(slices, write_slices(folder, (8, 8, 8), (8.0, 8.0, 8.0)), "speed")
    image = figure.axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    assert (left, right, bottom, top) == (-0.5, 8.5, -0.5, 8.5) and image.get_array().shape == (
        9,
        9,
    )
    assert_array_equal(image.get_array()[0], image.get_array()[-1])


def test_a_flow_that_decays_is_seen_at_all_times_and_no_row_is_blank(folder):
    wave = np.outer(np.sin(np.arange(32) / 5), np.cos(np.arange(32) / 5))
    variables = {f"speed/{plane}": (plane[0], plane[1]) for plane in ("xy", "xz", "yz")}
    rows = [(t, dict.fromkeys(variables, size * wave)) for t, size in enumerate((0.0, 1.0, 0.02))]
    places = {name: np.arange(32.0) for name in "xyz"}
    figure = built(slices, write_series(folder, "slices", places, variables, rows), "speed")
    assert_legible(figure)
    ends = {round(axes.images[0].get_clim()[1], 6) for axes in figure.axes if axes.images}
    assert len(ends) == 2 and max(ends) > 40 * min(ends)
    moments = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "$t = 1$" in moments and "$t = 2$" in moments and "$t = 0$" not in moments


@pytest.mark.parametrize("plateau, found", [(1.6, True), (0.4, False)])
def test_the_constant_of_an_inertial_range_needs_a_range(plateau, found):
    """A plateau over more than a decade in wavenumber; the same with a slope of 1/2 has none, though it
    crosses the level."""
    k = np.geomspace(1e-3, 1, 60)
    dissipated = np.exp(-((k / 0.2) ** 2))
    assert has_range(DrawnCurve(k, plateau * dissipated * (k > 5e-3))) == found
    assert not has_range(DrawnCurve(k, plateau * (k / 0.02) ** 0.5 * dissipated))


@pytest.mark.parametrize("least, bars", [(0.5, 1), (0.02, 4)])
def test_single_planes_share_a_scale_unless_their_times_differ_much(folder, least, bars):
    wave = 1200 * np.outer(np.sin(np.arange(32) / 5), np.cos(np.arange(32) / 5))
    sizes = (0.0, 1.0, 0.9, 0.8, least)  # a blank time is none of the four
    rows = [(float(t), {"upper/xy": size * wave}) for t, size in enumerate(sizes)]
    places = {name: np.arange(32.0) for name in "xy"}
    series = write_series(folder, "slices", places, {"upper/xy": ("x", "y")}, rows)
    figure = built(slices, series, "upper")
    assert_legible(figure)
    planes = [axes for axes in figure.axes if axes.images]
    assert len(planes) == 4 and len(figure.axes) == 4 + bars
    assert len({axes.images[0].get_clim() for axes in planes}) == bars
    assert len({round(axes.get_position().x0, 6) for axes in planes}) == 2
    assert [axes.get_title() for axes in planes] == [f"$t = {t}$" for t in (1, 2, 3, 4)]


def test_a_few_extremes_do_not_darken_the_rest(folder):
    plane = np.random.default_rng(0).uniform(0, 1, (64, 64))
    plane[3, 3] = 1000.0
    variables = {f"speed/{plane}": (plane[0], plane[1]) for plane in ("xy", "xz", "yz")}
    rows = [(0.0, dict.fromkeys(variables, plane))]
    shown = write_series(
        folder, "slices", {name: np.arange(64.0) for name in "xyz"}, variables, rows
    )
    figure = built(slices, shown, "speed")
    assert figure.axes[0].images[0].get_clim()[1] < 1.1


def test_spectra_are_labelled_and_legible_with_a_guide_where_it_belongs(folder):
    figure = built(
        spectrum, write_spectra(folder, turbulent, times=tuple(np.arange(20.0))), "kinetic_energy"
    )
    assert_legible(figure)
    axes = figure.axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert "E_u(k)" in axes.get_ylabel() and "wavenumber" in axes.get_xlabel()
    labels = legend_texts(axes)
    assert len(labels) == 6 and labels[0] == "$t = 0$" and labels[-1] == "$t = 19$"
    (guide,) = dashed_lines(figure.axes[0])
    (low, high), (above, below) = np.asarray(guide.get_data())
    assert math.log(below / above) / math.log(high / low) == pytest.approx(-5 / 3)
    assert above < axes.get_ylim()[1]


@pytest.mark.parametrize(
    "curve",
    [
        lambda k, t: np.where(np.abs(k - 2) < 0.5, 0.125, 1e-35),
        lambda k, t: k**4 * np.exp(-((k / 6) ** 2)),
        lambda k, t: np.where(k < 0.5, 0.0, k**-4.0),
        lambda k, t: np.zeros_like(k),
        lambda k, t: np.full_like(k, np.nan),
    ],
    ids=["one shell", "a hump", "steep", "nothing", "nan"],
)
def test_no_guide_where_no_range_could_have_it(folder, curve):
    figure = built(spectrum, write_spectra(folder, curve), "kinetic_energy")
    assert not dashed_lines(figure.axes[0])
    assert_legible(figure)


def test_the_shell_about_zero_is_drawn_at_its_mean_a_single_one_is_visible_and_round_off_is_not(
    folder,
):
    """In a long box it holds waves; in a cube only the mean flow, which is no point of a
    logarithmic axis."""
    mean = np.arange(8.0)
    for first, drawn in ((0.25, 8), (0.0, 7)):
        mean[0] = first
        (folder / "spectra.h5").unlink(missing_ok=True)
        series = write_spectra(
            folder, lambda k, time: np.ones_like(k), 8, (0.0,), {"k_mean": ("k", mean)}
        )
        line = spectrum(series, "kinetic_energy").axes[0].lines[0]
        x = np.asarray(line.get_xdata())[np.isfinite(line.get_ydata())]
        assert_array_equal(x, mean[8 - drawn :])
        assert spectrum(series, "kinetic_energy").axes[0].get_xlim()[0] < x[0]
    (folder / "spectra.h5").unlink()
    figure = built(
        spectrum,
        write_spectra(folder, lambda k, t: np.where(k == 2, 0.125, 1e-33)),
        "kinetic_energy",
    )
    line = figure.axes[0].lines[0]
    assert np.isfinite(line.get_ydata()).sum() == 1 and list(line.get_markevery()) == [2]
    assert figure.axes[0].get_ylim()[0] > 1e-12


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_time_series_are_labelled_and_legible(folder, rows):
    figure = built(time_series, write_diagnostics(folder, rows))
    assert_legible(figure)
    assert [axes.get_ylabel().split()[0] for axes in figure.axes] == [
        "energy",
        "dissipation",
        "enstrophy",
    ]
    assert "(10^{" not in figure.axes[0].get_ylabel() and "$t$" in figure.axes[-1].get_xlabel()


def test_energies_are_shown_beside_their_sum_and_large_numbers_with_their_power(folder):
    time = np.linspace(0, 9, 50)
    energies = {"kinetic_energy": 0.1 + 0 * time, "magnetic_energy": 0.02 * time}
    figure = built(time_series, write_diagnostics(folder, **energies, enstrophy=1e5 * (1 + time)))
    assert_legible(figure)
    legend = legend_texts(figure.axes[0])
    assert legend == ["total", "kinetic", "magnetic"]
    assert "($10^{6}$)" in figure.axes[2].get_ylabel()
    assert_allclose(figure.axes[2].lines[0].get_ydata(), 0.1 * (1 + time))


def test_a_run_that_blew_up_still_has_its_pictures(folder):
    time = np.linspace(0, 9, 50)
    write_diagnostics(
        folder, energy=np.where(time > 8, np.nan, time), enstrophy=np.where(time > 8, np.inf, time)
    )
    assert [path.name for path in plot_run(folder).files] == ["diagnostics.png"]


def test_all_pictures_of_a_run_are_small_and_of_a_page_width(folder):
    write_diagnostics(folder)
    write_spectra(folder, turbulent)
    write_slices(folder)
    plotted = plot_run(folder)
    stems = ["diagnostics", "spectrum_kinetic_energy", "slices_speed", "slices_vorticity_magnitude"]
    assert [path.name for path in plotted.files] == [f"{stem}.png" for stem in stems]
    assert plotted.missing == ()
    for path in plotted.files:
        with Image.open(path) as picture:
            assert 850 < picture.width < 1000 and picture.mode == "P"
            greys = np.asarray(picture.convert("L"))
        assert greys.min() < 60 and greys.max() == 255 and path.stat().st_size < 200_000
    assert sorted(path.name for path in (folder / "plots").iterdir()) == sorted(
        path.name for path in plotted.files
    )
    assert plot_run(folder) == plotted, "drawing again replaces them"


def test_a_young_run_is_drawn_as_far_as_it_is(folder):
    with pytest.raises(UserError, match=r"diagnostics\.csv: not written yet"):
        plot_run(folder)
    Table(folder / "diagnostics.csv", ["step", "time", "energy"]).close()
    with pytest.raises(UserError, match="no rows yet"):
        plot_run(folder)
    write_slices(folder, times=(0.0,))
    series = Series(folder / "spectra.h5", {"k": np.arange(4.0)}, {"kinetic_energy": ("k",)})
    series.extend([(0, 0.0, {"kinetic_energy": np.ones(4)})])
    series.truncate(-1)
    plotted = plot_run(folder)
    assert [path.stem for path in plotted.files] == ["slices_speed", "slices_vorticity_magnitude"]
    assert len(plotted.missing) == 2 and all("no rows yet" in line for line in plotted.missing)
    with pytest.raises(UserError, match="no such folder"):
        plot_run(folder / "absent")


def test_each_kind_of_series_of_ours_has_a_function_that_draws_it():
    """Otherwise its computation, and with it JAX, would be imported to draw it. Functions of a user
    write series under names of their own."""
    missing = set(KINDS) - {"python"} - set(PICTURES)
    cure = "add a function to PICTURES of simulator/plugins/pictures/series_pictures.py"
    assert not missing, f"{missing}: {cure}, or in a plugin to its entry points simulator.pictures"


def test_drawing_needs_neither_jax_nor_a_display(folder):
    write_diagnostics(folder)
    done = fresh(f"""
        import sys
        from simulator.plugins.pictures import movie, runs
        runs.plot_run({str(folder)!r})
        assert "jax" not in sys.modules and "matplotlib.pyplot" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr


def test_positions_and_choices():
    shown = ["0", r"\pi/2", r"\pi", r"3\pi/4", r"-\pi", r"2\pi", "1.25"]
    assert [position(x) for x in (0.0, PI / 2, PI, 3 * PI / 4, -PI, 2 * PI, 1.25)] == shown
    assert evenly(3, 6) == [0, 1, 2] and evenly(100, 4) == [0, 33, 66, 99] and evenly(1, 4) == [0]
