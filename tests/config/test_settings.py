"""The types of fields that all parts' settings share."""

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from simulator.settings import (
    CommandLineText,
    Count,
    Flag,
    InputPath,
    NonNegative,
    OutputPath,
    Positive,
    Seconds,
    Settings,
    evaluate_number,
)


class Every(Settings):
    positive: Positive = 1.0
    non_negative: NonNegative = 0.0
    count: Count = 1
    flag: Flag = False
    seconds: Seconds = 1.0
    input: InputPath = Path("in")
    output: OutputPath = Path("out")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*pi", 2 * math.pi), ("1/1600", 1 / 1600), ("-(1 + 2)**2", -9.0),
        ("sqrt(2)*exp(1)", math.sqrt(2) * math.e), ("1e-3", 1e-3), (" 3 ", 3.0),
    ],
)  # fmt: skip
def test_numbers_may_be_written_as_expressions(text: str, value: float) -> None:
    assert evaluate_number(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    ["", "x", "1 if 1 else 2", "().__class__", "__import__('os')", "1/0", "9**9**9", "(-1)**0.5", "True", "1,2",
     "-" * 100_000 + "1", "(" * 1000, "1\0", "log(-1)", "sqrt(1, 2)", "pi()", "1e999 - 1e999 + x"],
)  # fmt: skip
def test_nothing_else_is_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number; write"):
        evaluate_number(text)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(5, 5.0), ("5", 5.0), ("1.5h", 5400.0), ("10min", 600.0), ("2 d", 172800.0), ("2*60", 120.0)],
)
def test_wall_clock_times(value: object, seconds: float) -> None:
    assert Every.model_validate({"seconds": value}).seconds == seconds


@pytest.mark.parametrize(
    "values",
    [
        {"positive": 0}, {"positive": math.inf}, {"positive": math.nan}, {"positive": True},
        {"positive": None}, {"non_negative": -1e-300}, {"count": 0}, {"count": 1.5}, {"count": "3"},
        {"count": True}, {"flag": 1}, {"flag": "true"}, {"seconds": "5 fortnights"}, {"seconds": "1.2.3h"},
        {"seconds": 0}, {"input": 5}, {"input": ""}, {"output": "a\0b"}, {"output": "$UNSET_VARIABLE"},
        {"unknown": 1},
    ],
)  # fmt: skip
def test_wrong_values_are_refused(values: dict) -> None:
    with pytest.raises(ValidationError):
        Every.model_validate(values)


def test_where_paths_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    context = {"folder": "/cases"}
    read = Every.model_validate({"input": "a", "output": "b"}, context=context)
    assert (read.input, read.output) == (Path("/cases/a"), tmp_path / "b")
    assert Every.model_validate({"input": CommandLineText("a")}, context=context).input == tmp_path / "a"
    assert Every(input=Path("a")).input == tmp_path / "a"
