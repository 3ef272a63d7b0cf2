"""The artifact description: recorded facts only, of one run and of several."""

import json
import shutil
from pathlib import Path

import pytest
from run_support import simulate, write_case

from simulator.cli import main
from simulator.plugins.validation.artifact import NOT_RECORDED, description
from simulator.words import size


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of other viscosities."""
    folder = tmp_path_factory.mktemp("runs")
    case = write_case(folder)
    for name in ("0.1", "0.2"):
        assert simulate(case, folder / name, f"model.viscosity={name}") == 0
    return folder


def test_the_page_of_a_run_holds_what_the_run_recorded(runs, tmp_path):
    page = tmp_path / "artifact.md"
    assert main(["artifact", str(runs / "0.1"), "--output", str(page)]) == 0
    text = page.read_text()
    start = json.loads((runs / "0.1" / "provenance.json").read_text())
    assert f"- processor: {start['host']['processor']}\n" in text
    assert f"\njax=={start['versions']['jax']}\n" in text
    assert f"$ simulator run {runs}/0.1/config.yaml --output NEW\n" in text
    assert "\n  viscosity: 0.1\n" in text
    count, digest = json.loads((runs / "0.1" / "ledger.json").read_text())["files"]["config.yaml"]
    assert f"- config.yaml: {size(count)}, {digest}\n" in text
    last = (runs / "0.1" / "diagnostics.csv").read_text().splitlines()[-1].split(",")
    assert f"| 0.1 | {' | '.join(last[:8])} |" in text
    assert (
        "- tolerance: none on the same installation" in text
        and f"- nodes: {NOT_RECORDED}\n" in text
    )


def test_several_runs_are_one_page_with_their_differences(runs):
    text = description(runs)
    assert "| run | model.viscosity |\n| --- | --- |\n| 0.1 | 0.1 |\n| 0.2 | 0.2 |\n" in text
    assert text.count("- processor: ") == 1 and "- wall time (0.1): " in text


def test_the_commands_compute_the_runs_again(runs, tmp_path, monkeypatch):
    folder = shutil.copytree(runs, tmp_path / "study")
    monkeypatch.chdir(tmp_path)
    record = folder / "0.1" / "provenance.json"
    start = json.loads(record.read_text())
    for source, command in (("local", "run RUN --processes 2"), ("mpi", "run RUN")):
        devices = start["devices"] | {"processes": 2, "source": source}
        record.write_text(json.dumps(start | {"devices": devices}))
        before = "mpiexec -n 2 " if source == "mpi" else ""
        words = command.replace("RUN", "study/0.1/config.yaml --output NEW")
        assert f"\n$ {before}simulator {words}\n" in description(folder / "0.1")
    (folder / "0.1" / "job.sbatch").touch()
    assert "\n$ simulator submit study/0.1/config.yaml --output NEW\n" in description(
        folder / "0.1"
    )
    (folder / "plan.json").write_text('{"file": "study.yaml"}')
    assert "\n$ simulator sweep run study.yaml\n" in description(folder)


def test_a_folder_without_a_start_is_refused(tmp_path, refused_command):
    assert "records no start of a run; give a run's folder" in refused_command("artifact", tmp_path)
