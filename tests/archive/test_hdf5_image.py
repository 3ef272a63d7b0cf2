"""An HDF5 file in a file object whose writes fail raises the error of the system."""

import errno
import io
from pathlib import Path

import numpy as np
import pytest

from simulator.archive.hdf5_image import hdf5_into


class Limited(io.BytesIO):
    """A file on a disk with room for `room` bytes."""

    room = 4096

    def write(self, data) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("room", [0, 100, 4096])
def test_a_full_disk_is_named_as_such(room: int):
    """h5py alone raises AttributeError, `object has no attribute 'flush'`, or RuntimeError."""
    disk = Limited()
    disk.room = room
    with pytest.raises(OSError) as error, hdf5_into(disk, "latest", Path("a.h5")) as file:
        file["x"] = np.zeros(10_000)
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, "a.h5")


def test_without_an_error_the_file_is_whole_and_a_bug_stays_what_it_is():
    image = io.BytesIO()
    with hdf5_into(image, "latest", Path("a.h5")) as file:
        file["x"] = np.arange(3)
    assert image.getvalue()[:4] == b"\x89HDF"
    with pytest.raises(ZeroDivisionError), hdf5_into(io.BytesIO(), "latest", Path("a.h5")):
        raise ZeroDivisionError
