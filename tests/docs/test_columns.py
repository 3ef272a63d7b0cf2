"""Every column of diagnostics.csv and every variable of a series has its formula in the
reference."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from simulator import Simulation, load_config
from simulator.archive.series_recorder import measured_series
from simulator.cli.columns import FOLDER, described_columns
from simulator.measure import KINDS
from simulator.physics.resolution_columns import LIMITS

FLOW = """
output:
  spectra: {every: 1, axis: z}
  structure_functions: {every: 1, mixed: true}
  joint_histograms: {every: 1, pairs: [[R, Q], [vorticity_magnitude, dissipation_rate]]}
  probes: {every: 1, points: [[0, 0, 0]], lines: [{axis: x, through: [0, 0, 0], name: LINE}]}
""" + "".join(
    f"  {name}: {{every: 1}}\n"
    for name in ("transfer", "histograms", "spectral_maps", "field_statistics", "strain")
)
COSPECTRA = "  cospectra: {every: 1}\n"
SHEARED = """
output: {spectra: {every: 1}, transfer: {every: 1}, histograms: {every: 1}, strain: {every: 1}, cospectra: {every: 1}}
"""
LARGE = """
output: {transfer: {every: 1}, spectra: {every: 1}, histograms: {every: 1}, structure_functions: {every: 1}}
"""
MATTER = """
output: {spectra: {every: 1}, histograms: {every: 1}, profiles: {every: 1}, projections: {every: 1}}
"""
PLANE = (
    LARGE.replace(
        "{transfer",
        "{cospectra: {every: 1}, joint_histograms: {every: 1, pairs: [[speed, vorticity]]},\n"
        "  probes: {every: 1, points: [[0, 0]]}, transfer",
    )
    + "grid: {shape: [8, 8]}\n"
)
FLUID = "viscosity: 0.1, scalars: [{name: dye, diffusivity: 0.1}]"
CARRIED = FLUID.replace("0.1}", "0.1, mean_gradient: [1, 0, 0]}")
BODY = (
    "\nterms: [{name: dye, kind: relax, target: {velocity: [0, 0, 0]}, relaxation_time: 1,"
    " coefficients: {velocity: 1, length: 1}}]"
)
PLANE_BODY = BODY.replace("[0, 0, 0]", "[0, 0]")
FORCED = "\nforcing: {kind: linear, coefficient: 0.1}"
FORCES = """
forcing: [{kind: linear, coefficient: 0.1}, {kind: linear, name: pull, field: dye, coefficient: 0.1},
  {kind: linear, name: push, field: dye, coefficient: 0.1}]"""
SERIES = """
output: {spectra: {every: 1}, transfer: {every: 1}, particle_statistics: {every: 1}, pair_correlation: {every: 1},
  trajectories: {every: 1, sample: [velocity, acceleration, gradient, dye]}}
