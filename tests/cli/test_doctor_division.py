"""`simulator doctor`: its table agrees with where JAX puts a field."""

import re
from pathlib import Path

import pytest

from simulator.cli import main

CONFIG = str(Path(__file__).parents[2] / "configs" / "taylor_green.yaml")


@pytest.fixture(autouse=True)
def started(monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.mark.spmd
def test_who_holds_what_in_a_slab(capsys):
    assert main(["doctor", CONFIG, "devices.platform=cpu", "devices.count=4", "grid.shape=32,30,32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "devices    4, 4 per process" in lines and "mesh       slab: 4" in lines
    assert "grid       32 x 30 x 32, two_thirds, float64" in lines
    # 30 planes in y are padded to 32, 11 of kz to 12: the last device holds fewer of both.
    assert [line.split() for line in lines if re.match(r" *\d  ", line)] == [
        ["0", "0", "0..7", "0..2", "65.5", "kB", "19.2", "kB"],
        ["1", "0", "8..15", "3..5", "65.5", "kB", "19.2", "kB"],
        ["2", "0", "16..23", "6..8", "65.5", "kB", "19.2", "kB"],
        ["3", "0", "24..29", "9..10", "65.5", "kB", "19.2", "kB"],
    ]


@pytest.mark.spmd
def test_a_pencil_has_two_ranges_on_each_side(capsys):
    arguments = ["devices.platform=cpu", "devices.count=4", "fft.decomposition=pencil", "precision=single"]
    assert main(["doctor", CONFIG, *arguments]) == 0
    shown = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("device  process"))
    assert len(shown[at].split()) == 8
    # A quarter of 64^3 numbers of 4 bytes each.
    assert sum("262 kB" in row for row in shown[at + 1 : at + 5]) == 4


def test_without_a_file_and_inside_a_job(capsys, monkeypatch):
    """Only variables that are known to hold no secret are printed."""
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "blue")
    monkeypatch.setenv("SLURM_JWT", "planted-secret")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "SLURM_CLUSTER_NAME=blue" in shown and "64 x 64 x 64" in shown
    assert "SLURM_JWT" not in shown and "planted-secret" not in shown
    first, *_, exchanged, transformed, last = shown.splitlines()
    assert first.startswith("process 0 of 1: host ") and last == "no problems found"
    assert "all-to-all" in exchanged and "correct" in exchanged
    assert "^3 points and back: correct" in transformed


def test_a_count_that_cannot_be_shared_is_refused(capsys):
    assert main(["doctor", CONFIG, "grid.shape=4,4,4", "devices.count=100"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("command line: devices.count: 100 devices cannot share")
