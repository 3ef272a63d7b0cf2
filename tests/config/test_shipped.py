"""The configurations in configs/ and the schema that editors read beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.cli import main
from simulator.config import json_schema, load_config

CONFIGS = Path(__file__).parents[2] / "configs"
RUNS = sorted(path.name for path in CONFIGS.glob("*.yaml") if "sweep" not in path.stem)


@pytest.mark.parametrize("name", RUNS)
def test_every_shipped_configuration_is_valid_and_points_to_the_schema(name: str) -> None:
    path = CONFIGS / name
    assert path.read_text().splitlines()[0] == "# yaml-language-server: $schema=schema.json"
    config = load_config(path)
    assert config.name == path.stem
    assert config.output.directory == Path.cwd() / "outputs" / path.stem


def test_the_schema_file_is_up_to_date() -> None:
    """Made anew by `simulator check --schema > configs/schema.json`."""
    written = json.loads((CONFIGS / "schema.json").read_text())
    assert _gist(written) == _gist(json_schema())


def _gist(schema: Any) -> Any:
    """What an editor shows. How pydantic words types and limits differs between its versions."""
    if not isinstance(schema, dict):
        return schema
    gist = {key: schema[key] for key in ("enum", "const", "required", "description", "$ref") if key in schema}
    for key in ("properties", "$defs"):
        gist |= {f"{key}.{name}": _gist(inner) for name, inner in schema.get(key, {}).items()}
    return gist


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_shipped_configuration_runs(name: str, tmp_path: Path, capsys) -> None:
    """Its first steps, on a small grid."""
    shape = "grid.shape=" + ",".join("16" for _ in load_config(CONFIGS / name).grid.shape)
    assert main(["run", str(CONFIGS / name), shape, "time.max_steps=2", "--output", str(tmp_path / "run")]) == 0
    assert "step 2" in capsys.readouterr().out
