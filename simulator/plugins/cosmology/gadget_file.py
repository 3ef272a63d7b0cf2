"""Writes snapshots as HDF5 files of GADGET-4, which yt, pynbody and most codes of cosmology read.

Lengths are kpc/h or Mpc/h, masses 1e10 Msun/h, and a file's velocities are peculiar velocities in
km/s divided by sqrt(a): Springel et al., Mon. Not. R. Astron. Soc. 506, 2871 (2021), and the manual
of GADGET-4. Velocities of a run are supercomoving, a times the peculiar velocity."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from simulator.measure.kind import StoredSnapshot
from simulator.physics.models import Equation
from simulator.physics.models.split_equation import populations_of
from simulator.plugins.cosmology.gadget_particles import stated_header
from simulator.plugins.cosmology.gadget_start import CM_PER_KPC, GRAMS
from simulator.plugins.gravity.cosmology import Background, CosmologySettings
from simulator.plugins.gravity.expanding import stated_h
from simulator.plugins.gravity.units import UNITS, Units

TYPES = (1, 2, 3, 4, 5)  # The types of the components in their order; type 0 is gas.
AT_ONCE = 1 << 20  # The most particles in memory while a file is written.


class Clock(NamedTuple):
    """The expanding background at the moment of a snapshot."""

    a: float
    cosmology: CosmologySettings
    unit: Units | None
    h: float | None  # H0 in 100 km/s/Mpc; None if it is unknown.


def clock_of(configuration: Mapping[str, Any], time: float) -> Clock | None:
    """The clock of a run with this resolved configuration; None for a static box. Units of Mpc/h do
    not contain h: it is then that of `output.gadget` or of the start."""
    model = configuration.get("model") or {}
    if not model.get("cosmology"):
        return None
    cosmology = CosmologySettings.model_validate(model["cosmology"])
    unit = UNITS.get(model.get("units", ""))
    h = next(iter(stated_h(configuration).values()), None)
    return Clock(Background(cosmology).scale_factor_at(time), cosmology, unit, h)


def fill_gadget(
    file: h5py.File, snapshot: StoredSnapshot, configuration: Mapping[str, Any]
) -> None:
    """Write the particles of a snapshot: each component is a type, from 1 on, in the order of the
    configuration."""
    clock = clock_of(configuration, snapshot.time)
    # See `gadget_problem`.
    assert clock is not None and clock.unit is not None and clock.h is not None
    per_h = 1.0 if clock.unit.per_h else clock.h
    length = clock.unit.megaparsecs * 1e3 * per_h
    scales = {"position": length, "velocity": clock.a**-1.5, "mass": 1e-10 * per_h}
    is_double = configuration["output"]["gadget"].get("precision", "double") == "double"
    counts = np.zeros(6, np.uint64)
    masses = np.zeros(6)
    for kind, records in zip(TYPES, snapshot.particles.values(), strict=False):
        counts[kind] = records["id"].size
        group = file.create_group(f"PartType{kind}")
        masses[kind] = _fill_type(group, records, scales, clock.h, is_double)
    box = snapshot.attributes["box"][0] * length
    _write_header(file, clock, box, counts, masses, is_double=is_double)


def _fill_type(
    group: h5py.Group,
    records: Mapping[str, Any],
    scales: Mapping[str, float],
    h: float,
    is_double: bool,
) -> float:
    """Write the particles of one type; returns their mass in the file's unit if it is the same for
    all and not written, else 0."""
    size = records["id"].size
    pieces = [slice(n, min(n + AT_ONCE, size)) for n in range(0, size, AT_ONCE)]
    ends = [(m.min(), m.max()) for m in (records["mass"][piece] for piece in pieces)]
    equal = min(low for low, _ in ends) == max(high for _, high in ends)
    for record, (name, powers) in DATASETS.items():
        if record == "mass" and equal:
            continue
        shape = (size, 3) if record in ("position", "velocity") else (size,)
        real = np.float64 if is_double else np.float32
        data_set = group.create_dataset(name, shape, np.uint64 if record == "id" else real)
        data_set.attrs.update(_described(powers, h))
        for piece in pieces:
            data_set[piece] = records[record][..., piece].T * scales.get(record, 1)
    return ends[0][0] * scales["mass"] if equal else 0.0


def _write_header(
    file: h5py.File,
    clock: Clock,
    box: float,
    counts: np.ndarray,
    masses: np.ndarray,
    *,
    is_double: bool,
) -> None:
    """Write the header and the parameters: `box` in kpc or kpc/h; the number of particles of each
    type, and their mass, 0 if it differs among them."""
    s = clock.cosmology
    common = {
        "Time": clock.a,
        "Redshift": 1 / clock.a - 1,
        "BoxSize": box,
        "NumFilesPerSnapshot": 1,
        "Omega0": s.matter,
        "HubbleParam": clock.h,
        "OmegaLambda": 1 - s.matter - s.radiation - s.curvature,
        "UnitLength_in_cm": CM_PER_KPC,
        "UnitMass_in_g": GRAMS,
        "UnitVelocity_in_cm_per_s": 1e5,
    }
    flags = dict.fromkeys(("Sfr", "Cooling", "Feedback", "StellarAge", "Metals", "Entropy_ICs"), 0)
    file.create_group("Header").attrs.update(
        {
            **common,
            "MassTable": masses,
            "NumPart_ThisFile": counts.astype(np.uint32),
            "NumPart_Total": counts,
            "NumPart_Total_HighWord": (counts >> np.uint64(32)).astype(np.uint32),
            "Flag_DoublePrecision": int(is_double),
            **{f"Flag_{name}": n for name, n in flags.items()},
        }
    )
    file.create_group("Parameters").attrs.update(
        {**common, "ComovingIntegrationOn": 1, "Hubble": 0.1}
    )


DATASETS = {
    "position": ("Coordinates", (1, -1, 1, 0, 0)),
    "velocity": ("Velocities", (0.5, 0, 0, 0, 1)),
    "mass": ("Masses", (0, -1, 0, 1, 0)),
    "id": ("ParticleIDs", (0, 0, 0, 0, 0)),
}
"""The data set of each record, and its powers of a, h, length, mass and velocity."""


def _described(powers: tuple[float, ...], h: float) -> dict[str, float]:
    names = ("a_scaling", "h_scaling", "length_scaling", "mass_scaling", "velocity_scaling")
    length, mass, velocity = powers[2:]
    to_cgs = CM_PER_KPC**length * GRAMS**mass * 1e5**velocity
    return {**dict(zip(names, map(float, powers), strict=True)), "to_cgs": to_cgs}


def gadget_problem(configuration: Mapping[str, Any], model: Equation) -> str | None:
    """Why the snapshots of a run cannot be written as GADGET files; None if they can."""
    box = configuration["grid"]["box"]
    count = len(populations_of(model))
    if not 1 <= count <= len(TYPES):
        return f"writes 1 to {len(TYPES)} components of kind particles, and this model has {count}"
    clock = clock_of(configuration, 0.0)
    if clock is None or clock.unit is None:
        return f"needs model.units: {' or '.join(UNITS)}, and model.background"
    if len(set(box)) > 1:
        return f"needs a cubic box, not {' x '.join(f'{length:g}' for length in box)}"
    if clock.h is None:
        return "needs H0 in 100 km/s/Mpc in units of Mpc / h, e.g. h: 0.68"
    initial = configuration["initial"]
    for start in (initial, *initial.get("components", {}).values()):
        path = Path(start.get("path") or "")
        # A run goes on without the file of its start.
        if start["kind"] in ("gadget", "music") and path.is_file():
            theirs = stated_header(path).get("HubbleParam", clock.h)
            if not math.isclose(clock.h, theirs, rel_tol=1e-6):
                return f"h: {clock.h:g} contradicts {path}, whose HubbleParam is {theirs:g}"
    return None
