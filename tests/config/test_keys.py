"""The reference of keys, types of settings, shipped configurations and the schema."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from shipped_runs import ALL, CONFIGS, shipped_runs

from simulator.cli import main
from simulator.config import json_schema, load_config
from simulator.config.reference import Key, reference_keys
from simulator.settings import (
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


@pytest.fixture(scope="module")
def known() -> list[Key]:
    return reference_keys()


@pytest.mark.smoke
def test_every_key_says_what_it_means(known):
    assert len({key.path for key in known}) > 200
    unexplained = [f"{key.path} [{key.kind}]" for key in known if not (key.meaning and key.type)]
    assert not unexplained, f"{unexplained}: write a docstring below each in its settings class"


of_gravity = partial(pytest.param, marks=pytest.mark.plugins("gravity"))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("time.cfl", "number > 0; default"),
        ("model.scalars.0.name", "text; required"),
        ("slurm", "slurm.nodes"),
        ("model.hyperviscosity", "model.hyperviscosity.order"),
        of_gravity("model.background", "model.background.dark_energy"),
        of_gravity("model.background.start", "or {redshift: Z}"),
        of_gravity("model.cosmology.matter", "Omega_m today"),
        ("particles.0.start.kind", "random | lattice | pairs | python | snapshot; required"),
        ("particles.0.start.seed", "[random, pairs]"),
        ("", "forcing"),
        ("forcing", "or list of such blocks"),
        pytest.param("terms.mask", "terms.N.mask.kind", marks=pytest.mark.plugins("bodies")),
        ("forcing.1.helicity", "forcing.helicity"),
        ("output.python.0.function", "output.python.function"),
    ],
)
def test_explain_finds_the_key(key: str, expected: str, capsys):
    assert main(["explain", key] if key else ["explain"]) == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("k_max_eta", ["k_max_eta  [diagnostics.csv]", "    k_max η"]),
        ("dye_variance", ["NAME_variance  [diagnostics.csv]", "    ⟨θ′²⟩", "    variance"]),
        ("transfer/pressure_strain", None),
    ],
)
def test_explain_finds_columns_and_variables(name: str, lines: list[str] | None, capsys):
    assert main(["explain", name]) == (0 if lines else 2)
    printed = capsys.readouterr()
    if lines:
        assert printed.out.splitlines()[: len(lines)] == lines
    else:
        assert printed.err.startswith(f"simulator explain: unknown key {name}")


def test_explain_names_the_nearest_key(capsys):
    assert main(["explain", "time.clf"]) == 2
    assert "did you mean time.cfl?" in capsys.readouterr().err


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
        ("2*pi", 2 * math.pi),
        ("1/1600", 1 / 1600),
        ("-(1 + 2)**2", -9.0),
        ("sqrt(2)*exp(1)", math.sqrt(2) * math.e),
        ("1e-3", 1e-3),
        (" 3 ", 3.0),
    ],
)
def test_numbers_may_be_written_as_expressions(text: str, value: float):
    assert evaluate_number(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1 if 1 else 2",
        "().__class__",
        "__import__('os')",
        "1/0",
        "9**9**9",
        "(-1)**0.5",
        "True",
        "1,2",
        "-" * 100_000 + "1",
        "(" * 1000,
        "1\0",
        "log(-1)",
        "sqrt(1, 2)",
        "pi()",
        "1e999 - 1e999 + x",
    ],
)
def test_nothing_else_is_a_number(text: str):
    with pytest.raises(ValueError, match="is not a number; write"):
        evaluate_number(text)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(5, 5.0), ("5", 5.0), ("1.5h", 5400.0), ("10min", 600.0), ("2 d", 172800.0), ("2*60", 120.0)],
)
def test_wall_clock_times(value: object, seconds: float):
    assert Every.model_validate({"seconds": value}).seconds == seconds


@pytest.mark.parametrize(
    "values",
    [
        {"positive": 0},
        {"positive": math.inf},
        {"positive": math.nan},
        {"positive": True},
        {"positive": None},
        {"non_negative": -1e-300},
        {"count": 0},
        {"count": 1.5},
        {"count": "3"},
        {"count": True},
        {"flag": 1},
        {"flag": "true"},
        {"seconds": "5 fortnights"},
        {"seconds": "1.2.3h"},
        {"seconds": 0},
        {"input": 5},
        {"input": ""},
        {"output": "a\0b"},
        {"output": "$UNSET_VARIABLE"},
        {"unknown": 1},
    ],
)
def test_wrong_values_are_refused(values: dict):
    with pytest.raises(ValidationError):
        Every.model_validate(values)


RUNS = [path.name for path in shipped_runs()]


@pytest.mark.parametrize("name", RUNS)
def test_every_shipped_configuration_is_valid_and_points_to_the_schema(name: str):
    path = CONFIGS / name
    first = "# yaml-language-server: $schema=schema.json"
    assert path.read_text().splitlines()[0] == first, f"configs/{name}: begin with {first}"
    config = load_config(path)
    place = (path.stem, Path.cwd() / "outputs" / path.stem)
    cure = f"configs/{name}: leave out name and output.directory, or name them by the file"
    assert (config.name, config.output.directory) == place, cure


@pytest.mark.skipif(len(RUNS) < len(ALL), reason="the schema has the keys of absent plugins")
def test_the_schema_file_is_up_to_date():
    """Made anew by `simulator check --schema > configs/schema.json`."""
    written = json.loads((CONFIGS / "schema.json").read_text())
    command = "simulator check --schema > configs/schema.json"
    assert _gist(written) == _gist(json_schema()), f"configs/schema.json is out of date: {command}"


def _gist(schema: Any) -> Any:
    """The part of a schema that an editor shows. How pydantic words types and limits differs between its versions."""
    if not isinstance(schema, dict):
        return schema
    gist = {
        key: schema[key]
        for key in ("enum", "const", "required", "description", "$ref")
        if key in schema
    }
    for key in ("properties", "$defs"):
        gist |= {f"{key}.{name}": _gist(inner) for name, inner in schema.get(key, {}).items()}
    return gist


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_shipped_configuration_runs(name: str, tmp_path: Path, capsys):
    """Its first steps, on a small grid."""
    shape = "grid.shape=" + ",".join("16" for _ in load_config(CONFIGS / name).grid.shape)
    assert (
        main(
            [
                "run",
                str(CONFIGS / name),
                shape,
                "time.max_steps=2",
                "--output",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    assert "step 2" in capsys.readouterr().out
