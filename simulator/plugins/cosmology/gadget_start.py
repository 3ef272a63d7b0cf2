"""Starts from particles of another code in HDF5 files as GADGET reads and writes them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.initial.initial import Initial, StartFiles
from simulator.physics.particles import ParticleSet
from simulator.physics.particles.particle_set import id_sum
from simulator.plugins.cosmology.gadget_particles import GadgetParticles, gadget_files
from simulator.plugins.gravity.cosmology import CosmologySettings, mean_density
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.plugins.gravity.units import UNITS
from simulator.settings import InputPath, Integer, Positive, Settings
from simulator.spectral.arrays import holds

CM_PER_KPC = 3.0856775814913673e21
GRAMS = 1.98841e43  # 1e10 solar masses.


class GadgetStartSettings(Settings):
    kind: Literal["gadget"] = "gadget"
    path: InputPath
    """A file of GADGET-4 or AREPO, or the first of several. Lengths are in the units that it
    states, else in kpc/h."""
    type: Annotated[Integer, Field(ge=0, le=5)] = 1
    """PartType of the particles; 1 is dark matter."""
    ids: Literal["keep", "order"] = "keep"
    """keep: ParticleIDs less the smallest, which have to be consecutive; order: number the
    particles as they come."""
    share: Annotated[Positive, Field(le=1)] = 1.0
    """The share of these particles in the matter of the background."""

    def further_files(self) -> Mapping[str, Sequence[Path]]:
        return {"path": gadget_files(self.path)[1:] if self.path.is_file() else []}


class GadgetStart(Initial):
    """Positions, velocities, masses and ids of a file. Its box, redshift and cosmology have to be
    the run's.

    A file holds u = v / sqrt(a) of the peculiar velocity v; the run's velocities are a v = a^1.5
    u."""

    Settings = GadgetStartSettings
    usual_length = 1.0  # Unit of length of a file that states none (kpc/h).

    def place(self, matter: ParticleComponent, files: StartFiles) -> ParticleSet:
        s = self.settings
        population = matter.population
        if matter.background is None or matter.units not in UNITS:
            raise UserError(
                f"kind: {s.kind} needs model.background, and model.units: {' or '.join(UNITS)}"
            )
        opened = GadgetParticles(str(s.path), s.type, s.ids == "order")
        stored = files.foreign(opened)
        unit = UNITS[matter.units]
        header = opened.header
        h = header.get("HubbleParam", 0.0)
        if not (h or unit.per_h):
            raise UserError(f"{s.path}: its header has no HubbleParam, which units of kpc need")
        per_h = 1.0 if unit.per_h else h
        # Rounded, because the files of other codes have other digits for kpc and for the solar
        # mass.
        centimetres = header.get("UnitLength_in_cm", self.usual_length * CM_PER_KPC)
        length = float(f"{centimetres / CM_PER_KPC:.6g}") * 1e-3 / (unit.megaparsecs * per_h)
        mass = float(f"{header.get('UnitMass_in_g', GRAMS) / GRAMS:.3g}") * 1e10 / per_h
        speed = header.get("UnitVelocity_in_cm_per_s", 1e5) / 1e5
        background = matter.background.settings
        if problem := _mismatch(header, background, unit.hubble * per_h):
            raise UserError(f"{s.path}: {problem}")
        theirs = header["BoxSize"] * length
        ours = matter.transform.grid.box
        if any(not math.isclose(theirs, side, rel_tol=1e-6) for side in ours):
            cure = f"set grid.box: {[theirs] * 3}"
            for kind, times in (("music", 1e3), ("gadget", 1e-3)):
                if kind != s.kind and math.isclose(theirs * times, ours[0], rel_tol=1e-6):
                    cure = f"kind: {kind} takes other units for lengths without one"
            raise UserError(f"{s.path}: its box is {theirs:.9g} {unit.length}; {cure}")
        if stored.count != population.count:
            needed = f"set the component's count: {stored.count}"
            raise UserError(f"{s.path}: has {stored.count} particles of type {s.type}; {needed}")
        scales = {"position": length, "velocity": speed * background.start**1.5, "mass": mass}
        particles = stored.restore(matter.domain, population.records, population.capacity)
        particles, total, ids = jax.jit(lambda p: _converted(p, scales, matter))(particles)
        volume = matter.transform.grid.volume
        share = total / (volume * mean_density(background, matter.gravity))
        if not holds(abs(share / s.share - 1) < 1e-3):
            portion = f"{float(share):.6g} of the background's matter, not {s.share:g}"
            cure = "set share, if other components are the rest"
            for n in (-3, -2, -1, 1, 2, 3):
                if h and h != 1 and math.isclose(share / s.share, h**n, rel_tol=1e-3):
                    cure = f"this is h^{n}, as of masses or lengths without h"
            raise UserError(f"{s.path}: its particles of type {s.type} are {portion}; {cure}")
        if not holds((ids[0] == stored.count - 1) & (ids[1] == id_sum(stored.count))):
            raise UserError(f"{s.path}: its ParticleIDs are not consecutive; set ids: order")
        return population.homed(particles)


def _mismatch(header: Mapping[str, float], ours: CosmologySettings, hubble: float) -> str | None:
    """The key that a header contradicts, with the value that fits; None if there is none."""
    dark = 1 - ours.matter - ours.radiation - ours.curvature
    a = header.get("Time", 0.0)
    matter = header.get("Omega0", ours.matter)
    theirs = header.get("OmegaLambda", dark)
    if not math.isclose(a, ours.start, rel_tol=1e-6):
        return f"is at a = {a:.9g} (redshift {1 / max(a, 1e-9) - 1:.6g}); set model.background.start: {a:.9g}"
    if not math.isclose(matter, ours.matter, rel_tol=1e-6):
        return f"has Omega0 = {matter:.9g}; set model.background.matter: {matter:.9g}"
    if abs(dark - theirs) > 1e-3:  # files leave radiation out
        return f"has OmegaLambda = {theirs:.9g}; set model.background.curvature: {1 - matter - theirs:.6g}"
    if not math.isclose(hubble, ours.hubble, rel_tol=1e-6):
        return (
            f"has H0 = {hubble:.9g} in the run's units; set model.background.hubble: {hubble:.9g}"
        )
    return None


def _converted(
    particles: ParticleSet, scales: Mapping[str, float], matter: ParticleComponent
) -> tuple[ParticleSet, jax.Array, jax.Array]:
    """The particles in the run's units, with ids from 0; their mass; the largest and the sum of
    these ids."""
    valid = particles.valid
    records = {
        name: jnp.where(valid, array * scales[name], 0) for name, array in particles.records.items()
    }
    records["position"] = matter.domain.wrapped(records["position"])
    lowest = jnp.where(valid, particles.id, jnp.iinfo(jnp.int64).max).min()
    ids = jnp.where(valid, particles.id - lowest, 0)
    particles = replace(particles, records=records, id=jnp.where(valid, ids, particles.id))
    return particles, records["mass"].sum(), jnp.stack([ids.max(), ids.sum()])


class MusicStartSettings(GadgetStartSettings):
    kind: Literal["music"] = "music"  # pyright: ignore[reportIncompatibleVariableOverride]
    path: InputPath
    """A file of MUSIC or monofonIC with output format gadget_hdf5, or the first of several; lengths
    are in Mpc/h."""


class MusicStart(GadgetStart):
    """A start by MUSIC (Hahn & Abel, Mon. Not. R. Astron. Soc. 415, 2101 (2011)) or monofonIC."""

    Settings = MusicStartSettings
    usual_length = 1e3
