"""Outputs of cosmological runs: the light cone of a distant observer, and snapshots as files of
GADGET. What they compute is imported when it is needed, because it brings JAX."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import h5py

from simulator.measure.kind import (
    Kind,
    Measured,
    SeriesCadence,
    SnapshotFile,
    StoredSnapshot,
    Subject,
)
from simulator.plugins.gravity.units import HubbleParameter
from simulator.settings import Positive, Real, Settings

if TYPE_CHECKING:
    from simulator.physics.models import Equation


class LightconeSettings(SeriesCadence):
    observer: Real = 0.0
    """The place along z that the light reaches today, at a = 1."""
    speed_of_light: Positive | None = None
    """The speed of light in the units of the run; by default that of model.units in km/s."""


class Lightcone(Kind):
    name = "lightcone"
    description = "Particles on the past light cone of a distant observer, projected along z, in lightcone.h5."
    Settings = LightconeSettings

    def measured(self, subject: Subject, settings: LightconeSettings) -> Measured:
        from simulator.plugins.cosmology.lightcone import lightcone

        first = settings.every[0] if isinstance(settings.every, tuple) else 0.0
        return lightcone(subject, settings.observer, settings.speed_of_light, first)


class GadgetSettings(Settings):
    h: HubbleParameter | None = None
    """H0 in 100 km/s/Mpc; needed in units of Mpc / h, which do not contain it."""
    precision: Literal["single", "double"] = "double"
    """Precision of positions, velocities and masses in the file."""


class GadgetFile(SnapshotFile):
    name = "gadget"
    description = "The particles of every snapshot as a GADGET-4 file, snapshots/STEP.hdf5."
    Settings = GadgetSettings

    def problem(self, configuration: Mapping[str, Any], model: "Equation") -> str | None:
        from simulator.plugins.cosmology.gadget_file import gadget_problem

        return gadget_problem(configuration, model)

    def fill(
        self, file: h5py.File, snapshot: StoredSnapshot, configuration: Mapping[str, Any]
    ) -> None:
        from simulator.plugins.cosmology.gadget_file import fill_gadget

        fill_gadget(file, snapshot, configuration)
