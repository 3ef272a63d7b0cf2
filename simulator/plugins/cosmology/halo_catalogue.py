"""Catalogues of halos, `RUN/halos/NAME_STEP.0.h5`: one for each kind of matter and snapshot.

A file holds the columns as the table `catalogue`, which pandas reads, and again at the root under
yt's names; also `particles/ids`, the members of all halos one after the other, and further arrays
in groups. Like an index it ends with a checksum that covers the manifest of its snapshot."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from simulator.archive.derived import write_derived
from simulator.archive.manifest import name_of_step, read_manifest
from simulator.errors import UserError
from simulator.files import reading, reason
from simulator.words import brief

FOLDER = "halos"  # The name of the command.
# yt takes the number before the ending for that of a part.
_FILES = "*_*.0.h5"
_END = ".0.h5"
_FOR_YT = {
    "id": "particle_identifier",
    "mass": "particle_mass",
    "radius": "virial_radius",
    "number": "particle_number",
    **{f"{v}_{a}": f"particle_{v}_{a}" for v in ("position", "velocity") for a in "xyz"},
}
_HEADINGS = {
    "id": "id",
    "number": "particles",
    "mass": "mass",
    "position_x": "x",
    "position_y": "y",
    "position_z": "z",
    "spread": "velocity dispersion",
    "radius": "radius",
    "sphere_mass": "mass in radius",
    "peak_density": "peak density",
    "core_radius": "core radius",
    "soliton_radius": "soliton radius",
    "core_mass": "core mass",
    "expected_core_mass": "expected core mass",
}
"""The columns that the command prints, and their headings."""
_MEASURES = {
    "mass": "code_mass",
    "radius": "code_length",
    "density": "code_mass/code_length**3",
    "spread": "code_velocity",
    **{f"position_{a}": "code_length" for a in "xyz"},
    **{f"center_of_mass_{a}": "code_length" for a in "xyz"},
    **{f"velocity_{a}": "code_velocity" for a in "xyz"},
}
"""yt's units by the ends of the columns' names."""


def _measure(column: str) -> str:
    """yt's unit of a column; empty for numbers without one."""
    ends = (unit for end, unit in _MEASURES.items() if column == end or column.endswith(f"_{end}"))
    return next(ends, "")


@dataclass(frozen=True)
class HaloCatalogue:
    """The halos of the matter `name` in one snapshot. `tables` are the groups of further arrays."""

    name: str
    step: int
    columns: dict[str, np.ndarray]
    attributes: dict[str, Any]
    tables: dict[str, dict[str, np.ndarray]]
    units: Mapping[str, str] = field(default_factory=dict)
    """The run's units by yt's, as they are printed; none for numbers without units."""

    @property
    def of_waves(self) -> bool:
        return "core_radius" in self.columns

    @property
    def time(self) -> float:
        return float(self.attributes["current_time"])

    def summary(self) -> str:
        """The number of halos and their share of all mass in a line."""
        z = round(self.attributes["current_redshift"], 4) + 0
        count = len(self.columns["id"])
        when = f"z = {z:g}" if self.attributes["cosmological_simulation"] else f"t = {self.time:g}"
        if self.of_waves and not count:
            peak, least = (self.attributes[n] for n in ("peak_overdensity", "overdensity"))
            why = f"the densest point has {peak:.3g} times the mean density"
            return f"{when}: 0 cores: {why}, a halo {least:.3g} times"
        share = np.nansum(self.columns["mass"]) / self.attributes["total_mass"]
        return f"{when}: {count} {'cores' if self.of_waves else 'halos'}, {100 * share:.3g} % of the mass"

    def rows(self, most: int = 10) -> list[list[str]]:
        """A table of the first halos, with its header."""
        names = [name for name in _HEADINGS if name in self.columns]
        body = zip(*(self.columns[name][:most].tolist() for name in names), strict=True)
        units = [self.units.get(_measure(name), "") for name in names]
        headings = [_HEADINGS[name] for name in names]
        return [
            [f"{h} ({unit})" if unit else h for h, unit in zip(headings, units, strict=True)],
            *([self._shown(v) for v in row] for row in body),
        ]

    def _shown(self, value: float) -> str:
        """A value as text; cores of waves have no number for what the grid does not resolve."""
        return "unresolved" if self.of_waves and math.isnan(value) else brief(value)


def catalogue_of(run: Path, name: str, step: int) -> Path:
    return run / FOLDER / f"{name}_{name_of_step(step)}{_END}"


def catalogues(run: Path) -> list[HaloCatalogue]:
    """The catalogues of the run, by name and time. Raises UserError if one cannot be read."""
    return [_read(path) for path in sorted((run / FOLDER).glob(_FILES))]


def _read(path: Path) -> HaloCatalogue:
    name, _, step = path.name.removesuffix(_END).rpartition("_")
    try:
        with reading(path), h5py.File(path, "r", locking=False) as file:
            table: Any = file["catalogue"]
            groups: Any = {key: item for key, item in file.items() if isinstance(item, h5py.Group)}
            tables = {
                key: {k: item[...] for k, item in group.items()} for key, group in groups.items()
            }
            return HaloCatalogue(
                name, int(step), {n: table[n] for n in table.dtype.names}, dict(file.attrs), tables
            )
    except (OSError, KeyError) as error:
        raise UserError(f"{path}: {reason(error)}; simulator halos RUN makes it again") from None


def write_catalogue(run: Path, catalogue: HaloCatalogue) -> Path:
    """Write the file of a catalogue; returns it. Raises OSError."""
    path = catalogue_of(run, catalogue.name, catalogue.step)
    snapshot = run / "snapshots" / name_of_step(catalogue.step)
    path.parent.mkdir(exist_ok=True)
    fill = partial(_fill, catalogue=catalogue)
    write_derived(path, fill, snapshot, read_manifest(snapshot))
    return path


def _fill(file: h5py.File, catalogue: HaloCatalogue) -> None:
    count = len(catalogue.columns["id"])
    columns = {"number": np.ones(len(catalogue.columns["id"]), int), **catalogue.columns}
    file.attrs.update({"data_type": b"halo_catalog", "num_halos": count, **catalogue.attributes})
    columns["particle_index_start"] = np.cumsum(columns["number"]) - columns["number"]
    for name, values in columns.items():
        dataset = file.create_dataset(_FOR_YT.get(name, name), data=values)
        dataset.attrs["units"] = _measure(name).encode()
    table = np.empty(count, [(name, values.dtype) for name, values in catalogue.columns.items()])
    for name, values in catalogue.columns.items():
        table[name] = values
    file.create_dataset("catalogue", data=table, chunks=(max(count, 1),), maxshape=(None,))
    for group, arrays in catalogue.tables.items():
        for name, values in arrays.items():
            file.create_dataset(f"{group}/{name}", data=values)
