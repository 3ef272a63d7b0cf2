"""The page about a run or a sweep: what it says, that it needs nothing beside itself, and how a
browser shows it."""

import os
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import pytest
from run_files import write_series, write_table

from simulator.archive.open_run import open_run
from simulator.archive.run_state import RunState, write_state
from simulator.cli import main
from simulator.errors import UserError
from simulator.files import replace_json
from simulator.physics.resolution_columns import LARGE_STEP
from simulator.plugins.pictures.health import checks, worst
from simulator.plugins.pictures.report import report_run
from simulator.plugins.pictures.runs import plot_run, table_of

pytestmark = pytest.mark.smoke
CONFIG = """\
name: a <run> & more
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [16, 16, 16]}
initial: {kind: random}
"""
LARGE = f"2026-01-01 00:00:00 warning: {LARGE_STEP}1.35, the limit of rk4, and is 1.5; ...\n"


def a_run(folder, *, k_max_eta=1.4, residual=1e-5, state="finished", log="", more="", **scalars):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(CONFIG + more)
    time = np.arange(5) / 4
    k = np.arange(8.0)
    constant = {
        "dissipation": 0.1,
        "enstrophy": 5.0,
        "k_max_eta": k_max_eta,
        "edge_enstrophy": 0.0,
        "max_divergence": 1e-15,
        **scalars,
    }
    columns = {"time": time, "energy": 0.5 - time / 5, "budget_residual": residual * (time > 0)}
    write_table(folder, columns | {name: np.full(5, value) for name, value in constant.items()})
    rows = [(t, {"kinetic_energy": np.exp(-k)}) for t in time[:3]]
    write_series(folder, "spectra", {"k": k}, {"kinetic_energy": ("k",)}, rows)
    (folder / "run.log").write_text(log)
    write_state(folder, RunState(state, 4, 1.0, 1.0, 100.0, 5.0, 0.1, seconds=12.0))
    return folder


def checked(folder):
    run = open_run(folder)
    return checks(run, run.state)


class Reader(HTMLParser):
    """Addresses that the page refers to, whether its tags close, and its text."""

    EMPTY = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.addresses = []
        self.open = []
        self.text = []
        self.tags = set()
        self.names = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names.update(name for name, _ in attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text())
    assert reader.open == []
    return reader


def test_the_page_holds_everything_and_loads_nothing(tmp_path):
    folder = a_run(
        tmp_path / "run",
        log="2026-01-01 00:00:00 2 min in all: steps 1.5 min, compilation 30.0 s\n",
    )
    page = read(report_run(folder))
    text = " ".join(page.text)
    for expected in (
        "a <run> & more",
        "finished",
        "resolution",
        "energy budget",
        "compilation",
        "viscosity: 0.01",
    ):
        assert expected in text
    for address in page.addresses:
        assert address.startswith("data:image/png;base64,") or (folder / address).exists()
    assert (
        sum(address.startswith("data:") for address in page.addresses) == 2
    )  # diagnostics and a spectrum


def test_the_page_begins_with_physics_and_the_numbers_of_turbulence(tmp_path):
    """Four turnover times of 0.25 pass in the unit time of the run; a flow without eddies, and a run
    without an expanding box, have no such numbers."""
    more = "forcing: {kind: constant_power, rate: 0.5, band: [1, 2]}\n"
    folder = a_run(tmp_path / "run", more=more)
    columns = dict(table_of(open_run(folder)))
    shared = {
        "u_rms": 0.6,
        "reynolds_taylor": 52.0,
        "integral_scale": 1.5,
        "kolmogorov_scale": 0.03,
    }
    eddies = {name: np.full(5, x) for name, x in {**shared, "turnover_time": 0.25}.items()}
    expanding = {"scale_factor": np.linspace(0.1, 1, 5)}
    (folder / "diagnostics.csv").unlink()
    del columns["step"]
    write_table(folder, columns | eddies | expanding)
    text = " ".join(read(report_run(folder)).text)
    assert "viscosity 0.01" in text and "forcing: constant_power" in text and "z = 9 to 0" in text
    numbers = text.partition("Re_λ")[2]
    assert numbers.split()[2:7] == ["52", "L", "/", "η", "(last"]
    assert numbers.split()[8:13] == ["50", "turnover", "times", "4", "t"]
    assert "Re_λ" not in " ".join(read(report_run(a_run(tmp_path / "plain"))).text)


HOSTILE = "<td><script>alert(1)</script><img src=x onerror='alert(2)'>\""