particles: [{name: SPECIES, kind: inertial, count: 8, relaxation_time: 1, gravity: [0, 0, -1]}]
"""
STRATIFIED = "kind: boussinesq, viscosity: 0.1, diffusivity: 0.1, stratification: "
MAGNETIC = "kind: mhd, viscosity: 0.1, resistivity: 0.1"
ALL_MATTER = (
    "kind: composite, cosmology: {start: 0.1}, components: [{kind: self_gravitating_gas, sound_speed: 0}, "
    "{kind: schrodinger_poisson}, {kind: particles, count: 64}]"
)
CASES = {
    "navier_stokes": (
        f"kind: navier_stokes, {CARRIED}, hyperviscosity: {{order: 2, coefficient: 1e-4}}, "
        "drag: {coefficient: 0.1, below: 1}",
        "kind: abc",
        FORCES + BODY + FLOW,
    ),
    "particles": (f"kind: navier_stokes, {FLUID}", "kind: abc", SERIES),
    "large_eddies": (
        f"kind: navier_stokes, subgrid: {{kind: smagorinsky}}, {FLUID}",
        "kind: abc",
        FLOW,
    ),
    "large_eddies_stratified": (
        STRATIFIED + "1, subgrid: {kind: spectral}",
        "kind: abc",
        BODY.replace("length: 1", "length: 1, direction: z") + LARGE,
    ),
    "large_eddies_magnetic": (
        MAGNETIC + ", subgrid: {kind: smagorinsky, resistive_coefficient: 0.2}",
        "kind: abc, magnetic: {energy: 0.1}",
        LARGE,
    ),
    "boussinesq": (
        STRATIFIED + "1, drag: {coefficient: 0.1, below: 1}, rotation: [0, 0, 1]",
        "kind: abc",
        FLOW + COSPECTRA,
    ),
    "convection": (STRATIFIED + "-1", "kind: abc", FLOW + COSPECTRA),
    "mhd": (MAGNETIC, "kind: abc, magnetic: {energy: 0.1}", FLOW + COSPECTRA),
    "sheared": (MAGNETIC + ", shear: -1", "kind: abc, magnetic: {energy: 0.1}", SHEARED),
    "plane": (
        f"kind: navier_stokes, {CARRIED.replace('[1, 0, 0]', '[1, 0]')}",
        "kind: taylor_green",
        PLANE_BODY + PLANE,
    ),
    "magnetic_plane": (MAGNETIC, "kind: orszag_tang", PLANE),
    "gas": (
        "kind: self_gravitating_gas, sound_speed: 1, viscosity: 0.1",
        "kind: uniform",
        FORCED
        + MATTER.replace(
            "{spectra",
            "{cospectra: {every: 1}, transfer: {every: 1}, structure_functions: {every: 1}, spectra",
        ),
    ),
    "waves": (
        "kind: schrodinger_poisson, self_interaction: 0.1, "
        "external_potential: {kind: harmonic, frequency: [1, 1, 1]}",
        "kind: uniform",
        MATTER.replace("{spectra", "{cospectra: {every: 1}, spectra"),
    ),
    "composite": (
        ALL_MATTER,
        "kind: composite, components: {gas: {kind: uniform}, waves: {kind: uniform}, "
        "particles: {kind: uniform}}",
        MATTER,
    ),
}
"""The model, the start and the series."""
COMMON = """
time: {{stop: 1, {time}}}
devices: {{platform: cpu, count: 1}}
"""


def listed(page: str, section: str = "") -> list[str]:
    """The names in the first cells of a page's tables, of one section or of all; every row has all
    its cells."""
    text = (FOLDER / "reference" / f"{page}.md").read_text()
    if section:
        text = re.split(r"^## ", text.partition(f"\n## {section}\n")[2], flags=re.MULTILINE)[0]
    names = []
    for line in text.splitlines():
        if line.startswith("| `"):
            cells = re.split(r"(?<!\\)\|", line.strip("|"))
            assert all(cell.strip() for cell in cells), line
            names += re.findall(r"`([^`]+)`", cells[0])
    return names


def undocumented(
    names: Iterable[str], known: Iterable[str], fields: Sequence[str] = ()
) -> list[str]:
    """What of `names` no listed name stands for. In a listed name NAME is a field or another listed
    name, COMPONENT a component of a composite, SPECIES one of particles, P a number."""
    plain = [name for name in known if "NAME" not in name]
    plain += [
        name.replace("NAME", field)
        for name in known
        if name.endswith(("NAME_variance", "NAME_subgrid"))
        for field in fields
    ]
    ends = "|".join(map(re.escape, (*fields, *(name.rpartition("/")[2] for name in plain))))
    patterns = []
    for name in known:
        text = re.sub(r"NAME", lambda _: f"({ends})" if ends else "NAME", re.escape(name))
        text = text.replace("SPECIES", "(SPECIES|particles)")
        patterns.append(text.replace("COMPONENT", "(gas|waves|particles)").replace("_P", r"_\d+"))
    return [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)]


@cache
def built(case: str) -> Simulation:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.yaml"
        model, start, series = CASES[case]
        grid = "" if "\ngrid:" in series else "grid: {shape: [8, 8, 8]}\n"
        time = "error: 1e-3" if case == "convection" else "max_dt: 0.1"
        common = COMMON.format(time=time)
        path.write_text(f"model: {{{model}}}\ninitial: {{{start}}}{series}{common}{grid}")
        return Simulation(load_config(path))


@pytest.fixture(params=CASES)
def simulation(request) -> Simulation:
    return built(request.param)


def columns(simulation: Simulation) -> list[str]:
    """The columns of diagnostics.csv, those of a component without its name."""
    parts = tuple(f"{name}_" for name in getattr(simulation.model, "parts", ()))
    names = [name for name in simulation.columns if name != "rate"]
    own = [
        next((name.removeprefix(p) for p in parts if name.startswith(p)), name) for name in names
    ]
    return ["step", "time", "dt", "cfl", *own]


def test_every_column_and_every_variable_of_a_series_has_a_formula(simulation):
    known = [name.replace("NAME", "dye") for name in listed("columns")]
    known += [f"{of}power_{n}" for n in simulation.config.forcings for of in ("", "dye_")]
    missing = undocumented(columns(simulation), known)
    assert not missing, f"{missing}: each takes a row in simulator/docs/reference/columns.md"
    series = measured_series(simulation)
    assert len(series) >= 5
    for kind, found in series.items():
        names = [
            n
            for n in (*found.coordinates, *found.variables)
            if n not in ("k_perpendicular", "k_parallel")
        ]
        missing = undocumented(names, listed("series", f"{kind}.h5"), simulation.field_names)
        cure = f"a row in the section {kind}.h5 of simulator/docs/reference/series.md"
        assert not missing, f"{missing}: each takes {cure}"


def test_every_series_has_a_section_with_its_variables():
    for kind in sorted({*KINDS} - {"python"}):  # a user's function names its own
        cure = f"add the section {kind}.h5 to simulator/docs/reference/series.md"
        assert listed("series", f"{kind}.h5"), cure


def test_every_listed_column_is_one_and_what_is_not_listed_is_noticed():
    text = (FOLDER / "reference" / "columns.md").read_text()
    earlier = re.findall(r"`(\w+)`", text.partition("## Earlier names")[2])
    dyed = (name.replace("NAME", "dye").replace("PART", "pull") for name in listed("columns"))
    listed_now = set(dyed) - set(earlier)
    written = {name for case in CASES for name in columns(built(case))}
    assert {name for name in listed_now if not name.startswith("COMPONENT_")} - written == set()
    known = listed("columns")
    assert undocumented(["energy", "colour", "mass_of"], known) == ["colour", "mass_of"]
    known = listed("series", "histograms.h5")
    assert undocumented(["vorticity", "velocity", "colour", "log_x"], known, ["velocity"]) == [
        "colour",
        "log_x",
    ]


def test_the_limits_of_k_max_eta_are_those_that_reports_state():
    ((_, _, meaning),) = described_columns()["k_max_eta"]
    assert meaning.endswith(LIMITS)
