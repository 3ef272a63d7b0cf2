"""Finds the halos of particles and the cores of waves in the snapshots of a run."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from simulator.analysis.recompute import Recomputed
from simulator.archive.snapshot_reader import Snapshot
from simulator.config.overrides import Override
from simulator.errors import UserError
from simulator.physics.initial import StartFiles
from simulator.plugins.cosmology import halos as finder
from simulator.plugins.cosmology.cosmological import CosmologicalSettings
from simulator.plugins.cosmology.halo_catalogue import HaloCatalogue, write_catalogue
from simulator.plugins.cosmology.linear_power import Matter, linear_power, sigma, system_of_units
from simulator.plugins.cosmology.soliton import radial_ground_state
from simulator.plugins.gravity.composite import Composite
from simulator.plugins.gravity.cosmology import expansion
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.plugins.gravity.schrodinger_poisson import SchrodingerPoisson
from simulator.plugins.gravity.units import UNITS
from simulator.settings import Settings

# One megaparsec in cm, the mass of the sun in g.
_MEGAPARSEC = 3.0856775814913673e24
_SUN = 1.98840987e33
_PER_DECADE = 5  # Bins of the mass function.


def find_halos(
    path: Path, linking: float = 0.2, members: int = 20, overrides: Sequence[str | Override] = ()
) -> Iterator[tuple[Path, HaloCatalogue]]:
    """The catalogue of each snapshot of the run in `path`, and its file, when it is written. One
    process reads all particles of a snapshot. Raises UserError if the run has no snapshot, or no
    matter that forms halos."""
    recomputed = Recomputed(path, overrides)
    simulation = recomputed.simulation
    model = simulation.model
    initial = recomputed.config.initial
    matter = {"waves": model}
    starts = {"waves": initial}
    if isinstance(model, Composite):
        matter = {
            n: p if isinstance(p, ParticleComponent) else p.alone for n, p in model.parts.items()
        }
        starts = initial.components if initial.kind == "composite" else {}
    matter = {
        n: p
        for n, p in matter.items()
        if isinstance(p, ParticleComponent | SchrodingerPoisson) and p.gravity
    }
    if not matter or simulation.transform.grid.dimensions < 3:
        raise UserError(f"{path}: halos need particles or waves with gravity in three dimensions")
    if not simulation.cluster.is_first:
        return
    deviations = {
        name: _deviation(part, starts.get(name), cast(Any, simulation.inputs))
        for name, part in matter.items()
    }
    for snapshot in recomputed.snapshots:
        for name, part in matter.items():
            if isinstance(part, ParticleComponent):
                catalogue = _halos(name, part, snapshot, linking, members, deviations[name])
            else:
                catalogue = _cores(name, part, snapshot, "" if model is part else f"{name}_")
            yield write_catalogue(path, catalogue), catalogue


def _deviation(
    part: Matter, start: Settings | None, files: StartFiles
) -> Callable[[float], float] | None:
    """sigma(R) at a = 1 of the linear power spectrum from which all matter started; None if there
    is none."""
    if part.background is None or not isinstance(start, CosmologicalSettings) or start.share < 1:
        return None
    grid = part.transform.grid
    k: Any = np.geomspace(1e-3 * min(grid.fundamental), 100 / min(grid.spacing), 6000)
    power = np.asarray(linear_power(start, part, files)(k), float)
    return cache(lambda radius: sigma(k, power, radius))


def _about(part: Matter, snapshot: Snapshot, total: float) -> dict[str, Any]:
    """The attributes of a catalogue, with yt's names: `code` units of lengths are proper, of
    velocities peculiar."""
    a = 1.0 if part.background is None else part.background.scale_factor_at(snapshot.time)
    s = part.background and part.background.settings
    unit = UNITS.get(system_of_units(part))
    box = part.transform.grid.box
    # 1 in units of Mpc / h: the run does not know h.
    h = s.hubble / unit.hubble if s and unit else 1.0
    length = a * unit.megaparsecs * _MEGAPARSEC if unit else a
    return {
        "scale_factor": a,
        "total_mass": total,
        "current_time": snapshot.time,
        "current_redshift": 1 / a - 1,
        "cosmological_simulation": int(s is not None),
        "hubble_constant": h,
        "omega_matter": s.matter if s else 0.0,
        "omega_lambda": 1 - s.matter - s.radiation - s.curvature if s else 0.0,
        "domain_left_edge": np.zeros(3),
        "domain_right_edge": length * np.array(box),
        "domain_left_edge_units": b"cm",
        "domain_right_edge_units": b"cm",
        "length_unit": length,
        "mass_unit": _SUN if unit else 1.0,
        "velocity_unit": 1e5 if unit else 1.0,
        "length_unit_units": b"cm",
        "mass_unit_units": b"g",
        "velocity_unit_units": b"cm/s",
    }


def _printed(part: Matter) -> dict[str, str]:
    """The run's units by those of yt; none in a run without units."""
    if (unit := UNITS.get(system_of_units(part))) is None:
        return {}
    return {
        "code_length": unit.length,
        "code_mass": unit.mass,
        "code_mass/code_length**3": unit.density,
        "code_velocity": "km/s",
    }


