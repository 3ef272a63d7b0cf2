"""What .ci/run says of tests that it had to repeat."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def retried(folder: Path, **tiers: list[str]) -> tuple[int, list[str]]:
    for name, tests in tiers.items():
        (folder / f"{name}.json").write_text(json.dumps(dict.fromkeys(tests, True)))
    found = subprocess.run(
        [sys.executable, ROOT / ".ci/retried", folder], capture_output=True, text=True, check=False
    )
    return found.returncode, found.stdout.splitlines()


def test_repeated_tests_are_named_and_those_of_two_tiers_fail(tmp_path: Path) -> None:
    assert retried(tmp_path) == (0, [])
    once = ["run twice: a.py::one (default)", "run twice: b.py::two (default)"]
    assert retried(tmp_path, default=["b.py::two", "a.py::one"]) == (0, once)
    code, lines = retried(tmp_path, smoke=["b.py::two"])
    assert code == 1
    assert lines == [
        once[0], "run twice: b.py::two (default, smoke)", "unstable: b.py::two failed at first in 2 tiers",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "budget", "line"),
    [
        ("0", "0", "0 of 2 tests ran, 0 %"),
        pytest.param("2", "600", "2 of 2 tests ran, 100 %", marks=pytest.mark.slow),
    ],
)
def test_a_budget_says_what_share_of_the_tests_ran(
    pytester: pytest.Pytester, workers: str, budget: str, line: str
) -> None:
    pytester.makeconftest((ROOT / "tests/conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    slow: x\n    slurm: x\n    gpu: x\n")
    pytester.makepyfile("def test_one(): pass\n\ndef test_two(): pass\n")
    found = pytester.runpytest_subprocess("-n", workers, "--budget", budget)
    found.stdout.fnmatch_lines([line])


def test_no_two_files_of_tests_share_a_name() -> None:
    """pytest imports them as modules of one name, and then collects nothing in a run over all folders."""
    names = sorted(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, after in pairwise(names) if name == after] == []
