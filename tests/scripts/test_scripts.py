"""Container recipes make the same image; peers are measured; what .ci/run says of tests that it
repeated; the coverage beside the mutants."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import mutants
import pytest
from run_support import ROOT
from tiers import slow

from simulator.cluster.hardware import usable_cores

DOCKERFILE = (ROOT / "scripts" / "container" / "Dockerfile").read_text()
APPTAINER = (ROOT / "scripts" / "container" / "simulator.def").read_text()


def test_both_recipes_take_the_same_files_packages_and_setup():
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE)]
    sources = {source for words in copied for source in words}
    listed = APPTAINER.split("%files")[1].split("%post")[0].split()[::2]
    assert sources == set(listed)
    assert all((ROOT / source).exists() for source in sources)
    recipes = (DOCKERFILE, APPTAINER)
    pinned = r"^(?:FROM|From:) python\S*@(sha256:[0-9a-f]{64})$"  # Apptainer takes no tag beside it
    base = [re.findall(pinned, recipe, re.MULTILINE) for recipe in recipes]
    packages = [re.findall(r"--no-install-recommends ([^&]*) &&", recipe) for recipe in recipes]
    assert base[0] == base[1] != [] and packages[0] == packages[1] != []
    assert all(
        "./scripts/run --setup" in recipe and "SIMULATOR_VENV=/opt/venv" in recipe
        for recipe in recipes
    )


@pytest.mark.slow
@pytest.mark.spmd
def test_peers_are_measured_with_this_program(tmp_path):
    pytest.importorskip("scipy")
    environ = {k: v for k, v in os.environ.items() if k != "SIMULATOR_MPI4PY_FFT"}
    file = tmp_path / "fft.json"
    command = [
        sys.executable,
        str(ROOT / "scripts/bench_fft.py"),
        "--shape",
        "8,8,8",
        "--seconds",
        "0.1",
        "--devices",
        "2",
        "--without",
        "fftw",
    ]
    done = subprocess.run(
        [*command, "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=200,
        env=environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(file.read_text())["transforms"]}
    assert next(iter(rows)).startswith("custom_partitioning")
    assert f"scipy.fft rfftn, {max(2, usable_cores())} workers" in rows
    assert "left out: mpi4py-fft" in done.stderr
    # There and back: half of each device's half of the complex grid (8 bytes a value) leaves it
    # twice.
    assert rows["published for JAX, complex"]["sent"] == 2 * (3 * 8**3 // 2 * 8) // 2
    for name, row in rows.items():
        assert (
            row["forward"] > 0
            and row["inverse"] > 0
            and len(row["rounds"]) >= 5
            and name in done.stdout
        )


def test_coverage_is_the_union_of_what_the_workers_executed(tmp_path: Path, monkeypatch) -> None:
    coverage = pytest.importorskip("coverage")
    for room in mutants.ROOMS:
        folder = tmp_path / "simulator" / room
        folder.mkdir(parents=True)
        (folder / "module.py").write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "FOLDER", tmp_path)
    first = str(tmp_path / "simulator" / mutants.ROOMS[0] / "module.py")
    for worker, lines in {"gw0": [1, 2], "gw1": [2, 3]}.items():
        data = coverage.CoverageData(str(tmp_path / f"lines.{worker}"))
        data.add_lines({first: lines})
        data.write()
    assert mutants.covered(mutants.ROOMS) == (
        "lines that tests execute: physics 75.0%, spectral 0.0%, archive 0.0%, all 25.0%"
    )


def retried(folder: Path, **tiers: list[str]) -> tuple[int, list[str]]:
    for name, tests in tiers.items():
        (folder / f"{name}.json").write_text(json.dumps(dict.fromkeys(tests, True)))
    found = subprocess.run(
        [sys.executable, ROOT / ".ci/retried", folder], capture_output=True, text=True
    )
    return found.returncode, found.stdout.splitlines()


def test_repeated_tests_are_named_and_those_of_two_tiers_fail(tmp_path: Path):
    assert retried(tmp_path) == (0, [])
    once = ["run twice: a.py::one (default)", "run twice: b.py::two (default)"]
    assert retried(tmp_path, default=["b.py::two", "a.py::one"]) == (0, once)
    code, lines = retried(tmp_path, smoke=["b.py::two"])
    assert code == 1
    twice = [
        "run twice: b.py::two (default, smoke)",
        "unstable: b.py::two failed at first in 2 tiers",
    ]
    assert lines == [once[0], *twice]


@pytest.mark.parametrize(
    "workers, budget, line",
    [
        ("0", "0", "0 of 2 tests ran, 0 %"),
        slow("2", "600", "2 of 2 tests ran, 100 %"),
    ],
)
def test_a_budget_says_what_share_of_the_tests_ran(pytester, workers: str, budget: str, line: str):
    pytester.makeconftest((ROOT / "tests/conftest.py").read_text())
    pytester.makeini(
        f"[pytest]\npythonpath = {ROOT / 'tests'}\nmarkers =\n    slow: x\n    slurm: x\n    gpu: x\n"
    )
    pytester.makepyfile("def test_one(): pass\n\ndef test_two(): pass\n")
    found = pytester.runpytest_subprocess("-n", workers, "--budget", budget)
    found.stdout.fnmatch_lines([line])


def test_no_two_files_of_tests_share_a_name():
    """pytest imports them as modules of one name, and then collects nothing in a run over all
    folders."""
    names = sorted(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, after in pairwise(names) if name == after] == []


@pytest.fixture(scope="module")
def performance():
    spec = importlib.util.spec_from_file_location(
        "performance", ROOT / "scripts" / "performance.py"
    )
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.smoke
def test_the_page_is_what_the_files_say_and_without_them_it_is_refused(performance, tmp_path):
    assert performance.main(["--check"]) == 0
    with pytest.raises(SystemExit, match=r"a file step_\*.json"):
        performance.written(performance.PAGE.read_text(), tmp_path)


@pytest.mark.smoke
def test_a_new_measurement_is_noticed_and_dated(performance, tmp_path, monkeypatch, capsys):
    for file in performance.FILES.glob("*.json"):
        result = json.loads(file.read_text())
        if not file.name.startswith("gpu_"):  # whose steps say where and when
            result["measured"] |= {"date": "2030-01-02", "processor": "Abacus", "load": 0.5}
        (tmp_path / file.name).write_text(json.dumps(result))
    page, numerics, history = (tmp_path / f"{name}.md" for name in ("page", "numerics", "history"))
    page.write_text(performance.PAGE.read_text())
    numerics.write_text(performance.NUMERICS_PAGE.read_text())
    shutil.copy(performance.FILES / performance.HISTORY, tmp_path)
    monkeypatch.setattr(performance, "FILES", tmp_path)
    monkeypatch.setattr(performance, "PAGE", page)
    monkeypatch.setattr(performance, "NUMERICS_PAGE", numerics)
    monkeypatch.setattr(performance, "HISTORY_PAGE", history)
    assert performance.main(["--check"]) == 1
    assert "run scripts/performance.py" in capsys.readouterr().err
    assert performance.main([]) == 0 and performance.main(["--check"]) == 0
    text = page.read_text()
    # All steps are one table, and every other file is one.
    other = ("step_", "gpu_")
    tables = 1 + sum(not file.name.startswith(other) for file in tmp_path.glob("*.json"))
    assert text.count("Measured on 2 January 2030 on") == text.count("of Abacus") == tables
    assert "; load 0.5." in text
    assert "Abacus" not in history.read_text()
    performance.remember(json.loads((tmp_path / "peers_128.json").read_text()))
    assert performance.main(["--check"]) == 1 and performance.main([]) == 0
    head, _, *rows = [x for x in history.read_text().splitlines() if x.startswith("|")]
    assert "2030-01-02" in head and "2 cores of Abacus" in head
    ratio = json.loads((tmp_path / "peers_128.json").read_text())["rows"][0]["ratios"][0]
    assert any("fluidsim" in row and f"{ratio:.4g} |" in row for row in rows)


@pytest.mark.smoke
def test_the_evidence_is_what_the_files_say(tmp_path, monkeypatch):
    import how_we_know

    assert how_we_know.main(["--check"]) == 0
    shutil.copytree(how_we_know.FILES, tmp_path / "files")
    file = tmp_path / "files" / "validation_default.json"
    found = json.loads(file.read_text())
    found["cases"][0]["checks"][0]["measured"] = 0.5
    file.write_text(json.dumps(found))
    monkeypatch.setattr(how_we_know, "FILES", tmp_path / "files")
    assert how_we_know.main(["--check"]) == 1
