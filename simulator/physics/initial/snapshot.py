"""Fields of an earlier run, at any resolution."""

from typing import Any, Literal

import numpy as np

from simulator.errors import UserError
from simulator.physics.initial.initial import Initial, StartFiles
from simulator.physics.models.cosmology import CosmologySettings
from simulator.physics.models.particle_component import ParticleComponent
from simulator.physics.particles import ParticleSet
from simulator.settings import InputPath, Settings


class SnapshotStartSettings(Settings):
    kind: Literal["snapshot"] = "snapshot"
    path: InputPath
    """A snapshot or checkpoint: RUN/snapshots/00000010."""
    time: Literal["reset", "keep"] = "reset"
    """Time starts at 0, or goes on from the time of the snapshot."""


class SnapshotStart(Initial):
    """Every field that snapshot and model share by name. All other fields start at zero.

    A finer grid gets zeros for modes that are not stored, a coarser one only the modes that it keeps. Gas takes
    density and momentum or, as from its other initial conditions, density and velocity.
    """

    Settings = SnapshotStartSettings
    composite = True

    @property
    def keeps_time(self) -> bool:
        return self.settings.time == "keep"

    def start_time(self, model: Any, files: StartFiles) -> float:
        if not self.keeps_time:
            return 0.0
        time, config = files.clock(str(self.settings.path))
        ours = model.background.settings if model.background else None
        theirs = (config.get("model") or {}).get("cosmology")
        if ours != (theirs and CosmologySettings.model_validate(theirs)):
            raise UserError(f"time: keep: {self.settings.path} has another model.cosmology, and so another clock")
        return time

    def build_for(self, model: Any, files: StartFiles) -> Any:
        particles = {name: self.place(model.parts[name], files) for name in model.populations}
        if not model.fields:
            return particles
        path, transform = str(self.settings.path), model.transform
        stored = files.snapshot(path)
        theirs, ours = (grid.seen(grid.box) for grid in (stored.grid, transform.grid))
        if len(theirs) != len(ours):
            raise UserError(f"{path}: has {len(theirs)} dimensions, the run {len(ours)}; set grid.shape")
        if not np.allclose(theirs, ours, rtol=1e-12):
            raise UserError(f"{path}: its box is {list(theirs)}, the run's {list(ours)}; set grid.box")
        for wanted in (model.shapes, model.initial_shapes):
            names = [name for name, lead in wanted.items() if stored.components.get(name) == lead]
            if len(names) >= len(model.fields):
                break
        if not names:
            raise UserError(
                f"{path}: holds {', '.join(stored.components)}; this model's fields are {', '.join(model.fields)}"
            )
        transforms = {name: model.transform_of(name) for name in model.fields}
        return {n: stored.coefficients(n, transforms.get(n, transform)) for n in names} | particles

    def place(self, matter: ParticleComponent, files: StartFiles) -> ParticleSet:
        """The particles of the same name; all of their records have to be there."""
        stored = files.particles(str(self.settings.path), matter.population.name)
        population = matter.population
        if missing := [name for name in population.records if name not in stored.records]:
            raise UserError(f"{self.settings.path}: {population.name} have no {missing[0]}; not matter")
        if stored.count != population.count:
            raise UserError(
                f"{self.settings.path}: holds {stored.count} {population.name}, and the model's count is "
                f"{population.count}; they have to be equal"
            )
        return population.adopted(stored, population.records)
