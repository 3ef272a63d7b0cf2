"""Pictures of matter: the curves that are laid over the measured ones are the right ones, and all
is legible."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from run_files import assert_legible, built, dashed_lines, legend_texts, write_series

from simulator.archive.open_run import open_run

pytest.importorskip("simulator.plugins.gravity")
from simulator.plugins.gravity.cosmology import Background, CosmologySettings
from simulator.plugins.pictures.choice import Selection
from simulator.plugins.pictures.kinds.spectra import power_spectrum
from simulator.plugins.pictures.lines import DrawnCurve, plotted, time_series
from simulator.plugins.pictures.runs import overlays, plot_run
from simulator.plugins.pictures.slices import projections, slices
from simulator.plugins.pictures.style import Labels

COSMOS = {"start": 0.02, "hubble": 0.07, "matter": 0.3}
KPC = {
    "kind": "schrodinger_poisson",
    "units": "kpc_km_s_msun",
    "boson_mass": 1.0,
    "cosmology": COSMOS,
}
WAVES = {"kind": "schrodinger_poisson"}


def times_of(a):
    return Background(CosmologySettings(**COSMOS)).time_of(a)


@pytest.mark.plugins("gravity")
def test_linear_growth_is_the_first_spectrum_times_the_growth_squared(tmp_path):
    """With matter alone D is a: from a = 0.02 to 0.18 power grows 81 times. Waves grow below their
    Jeans wavenumber: (6 0.02)^(1/4) (0.07 / 1e-4)^(1/2) = 15.6."""
    k = np.arange(33.0)
    first = np.where(k > 0, np.maximum(k, 1) ** -2.0 * np.exp(-k / 8), 0)
    model = {"kind": "schrodinger_poisson", "cosmology": {**COSMOS, "matter": 1.0}}
    model["hbar_over_m"] = 1e-4
    background = Background(CosmologySettings(**model["cosmology"]))
    powers = {a: first * (a / 0.02) ** 2 * (1 + step) for step, a in enumerate((0.02, 0.06, 0.18))}
    rows = [(background.time_of(a), {"density_power": power}) for a, power in powers.items()]
    series = write_series(tmp_path, "spectra", {"k": k}, {"density_power": ("k",)}, rows)
    figure = built(power_spectrum, series, "density_power", Labels(model))
    assert_legible(figure)
    axes = figure.axes[0]
    dashed = [line for line in dashed_lines(axes) if len(line.get_xdata())]
    assert len(dashed) == 2 and all(line.get_xdata().max() == 15 for line in dashed)
    assert_allclose(dashed[1].get_ydata(), 81 * first[1:][: len(dashed[1].get_ydata())], rtol=1e-6)
    still = built(power_spectrum, series, "density_power", Labels(WAVES))
    assert not dashed_lines(still.axes[0])


def test_the_density_of_the_only_component_is_drawn_once(tmp_path):
    one = "{kind: particles, name: dark_matter, count: 8}"
    k = np.arange(1, 9.0)
    names = ("density_power", "dark_matter_density_power")
    write_series(
        tmp_path,
        "spectra",
        {"k": k},
        dict.fromkeys(names, ("k",)),
        [(0.0, dict.fromkeys(names, 1 / k))],
    )
    both = {f"spectrum_{name}" for name in names}
    for components, drawn in ((one, {"spectrum_density_power"}), (f"{one}, {{name: gas}}", both)):
        (tmp_path / "config.yaml").write_text(
            f"name: a\nmodel: {{kind: composite, components: [{components}]}}\n"
        )
        assert {path.stem for path in plot_run(tmp_path).files} == drawn
    _, axes, _ = plotted([DrawnCurve(k, np.nan * k, "nothing"), DrawnCurve(k, k, "all")], "k", "y")
    assert legend_texts(axes) == ["all"]
    pytest.importorskip("simulator.plugins.cosmology")
    # The light cone holds no total density, so that of the only component is drawn.
    (tmp_path / "config.yaml").write_text(
        f"name: a\nmodel: {{kind: composite, components: [{one}]}}\n"
    )
    cone = "dark_matter_density/xy"
    plane = {"x": np.arange(4.0), "y": np.arange(4.0)}
    rows = [(0.1, {cone: np.ones((4, 4))})]
    write_series(tmp_path, "lightcone", plane, {cone: ("x", "y")}, rows)
    drawn = {path.stem for path in plot_run(tmp_path).files}
    assert drawn == {"spectrum_density_power", "lightcone_dark_matter_density"}


def test_rows_of_an_expanding_run_are_spread_in_the_scale_factor_which_needs_no_jax():
    labels = Labels({"kind": "schrodinger_poisson", "cosmology": COSMOS})
    background = labels.background
    times = np.linspace(0, background.time_of(0.5), 400)
    chosen = labels.rows(times, 4)
    a = [labels.scale_factor(times[i]) for i in chosen]
    assert chosen[0] == 0 and chosen[-1] == 399
    assert_allclose(np.diff(np.log(a)), np.log(25) / 3, rtol=0.05)
    assert Labels(WAVES).rows(times, 4) == [0, 133, 266, 399]
    background = Background(CosmologySettings(**COSMOS))
    for a in (0.02, 0.021, 0.3, 1.0):
        time = background.time_of(a)
        assert background.scale_factor_at(time) == pytest.approx(a, rel=1e-9)
        assert background.scale_factor_at(time) == pytest.approx(
            float(background.scale_factor(time)), rel=1e-12
        )


def test_time_series_of_matter_leave_out_what_is_not_there():
    """No panel for a virial ratio of 0 (no gravity), no curve for an energy of 0 or the share at
    the edge; what is conserved to 1e-9 is drawn as a line, with short numbers."""
    time = np.linspace(0, 1, 30)
    still = {
        "time": time,
        "energy": 1 + 1e-9 * time,
        "kinetic_energy": 0.5 + 1e-9 * time,
        "interaction_energy": 0.5 + 0 * time,
        "external_energy": 0 * time,
        "edge_energy": 0.01 + time,
        "virial_ratio": 0 * time,
        "max_density": 2 + 1e-9 * time,
    }
    figure = built(time_series, still)
    assert_legible(figure)
    assert len(figure.axes) == 2
    legend = legend_texts(figure.axes[0])
    assert legend == ["total", "kinetic", "interaction"]
    assert np.ptp(figure.axes[1].get_ylim()) > 4e-3
    figure = built(
        time_series, {**still, "scale_factor": 0.1 + time, "max_density": 10 ** (3 * time)}
    )
    assert figure.axes[-1].get_yscale() == "log" and "scale factor" in figure.axes[-1].get_xlabel()


MPC = {
    "kind": "composite",
    "units": "mpc_h_km_s_msun_h",
    "cosmology": COSMOS,
    "components": [{"kind": "particles", "name": "dark"}],
}


def test_slices_of_an_expanding_box_name_places_redshifts_and_units(tmp_path):
    """z is a coordinate only."""
    planes = {f"density/{plane}": (plane[0], plane[1]) for plane in ("xy", "xz", "yz")}
    places = {name: np.arange(16.0) for name in "xyz"}
    wave = 1 + 0.5 * np.outer(np.sin(np.arange(16) / 3), np.cos(np.arange(16) / 3))
    rows = [(times_of(a), dict.fromkeys(planes, wave)) for a in (0.1, 0.5)]
    series = write_series(tmp_path, "slices", places, planes, rows)
    figure = built(slices, series, "density", Labels(MPC))
    assert_legible(figure)
    first = figure.axes[0]
    assert first.get_title() == r"$z = 8\,h^{-1}\mathrm{Mpc}$"
    assert [text.get_text() for text in first.texts] == ["redshift 9"]
    assert all(text.get_rotation() == 0 for text in first.texts)
    assert r"$x$ ($h^{-1}\mathrm{Mpc}$)" in {axes.get_xlabel() for axes in figure.axes}


def test_the_power_of_particles_has_their_shot_noise_and_nyquist_wavenumber(tmp_path):
    """V / N = 8 of a lattice with spacing 2, whose Nyquist wavenumber is pi / 2."""
    k = np.arange(9.0)
    row = {"density_power": 100.0 / np.maximum(k, 1) ** 2}
    series = write_series(
        tmp_path, "spectra", {"k": k}, {"density_power": ("k",)}, [(times_of(0.1), row)]
    )
    diagnostics = {"dark_shot_noise": np.full(3, 8.0)}
    axes = built(power_spectrum, series, "density_power", Labels(MPC), diagnostics).axes[0]
    assert_legible(axes.figure)
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["shot noise"].get_ydata()[0] == 8.0
    assert_allclose(lines["particles'\nNyquist"].get_xdata()[0], np.pi / 2)
    bare = built(power_spectrum, series, "density_power", Labels(WAVES), diagnostics).axes[0]
    assert "shot noise" not in {line.get_label() for line in bare.lines}


def test_a_row_of_a_light_cone_says_what_it_covers(tmp_path):
    places = {name: np.arange(16.0) for name in "xy"}
    variables = {"dark_density/xy": ("x", "y"), "nearest": (), "farthest": ()}
    wave = 1 + 0.5 * np.outer(np.sin(np.arange(16) / 3), np.cos(np.arange(16) / 3))
    row = {"dark_density/xy": wave, "nearest": 300.0, "farthest": 600.0}
    series = write_series(tmp_path, "lightcone", places, variables, [(times_of(0.9), row)])
    figure = built(projections, series, "dark_density", Labels(MPC))
    assert_legible(figure)
    title = figure.axes[0].get_title()
    assert title == r"redshift 0.111: 300 to 600 $h^{-1}\mathrm{Mpc}$"


def test_power_spectra_of_several_boxes_have_units_and_name_the_redshift(tmp_path):
    """Boxes of different units have none."""
    k = np.arange(1.0, 9.0)
    rows = [(times_of(0.5), {"density_power": 100.0 / k**2})]
    for name, units in (
        ("a", "mpc_h_km_s_msun_h"),
        ("b", "mpc_h_km_s_msun_h"),
        ("c", "kpc_km_s_msun"),
    ):
        (folder := tmp_path / name).mkdir()
        model = KPC | {"units": units}
        (folder / "config.yaml").write_text(
            json.dumps({"model": model, "grid": {"shape": [8, 8, 8]}})
        )
        write_series(folder, "spectra", {"k": k}, {"density_power": ("k",)}, rows)

    def axes_of(*names: str):
        choice = Selection(what=("spectra",))
        runs = [open_run(tmp_path / name) for name in names]
        return dict(overlays(runs, choice))["spectrum_density_power"]().axes[0]

    alike = axes_of("a", "b")
    assert alike.get_xlabel().endswith("wavenumber $k$ ($h\\,\\mathrm{Mpc}^{-1}$), at redshift 1")
    assert "power spectrum" in alike.get_ylabel() and "Mpc" in alike.get_ylabel()
    assert "mathrm" not in axes_of("a", "c").get_xlabel()
