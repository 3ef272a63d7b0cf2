"""`analyze`: what a run has measured, again from its snapshots; every kind of series through a run."""

import shutil

import numpy as np
import pytest
from fault_support import everything
from flow_support import flow
from numpy.testing import assert_allclose, assert_array_equal
from run_support import drawn, simulate, write_case
from tiers import slow

from simulator import open_run
from simulator.analysis.recompute import _possible, analyze_snapshots
from simulator.archive.series_file import SeriesReader
from simulator.cli import main
from simulator.measure import OUTPUTS

CASE = """\
name: case
model: {kind: navier_stokes, viscosity: 0.02, scalars: [{name: dye, diffusivity: 0.03}]}
grid: {shape: [16, 12, 10]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1, scalars: {dye: {peak: 2, variance: 1.0}}}
time: {stop: 0.4, cfl: 0.4}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: 1}
  spectra: {every_steps: 1, axis: z}
  cospectra: {every_steps: 1}
  spectral_maps: {every_steps: 1}
  snapshots: {every_steps: 2}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    case = write_case(folder, CASE)
    assert simulate(case, folder / "run") == 0
    return folder / "run"


@pytest.mark.long
def test_analysis_gives_what_the_run_measured(finished, capsys):
    """On other devices: values of snapshots are transformed forth and back, which adds round-off
    only."""
    assert main(["analyze", str(finished), "devices.count=4"]) == 0
    assert str(finished / "analysis") in capsys.readouterr().out
    run = open_run(finished)
    again = open_run(finished / "analysis")
    rows = np.searchsorted(run.diagnostics["step"], again.diagnostics["step"])
    assert_array_equal(again.diagnostics["step"], run.snapshots.steps)
    size = max(abs(run.diagnostics["energy"]))
    for name, values in again.diagnostics.items():
        if name != "budget_residual":  # of the last step, which a snapshot does not know
            expected = run.diagnostics[name][rows]
            assert_allclose(values, expected, rtol=1e-12, atol=1e-12 * size, err_msg=name)
    assert_measured_again(finished, "spectra", "cospectra", "spectral_maps")


def assert_measured_again(run, *kinds: str) -> None:
    """The series of the analysis have the rows of the snapshots, as the run measured them."""
    for kind in kinds:
        first, second = (SeriesReader(run / part / f"{kind}.h5") for part in ("", "analysis"))
        assert second.variables == first.variables and len(second) == len(open_run(run).snapshots)
        for name in first.variables:
            expected = first[name][np.searchsorted(first.step, second.step)]
            scale = np.abs(expected).max() or 1.0
            assert_allclose(
                second[name], expected, rtol=0, atol=1e-12 * scale, err_msg=f"{kind} {name}"
            )


PARTICLES = """\
name: case
model: {kind: navier_stokes, viscosity: 0.02}
grid: {shape: [12, 12, 12]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
time: {stop: 0.1, dt: 0.025}
devices: {platform: cpu, count: 1}
particles:
  - {name: tracers, kind: tracer, count: 40}
  - {name: drops, kind: inertial, count: 27, start: lattice, stokes_number: 1.0, density_ratio: 10}
output:
  particle_statistics: {every_steps: 1, bins: 9}
  trajectories: {every_steps: 1, sample: [velocity]}
  snapshots: {every_steps: 2}
"""


@pytest.mark.slow
def test_particles_are_measured_again(tmp_path, refused_command):
    """What snapshots do not hold, the velocities at the start and the relaxation time of a Stokes
    number, follows from the first of them; rows are those of the snapshots, on other devices than
    the run's."""
    case = write_case(tmp_path, PARTICLES)
    assert simulate(case, tmp_path / "run") == 0
    assert main(["analyze", str(tmp_path / "run"), "devices.count=2"]) == 0
    assert_measured_again(tmp_path / "run", "particle_statistics", "trajectories")
    shutil.rmtree(tmp_path / "run" / "snapshots" / "00000000")
    assert "has no snapshot of step 0" in refused_command("analyze", tmp_path / "run")


def test_kinds_may_be_named_and_others_and_a_run_without_snapshots_are_refused(
    finished, refused_command, tmp_path
):
    assert main(["analyze", str(finished), "--what", "spectral_maps,cospectra"]) == 0
    made = {path.stem for path in (finished / "analysis").glob("*.h5")}
    always = {"slices", "spectra"}  # of every run
    assert made == {"spectral_maps", "cospectra"} | always
    assert "no kind of output 'nothing'; known: all, spectra" in refused_command(
        "analyze", finished, "--what", "nothing"
    )
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/snapshots")
    assert "has no snapshot to measure" in refused_command("analyze", tmp_path / "run")


@pytest.mark.plugins("statistics")
def test_trajectories_need_particles(finished, refused_command):
    refused = refused_command("analyze", finished, "--what", "trajectories")
    assert "there are no particles" in refused


def test_all_leaves_out_what_this_run_cannot_give(finished):
    kinds = ["spectral_maps", "probes", "python", "trajectories"]
    added = [f"output.{kind}={{every_steps: 1}}" for kind in kinds]
    possible, left_out = _possible(finished, (), added)
    assert possible == added[:1]
    assert [line.split()[2] for line in left_out] == [
        "output.probes:",
        "output.python.path:",
        "output.trajectories:",
    ]


def test_an_analysis_that_does_not_end_leaves_the_earlier_one(finished, tmp_path):
    """Stopped by Ctrl-C, by a damaged snapshot, or killed: then only a hidden folder is left, which
    the next analysis removes."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    assert main(["analyze", str(run), "--what", "spectra"]) == 0
    before = everything(run / "analysis")

    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyze_snapshots(run, ["cospectra"], progress=interrupted)
    assert everything(run / "analysis") == before
    (run / ".tmp-analysis").mkdir()
    (run / "analysis").rename(run / ".tmp-old-analysis")
    shard = max((run / "snapshots").glob("*/shards/*.h5"))
    content = shard.read_bytes()
    shard.write_bytes(content[:100])
    cospectra = ["analyze", str(run), "--what", "cospectra"]
    assert main(cospectra) == 1
    assert everything(run / "analysis") == before
    shard.write_bytes(content)
    assert main(cospectra) == 0
    assert (run / "analysis" / "cospectra.h5").exists() and not [*run.glob(".tmp-*")]


EVERY = {"every_steps": 2}
SERIES = {
    "spectra": {"axis": "y"},
    "spectral_maps": {"axis": "y"},
    "transfer": {},
    "structure_functions": {"separations": [0.5, 1.0], "orders": [2, 3]},
    "histograms": {"bins": 40},
}
"""Those of plugins only where they are."""


def configured(folder, **changes):
    """A flow of four steps, with every kind of series."""
    blocks = {
        "viscosity": 0.05,
        "initial": {"kind": "random", "peak": 2},
        "forcing": {"kind": "ornstein_uhlenbeck", "rate": 0.1, "correlation_time": 0.2},
        "time": {"stop": 1.0, "dt": 0.05, "max_steps": 4},
        "output": {
            "directory": str(folder),
            "diagnostics": EVERY,
            **{name: {**series, **EVERY} for name, series in SERIES.items() if name in OUTPUTS},
        },
    }
    return flow(8, 8, 8, count=2, **blocks | changes)


WAVES = {
    "model": {"kind": "schrodinger_poisson"},
    "initial": {"kind": "random", "peak": 2, "fields": {"psi": {"variance": 0.01}}},
    "forcing": None,
    "output": {"spectra": EVERY},
}
REST = {
    "model": {"kind": "mhd", "viscosity": 0.05, "resistivity": 0.05},
    "initial": {"kind": "uniform"},
    "forcing": {"kind": "kolmogorov", "amplitude": 0.1},
    "output": {"statistics" if "statistics" in OUTPUTS else "spectra": EVERY},
}


@pytest.mark.long
@pytest.mark.parametrize("case", [slow(WAVES), REST], ids=["waves", "ratios at rest"])
def test_a_run_with_undefined_values_continues(case, tmp_path):
    output = {"directory": str(tmp_path / "run"), "diagnostics": EVERY, **case["output"]}
    short, whole = ({"stop": 1.0, "dt": 0.05, "max_steps": n} for n in (2, 4))
    for time in (short, whole):
        assert configured(tmp_path, **case | {"output": output, "time": time}).run() == 0
    (name,) = case["output"]
    assert_array_equal(open_run(tmp_path / "run").series(name).step, [0, 2, 4])


@pytest.mark.plugins
@pytest.mark.long
@pytest.mark.spmd
def test_all_kinds_through_a_run_and_its_continuation(tmp_path):
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    assert configured(whole).run() == 0
    assert configured(parts, time={"stop": 1.0, "dt": 0.05, "max_steps": 2}).run() == 0
    assert configured(parts).run() == 0
    one = open_run(whole)
    two = open_run(parts)
    there = [kind for kind in SERIES if kind in OUTPUTS]
    for kind in there:
        series = one.series(kind)
        other = two.series(kind)
        assert_array_equal(series.step, [0, 2, 4])
        assert series.variables == other.variables
        for name in series:
            assert_array_equal(series[name], other[name], err_msg=name)
    k = one.spectra.coordinates["k"]
    shape = k**4 * np.exp(-2 * (k / 2) ** 2)
    assert_allclose(one.spectra["kinetic_energy"][0], 0.5 * shape / shape.sum(), rtol=1e-12)
    for kind in {"spectra", "transfer"} & {*there}:
        shells = two.series(kind).coordinates
        assert_array_equal(shells["modes"], [1, 18, 62, 44])  # of the 5^3 modes of 8^3 points
        assert shells["k_mean"][:2] == pytest.approx([0, (6 + 12 * 2**0.5) / 18])
    for name, column in one.diagnostics.items():
        assert_array_equal(column, two.diagnostics[name], err_msg=name)
    assert abs(one.diagnostics["budget_residual"]).max() < 1e-2
    names = {"spectra": "spectrum_directional_kinetic_energy"}
    names |= {"transfer": "transfer_kinetic_energy", "structure_functions": "structure_functions"}
    names |= {"histograms": "histogram_vorticity"}
    assert drawn(whole) >= {f"{name}.png" for kind, name in names.items() if kind in there}


REMEMBERED = {
    "random force": """\
model: {kind: navier_stokes, viscosity: 0.02, scalars: [{name: dye, diffusivity: 0.03}]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1, scalars: {dye: {peak: 2, variance: 1.0}}}
forcing:
  - {kind: ornstein_uhlenbeck, band: [1, 2], rate: 0.1, correlation_time: 0.2}
  - {kind: ornstein_uhlenbeck, name: dyes, field: dye, band: [1, 2], rate: 0.1, correlation_time: 0.2}
  - {kind: taylor_green, amplitude: 0.3}
""",
    "shear": """\
model: {kind: navier_stokes, viscosity: 0.02, shear: -2.0}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
""",
    "term": """\
model: {kind: navier_stokes, viscosity: 0.02}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1}
forcing: {kind: ornstein_uhlenbeck, band: [1, 2], rate: 0.1, correlation_time: 0.2}
terms: [{name: rest, kind: python, path: rest.py, function: rest}]
""",
    "expansion": """\
