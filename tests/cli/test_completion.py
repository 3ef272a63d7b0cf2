"""The script of `simulator completion`, in a real bash."""

import shutil
import subprocess

import pytest

from simulator.cli import COMMANDS, main

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def script(capsys) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["simulator", "veri"], ["verify"]),
        (["simulator", "sweep", "sta"], ["status"]),
        (["simulator", "run", "--num-p"], ["--num-processes"]),
        (["simulator", "sweep", "run", "x.yaml", "--fail"], ["--fail-fast"]),
        (["simulator", "run", "one"], ["one.yaml"]),
        (["simulator", ""], ["--version", *sorted(COMMANDS)]),
    ],
)
def test_words_are_completed(script: str, typed: list[str], expected: list[str], tmp_path) -> None:
    (tmp_path / "one.yaml").touch()
    words = " ".join(f"'{word}'" for word in typed)
    ask = (
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _simulator; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    found = [word for word in done.stdout.split() if word not in ("-h", "--help")]
    assert sorted(found) == expected


def test_zsh_gets_what_it_needs_first(capsys) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out.splitlines()[0]
