"""Choosing backend, decomposition and mesh; refusals; either backend on two processes; and
`fft.backend: auto`, which is measured once, kept, and decided by the first process."""

import os
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from run_support import fresh

from simulator.errors import UserError
from simulator.spectral import Grid, Modes, make_transform
from simulator.spectral.backends import candidates, choose
from simulator.spectral.requested_transform import Request
from simulator.spectral.timing import Measurement, worth_timing

CUBE = Modes(Grid((64, 64, 64)))  # 64 planes in y, 22 in kz


def named(found) -> list[str]:
    return [str(c).removeprefix("custom_partitioning ") for c in found]


def test_slabs_while_there_are_planes_then_pencils_unless_a_plan_is_asked_for():
    assert named(candidates(CUBE, 22))[0] == "z_xy on 22"
    assert named(candidates(CUBE, 24))[0].startswith("z_y_x on ")
    assert choose(CUBE, 256)[0].mesh == (16, 16)
    # the fewest points and modes per device, padding included
    assert choose(CUBE, 352)[0].mesh == (16, 22)
    assert named(choose(CUBE, 4, decomposition="zx_y")) == ["zx_y on 4"]
    assert {c.decomposition for c in choose(CUBE, 4, decomposition="pencil")} == {"pencil"}
    assert choose(CUBE, 3, decomposition="pencil")[0].mesh in {(1, 3), (3, 1)}
    assert {c.backend for c in choose(CUBE, 4, "auto")} == {"custom_partitioning", "jaxdecomp"}


def test_a_mesh_can_be_asked_for():
    assert [c.mesh for c in choose(CUBE, 8, mesh=(4, 2))] == [(4, 2)]
    assert {c.decomposition for c in choose(CUBE, 8, mesh=(1, 8))} == {"slab", "pencil"}
    with pytest.raises(
        UserError, match=r"^fft\.mesh: 3 x 2 is 6 devices, there are 8; use one of: \[1, 8\], "
    ):
        choose(CUBE, 8, mesh=(3, 2))
    with pytest.raises(UserError, match=r"^fft\.mesh: 1 x 32 leaves devices without planes; use"):
        choose(Modes(Grid((64, 64, 16))), 32, decomposition="pencil", mesh=(1, 32))


