"""The script of `simulator completion`, in a real bash."""

import shutil
import subprocess

import pytest

from simulator.cli import COMMANDS, main


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_words_are_completed(capsys) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    cases = {
        "simulator veri": ["verify"], "simulator sweep sta": ["status"],
        "simulator run --num-p": ["--num-processes"], "simulator sweep retry x.yaml --fail": ["--failed"],
        "simulator ": [*COMMANDS],
    }  # fmt: skip
    ask = "".join(
        f'COMP_WORDS=({typed.rpartition(" ")[0]} "{typed.rpartition(" ")[2]}"); COMP_CWORD={typed.count(" ")}; '
        'COMPREPLY=(); _shtab_simulator simulator "${COMP_WORDS[$COMP_CWORD]}"; echo "${COMPREPLY[@]}"\n'
        for typed in cases
    )
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert not done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == list(cases.values())