model:
  kind: composite
  gravitational_constant: 0.1
  cosmology: {start: 0.1, matter: 1.0}
  components: [{kind: particles, name: dark, count: 512}]
initial: {kind: composite, components: {dark: {kind: zeldovich_wave, amplitude: 0.1}}}
""",
}
UNKNOWN = {
    "random force": {
        "injection",
        "power_ornstein_uhlenbeck",
        "dye_injection",
        "budget_residual",
    },
    "shear": {"lost_to_shear", "budget_residual"},
    "term": {"injection", "budget_residual"},
    "expansion": {"energy_residual", "cfl"},
}


@pytest.mark.parametrize("case", REMEMBERED)
def test_a_column_is_the_one_of_the_run_or_nan(tmp_path, case):
    """Snapshots do not hold what a state remembers: nothing takes a new start's in its place."""
    time = "{stop: 0.4, dt: 0.05}"
    text = f"{REMEMBERED[case]}grid: {{shape: [8, 8, 8]}}\ntime: {time}\n"
    output = "output: {diagnostics: {every_steps: 1}, snapshots: {every_steps: 4}}\n"
    (tmp_path / "rest.py").write_text(
        "def rest(values, points, time):\n    return {'velocity': -values['velocity']}\n"
    )
    path = write_case(tmp_path, f"name: case\n{text}devices: {{platform: cpu, count: 1}}\n{output}")
    assert simulate(path, tmp_path / "run") == 0
    analyze_snapshots(tmp_path / "run")
    run = open_run(tmp_path / "run").diagnostics
    again = open_run(tmp_path / "run" / "analysis").diagnostics
    rows = np.searchsorted(run["step"], again["step"])
    unknown = {name for name, values in again.items() if np.isnan(values[1:]).any()}
    for name, values in again.items():
        known = slice(0, 1) if name in unknown else slice(None)
        expected = run[name][rows][known]
        assert_allclose(values[known], expected, rtol=1e-9, atol=1e-9, err_msg=name)
    assert unknown == UNKNOWN[case]
