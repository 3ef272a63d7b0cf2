"""SECURITY.md names what executes code: every such key, from the types of the settings, and the
commands that read without executing."""

import json
from pathlib import Path

import pytest
from run_support import CASE, write_case

from simulator.archive.open_run import open_run
from simulator.cli import COMMANDS, main
from simulator.config import json_schema
from simulator.config.blocks import FURTHER
from simulator.config.reference import reference_keys
from simulator.study.settings import study_settings

PAGE = Path(__file__).parents[2] / ".github" / "SECURITY.md"
SCHEMAS = {
    "a run": json_schema(),
    "a sweep": study_settings().model_json_schema(),
} | {name: kind.model_json_schema() for name, kind in FURTHER.beginning_with("file.").items()}
EXECUTED = {
    key.path for schema in SCHEMAS.values() for key in reference_keys(schema) if key.executed
}


@pytest.mark.smoke
@pytest.mark.parametrize("key", sorted(EXECUTED))
def test_the_page_names_every_key_that_executes_code(key: str):
    assert f"`{key}`" in PAGE.read_text()


@pytest.mark.smoke
def test_every_path_beside_the_name_of_a_function_or_class_is_known_to_be_executed():
    blocks = {name: b for s in SCHEMAS.values() for name, b in s["$defs"].items()}
    python = {
        name: block["properties"]["path"]
        for name, block in blocks.items()
        if "path" in block.get("properties", {})
        and {"function", "equation"} & block["properties"].keys()
    }
    assert len(python) >= 8
    assert [name for name, path in python.items() if "executed" not in path] == []


COUNTED = """
from pathlib import Path
with open({count!r}, "a") as count:
    count.write("x")
def start(x, y, z):
    import jax.numpy as jnp
    return {{"velocity": (jnp.sin(y) + 0 * x * z, 0 * x * y * z, 0 * x * y * z)}}
def measured(fields, time):
    return {{"mean": (fields["velocity"] ** 2).mean()}}
"""


@pytest.mark.long
def test_reading_a_run_executes_nothing_of_it(tmp_path: Path, capsys):
    count = tmp_path / "count"
    (tmp_path / "mine.py").write_text(COUNTED.format(count=str(count)))
    case = write_case(
        tmp_path,
        CASE.replace(
            "{kind: random, peak: 3, energy: 0.5, seed: 1}",
            "{kind: python, path: mine.py, function: start}",
        ),
    )
    run = tmp_path / "run"
    python = {"path": str(tmp_path / "mine.py"), "function": "measured", "every_steps": 1}
    changes = [f"output.python={json.dumps(python)}", "time.max_steps=2"]
    assert main(["run", str(case), *changes, "--output", str(run)]) == 0
    executed = len(count.read_text())
    assert executed > 0
    for arguments in (
        ["status", str(run)],
        ["verify", str(run)],
        ["plot", str(run)],
        ["movie", str(run), "--field", "speed", "--output", str(tmp_path / "speed.gif")],
        ["report", str(run)],
        ["cite", str(run)],
        ["environment", str(run)],
    ):
        if arguments[0] in COMMANDS:
            assert main(arguments) == 0, capsys.readouterr()
    assert open_run(run).snapshots[-1]["velocity"][...].shape[0] == 3
    assert len(count.read_text()) == executed
    assert main(["check", str(case)]) == 0
    assert len(count.read_text()) > executed
