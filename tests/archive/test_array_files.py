"""Array files of other programs: read as they are, or refused in a line that names the file."""

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import slow

from simulator.archive.array_file import ArrayFile
from simulator.config import load_config
from simulator.errors import UserError

VALUES = np.arange(24.0).reshape(2, 3, 4)
ALL = (slice(None),) * 3
GOOD = {"descr": "'<f8'", "fortran_order": "False", "shape": "(2, 3, 4)"}
TEXTS = [
    "",
    "(",
    "{}",
    "[]",
    "'|V8'",
    "'<M8[s]'",
    "'O'",
    "1",
    "True",
    "-1",
    "10**30",
    "None",
    "'<f4'",
]
SHAPES = [
    "(2, 3, -4)",
    "(2, 3, 4.0)",
    "(2, 3, True)",
    f"(2, 3, {10**30})",
    "(1, 3, 4)",
    "(2, 3, 5)",
]


def npy(entries: dict[str, str]) -> bytes:
    """A file .npy with this text in its header."""
    text = "{" + ", ".join(f"'{name}': {value}" for name, value in entries.items()) + "}"
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + VALUES.tobytes()


def read(path: Path, dataset: str | None = None) -> np.ndarray:
    return ArrayFile(str(path), dataset).read(ALL)


def refused(path: Path, dataset: str | None = None) -> bool:
    """Whether the file is refused, in a line; else it holds a whole array of numbers."""
    try:
        file = ArrayFile(str(path), dataset)
        array = file.read((slice(None),) * len(file.shape))
    except UserError as error:
        assert str(error).startswith(str(path)) and len(str(error).splitlines()) == 1
        return True
    assert array.shape == file.shape and array.dtype.kind in "iufc"
    assert path.suffix != ".npy" or array.nbytes + 128 == path.stat().st_size
    return False


@pytest.mark.parametrize(
    ("key", "text"),
    [("shape", s) for s in SHAPES]
    + [(k, t) for k in GOOD for t in TEXTS if (k, t) != ("shape", "()")],
)
def test_odd_headers_are_refused(key: str, text: str, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(npy(GOOD))
    np.testing.assert_array_equal(read(path), VALUES)
    path.write_bytes(npy({**GOOD, key: text}))
    assert refused(path) or (key, text) == ("fortran_order", "True")


def archive(path: Path) -> None:
    np.savez(path.with_suffix(".npz"), values=VALUES)
    path.with_suffix(".npz").rename(path)


@pytest.mark.parametrize(
    "make",
    [archive, os.mkdir, lambda path: path.symlink_to(path), lambda path: path.write_bytes(b"")],
)
def test_files_of_other_kinds_are_refused(make: Callable[[Path], object], tmp_path):
    make(tmp_path / "a.npy")
    assert refused(tmp_path / "a.npy")


def damaged_chunk(path: Path) -> None:
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("v", data=VALUES, chunks=(1, 3, 4), fletcher32=True)
        place = stored.id.get_chunk_info(1).byte_offset
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def holding(item: object) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file["v"] = item

    return make


@pytest.mark.parametrize(
    "make",
    [
        damaged_chunk,
        *map(holding, (h5py.SoftLink("/v"), h5py.ExternalLink("no.h5", "/v"), h5py.Empty("f"))),
        *map(holding, ("text", np.array([b"a"]), np.zeros(3, [("a", "f8")]))),
    ],
)
def test_odd_data_sets_are_refused(make: Callable[[Path], None], tmp_path):
    make(tmp_path / "a.h5")
    assert refused(tmp_path / "a.h5", "v")


def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    """Nothing writes into the pipe, for which a reader would wait for ever."""
    os.mkfifo(tmp_path / "a.npy")
    (tmp_path / "run.yaml").write_text(
        "model: {kind: navier_stokes, viscosity: 0.1}\ntime: {stop: 1}\n"
        "initial: {kind: file, fields: {velocity: a.npy}}\n"
    )
    with pytest.raises(UserError, match=r"run.yaml:3: initial.fields.velocity.array: .*is a pipe"):
        load_config(tmp_path / "run.yaml")


@pytest.mark.parametrize("count", [60, slow(300)])
def test_bytes_changed_at_random(count: int, tmp_path):
    """Headers and lengths; changed values cannot be known in a format without checksums."""
    good = npy(GOOD)
    path = tmp_path / "a.npy"

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def changed(data: st.DataObject) -> None:
        content = bytearray(good)
        for place in data.draw(st.lists(st.integers(0, 127), max_size=4)):
            content[place] = data.draw(st.integers(0, 255))
        length = data.draw(st.sampled_from([len(good), len(good) - 1, len(good) + 1, 128, 64, 9]))
        path.write_bytes(bytes(content[:length]).ljust(length, b"x"))
        refused(path)

    changed()
