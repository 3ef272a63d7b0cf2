"""What `simulator plot` draws of one run and of several: choices, means, formats, and what axes and
curves say."""

import itertools
import math
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from refusals import pairs
from run_files import built as built_on_screen
from run_files import legend_texts, write_series, write_table
from storage_support import XYZ, grid, save

from simulator.archive.open_run import open_run
from simulator.archive.run_state import RunState, write_state
from simulator.archive.shard import Dataset
from simulator.cli import main
from simulator.errors import UserError
from simulator.plugins.pictures import lines
from simulator.plugins.pictures import runs as run_plots
from simulator.plugins.pictures.choice import Selection, window
from simulator.plugins.pictures.kinds.spectra import may_be_turbulent, spectrum
from simulator.plugins.pictures.lines import DrawnCurve, time_series
from simulator.plugins.pictures.runs import overlay, overlays, plot_run
from simulator.plugins.pictures.study import Parameter, RunQuantity, against, coded, reduced
from simulator.plugins.pictures.style import Labels, plain, quantity

K = np.arange(20.0)
TIMES = np.arange(5) / 2
RATE = 0.3
ETA = 0.02


def a_run(folder, viscosity=0.01, factor=1.0, reynolds=80.0):
    """Spectra 1.6 RATE^(2/3) k^(-5/3) times `factor` and alternately 0.9 and 1.1."""
    folder.mkdir(parents=True)
    text = f"model: {{kind: navier_stokes, viscosity: {viscosity}}}\ngrid: {{shape: [8, 8, 8]}}\n"
    (folder / "config.yaml").write_text(text)
    constant = {
        "energy": 0.5 * factor,
        "dissipation": RATE,
        "kolmogorov_scale": ETA,
        "reynolds_taylor": reynolds,
    }
    write_table(
        folder,
        {"time": TIMES} | {name: np.full_like(TIMES, value) for name, value in constant.items()},
    )
    energy = 1.6 * RATE ** (2 / 3) * factor * np.where(K > 0, np.maximum(K, 1) ** (-5 / 3), 0)
    rows = [
        (t, {"kinetic_energy": energy * (1.1 if step % 2 else 0.9)}) for step, t in enumerate(TIMES)
    ]
    write_series(folder, "spectra", {"k": K}, {"kinetic_energy": ("k",)}, rows)
    write_state(folder, RunState("finished", 4, 2.0, 2.0, 100.0, 5.0, 0.5))
    return folder


def snapshots(folder):
    rng = np.random.default_rng(1)
    axes = grid(4, 4, 4)
    for step in (0, 4):
        b = rng.standard_normal((3, 4, 4, 4))
        vectors = [
            Dataset(name, v, axes, XYZ) for name, v in (("velocity", b), ("magnetic", b + 1))
        ]
        save(folder / "snapshots", step, [*vectors, Dataset("dye", b[0], axes)], {"time": step / 2})


def test_fields_kinds_and_times_are_chosen_and_by_default_all_that_evolves(tmp_path, capsys):
    folder = a_run(tmp_path / "run")
    snapshots(folder)
    assert main(["plot", str(folder), "--field", "velocity_x,dye", "--time", "1:"]) == 0
    drawn = [line.rpartition("/")[2] for line in capsys.readouterr().out.split()]
    assert drawn == ["slices_velocity_x.png", "slices_dye.png"]
    assert main(["plot", str(folder), "--what", "spectra"]) == 0
    assert "slices" not in capsys.readouterr().out
    other = a_run(tmp_path / "other")
    for runs, fields in (
        ([folder], "nothing"),
        ([folder], "dye,nothing"),
        ([folder, other], "energy,nothing"),
    ):
        assert main(["plot", *map(str, runs), "--field", fields]) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and "no picture of nothing; there are: dissipation, " in shown.err
    assert main(["plot", str(folder), "--what", "diagnostics", "--field", "energy"]) == 0
    assert capsys.readouterr().out == f"{folder}/plots/series_energy.png\n"
    assert main(["plot", str(folder), "--field", "dissipation"]) == 2
    cure = "simulator plot RUN --what diagnostics --field dissipation\n"
    assert capsys.readouterr().err.endswith(f"dissipation is a column of diagnostics: {cure}")
    assert main(["plot", str(folder), "--what", "spectrum"]) == 2
    assert (
        "no 'spectrum', did you mean spectra? known: diagnostics, spectra"
        in capsys.readouterr().err
    )
    drawn = {path.name for path in plot_run(folder).files}
    assert {"slices_dye.png", "slices_magnetic_magnitude.png", "diagnostics.png"} <= drawn


