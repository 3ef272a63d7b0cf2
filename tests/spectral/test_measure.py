"""`fft.backend: auto`: measured once, kept, decided by the first process."""

import os
from dataclasses import asdict

import jax
import numpy as np
import pytest

from simulator.errors import UserError
from simulator.spectral import Grid, Modes, make_transform
from simulator.spectral.measure import measured

MODES = Modes(Grid((8, 8, 8)))


@pytest.mark.spmd
def test_measured_once_and_kept(tmp_path):
    devices, lines = jax.devices()[:2], []
    choice = measured(MODES, devices, np.float64, folder=tmp_path / "cache", report=lines.append)
    assert list(choice.milliseconds.values()) == sorted(choice.milliseconds.values())
    staged = {f"custom_partitioning {plan} on 2" for plan in ("z_xy", "zx_y")}
    assert staged | {"jaxdecomp slab on 1 x 2"} <= set(choice.milliseconds)
    assert len(lines) == 1 and lines[0].startswith(f"transform: {choice.backend} {choice.decomposition} on ")
    # what is recorded gives the same transform without measuring
    t = make_transform(MODES.grid, devices, backend=choice.backend, decomposition=choice.decomposition)
    assert t.name.removesuffix("_native") == f"{choice.backend}_{choice.decomposition}"

    again = measured(MODES, devices, np.float64, folder=tmp_path / "cache", report=lines.append)
    assert again == choice and len(lines) == 1  # not measured again
    seen = []

    def once_more(**changed):
        changed |= {"broadcast": lambda mine: seen.append(mine) or asdict(choice)}
        measured(MODES, devices, np.float64, folder=tmp_path / "cache", **changed)

    once_more(nodes=2)  # the same devices with other links between them
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text("{")  # cut short: as if it were not there
    once_more()
    assert seen == [None, None]


@pytest.mark.parametrize("opened", ["file", "folder"])
def test_a_choice_that_others_could_have_written_is_not_read(tmp_path, opened):
    devices, seen, folder = jax.devices()[:1], [], tmp_path / "cache"

    def measure() -> None:
        measured(MODES, devices, np.float64, folder=folder, broadcast=lambda mine: seen.append(mine) or mine)

    before = os.umask(0o002)
    try:
        measure()
        measure()
    finally:
        os.umask(before)
    (kept,) = folder.iterdir()
    {"file": kept, "folder": folder}[opened].chmod(0o777)
    measure()
    first, _, second, third, _ = seen
    assert (first, third) == (None, None) and second is not None


@pytest.mark.spmd
def test_the_first_process_decides():
    """What this process reads and measures is replaced by what the first one has."""
    devices = jax.devices()[:2]
    verdicts = iter([{"backend": "jaxdecomp", "decomposition": "slab", "milliseconds": {}}])
    choice = measured(MODES, devices, np.float64, broadcast=lambda mine: next(verdicts))
    assert (choice.backend, choice.decomposition) == ("jaxdecomp", "slab")
    told = iter([None, [3.0, 2.0]])
    odd = Modes(Grid((5, 7, 9)))  # jaxDecomp cannot share it
    silent = {"broadcast": lambda mine: next(told), "report": lambda line: None}
    choice = measured(odd, devices, np.float64, decomposition="slab", **silent)
    assert (choice.backend, choice.decomposition) == ("custom_partitioning", "zx_y")
    assert list(choice.milliseconds.values()) == [2.0, 3.0]


@pytest.mark.spmd
def test_an_unusable_folder_is_no_failure(tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    choice = measured(MODES, jax.devices()[:4], np.float32, decomposition="slab", folder=folder)
    assert choice.backend == "jaxdecomp"  # the only slab of 8^3 on 4 devices


def test_nothing_works():
    with pytest.raises(UserError, match=r"^devices\.count: 7 devices cannot share"):
        measured(Modes(Grid((2, 2, 2))), jax.devices()[:7], np.float64)
