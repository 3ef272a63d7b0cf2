"""Makes yt data sets of snapshots, with units and with fields that yt reads when it needs them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.archive.snapshot_reader import Snapshot, StoredField, configuration_of
from simulator.errors import UserError

if TYPE_CHECKING:
    from yt.data_objects.static_output import Dataset

    from simulator.physics.models.cosmology import Units


def yt_data(snapshot: Snapshot, h: float | None = None) -> "Dataset":
    """The fields of a snapshot over x, y and z, or x and y, as a yt data set; a plane is a box of
    one layer of unit depth. Vectors become `NAME_x`, ..., with units in `code_length`, `code_time`
    and `code_mass`; a wave function becomes its real and imaginary parts, `NAME_real` and
    `NAME_imag`. `velocity` and `density` are also yt's own gas fields, from which yt derives
    `vorticity_x`, ... Particles are a type of their name, e.g. ("dark_matter", "particle_mass"). In
    an expanding box with `model.units` the data set has a redshift and a cosmology, and its code
    units are proper lengths, times and peculiar velocities; in units of Mpc/h that needs H0 in 100
    km/s/Mpc, `h` if the run's configuration does not name it. Raises UserError if yt is not
    installed, the snapshot has no such field, or h is missing."""
    from simulator.archive.gadget import clock_of  # which imports JAX
    from simulator.physics.initial.stored import CM_PER_KPC, GRAMS

    try:
        import yt
    except ImportError as error:
        raise UserError(
            f"to_yt needs the package {error.name}: pip install 'simulator[readers]'"
        ) from None
    clock = clock_of(configuration_of(snapshot.manifest), snapshot.time)
    h = clock.h if clock is not None and clock.h is not None else h
    if clock is not None and clock.unit is not None and clock.unit.per_h and h is None:
        raise UserError(
            f"{snapshot.path}: its lengths are Mpc/h; give H0 in 100 km/s/Mpc, e.g. to_yt(h=0.68)"
        )
    fields: dict[tuple[str, str], Any] = {}
    shape: tuple[int, ...] = ()
    for name, stored in snapshot.items():
        if len(stored.axes) not in (2, 3) or any(axis.spacing is None for axis in stored.axes):
            continue
        shape = stored.entry.extents
        units = _units(
            str(stored.attributes.get("units", "")), clock.unit if clock is not None else None
        )
        for index, path in stored.entry.component_paths(name):
            suffix = path.removeprefix(name).replace("/", "_")
            for part in ("real", "imag") if stored.dtype.kind == "c" else (None,):
                called = f"{name}{suffix}_{part}" if part else f"{name}{suffix}"
                fields["stream", called] = (_Reader(stored, index, part), units)
    if not fields:
        raise UserError(f"{snapshot.path}: holds no field over x, y and z, or over x and y")
    first = next(s for s in snapshot.values() if s.entry.extents == shape)
    edges = [[a.origin, a.origin + a.size * (a.spacing or 1.0)] for a in first.axes]
    layer = 3 - len(shape)
    for species, records in snapshot.particles.items():
        for record, (names, units) in _RECORDS.items():
            values = np.asarray(records[record], np.float64) if record in records else None
            if values is not None:
                fields |= {
                    (species, n): (v, units)
                    for n, v in zip(names, np.atleast_2d(values), strict=True)
                }
    length = mass = time = 1.0
    if clock is not None and clock.unit is not None:
        per_h = h if clock.unit.per_h and h is not None else 1.0
        length = clock.a * clock.unit.megaparsecs * 1e3 * CM_PER_KPC / per_h
        mass = GRAMS * 1e-10 / per_h
        time = clock.a * length / 1e5
    data: Any = yt.load_uniform_grid(  # pyright: ignore[reportPrivateImportUsage]
        fields,
        (*shape, *(1,) * layer),
        bbox=np.array([*edges, *[[0.0, 1.0]] * layer]),
        periodicity=(True, True, True),
        length_unit=length,
        mass_unit=mass,
        time_unit=time,
        unit_system="code",
        sim_time=snapshot.time,
        dataset_name=str(snapshot.path),
    )
    if clock is not None:
        s = clock.cosmology
        data.cosmological_simulation = 1
        data.current_redshift = 1 / clock.a - 1
        data.omega_matter = s.matter
        data.omega_radiation = s.radiation
        data.omega_lambda = 1 - s.matter - s.radiation - s.curvature
        data.hubble_constant = h or 1.0
        data.set_units()
    return data


_RECORDS = {
    "id": (("particle_index",), ""),
    "position": (tuple(f"particle_position_{axis}" for axis in "xyz"), "code_length"),
    "velocity": (tuple(f"particle_velocity_{axis}" for axis in "xyz"), "code_length/code_time"),
    "mass": (("particle_mass",), "code_mass"),
}
"""yt's names and units of the records of particles."""


def _units(text: str, unit: "Units | None") -> str:
    """`length/time^2` in yt's notation; empty if the run's units are not dimensions."""
    if unit is not None:
        text = {
            "km/s": "length/time",
            "km^2/s^2": "length^2/time^2",
            unit.density: "mass/length^3",
        }.get(text, text)
    units = text.replace("^", "**")
    for dimension in ("length", "time", "mass"):
        units = units.replace(dimension, f"code_{dimension}")
    return units.replace(" ", "*") if "code_" in units or not units else ""


@dataclass(frozen=True)
class _Reader:
    """The function of yt that reads one component, `real` or `imag` for a `part` of complex
    values."""

    stored: StoredField
    index: tuple[int, ...]
    part: str | None
    shape: tuple[int, ...] = (
        1,
        1,
        1,
    )  # yt 4.4 looks whether a field beside particles is one of theirs

    def __call__(self, grid: object, name: object) -> np.ndarray:
        values = self.stored[(*self.index, ...)]
        values = np.ascontiguousarray(
            values if self.part is None else getattr(values, self.part), np.float64
        )
        return values if values.ndim == 3 else values[..., None]