def test_a_run_from_elsewhere_executes_nothing_and_links_to_its_own_files_only(tmp_path):
    folder = a_run(tmp_path / "run", log=f"2026-01-01 00:00:00 warning: {HOSTILE}\n")
    (folder / "diagnostics.csv").unlink()
    write_table(folder, {"time": np.arange(3.0), HOSTILE: np.arange(3.0)})
    config = CONFIG.replace("a <run> & more", f"'{HOSTILE.replace(chr(39), '')}'")
    (folder / "config.yaml").write_text(config)
    write_state(
        folder, RunState("failed", 4, 1.0, 1.0, 100.0, 5.0, 0.1, seconds=12.0, reason=HOSTILE)
    )
    names = ["javascript:alert(1)&.h5", "data:text,#?%41.h5", "<b>.h5", os.fsdecode(b"\xff.h5")]
    for name in names:
        shutil.copy(folder / "spectra.h5", folder / name)
    made = report_run(folder)
    page = read(made)
    assert not {"script", "b"} & page.tags and not [
        name for name in page.names if name.startswith("on")
    ]
    links = [
        address for address in page.addresses if not address.startswith("data:image/png;base64,")
    ]
    assert all(link.startswith("./") for link in links)
    there = {os.path.basename(os.fsdecode(unquote_to_bytes(link))) for link in links}
    assert there >= set(names), "and they lead to the files"
    assert "default-src 'none'" in made.read_text()
    assert HOSTILE in " ".join(page.text), "it is shown as text"


@pytest.mark.parametrize(
    "changes, name, verdict",
    [
        ({}, "energy budget", "good"),
        ({"residual": 0.05}, "energy budget", "warn"),
        ({"residual": 39}, "energy budget", "bad"),
        ({"cfl": 1.3}, "CFL number", "note"),
        ({"state": "failed"}, "state", "bad"),
        ({"k_max_eta": 0.5, "edge_enstrophy": 0.1}, "resolution (k_max_eta)", "warn"),
        ({"k_max_eta": 0.5, "edge_enstrophy": 0.5}, "resolution (k_max_eta)", "bad"),
        ({"k_max_eta": 0.5}, "resolution (k_max_eta)", "note"),
        (
            {"dye_k_max_batchelor": 0.03, "dye_edge_gradient": 0.1},
            "resolution (dye_k_max_batchelor)",
            "warn",
        ),
        ({"edge_mass": 1e-9}, "resolution (edge_mass)", "good"),
        ({"cfl": 3.0}, "CFL number", "note"),
        ({"cfl": 2.0, "log": LARGE}, "CFL number", "warn"),
        ({"cfl": 3.0, "log": LARGE}, "CFL number", "bad"),
        ({"max_divergence": 1e150, "enstrophy": np.inf}, "divergence", "bad"),
        ({"waves_edge_mass": 0.1}, "resolution (waves_edge_mass)", "bad"),
    ],
)
def test_health_says_what_is_wrong(tmp_path, changes, name, verdict):
    found = checked(a_run(tmp_path / "run", **changes))
    assert {check.name: check.verdict for check in found}[name] == verdict
    about_gradients = {check.name for check in found if "Pope" in check.meaning}
    assert about_gradients == {"resolution (k_max_eta)"}  # of the velocity
    assert worst(found) == (verdict if verdict in ("warn", "bad") else "good")


def test_a_scalar_that_stays_zero_is_named_instead_of_judged(tmp_path):
    scalars = dict.fromkeys(("dye_mean", "dye_variance", "dye_edge_gradient"), 0.0)
    folder = a_run(tmp_path / "run", **scalars, dye_k_max_batchelor=0.8)
    (check,) = (check for check in checked(folder) if "dye" in check.name)
    assert check.meaning == "dye is zero everywhere: give initial.scalars or a mean_gradient"


@pytest.mark.parametrize(
    "state, command", [("finished", "verify"), ("stopped", "resume"), ("running", "resume")]
)
def test_the_page_names_the_next_command(tmp_path, state, command):
    """The running one has no lock: it was killed."""
    folder = a_run(tmp_path / "run", state=state)
    assert f"simulator {command} {folder}" in " ".join(read(report_run(folder)).text)


def test_the_page_of_a_run_that_ends_meanwhile_states_one_moment(tmp_path, monkeypatch):
    folder = a_run(tmp_path / "run", state="stopped")

    def drawn(*_, **more):
        write_state(folder, RunState("finished", 9, 2.0, 2.0, 100.0, 5.0, 0.1))
        return plot_run(*_, **more)

    monkeypatch.setattr("simulator.plugins.pictures.report.plot_run", drawn)
    text = " ".join(read(report_run(folder)).text)
    assert text.count("step 4") == 2 and "step 9" not in text and "finished" not in text


def a_run_of(folder, turnovers, energy, dissipation, state="finished"):
    """A run of so many turnover times, whose energy and dissipation pass through evenly spaced
    values."""
    a_run(folder, state=state)
    (folder / "diagnostics.csv").unlink()
    time = np.linspace(0, 1, 41)
    columns = {"turnover_time": np.full(41, 1 / turnovers)}
    for name, values in (("energy", energy), ("dissipation", dissipation)):
        columns[name] = np.interp(time, np.linspace(0, 1, len(values)), values)
    write_table(folder, {"time": time, **columns})
    return folder


