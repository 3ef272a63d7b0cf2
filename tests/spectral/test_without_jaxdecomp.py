"""Where jaxdecomp has no packages, everything else works; who asks for it is told so in a line."""

import sys

import pytest
from run_support import simulate, write_case

from simulator import open_run
from simulator.cli import main
from simulator.spectral import jaxdecomp


@pytest.fixture(autouse=True)
def absent(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxdecomp", None)
    monkeypatch.setattr(jaxdecomp, "find_spec", lambda name: None)


@pytest.mark.parametrize("command", ["check", "run"])
def test_asked_for_it_is_refused_in_a_line(command: str, tmp_path, capsys):
    case = str(write_case(tmp_path))
    given = (f"output.directory={tmp_path / 'out'}", "fft.backend=jaxdecomp")
    assert main([command, case, *given]) == 2
    shown = capsys.readouterr()
    told = "command line: fft.backend: jaxdecomp is not installed; pip install"
    assert shown.out == "" and shown.err.startswith(told) and shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_auto_leaves_it_out(tmp_path):
    run = tmp_path / "run"
    given = ("grid.shape=8,12,10", "time.max_steps=1", "fft.backend=auto")
    assert simulate(write_case(tmp_path), run, *given) == 0
    assert open_run(run).provenance["mesh"]["transform"].startswith("custom_partitioning")
