"""Pictures of the series: legible, with the right curves over the measured ones."""

import numpy as np
import pytest
from run_files import assert_legible, built, dashed_lines, legend_texts, write_series, write_table

from simulator.archive.series_file import SeriesReader

pytest.importorskip("simulator.plugins.pictures")
pytest.importorskip("simulator.plugins.gravity")
from simulator.plugins.gravity.cosmology import Background, CosmologySettings
from simulator.plugins.pictures.report import report_run
from simulator.plugins.pictures.runs import plot_run
from simulator.plugins.pictures.slices import projections
from simulator.plugins.pictures.style import Labels
from simulator.plugins.statistics.pictures.histograms import histogram, log_histogram
from simulator.plugins.statistics.pictures.over_time import table_of_means, with_error
from simulator.plugins.statistics.pictures.profiles import density_profile
from simulator.plugins.statistics.pictures.transfer import transfer_and_flux

COSMOS = {"start": 0.02, "hubble": 0.07, "matter": 0.3}
KPC = {
    "kind": "schrodinger_poisson",
    "units": "kpc_km_s_msun",
    "boson_mass": 1.0,
    "cosmology": COSMOS,
}
HBAR_OVER_M = 6.582119569e-16 * 299792.458**2 / 1e-22 / 3.0856775814913673e16
"""Of a particle of 1e-22 eV, in kpc km/s."""
WAVES = {"kind": "schrodinger_poisson"}


def times_of(a):
    return Background(CosmologySettings(**COSMOS)).time_of(a)


def ground_state(radius, hbar, gravity, core):
    """Density of the soliton with this core radius."""
    state = pytest.importorskip("simulator.plugins.cosmology.soliton").radial_ground_state()
    length = core / state.core
    return (
        hbar**2
        / (gravity * length**4)
        * np.interp(radius / length, state.radius, state.amplitude) ** 2
    )


def write_profiles(folder, density, spacing=0.5):
    r = np.geomspace(0.2, 8, 24)
    values = density(r).copy()
    values[1] = np.nan  # a shell without points
    row = {"density": values, "radius": r, "peak_density": density(np.zeros(1))[0]}
    rows = [(times_of(0.02 * 3**step), row) for step in range(3)]
    return write_series(
        folder,
        "profiles",
        {"r": r},
        {"density": ("r",), "radius": ("r",), "peak_density": ()},
        rows,
        {"spacing": spacing},
    )


@pytest.mark.parametrize(
    "model", [WAVES, KPC, {"kind": "self_gravitating_gas"}], ids=["wave", "kpc", "gas"]
)
def test_a_profile_with_its_soliton(tmp_path, model):
    labels = Labels(model)
    hbar, gravity = (HBAR_OVER_M, 0.18 * 4.30091727e-6) if model is KPC else (1.0, 1.0)
    profiles = write_profiles(tmp_path, lambda r: ground_state(r, hbar, gravity, 1.2))
    figure = built(density_profile, profiles, "density", labels)
    assert_legible(figure)
    axes = figure.axes[0]
    dashed = dashed_lines(axes)
    legend = legend_texts(axes)
    if model["kind"] == "self_gravitating_gas":
        assert not dashed
        return
    assert len(dashed) == 1 and "$r_c = 1.2" in legend[-1]
    assert ("kpc" in axes.get_xlabel()) == ("kpc" in legend[-1]) == (model is KPC)
    assert axes.get_xlabel().startswith("comoving") == (model is KPC)
    assert legend[0] == ("redshift 49" if model is KPC else f"$t = {times_of(0.02):.4g}$")


def test_a_core_below_two_cells_is_not_fitted(tmp_path):
    profiles = write_profiles(tmp_path, lambda r: ground_state(r, 1.0, 1.0, 1.2), spacing=0.7)
    axes = built(density_profile, profiles, "density", Labels(WAVES)).axes[0]
    assert not dashed_lines(axes) and legend_texts(axes)[-1] == "soliton core\nbelow 2 cells"


def write_others(folder):
    x = np.linspace(-3, 3, 60)
    shares = np.exp(-((x / 0.8) ** 2))
    values = {"log_density": shares, "log_density_mass": np.roll(shares, 9)}
    rows = [(time, values) for time in (0.0, 1.0)]
    write_series(folder, "histograms", {"contrast": x}, dict.fromkeys(values, ("contrast",)), rows)
    axes = {a: np.arange(12) / 2 for a in "xyz"}
    names = {f"density/{p}": tuple(p) for p in ("xy", "xz", "yz")}
    wave = np.outer(np.sin(axes["x"]), np.cos(axes["y"]))
    rows = [(1.0 * step, dict.fromkeys(names, np.exp(wave * step))) for step in range(5)]
    write_series(folder, "projections", axes, names, rows)


@pytest.mark.parametrize("model", [WAVES, KPC], ids=["plain", "kpc"])
def test_projections_and_histograms_are_legible(tmp_path, model):
    write_others(tmp_path)
    figure = built(projections, SeriesReader(tmp_path / "projections.h5"), "density", Labels(model))
    assert_legible(figure)
    bar = figure.texts[
        -1
    ].get_text()  # each time has a bar of its own, as the peaks grow, and all bars one label
    assert len(figure.axes) == 4 * 3 + 4
    assert (
        "surface density" in bar and r"\log_{10}" in bar and ("M_\\odot" in bar) == (model is KPC)
    )
    figure = built(
        log_histogram, SeriesReader(tmp_path / "histograms.h5"), "log_density", Labels(model)
    )
    assert_legible(figure)
    assert figure.axes[0].get_yscale() == "log"