@pytest.mark.parametrize("count", [1024, 2048, 4096, 8192])
def test_pencils_on_thousands_of_devices_hardly_pad(count):
    """683 planes in kz of 2048^3, on 16 to 64 columns: 704 at most."""
    modes = Modes(Grid((2048, 2048, 2048)))
    rows, columns = choose(modes, count)[0].mesh
    _, my, mz = modes.counts
    assert -(-mz // columns) * columns <= 1.05 * mz and -(-my // rows) * rows <= 1.05 * my


def test_usable_counts_and_every_proper_factorisation_is_timed():
    def usable_counts(modes, most, *wanted, **chosen):
        return [n for n in range(1, most + 1) if candidates(modes, n, *wanted, **chosen)]

    assert usable_counts(CUBE, 100, decomposition="slab") == list(range(1, 23))
    assert usable_counts(CUBE, 8, "jaxdecomp") == [1, 2, 4, 8]
    assert usable_counts(Modes(Grid((4, 1, 1))), 64) == [1]
    flat = usable_counts(CUBE, 100)
    assert flat[-1] > 90 and not {47, 53, 59, 61, 97} & set(flat)  # too large primes have no mesh
    found = worth_timing(choose(CUBE, 12, "auto"))
    meshes = [c.mesh for c in found if (c.backend, c.plan) == ("custom_partitioning", "z_y_x")]
    assert sorted(meshes) == [(2, 6), (3, 4), (4, 3), (6, 2)]
    assert sum(c.plan == "z_xy" for c in found) == 1


@pytest.mark.parametrize(
    "shape, count, backend, decomposition, parts",
    [
        (
            *((64, 64, 64), 64, "custom_partitioning", "slab"),
            (
                "devices.count: 64 devices cannot share a 64 x 64 x 64 grid in slab transforms of custom",
                "slabs take at most 22 devices (64 planes in y, 22 in kz), pencils at most 43 x 22 (64 in x and",
                "Possible: devices.count: 22, fft.decomposition: pencil",
            ),
        ),
        (
            *((64, 63, 62), 4, "jaxdecomp", "auto"),
            (
                "jaxdecomp: jaxdecomp does not pad: slabs need z and x or y",
                "Possible: devices.count: 2, fft.backend:",
            ),
        ),
        (
            *((8, 8, 8), 1000, "auto", "auto"),
            (
                "of auto: slabs take at most 3 devices",
                "; jaxdecomp does not pad: ",
                "Possible: devices.count: 64",
            ),
        ),
    ],
)
def test_refusals_give_the_numbers_and_what_works(shape, count, backend, decomposition, parts):
    with pytest.raises(UserError) as refused:
        choose(Modes(Grid(shape)), count, backend, decomposition)
    assert all(part in str(refused.value) for part in parts)


def test_the_largest_number_of_devices_is_a_multiple_of_the_processes():
    request = Request(CUBE, np.float64, "custom_partitioning", "slab", "auto", "auto", "full")
    assert request.most(5) == 5 and request.most(5, processes=2) == 4
    assert request.most(100) == 22 and request.most(1, processes=2) is None
    # Two devices do not make this mesh, but six do.
    meshed = Request(CUBE, np.float64, "custom_partitioning", "auto", (3, 2), "auto", "full")
    assert meshed.most(8, processes=2) == 6
    meshed.check("auto", 8, processes=2)


def test_jaxdecomp_is_imported_only_when_chosen():
    done = fresh(
        """
        import sys, jax; from simulator.spectral import Grid, make_transform
        make_transform(Grid((8, 8, 8)), jax.devices()[:1]).forward
        assert 'jaxdecomp' not in sys.modules
    """,
        JAX_PLATFORMS="cpu",
    )
    assert done.returncode == 0, done.stderr


MODES = Modes(Grid((8, 8, 8)))


@pytest.mark.spmd
def test_measured_once_and_kept(tmp_path: Path):
    devices = jax.devices()[:2]
    lines = []
    began = time.perf_counter()
    choice = Measurement(MODES, devices, np.float64).fastest(
        tmp_path / "cache", report=lines.append
    )
    assert list(choice["milliseconds"].values()) == sorted(choice["milliseconds"].values())
    assert 0 < sum(choice["milliseconds"].values()) < 1e3 * (time.perf_counter() - began)
    staged = {f"custom_partitioning {plan} on 2" for plan in ("z_xy", "zx_y")}
    assert staged | {"jaxdecomp slab on 1 x 2"} <= set(choice["milliseconds"])
    assert len(lines) == 1 and lines[0].startswith(
        f"transform: {choice['backend']} {choice['plan']} on "
    )
    # what is recorded gives the same transform without measuring
    t = make_transform(MODES.grid, devices, backend=choice["backend"], decomposition=choice["plan"])
    assert t.name.removesuffix("_native") == f"{choice['backend']}_{choice['plan']}"

    again = Measurement(MODES, devices, np.float64).fastest(tmp_path / "cache", report=lines.append)
    assert again == choice and len(lines) == 1  # not measured again
    seen = []

    def once_more(**changed):
        measurement = Measurement(MODES, devices, np.float64, **changed)
        measurement.fastest(tmp_path / "cache", lambda mine: seen.append(mine) or choice)

    once_more(nodes=2)  # the same devices with other links between them
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text("{")  # cut short: as if it were not there
    once_more()
    assert seen == [None, None]


@pytest.mark.parametrize("opened", ["file", "folder"])
def test_a_choice_that_others_could_have_written_is_not_read(tmp_path, opened):
    devices = jax.devices()[:1]
    seen = []
    folder = tmp_path / "cache"

    def measure() -> None:
        measurement = Measurement(MODES, devices, np.float64)
        measurement.fastest(folder, lambda mine: seen.append(mine) or mine)

    # Programs would be kept with the modes that follow from this umask, and refused by later tests.
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    before = os.umask(0o002)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    try:
        measure()
        measure()
    finally:
        os.umask(before)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    (kept,) = folder.iterdir()
    {"file": kept, "folder": folder}[opened].chmod(0o777)
    measure()
    first, _, second, third, _ = seen
    assert (first, third) == (None, None) and second is not None


@pytest.mark.spmd
def test_the_first_process_decides():
    """What this process reads and measures is replaced by what the first one has."""
    devices = jax.devices()[:2]
    verdicts = iter([{"backend": "jaxdecomp", "plan": "slab", "on": [1, 2], "milliseconds": {}}])
    choice = Measurement(MODES, devices, np.float64).fastest(None, lambda mine: next(verdicts))
    assert (choice["backend"], choice["plan"]) == ("jaxdecomp", "slab")
    told = iter([None, [3.0, 2.0]])
    odd = Modes(Grid((5, 7, 9)))  # jaxDecomp cannot share it
    silent = {"broadcast": lambda mine: next(told), "report": lambda line: None}
    choice = Measurement(odd, devices, np.float64, "slab").fastest(**silent)
    assert (choice["backend"], choice["plan"]) == ("custom_partitioning", "zx_y")
    assert list(choice["milliseconds"].values()) == [2.0, 3.0]


@pytest.mark.spmd
def test_an_unusable_folder_is_no_failure(tmp_path: Path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    choice = Measurement(MODES, jax.devices()[:4], np.float32, "slab").fastest(folder)
    assert choice["backend"] == "jaxdecomp"  # the only slab of 8^3 on 4 devices


def test_what_does_not_work_is_refused():
    with pytest.raises(UserError, match=r"^devices\.count: 7 devices cannot share"):
        Measurement(Modes(Grid((2, 2, 2))), jax.devices()[:7], np.float64).fastest()
    for option, words in (
        ({"block": 2}, r"^fft\.backend: jaxdecomp visits physical space whole"),
        ({"exchange": "single"}, r"^fft\.exchange: jaxdecomp sends full numbers"),
        ({"kernels": "native"}, r"^fft\.kernels: jaxdecomp has no native kernels"),
        ({"members": 2}, r"^fft\.backend: jaxdecomp lays no ensemble over devices"),
        ({"sequential": True}, r"^jaxdecomp transforms all components together"),
    ):
        with pytest.raises(UserError, match=words):
            make_transform(Grid((8, 8, 8)), jax.devices()[:2], backend="jaxdecomp", **option)
