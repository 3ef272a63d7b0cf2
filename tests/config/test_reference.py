"""The reference of keys is complete, and the commands that show it find their way."""

import pytest

from simulator.cli import main
from simulator.config.reference import Key, keys


@pytest.fixture(scope="module")
def known() -> list[Key]:
    return keys()


@pytest.mark.smoke
def test_every_key_says_what_it_means(known) -> None:
    assert len({key.path for key in known}) > 200
    assert not [f"{key.path} [{key.kind}]" for key in known if not key.meaning]
    assert not [f"{key.path} [{key.kind}]" for key in known if not key.type]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("time.cfl", "number > 0; default"), ("model.scalars.0.name", "text; required"),
        ("slurm", "slurm.nodes"), ("model.hyperviscosity", "model.hyperviscosity.order"), ("", "forcing"),
    ],
)  # fmt: skip
def test_explain_finds_the_key(key: str, expected: str, capsys) -> None:
    assert main(["explain", key] if key else ["explain"]) == 0
    assert expected in capsys.readouterr().out


def test_explain_names_the_nearest_key(capsys) -> None:
    assert main(["explain", "time.clf"]) == 2
    assert "did you mean time.cfl?" in capsys.readouterr().err