WINDOWS = {
    "0.5:1.5": [0.5, 1.0, 1.5],
    "1:": [1.0, 1.5, 2.0],
    ":0.6": [0.0, 0.5],
    "0:0": [0.0],
    ":": list(TIMES),
}


@pytest.mark.parametrize("text, times", WINDOWS.items())
def test_every_reader_of_a_window_has_the_rows_in_it(tmp_path, monkeypatch, text, times):
    """Series, snapshots and diagnostics, of one run and of several, whether an end is open or
    not."""
    folder = a_run(tmp_path / "run")
    snapshots(folder)
    drawn = []

    def caught(shown, *_):
        drawn.append(list(shown["time"] if isinstance(shown, dict) else shown.time))
        return Figure()

    monkeypatch.setattr(lines, "time_series", caught)
    monkeypatch.setattr(run_plots, "cuts", caught)
    planes = [t for t in (0.0, 2.0) if t in times]
    what = "diagnostics,slices" if planes else "diagnostics"
    assert main(["plot", str(folder), "--time", text, "--what", what]) == 0
    assert drawn == [times, *[planes] * (2 if planes else 0)]
    low, _, high = text.partition(":")
    choice = Selection(time=(float(low or -math.inf), float(high or math.inf)))
    series = open_run(folder).spectra
    shown = window(series, choice)
    rows = [list(TIMES).index(t) for t in times]
    assert list(shown.time) == times and len(shown) == len(times)
    assert_array_equal(shown.at(-1)["kinetic_energy"], series.at(rows[-1])["kinetic_energy"])
    assert_array_equal(shown["kinetic_energy"], series["kinetic_energy"][rows])
    (axes,) = built([folder, folder], replace(choice, what=("diagnostics",)))["series_energy"].axes
    assert [list(line.get_xdata()) for line in axes.get_lines()] == [times] * 2
    averaged = replace(choice, what=("spectra",), average=True)
    (axes,) = built([folder], averaged)["spectrum_kinetic_energy"].axes
    assert_allclose(
        axes.get_lines()[0].get_ydata()[1:], shown["kinetic_energy"].mean(0)[1:], rtol=1e-14
    )


def test_a_window_without_rows_is_refused(tmp_path):
    folder = a_run(tmp_path / "run")
    choice = Selection(time=(7.0, math.inf))
    for draw in (
        lambda: window(open_run(folder).spectra, choice),
        lambda: built([folder, folder], choice),
    ):
        with pytest.raises(UserError, match="has no row from 7 to inf; its times go from 0 to 2"):
            draw()
    for times in ((3.0, 2.0), (math.nan, 2.0)):
        with pytest.raises(UserError, match="time: a first and a last time are needed"):
            Selection(time=times)


def built(runs, choice):
    with matplotlib.rc_context():
        return {name: build() for name, build in overlays([open_run(run) for run in runs], choice)}


def test_what_means_do_not_draw_is_said(tmp_path, capsys, refused_command):
    folder = str(a_run(tmp_path / "run"))
    assert main(["plot", folder, "--average"]) == 0
    said = "diagnostics: not drawn with --average, which is for spectra and other series\n"
    assert capsys.readouterr().err == said
    assert "slices: no curves to draw" in refused_command(
        "plot", folder, "--what", "slices", "--average"
    )


