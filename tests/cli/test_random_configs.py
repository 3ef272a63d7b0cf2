"""Whatever is in a configuration, `check` prints it or refuses it in lines, and `run` agrees with
`check`."""

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from cover import read_cases
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from nested import places
from table import PATH, configuration, user_file

from simulator.cli import main
from simulator.config import run_config_class
from simulator.config.messages import all_keys
from simulator.config.yaml12 import dump_yaml

LONGEST_LINE = 1000
"""Messages list what is known; echoes of what was given are cut."""
QUICK = settings(suppress_health_check=list(HealthCheck))
MANY = settings(QUICK, max_examples=5000, phases=[Phase.generate])


CASES = [
    case for case in read_cases() if case.get("initial") != "snapshot"
]  # which needs another run
MOST_OUTPUTS = 2

EXTREME = st.sampled_from(
    [
        1e308,
        -1e308,
        1e300,
        1e-300,
        5e-324,
        1e100,
        1e-100,
        1e49,
        1e-49,
        1e31,
        1e29,
        1e-29,
        1e15,
        10**14,
        10**20,
        2**31,
        2**63,
        10**400,
        -1,
        0,
        -0.0,
        1,
        2,
        3,
        5,
        7,
        0.5,
        1.5,
        ".inf",
        float("inf"),
        float("nan"),
        1e6,
        65536,
        65537,
    ]
)
TEXTS = st.sampled_from(
    [
        "",
        " ",
        "null",
        "~",
        "~nouser/x",
        "$HOME",
        "$NO_SUCH_VARIABLE",
        "${",
        "1/0",
        "9**9**9**9",
        "exp(1e9)",
        "2*pi",
        "-",
        "x" * 300,
        "x" * 5000,
        "a/" * 3000,
        "(" * 400,
        "\x00",
        "\x07",
        "é",
        "\U0001f300",
        "../..",
        "/",
        ".",
        "12:30",
        "1e400",
        "step",
        "time",
        "dt",
        "x",
        "k",
        "drag",
        "step_mean",
        "kinetic_energy",
        "density",
        "speed",
        "velocity",
        "gas",
        "auto",
        "low",
        "single",
        "none",
        "spherical",
        "phase_shift",
        "pencil",
        "jaxdecomp",
        "10 parsec",
        "10min",
        "1e9h",
        "99999999999999d",
    ]
)
VALUES = st.one_of(
    EXTREME,
    TEXTS,
    st.floats(allow_nan=True),
    st.integers(-(10**25), 10**25),
    st.text(max_size=6),
    st.none(),
    st.booleans(),
    st.lists(st.one_of(EXTREME, TEXTS), max_size=4),
    st.dictionaries(
        st.sampled_from(["kind", "every", "every_steps", "name", "x"]), EXTREME | TEXTS, max_size=2
    ),
)
_MISSING = object()


@st.composite
def right(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A configuration of any parts with at most two series, and the text of the user's file."""
    case = draw(st.sampled_from(CASES))
    outputs = [factor for factor in case if factor.startswith("output.")]
    kept = draw(st.lists(st.sampled_from(outputs), max_size=MOST_OUTPUTS)) if outputs else []
    config = configuration(
        {factor: case[factor] for factor in case if factor not in outputs or factor in kept}
    )
    config["devices"]["count"] = 1
    return config, user_file(config)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A right configuration in which up to four values were replaced, removed, or put where nobody
    expects them."""
    data, file = draw(right())
    for _ in range(draw(st.integers(0, 4))):
        keys = all_keys(run_config_class(), data) + places(data)
        # These say how a run ends and where it lies, which the tests decide themselves.
        path = draw(st.sampled_from([key for key in keys if key not in (("output",), ("time",))]))
        _put(data, path, _MISSING if draw(st.integers(0, 9)) == 0 else draw(VALUES))
    return data, file


def _put(data: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Sets or removes what stands at `path`, making the blocks on the way to it."""
    for part in path[:-1]:
        if isinstance(data, dict):
            if not isinstance(data.get(part), dict | list):
                data[part] = {}
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return
    last = path[-1]
    if isinstance(data, dict):
        data.pop(last, None)
        if value is not _MISSING:
            data[last] = value
    elif (
        isinstance(data, list)
        and isinstance(last, int)
        and last < len(data)
        and value is not _MISSING
    ):
        data[last] = value


@pytest.fixture
def folder(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("random")
    monkeypatch.chdir(folder)
    return folder


def called(command: str, written: tuple[Any, str], *overrides: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `simulator COMMAND c.yaml ...` in the current folder."""
    Path("c.yaml").write_bytes(dump_yaml(written[0]).encode("utf-8", "surrogatepass"))
    Path(PATH).write_text(written[1])
    out = io.StringIO()
    err = io.StringIO()
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
def test_anything_is_printed_or_refused_in_lines(data, folder: Path):
    checked(data)


@pytest.mark.long
@given(data=right())
@settings(QUICK, max_examples=10)
def test_what_is_printed_describes_the_same_run(data, folder: Path):
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
def test_five_thousand_are_printed_or_refused_in_lines(data, folder: Path):
    checked(data)


@pytest.mark.slow
@given(data=mutated())
@settings(MANY, max_examples=100)
def test_a_run_refuses_what_check_refuses_and_nothing_else_but_values(data, folder: Path):
    tiny = ("grid.shape=8,8,8", "time.max_steps=2", "devices.count=1", "output.directory=out")
    first, _, refusal = called("check", data, *tiny)
    code, _, err = called("run", data, *tiny)
    assert "Traceback" not in err
    if first == 2:
        assert (code, err) == (2, refusal)
    if code == 2:
        assert not Path("out").exists(), err
    shutil.rmtree("out", ignore_errors=True)