@pytest.mark.parametrize(
    "turnovers, energy, dissipation, verdict, value",
    [
        (1, (0.95, 1.35), (0.5, 0.5), "note", "too short to tell"),
        (7.9, (1, 1), (0.5, 0.5), "note", "too short to tell"),
        (8, (1, 1), (0.5, 0.5), "good", "energy +0.0%, dissipation +0.0%"),
        # Of 41 rows, the rows 20 to 29 and 30 to 40 are compared: (1 + 3 * 35 / 40) over
        # (1 + 3 * 24.5 / 40).
        (20, (1, 4), (0.5, 0.5), "note", "energy +27.8%, dissipation +0.0%"),
        (20, (1, 1), (1, 4), "note", "energy +0.0%, dissipation +27.8%"),
        (
            20,
            (1, 1, 1, 1, 1e40),
            (1, 1),
            "note",
            "energy grew more than tenfold, dissipation +0.0%",
        ),
    ],
)
def test_a_flow_is_stationary_if_energy_and_dissipation_are_over_turnovers(
    tmp_path, turnovers, energy, dissipation, verdict, value
):
    folder = a_run_of(tmp_path / "run", turnovers, energy, dissipation)
    found = {check.name: check for check in checked(folder)}["stationarity"]
    assert (found.verdict, found.value) == (verdict, value)


def test_a_run_that_failed_is_not_called_stationary_nor_measured(tmp_path):
    folder = a_run_of(tmp_path / "run", 20, (1, 1e300), (1, 1e300), state="failed")
    assert "stationarity" not in {check.name for check in checked(folder)}


def test_the_page_of_a_run_that_failed_shows_the_end_of_its_log(tmp_path):
    log = "\n".join(["an early line", *(f"line {n}" for n in range(14)), "error: not finite"])
    folder = a_run(tmp_path / "run", state="failed", log=log)
    text = " ".join(read(report_run(folder)).text)
    assert "line 0" in text and "error: not finite" in text and "an early line" not in text
    assert "5 rows, the last at t = 1; the last snapshots are of no time" in text
    done = read(report_run(a_run(tmp_path / "done", log=log)))
    assert "error: not finite" not in " ".join(done.text)


def test_mass_that_is_lost_is_bad(tmp_path):
    folder = a_run(tmp_path / "run")
    (folder / "diagnostics.csv").unlink()
    mass = [1.0, 1.0 + 1e-12, 0.999]
    write_table(folder, {"time": [0, 1, 2], "mass": mass, "total_mass": mass})
    replace_json(folder / "provenance.json", {"conserved": ["mass"]})
    found = {check.name: check for check in checked(folder)}
    assert "conservation (total mass)" not in found
    assert (
        found["conservation (mass)"].verdict == "bad"
        and found["conservation (mass)"].value == "0.001"
    )


def test_a_run_that_goes_on_is_looked_at_again_until_it_ends(tmp_path, capsys):
    folder = a_run(tmp_path / "run", state="running")
    assert '<meta http-equiv="refresh" content="7">' in report_run(folder, refresh=7).read_text()
    write_state(folder, RunState("finished", 4, 1.0, 1.0, 100.0, 5.0, 0.1))
    assert '"refresh"' not in report_run(folder, refresh=7).read_text()
    assert main(["report", str(folder), "--watch", "1"]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"


def test_what_is_no_run_is_refused_and_one_that_has_written_nothing_has_a_page(
    tmp_path, refused_command
):
    assert "neither a run nor a sweep" in refused_command("report", tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        report_run(tmp_path / "absent")
    (tmp_path / "config.yaml").write_text(CONFIG)
    assert "not started" in " ".join(read(report_run(tmp_path)).text)


def a_sweep(folder, count):
    """A study of `count` runs, all of them done."""
    from simulator.study.sweep import open_sweep

    (folder / "base.yaml").write_text(
        CONFIG.replace("a <run> & more", "base") + "time: {stop: 1.0, dt: 0.25}\n"
    )
    values = ", ".join(f"{0.01 * (n + 1):g}" for n in range(count))
    (folder / "study.yaml").write_text(
        f"base: base.yaml\nname: study\nsweep: {{grid: {{model.viscosity: [{values}]}}}}\ncollect: [final.energy]\n"
    )
    sweep = open_sweep(folder / "study.yaml")
    sweep.prepare()
    for run in sweep.runs:
        text = (run.folder / "config.yaml").read_text()
        a_run(run.folder)
        (run.folder / "config.yaml").write_text(text)
    return sweep


def test_a_sweep_by_its_file_and_by_its_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sweep = a_sweep(tmp_path, 2)
    for given in ("study.yaml", str(sweep.folder)):
        assert main(["report", given]) == 0
        path = Path(capsys.readouterr().out.strip())
        assert path == sweep.folder / "report.html" and path.stat().st_size < 1e6
    page = read(path)
    links = [address for address in page.addresses if not address.startswith("data:")]
    assert len(links) == 2 and all((path.parent / link).is_dir() for link in links)
    assert " ".join(page.text).count("0.3") >= 2  # the final energy of each
    assert "Final energy E against viscosity ν" in page.text