def test_means_in_kolmogorov_units_are_level(tmp_path):
    """Rows at 0.5 to 2 are 1.1, 0.9, 1.1, 0.9 times the level 1.6: mean 1.6, standard error 0.16 /
    sqrt(3)."""
    runs = [a_run(tmp_path / "a"), a_run(tmp_path / "b", viscosity=0.02)]
    choice = Selection(what=("spectra",), time=(0.5, 2.0), compensate=5 / 3, average=True)
    (axes,) = built(runs, choice)["spectrum_kinetic_energy"].axes
    assert axes.get_xlabel().endswith(", means over $t = 0.5$ to $2$")
    (single,) = built(runs, Selection(what=("spectra",)))["spectrum_kinetic_energy"].axes
    assert single.get_xlabel().endswith(", at $t = 2$")
    curves = axes.get_lines()[:2]
    for curve in curves:
        assert_allclose(curve.get_xdata(), K * ETA)
        assert_allclose(curve.get_ydata()[1:], 1.6)
        assert np.isnan(curve.get_ydata()[0]), "k = 0 is no point of a logarithmic axis"
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(1.6 + 0.16 / 3**0.5)
    assert legend_texts(axes) == [
        "viscosity = 0.01",
        "viscosity = 0.02",
    ]


def test_several_runs_share_a_picture_of_each_diagnostic(tmp_path, capsys):
    runs = [str(a_run(tmp_path / name, factor=factor)) for name, factor in (("a", 1.0), ("b", 2.0))]
    assert main(["plot", *runs]) == 0
    names = {line.rpartition("/")[2] for line in capsys.readouterr().out.split()}
    assert {"series_energy.png", "series_dissipation.png", "spectrum_kinetic_energy.png"} == names
    assert (tmp_path / "a/plots/with_b/series_energy.png").exists()
    (axes,) = built(runs, Selection(shift=(0.0, 2.5)))["series_energy"].axes
    assert [set(line.get_ydata()) for line in axes.get_lines()] == [{0.5}, {1.0}]
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [0.0, 2.5]
    assert (
        main(["plot", *runs, "--shift", "1"]) == 2
        and "1 times for 2 runs" in capsys.readouterr().err
    )


@pytest.mark.slow
def test_formats_for_print(tmp_path):
    folder = str(a_run(tmp_path / "run"))
    arguments = ["plot", folder, "--what", "spectra", "--format", "pdf,svg,png", "--style", "paper"]
    assert main(arguments) == 0
    files = {
        path.suffix: path for path in (tmp_path / "run/plots").glob("spectrum_kinetic_energy.*")
    }
    assert files[".pdf"].read_bytes().startswith(b"%PDF") and "<text" in files[".svg"].read_text()
    Image.open(files[".png"]).verify()
    before = {suffix: path.read_bytes() for suffix, path in files.items()}
    assert main(arguments) == 0  # the same picture is the same file
    assert {suffix: path.read_bytes() for suffix, path in files.items()} == before
    assert main(["plot", folder, "--format", "gif"]) == 2


def test_lines_of_theory_only_where_a_flow_may_be_turbulent(tmp_path):
    turbulent, laminar = (a_run(tmp_path / str(r), reynolds=r) for r in (80.0, 5.0))
    drawn = [{path.stem for path in plot_run(run).files} for run in (turbulent, laminar)]
    assert "spectrum_compensated" in drawn[0] and "spectrum_compensated" not in drawn[1]
    young = {
        "reynolds_taylor": 500.0,
        "kolmogorov_scale": 0.03,
        "dissipation": 5e-4,
        "integral_scale": 1.3,
        "u_rms": 0.29,
    }
    series = open_run(turbulent).spectra
    assert not may_be_turbulent(
        series, {"time": TIMES, **{n: 0 * TIMES + v for n, v in young.items()}}
    )
    now = {"time": TIMES, "reynolds_taylor": 0 * TIMES + 80}
    assert may_be_turbulent(series, now)
    body = {"grid": {"shape": [8, 8, 8]}, "terms": [{"mask": {"kind": "sphere"}}]}
    for config in (body, {"grid": {"shape": [8, 8]}}):
        assert not may_be_turbulent(series, now, Labels.of(config))
    assert (
        len(spectrum(series, "kinetic_energy").axes[0].get_lines()) == 6
    )  # five times and the slope
    assert len(spectrum(series, "kinetic_energy", guide=False).axes[0].get_lines()) == 5


