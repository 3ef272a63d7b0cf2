"""`simulator verify`, as the command line calls it."""

import numpy as np
import pytest
from storage_support import save

from simulator.archive.manifest import Axis
from simulator.archive.shard import Dataset
from simulator.cli import build_parser
from simulator.errors import UserError


@pytest.fixture
def run(tmp_path):
    axes = tuple(Axis.uniform(n, 4, 0.25) for n in "xyz")
    values = np.arange(64.0).reshape(4, 4, 4)
    for kind in ("snapshots", "checkpoints"):
        for step in (1, 2):
            save(tmp_path / "run" / kind, step, [Dataset("density", values + step, axes)], {"time": 0.1 * step})
    return tmp_path / "run"


def call(*words) -> int:
    args = build_parser(["verify"]).parse_args([str(w) for w in words])
    return args.func(args)


def test_a_good_run(run, capsys):
    assert call("verify", run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "4 snapshots and checkpoints, 16 files: all good"
    assert f"{run}/snapshots/00000001/shards/p00000.h5: ok" in lines
    assert call("verify", "--quiet", run / "snapshots" / "00000001.h5") == 0
    assert capsys.readouterr().out == "1 snapshots and checkpoints, 4 files: all good\n"
    (run / "snapshots" / ".tmp-00000003-ab").mkdir()
    assert call("verify", run) == 0
    assert ".tmp-00000003-ab: being written, or left by a killed run" in capsys.readouterr().out


def test_what_is_wrong_is_named_and_is_a_failure(run, capsys):
    shard = run / "checkpoints" / "00000002" / "shards" / "p00000.h5"
    bad = bytearray(shard.read_bytes())
    bad[1000] ^= 4
    shard.write_bytes(bad)
    (run / "snapshots" / "00000001" / "shards" / "p00000.h5").unlink()
    assert call("verify", run, "--quiet") == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{run}/snapshots/00000001/shards/p00000.h5: missing",
        f"{shard}: altered (its checksum does not match)",
        "4 snapshots and checkpoints, 16 files: 2 wrong",
    ]


def test_a_missing_index_is_made_again_and_said_so(run, capsys):
    index = run / "snapshots" / "00000002.h5"
    good = index.read_bytes()
    index.unlink()
    assert call("verify", run) == 0
    assert f"{index}: was missing, made again" in capsys.readouterr().out.splitlines()
    assert len(index.read_bytes()) == len(good)
    made = index.read_bytes()
    index.write_bytes(made[:50] + bytes([made[50] ^ 1]) + made[51:])
    assert call("verify", run) == 1
    said = capsys.readouterr().out.splitlines()
    assert f"{index}: altered (its checksum does not match), made again" in " ".join(said)
    assert call("verify", run) == 0
    assert len(index.read_bytes()) == len(good)


def test_foreign_folders_are_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match="not a run, snapshot or checkpoint of this program"):
        call("verify", tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        call("verify", tmp_path / "absent")
