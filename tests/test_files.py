import errno
import os
import stat

import pytest

from simulator.errors import RunFailure
from simulator.files import reason, remove_tree, write_durably


def test_pieces_become_one_file_and_leave_nothing_else(tmp_path):
    write_durably(tmp_path / "a", [b"one", memoryview(b"two"), b""])
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert os.listdir(tmp_path) == ["a"]


def test_what_was_there_stays_when_the_pieces_fail(tmp_path):
    write_durably(tmp_path / "a", [b"old"])

    def pieces():
        yield b"new"
        raise RunFailure("no more")

    with pytest.raises(RunFailure, match="no more"):
        write_durably(tmp_path / "a", pieces())
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_modes_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_durably(tmp_path / "a", [b"x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~mask


def test_errors_name_the_file(tmp_path):
    with pytest.raises(OSError) as caught:
        write_durably(tmp_path / "absent" / "a", [b"x"])
    assert caught.value.errno == errno.ENOENT
    assert reason(caught.value) == f"No such file or directory: {tmp_path / 'absent' / 'a'}"
    assert reason(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) == "No space left on device"


def test_removing_what_is_gone_is_no_error(tmp_path):
    remove_tree(tmp_path / "absent")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    remove_tree(tmp_path / "folder")
    assert not os.listdir(tmp_path)
