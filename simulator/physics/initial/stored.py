"""A start from a snapshot of an earlier run, at any resolution."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from simulator.errors import UserError
from simulator.physics.initial.initial import Initial, ParticleMatter, StartFiles
from simulator.physics.models import Equation
from simulator.physics.models.expansion import Expansion
from simulator.physics.models.split_equation import SplitEquation, background_of
from simulator.physics.particles import ParticleSet
from simulator.settings import InputPath, Settings
from simulator.spectral import Transform
from simulator.spectral.sheared import ShearedTransform, Turn
from simulator.words import counted


class SnapshotStartSettings(Settings):
    kind: Literal["snapshot"] = "snapshot"
    path: InputPath
    """A snapshot or checkpoint: RUN/snapshots/00000010."""
    time: Literal["reset", "keep"] = "reset"
    """Time starts at 0, or goes on from the time of the snapshot."""


class SnapshotStart(Initial):
    """Every field that snapshot and model share by name. All other fields start at zero.

    A finer grid gets zeros for modes that are not stored, a coarser one only the modes that it
    keeps. Gas takes density and momentum or, as from its other initial conditions, density and
    velocity."""

    Settings = SnapshotStartSettings
    of_all = True

    @property
    def keeps_time(self) -> bool:
        return self.settings.time == "keep"

    def start_time(self, model: Equation, files: StartFiles) -> float:
        if not self.keeps_time:
            return 0.0
        time, config = files.clock(str(self.settings.path))
        background = background_of(model)
        theirs = (config.get("model") or {}).get("cosmology")
        if background and theirs:
            theirs = background.settings.model_validate(theirs)
        if theirs != (background and background.settings):
            raise UserError(
                f"time: keep: {self.settings.path} has another model.cosmology, and so another clock"
            )
        return time

    def build(self, model: Equation, files: StartFiles) -> Any:
        particles: dict[str, Any] = {}
        if isinstance(model, SplitEquation):
            particles = {n: self.place(model.parts[n], files) for n in model.populations}
        if not model.fields:
            return particles
        path = str(self.settings.path)
        transform = model.transform
        stored = files.snapshot(path)
        theirs, ours = (grid.seen(grid.box) for grid in (stored.grid, transform.grid))
        if len(theirs) != len(ours):
            has = counted(len(theirs), "dimension")
            raise UserError(f"{path}: has {has}, the run {len(ours)}; set grid.shape")
        if not np.allclose(theirs, ours, rtol=1e-12):
            raise UserError(
                f"{path}: its box is {list(theirs)}, the run's {list(ours)}; set grid.box"
            )
        check_frame(path, theirs, files.clock(path), transform)
        units = model.unit_system if isinstance(model, SplitEquation) else ""
        check_convention(path, files.clock(path), units, background_of(model))
        for wanted in (model.shapes, model.initial_shapes):
            names = [name for name, lead in wanted.items() if stored.components.get(name) == lead]
            if len(names) >= len(model.fields):
                break
        if not names:
            ours = ", ".join(model.fields)
            raise UserError(
                f"{path}: holds {', '.join(stored.components)}; this model's fields are {ours}"
            )
        transforms = {name: model.transforms[name] for name in model.fields}
        return {n: stored.coefficients(n, transforms.get(n, transform)) for n in names} | particles

    def place(self, matter: ParticleMatter, files: StartFiles) -> ParticleSet:
        """The particles of the same name; all of their records have to be there."""
        path = str(self.settings.path)
        check_convention(path, files.clock(path), matter.units, matter.background)
        stored = files.particles(path, matter.population.name)
        population = matter.population
        if missing := [name for name in population.records if name not in stored.records]:
            raise UserError(
                f"{self.settings.path}: {population.name} have no {missing[0]}; not matter"
            )
        if stored.count != population.count:
            problem = f"holds {stored.count} {population.name}, and the model's count is {population.count}"
            raise UserError(f"{self.settings.path}: {problem}; they have to be equal")
        return population.adopted(stored, population.records)


def check_frame(
    path: str, box: Sequence[float], clock: tuple[float, Mapping[str, Any]], transform: Transform
) -> None:
    """Raises UserError if the stored fields of a box are not periodic in that of the transform,
    because a background shear has carried them along. `clock`: see `StartFiles.clock`."""
    time, config = clock
    turn = Turn(float((config.get("model") or {}).get("shear") or 0), box)
    ours = (transform.tilt or 0.0) if isinstance(transform, ShearedTransform) else 0.0
    if abs(turn.tilt(time) - ours) > 1e-9:
        start = f"model.shear: {turn.rate:g} and initial.time: keep"
        times = f", or fields at multiples of {1 / abs(turn.per_time):.6g}" if turn.rate else ""
        raise UserError(
            f"{path}: its fields are not periodic in the frame of this run at its start; give {start}{times}"
        )


def check_convention(
    path: str, clock: tuple[float, Mapping[str, Any]], units: str, background: Expansion | None
) -> None:
    """Raises UserError if stored fields have other units, or if both boxes expand and the fields'
    scale factor, which is in their velocities, is not that of the start."""
    time, config = clock
    model = config.get("model") or {}
    theirs = model.get("units") or "dimensionless"
    if model and theirs != (units or "dimensionless"):
        raise UserError(f"{path}: is in model.units: {theirs}; set model.units")
    if background is None or not model.get("cosmology"):
        return
    expansion = background.settings.model_validate(model["cosmology"]).expansion()
    a = expansion.scale_factor_at(time)
    start = background.settings.start
    if not math.isclose(a, start, rel_tol=1e-6):
        cure = f"set model.background.start: {a:.9g}, or initial.time: keep with its background"
        raise UserError(f"{path}: is at a = {a:.9g}, and the run starts at {start:g}; {cure}")
