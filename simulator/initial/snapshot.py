"""Fields of an earlier run, at any resolution."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from simulator.errors import UserError
from simulator.initial.initial import Fields, Files
from simulator.settings import InputPath, Settings
from simulator.spectral import Transform


class SnapshotSettings(Settings):
    kind: Literal["snapshot"] = "snapshot"
    path: InputPath
    """A snapshot or checkpoint: RUN/snapshots/00000010."""


class Snapshot:
    """Every field that the snapshot and the model share by name; the others start at zero, and time starts at 0.

    A finer grid gets zeros for the modes that are not stored, a coarser one the modes that it keeps.
    """

    Settings = SnapshotSettings

    def __init__(self, settings: SnapshotSettings):
        self.settings = settings

    def build(self, transform: Transform, wanted: Mapping[str, tuple[int, ...]], files: Files) -> Fields:
        path = str(self.settings.path)
        stored = files.snapshot(path)
        if not np.allclose(stored.grid.box, transform.grid.box, rtol=1e-12):
            raise UserError(
                f"{path}: its box is {list(stored.grid.box)}, the run's {list(transform.grid.box)}; set grid.box"
            )
        names = [n for n, lead in wanted.items() if stored.components.get(n) == lead]
        if not names:
            raise UserError(
                f"{path}: holds {', '.join(stored.components)}; this model's fields are {', '.join(wanted)}"
            )
        return {name: stored.coefficients(name, transform) for name in names}
