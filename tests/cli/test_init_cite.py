"""`simulator init` writes configurations that are valid; `simulator cite` names the methods of a run."""

from pathlib import Path

import pytest

from simulator.cli import main
from simulator.cli.case import cases_folder
from simulator.config import load_config
from simulator.study import open_sweep

CASES = sorted(path.stem for path in cases_folder().glob("*.yaml"))


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", [name for name in CASES if "sweep" not in name])
def test_a_case_is_the_shipped_one_with_its_further_keys_and_can_be_cited(case: str, somewhere: Path, capsys) -> None:
    assert main(["init", case]) == 0 and capsys.readouterr().out == f"{case}.yaml\n"
    written = somewhere / f"{case}.yaml"
    mine, shipped = load_config(written), load_config(cases_folder() / f"{case}.yaml")
    paths = {"initial": {"path"}}  # of the user's files, which lie elsewhere
    assert mine.model_dump(exclude=paths) == shipped.model_dump(exclude=paths)
    assert "#   time.max_steps: none" in written.read_text()
    assert main(["cite", str(written)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("@software{simulator,") and printed.count("{") == printed.count("}")
    assert ("TaylorGreen1937" in printed) == case.startswith("taylor_green")


def test_a_sweep_comes_with_its_base(somewhere: Path, capsys) -> None:
    assert main(["init", "sweep_viscosity"]) == 0
    assert "simulator sweep plan sweep_viscosity.yaml" in capsys.readouterr().err
    assert (somewhere / "taylor_green.yaml").exists()
    assert "Further keys" not in (somewhere / "sweep_viscosity.yaml").read_text()
    assert len(open_sweep("sweep_viscosity.yaml").runs) == 8


def test_nothing_is_overwritten(somewhere: Path, capsys) -> None:
    (somewhere / "taylor_green.yaml").write_text("mine")
    assert main(["init", "taylor_green"]) == 2 and "exists" in capsys.readouterr().err
    assert (somewhere / "taylor_green.yaml").read_text() == "mine"
    assert main(["init", "taylor_grin"]) == 2
    assert "did you mean taylor_green?" in capsys.readouterr().err
