"""Which changes an existing run survives; and that the reference of keys is complete and found."""

import pytest

from simulator.cli import main
from simulator.config import Change, Difference, RunConfig, classify, diff_configs
from simulator.config.reference import Key, keys

FROZEN, CHANGEABLE, FREE = Change.FROZEN, Change.CHANGEABLE, Change.FREE


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("model.viscosity=1", ("model.viscosity", 1 / 1600, 1.0, FROZEN)),
        ("grid.shape=8,8,8", ("grid.shape", [64, 64, 64], [8, 8, 8], FROZEN)),
        ("initial.amplitude=2", ("initial.amplitude", 1.0, 2.0, FROZEN)),
        ("precision=single", ("precision", "double", "single", FROZEN)),
        ("time.stop=2", ("time.stop", 1.0, 2.0, CHANGEABLE)),
        ("name=other", ("name", "run", "other", CHANGEABLE)),
        ("output.slices={every: 1, align: true}", ("output.slices.every", None, 1.0, CHANGEABLE)),
        ("output.directory=/a", ("output.directory", None, "/a", FREE)),
        ("devices.count=2", ("devices.count", "auto", 2, FREE)),
        ("fft.block=2", ("fft.block", "auto", 2, FREE)),
        ("run.watchdog=1", ("run.watchdog", 600.0, 1.0, FREE)),
        ("slurm.account=me", ("slurm.account", None, "me", FREE)),
    ],
)
def test_a_change_and_its_class(load, short: str, override: str, difference: tuple) -> None:
    key, old, new, change = difference
    found = diff_configs(load(short), load(short, override))[0]
    assert (found.key, found.new, found.change) == (key, new, change)
    assert old is None or found.old == old


@pytest.mark.smoke
def test_the_same_configuration_does_not_differ_however_it_was_written(load, short: str) -> None:
    assert diff_configs(load(short), load(short, "time.cfl=1/2", "model.viscosity=6.25e-4")) == []


def test_all_differences_block_by_block(load, short: str) -> None:
    assert diff_configs(load(short), load(short, "time.dt=1e-3", "forcing.kind=driven", "grid.dealias=none")) == [
        Difference("grid.dealias", "two_thirds", "none", FROZEN),
        Difference("time.cfl", 0.5, None, CHANGEABLE), Difference("time.dt", None, 0.001, CHANGEABLE),
        Difference("forcing.kind", None, "driven", FROZEN), Difference("forcing.rate", None, 0.1, FROZEN),
    ]  # fmt: skip


def test_every_key_of_a_run_has_a_class() -> None:
    assert all(classify(f"{key}.anything") in Change for key in RunConfig.model_fields)


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