def test_plot_draws_whatever_of_them_is_there(tmp_path):
    (tmp_path / "config.yaml").write_text("name: test\nmodel: {kind: schrodinger_poisson}\n")
    write_others(tmp_path)
    write_profiles(tmp_path, lambda r: ground_state(r, 1.0, 1.0, 1.2))
    names = {path.name for path in plot_run(tmp_path).files}
    assert names == {"histogram_log_density.png", "projection_density.png", "profile_density.png"}
    assert all((tmp_path / "plots" / name).stat().st_size < 150_000 for name in names)


def test_an_error_has_two_digits():
    shown = [
        with_error(*pair)
        for pair in ((0.1157, 0.00201), (-5.789e-7, 2e-9), (38.3, 12.3), (2.0, np.nan))
    ]
    assert shown == ["0.1157 ± 0.0020", "(-5.789 ± 0.020) 1e-7", "38 ± 12", "2"]


def write_means(folder):
    """The energy and its spectrum, and a number that has always been zero."""
    k = np.arange(4.0)
    numbers = {"energy": (0.1157, 0.00201), "kinetic_energy": (0.1157, 0.00201), "flow": (0.0, 0.0)}
    numbers["reynolds_taylor"] = 12.0, 0.3
    row = {"samples": 40.0}
    for name, (mean, error) in numbers.items():
        row |= {f"mean/{name}": mean, f"error/{name}": error}
    shells = {"mean/spectrum/kinetic_energy": 1 / (1 + k), "error/spectrum/kinetic_energy": 0.1 * k}
    variables = dict.fromkeys(row, ()) | dict.fromkeys(shells, ("k",))
    rows = [(time, row | shells) for time in (0.5, 1.0)]
    return write_series(folder, "statistics", {"k": k}, variables, rows, {"from": 0.25})


def test_means_are_files_beside_the_pictures_and_a_table_of_the_report(tmp_path):
    (tmp_path / "config.yaml").write_text("name: test\nmodel: {kind: navier_stokes}\n")
    write_means(tmp_path)
    written = [path.name for path in plot_run(tmp_path).files]
    assert written == ["statistics_spectrum.png", "statistics_means.txt", "statistics_means.csv"]
    read, table = ((tmp_path / "plots" / name).read_text().splitlines() for name in written[1:])
    lines = ["name,mean,error", "energy,0.1157,0.00201", "reynolds_taylor,12.0,0.3"]
    assert table == lines and len(read) == 2  # the flow is not known to be turbulent
    assert read[0].endswith("40 samples from t = 0.25 to t = 1")
    assert read[1].split() == ["0.1157", "+-", "0.0020", "energy", "E"]
    page = report_run(tmp_path).read_text()
    assert "40 samples" in page and "mean ± standard error" in page and "0.1157 ± 0.0020" in page
    (tmp_path / "statistics.h5").write_bytes(b"")
    assert "standard error" not in report_run(tmp_path).read_text()


def test_means_of_a_run_that_decays_are_not_called_steady(tmp_path):
    """Rows before the first sample, at t = 0.25, do not count."""
    (tmp_path / "config.yaml").write_text("name: test\nmodel: {kind: navier_stokes}\n")
    series = write_means(tmp_path)
    for energy, remark in (([9, 7, 5, 5], " (the run is not stationary)"), ([9, 5, 5, 5], "")):
        (tmp_path / "diagnostics.csv").unlink(missing_ok=True)
        write_table(tmp_path, {"time": [0, 0.3, 0.6, 0.9], "energy": np.array(energy) / 9})
        assert table_of_means(series).header[0] == f"40 samples{remark}"


def test_pictures_come_after_those_of_the_core(tmp_path):
    """In the order of the names of their series."""
    (tmp_path / "config.yaml").write_text("name: test\nmodel: {kind: navier_stokes}\n")
    write_means(tmp_path)
    write_others(tmp_path)
    k = np.arange(1, 9.0)
    write_series(
        tmp_path,
        "spectra",
        {"k": k},
        {"kinetic_energy": ("k",)},
        [(0.0, {"kinetic_energy": 1 / k})],
    )
    stems = [path.stem for path in plot_run(tmp_path).files if path.suffix == ".png"]
    assert stems == [
        "spectrum_kinetic_energy",
        "histogram_log_density",
        "projection_density",
        "statistics_spectrum",
    ]


def test_a_scalar_that_is_zero_has_placeholders_instead_of_empty_frames(tmp_path):
    k, sigma = np.arange(8.0), np.linspace(-4, 4, 9)
    spike = [(0.0, {"dye": np.where(sigma == 0, 1.0, 0.0)})]
    zeros = [(0.0, {"transfer/dye": 0 * k, "flux/dye": 0 * k})]
    write_series(tmp_path, "histograms", {"sigma": sigma}, {"dye": ("sigma",)}, spike)
    write_series(tmp_path, "transfer", {"k": k}, dict.fromkeys(zeros[0][1], ("k",)), zeros)
    for name, picture in (("histograms", histogram), ("transfer", transfer_and_flux)):
        figure = built(picture, SeriesReader(tmp_path / f"{name}.h5"), "dye", Labels({}))
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        assert set(texts) == {"nothing above zero yet"} and not figure.axes[-1].lines