def _halos(
    name: str,
    part: ParticleComponent,
    snapshot: Snapshot,
    linking: float,
    members: int,
    deviation: Callable[[float], float] | None,
) -> HaloCatalogue:
    stored = snapshot.particles[name]
    particles = {
        record: np.asarray(stored[record]) for record in ("id", "mass", "position", "velocity")
    }
    box = np.array(part.transform.grid.box)
    total = float(particles["mass"].sum())
    about = _about(part, snapshot, total)
    volume = float(box.prod())
    columns, ids = finder.halos(particles, box, linking, members)
    for record in ("velocity", "spread"):
        columns[record] = columns[record] / about["scale_factor"]
    profile = {"edges": finder.SHELLS, "density": columns.pop("profile")}
    columns |= {
        f"{n}_{a}": v[:, i] for n, v in columns.items() if v.ndim > 1 for i, a in enumerate("xyz")
    }
    columns = {n: v for n, v in columns.items() if v.ndim == 1}
    least = members * total / len(particles["id"])
    decades = np.log10(columns["mass"].max(initial=least) / least)
    edges = least * 10 ** (np.arange(int(decades * _PER_DECADE) + 2) / _PER_DECADE)
    count = np.histogram(columns["mass"], edges)[0]
    counted = {"edges": edges, "mass": np.sqrt(edges[1:] * edges[:-1]), "count": count}
    counted["dn_dlnm"] = count * _PER_DECADE / (volume * np.log(10))
    tables = {"particles": {"ids": ids}, "profiles": profile, "mass_function": counted}
    if deviation is not None and part.background is not None:
        growth = part.background.growth(about["scale_factor"]) / part.background.growth(1.0)
        mass = np.geomspace(edges[0] / 2, 2 * edges[-1], 80)
        tables["fits"] = finder.fitted_mass_functions(
            total / volume, lambda radius: growth * deviation(radius), mass
        )
    about |= {"linking_length": linking, "least_members": members}
    return HaloCatalogue(name, snapshot.step, columns, about, tables, _printed(part))


def _cores(name: str, part: SchrodingerPoisson, snapshot: Snapshot, prefix: str) -> HaloCatalogue:
    grid = part.transform.grid
    psi = f"{prefix}psi"
    rho = f"{prefix}density"
    if psi not in snapshot and rho not in snapshot:
        raise UserError(
            f"{snapshot.path}: holds neither {psi} nor {rho}, as output.snapshots.fields says"
        )
    if psi in snapshot:
        density = np.stack([abs(snapshot[psi][i]).astype(float) ** 2 for i in range(grid.shape[0])])
    else:
        density = np.asarray(snapshot[rho], float)
    mean = float(density.mean())
    about = _about(part, snapshot, mean * grid.volume)
    over = finder.OVERDENSITY
    a = about["scale_factor"]
    matter = (1.0, 1.0)
    if part.background is not None:
        s = part.background.settings
        matter = s.matter / a**3 / float(expansion(s, a)), s.matter
        over = finder.virial_overdensity(matter[0])
    columns = finder.cores(density, np.array(grid.box), over)
    length = (part.hbar**2 / (a * part.gravity * columns["peak_density"])) ** 0.25
    columns["soliton_radius"] = length * radial_ground_state().core
    if part.background is not None:
        unit = part.hbar / part.background.settings.hubble
        columns["expected_core_mass"] = finder.expected_core_mass(
            columns["mass"], a, matter, mean, unit
        )
    about |= {"overdensity": over, "peak_overdensity": float(density.max()) / mean}
    return HaloCatalogue(name, snapshot.step, columns, about, {}, _printed(part))
