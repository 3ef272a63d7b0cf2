"""Arrays of values on the run's grid in the files of other programs."""

import os
from pathlib import Path
from typing import Annotated, Any, Protocol

import jax
import numpy as np
from jax.typing import DTypeLike
from pydantic import BeforeValidator

from simulator.errors import UserError
from simulator.settings import InputPath, RootedText, Settings
from simulator.spectral import Transform
from simulator.spectral.layout import PhysicalLayout


class ArraySettings(Settings):
    array: InputPath
    """A file .npy, or an HDF5 file, with the values (component, x, y, z) on the run's grid, of a
    scalar (x, y, z)."""
    dataset: str | None = None
    """The data set of the HDF5 file."""


def _block(value: object) -> Any:
    if not isinstance(value, str | os.PathLike):
        return value
    path, _, dataset = os.fspath(value).partition(":/")
    if isinstance(value, RootedText):
        path = RootedText(path).from_folder(value.folder)
    return {"array": path, "dataset": dataset or None}


ArrayInput = Annotated[ArraySettings, BeforeValidator(_block, json_schema_input_type=str | dict)]
"""{array, dataset}, or the same as text: `u.npy`, `rho.h5:/density`."""


class StoredValues(Protocol):
    """An array of values on a grid on disk."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype

    def values(self, place: PhysicalLayout, lead: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        """The array (*lead, x, y, z) on the points of `place`, zero in padding."""
        ...


class ArrayFiles(Protocol):
    """Opens arrays."""

    def array(self, path: str, dataset: str | None) -> StoredValues:
        """An array in a file of another program, as the run sees it: it keeps the checksum of the
        file, and reads no values if it is only checked. Raises UserError if there is none."""
        ...


def fitting_array(
    path: Path, dataset: str | None, lead: tuple[int, ...], transform: Transform, files: ArrayFiles
) -> StoredValues:
    """The array of a file. Raises UserError for another shape than the run's grid has, and for
    complex values of a real field."""
    array = files.array(str(path), dataset)
    shape = (*lead, *transform.grid.seen(transform.grid.shape))
    if array.shape != shape:
        problem = f"its shape is {array.shape}; {shape} is needed"
        raise UserError(f"{path}: {problem}, for arrays are not interpolated to another grid")
    if array.dtype.kind == "c" and transform.layout.real:
        raise UserError(f"{path}: holds complex values; real ones are needed")
    return array
