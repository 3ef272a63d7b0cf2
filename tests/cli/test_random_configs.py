"""Whatever is in a configuration, `check` prints it or refuses it in lines, and `run` agrees with `check`."""

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from random_configs import mutated, right
from table import PATH

from simulator.cli import main
from simulator.config.yaml12 import dump_yaml

LONGEST_LINE = 1000
"""Messages list what is known; echoes of what was given are cut."""
QUICK = settings(suppress_health_check=list(HealthCheck))
MANY = settings(QUICK, max_examples=5000, phases=[Phase.generate])


@pytest.fixture
def folder(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("random")
    monkeypatch.chdir(folder)
    return folder


def called(command: str, written: tuple[Any, str], *overrides: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `simulator COMMAND c.yaml ...` in the current folder."""
    Path("c.yaml").write_bytes(dump_yaml(written[0]).encode("utf-8", "surrogatepass"))
    Path(PATH).write_text(written[1])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([command, "c.yaml", *overrides])
    return code, out.getvalue(), err.getvalue()


def checked(data: tuple[Any, str]) -> int:
    """`check` of a configuration: its exit code, 0 or 2."""
    code, out, err = called("check", data)
    assert code in (0, 2), err
    if code == 2:
        assert out == "" and err
        for line in err.splitlines():
            assert len(line) < LONGEST_LINE and line.startswith(("c.yaml", "configuration")), line
    assert {path.name for path in Path().iterdir()} == {"c.yaml", PATH}
    return code


@given(data=mutated())
@settings(QUICK, max_examples=25)
def test_anything_is_printed_or_refused_in_lines(data, folder: Path) -> None:
    checked(data)


@given(data=right())
@settings(QUICK, max_examples=10)
def test_what_is_printed_describes_the_same_run(data, folder: Path) -> None:
    code, printed, _ = called("check", data)
    if code == 0:
        Path("again.yaml").write_text(printed)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main(["check", "again.yaml"]) == 0
        assert out.getvalue() == printed
        Path("again.yaml").unlink()


@pytest.mark.slow
@given(data=mutated())
@MANY
def test_five_thousand_are_printed_or_refused_in_lines(data, folder: Path) -> None:
    checked(data)


@pytest.mark.slow
@given(data=mutated())
@settings(MANY, max_examples=100)
def test_a_run_refuses_what_check_refuses_and_nothing_else_but_values(data, folder: Path) -> None:
    tiny = ("grid.shape=8,8,8", "time.max_steps=2", "devices.count=1", "output.directory=out")
    first, _, refusal = called("check", data, *tiny)
    code, _, err = called("run", data, *tiny)
    assert "Traceback" not in err
    if first == 2:
        assert (code, err) == (2, refusal)
    if code == 2:
        assert not Path("out").exists(), err
    shutil.rmtree("out", ignore_errors=True)