def test_growth_has_a_logarithmic_axis_and_counts_have_integers(tmp_path):
    t = np.linspace(0, 10, 30)
    rows = {
        "time": t,
        "energy": np.exp(t) * 1e-6,
        "dissipation": 1 + t / 10,
        "vortex_faces": np.rint(3 + t / 4),
    }
    energy, dissipation, faces = time_series(rows).axes
    assert energy.get_yscale() == "log" and dissipation.get_yscale() == "linear"
    assert all(tick == round(tick) for tick in faces.get_yticks())
    decay = time_series({"time": t, "energy": np.exp(-t)}).axes[0]
    assert decay.get_yscale() == "linear"
    # An axis without 0 has a gap there, and a legend without what it cannot show.
    parts = {"kinetic_energy": np.exp(t) - 1, "potential_energy": -np.ones(30)}
    (axes,) = time_series({"time": t, "energy": np.exp(t), **parts}).axes
    assert legend_texts(axes) == ["total", "kinetic"]
    assert np.isnan(axes.get_lines()[1].get_ydata()[0]) and axes.get_ylim()[0] > 1e-3
    for magnetic, scale in (
        (1e-6, "log"),
        (0.1, "linear"),
        (1e-30, "linear"),
    ):  # a weak field; round-off
        weak = {"kinetic_energy": np.ones(30), "magnetic_energy": np.full(30, magnetic)}
        assert time_series({"time": t, "energy": np.ones(30), **weak}).axes[0].get_yscale() == scale
    runs = [a_run(tmp_path / name, v) for name, v in (("a", 0.01), ("b", 0.02))]
    for folder in runs:
        (folder / "diagnostics.csv").unlink()
        write_table(
            folder, {"time": TIMES, "energy": 1e-6 * np.exp(3 * TIMES), "enstrophy": 1 + TIMES}
        )
    drawn = built(runs, Selection())
    assert [drawn[f"series_{name}"].axes[0].get_yscale() for name in ("energy", "enstrophy")] == [
        "log",
        "linear",
    ]


def test_runs_of_a_study_are_in_its_order_with_whole_legends(tmp_path):
    """Labels that have no room beside the axes stand above them, within the picture; no tick labels
    overlap."""
    runs = [a_run(tmp_path / n, v) for n, v in (("a", 0.025), ("b", 0.016), ("c", 0.08))]
    figure = built(runs, Selection(what=("spectra",), average=True, compensate=2.0))[
        "spectrum_kinetic_energy"
    ]
    (axes,) = figure.axes
    figure.canvas.draw()
    legend = axes.get_legend()
    told = [text.get_text() for text in legend.get_texts()]
    assert told == ["viscosity = 0.016", "viscosity = 0.025", "viscosity = 0.08"]
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert axes.get_ylabel().endswith("k^{2}$")
    boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert len(boxes) > 2 and all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


VISCOSITY = Parameter("model.viscosity", [0.1, 0.1, 0.01, 0.01])
PRECISION = Parameter("precision", ["single", "double", "single", "double"])


@pytest.mark.parametrize(
    "expression, label",
    pairs(r"""
max.dissipation
    maximum of dissipation $\varepsilon$
mean.enstrophy[time>=0.5]
    mean enstrophy $\langle\omega^2\rangle/2$, $t\geq 0.5$
integral.energy
    energy $E$ integrated over time
wall_time
    wall time (s)
mean.(dissipation*integral_scale/u_rms**3)
    mean of $\varepsilon\,L/u_{\mathrm{rms}}^{3}$
max.(my_column**2)
    maximum of $\mathrm{my\ column}^{2}$
"""),
)
def test_expressions_as_labels(expression: str, label: str):
    assert reduced(expression) == label


def test_points_are_joined_along_the_parameter_and_words_stand_at_ticks():
    values = RunQuantity("max.dissipation", [4, 5, 1, float("nan")])
    (axes,) = against(VISCOSITY, values, PRECISION, joined=True).axes
    single, double = axes.lines
    assert_array_equal(single.get_xydata(), [[0.01, 1], [0.1, 4]])
    assert_array_equal(double.get_xydata(), [[0.1, 5]])
    assert (axes.get_xlabel(), axes.get_xscale()) == (r"viscosity $\nu$", "log")
    assert legend_texts(axes) == ["single", "double"]
    assert axes.get_ylim()[0] == 0
    (axes,) = against(VISCOSITY, RunQuantity("max.dissipation", [4, 5, 1, 2])).axes
    assert axes.lines[0].get_linestyle() == "None"  # points of several parameters
    (axes,) = against(PRECISION, RunQuantity("final.energy", [1, 2, 3, 4])).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["single", "double"]
    assert_array_equal(axes.lines[0].get_xdata(), [0, 0, 1, 1])


