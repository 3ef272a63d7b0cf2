"""Makes yt data sets of snapshots, with units and with fields that yt reads when it needs them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.archive.reader import Snapshot, StoredField
from simulator.errors import UserError

if TYPE_CHECKING:
    from yt.data_objects.static_output import Dataset


def yt_data(snapshot: Snapshot) -> "Dataset":
    """The fields of a snapshot over x, y and z, or x and y, as a yt data set; a plane is a box of one layer of unit
    depth. Vectors become `NAME_x`, ..., with units in `code_length`, `code_time` and `code_mass`; a wave function
    becomes its real and imaginary parts, `NAME_real` and `NAME_imag`. `velocity` and `density` are also yt's own gas
    fields, from which yt derives `vorticity_x`, ... Raises UserError if yt is not installed or the snapshot has no
    such field.
    """
    try:
        import yt
    except ImportError as error:
        raise UserError(f"to_yt needs the package {error.name}: pip install 'simulator[readers]'") from None
    fields: dict[tuple[str, str], Any] = {}
    shape: tuple[int, ...] = ()
    for name, stored in snapshot.items():
        if len(stored.axes) not in (2, 3) or any(axis.spacing is None for axis in stored.axes):
            continue
        shape = stored.entry.extents
        units = _units(str(stored.attributes.get("units", "")))
        for index, path in stored.entry.component_paths(name):
            suffix = path.removeprefix(name).replace("/", "_")
            if stored.dtype.kind == "c":
                fields["stream", f"{name}{suffix}_real"] = (_reader(stored, index, "real"), units)
                fields["stream", f"{name}{suffix}_imag"] = (_reader(stored, index, "imag"), units)
            else:
                fields["stream", f"{name}{suffix}"] = (_reader(stored, index, None), units)
    if not fields:
        raise UserError(f"{snapshot.path}: holds no field over x, y and z, or over x and y")
    first = next(s for s in snapshot.values() if s.entry.extents == shape)
    edges = [[a.origin, a.origin + a.size * (a.spacing or 1.0)] for a in first.axes]
    layer = 3 - len(shape)
    return yt.load_uniform_grid(  # pyright: ignore[reportPrivateImportUsage]
        fields,
        (*shape, *(1,) * layer),
        length_unit=1.0,
        mass_unit=1.0,
        time_unit=1.0,
        bbox=np.array([*edges, *[[0.0, 1.0]] * layer]),
        sim_time=snapshot.time,
        periodicity=(True, True, True),
        dataset_name=str(snapshot.path),
        unit_system="code",
    )


def _units(text: str) -> str:
    """`length/time^2` in yt's notation; empty if the run's units are not dimensions."""
    units = text.replace("^", "**")
    for dimension in ("length", "time", "mass"):
        units = units.replace(dimension, f"code_{dimension}")
    return units.replace(" ", "*") if "code_" in units or not units else ""


def _reader(stored: StoredField, index: tuple[int, ...], part: str | None) -> Any:
    def read(grid: object, name: object) -> np.ndarray:
        values = stored[(*index, ...)]
        values = np.ascontiguousarray(values if part is None else getattr(values, part), np.float64)
        return values if values.ndim == 3 else values[..., None]

    return read