def test_curves_have_the_colour_of_one_parameter_the_line_of_another_and_a_bar_for_many():
    curve = DrawnCurve(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    (axes,) = overlay([curve, curve, None, None], "t", "E", coded(VISCOSITY, PRECISION))[0].axes
    told = [text.get_text() for each in axes.findobj(Legend) for text in each.get_texts()]
    assert told == ["0.1", "single", "double"]  # not the viscosity of runs that wait
    (axes,) = overlay([curve, curve, curve, None], "t", "E", coded(VISCOSITY, PRECISION))[0].axes
    first, second, third = axes.lines
    assert first.get_color() == second.get_color() != third.get_color()
    assert first.get_linestyle() == third.get_linestyle() != second.get_linestyle()
    many = Parameter("initial.amplitude", list(np.linspace(1, 2, 12)))
    curve = DrawnCurve(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 1e-20]))
    axes, bar = overlay([curve] * 12, "k", "E", coded(many, None), "xy")[0].axes
    assert bar.get_ylabel() == "amplitude"
    assert np.isnan(axes.lines[0].get_ydata()[[0, 2]]).all()  # k = 0 and round-off leave gaps


def test_modes_beyond_the_largest_sphere_are_drawn_as_corner_modes(tmp_path):
    """Of shells 0 to 7 with k_max = 4, those at 5 to 7 are pale and dotted."""
    rows = [(0.0, {"kinetic_energy": np.exp(-K)})]
    attributes = {"largest_wavenumber": 4.0}
    series = write_series(
        tmp_path, "spectra", {"k": K}, {"kinetic_energy": ("k",)}, rows, attributes
    )
    (axes,) = spectrum(series, "kinetic_energy", guide=False).axes
    assert legend_texts(axes) == ["$t = 0$", "corner modes", r"$k_{\max}$"]
    inside, beyond, end = axes.get_lines()
    assert np.nanmax(np.where(np.isfinite(inside.get_ydata()), K, np.nan)) == 4
    assert_array_equal(beyond.get_xdata(), K[K >= 4])
    assert beyond.get_linestyle() == ":" and set(end.get_xdata()) == {4.0}


LONG = "$\\log_{10}$ dark matter comoving surface density $\\Sigma$ ($h\\,M_\\odot$)"


@pytest.mark.parametrize("panels", [1, 3])
def test_no_text_leaves_its_picture(panels):
    """Labels, titles and entries of legends that are twice as long as their room."""

    def build():
        figure, axes = lines.panels(LONG, *[LONG] * panels, title=LONG + LONG, height=4.5)
        axes[-1].plot([1, 2], label="a very long name of a curve beside the axes")
        lines.legend_beside(axes[-1])
        figure.text(0.97, 0.5, 2 * LONG, rotation=90, ha="center", va="center")
        return figure

    figure = built_on_screen(build)
    width, height = figure.get_size_inches() * figure.dpi
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible() and "log" in text.get_text():
            box = text.get_window_extent()
            assert box.x0 > 0 and box.x1 < width and box.y0 > 0 and box.y1 < height, text


def test_names_have_the_symbols_of_physics():
    for name, words in {
        "vorticity_z": r"vorticity $\omega_z$",
        "velocity_mean_x": "mean of velocity $u_x$",
        "gas_velocity_y": "gas velocity $u_y$",
        "lift_cylinder": "$C_L$ (cylinder)",
        "force_wing_x": "force $F_x$ (wing)",
        "alpha_mean": r"largest strain $\langle\alpha\rangle$",
    }.items():
        assert quantity(name) == words
    assert plain(quantity("reynolds_taylor")) == "Taylor-scale Reynolds number Re_λ"
    assert plain(quantity("k_max_eta")) == "resolution k_max η"
    assert plain(quantity("mean_velocity_x")) == "mean velocity u_x"
    assert reduced("std.lift_cylinder") == "standard deviation of $C_L$ (cylinder)"
